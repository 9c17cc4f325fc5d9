"""The config of a run: its tables with their defaults, and how a TOML file becomes one."""

from macmpi.config.data import Data
from macmpi.config.layer_tables import Convolution, Recurrent
from macmpi.config.loss import Loss
from macmpi.config.model import FITTERS, LAYERS, LOSSES, TRAINERS, Activation, Model, Site
from macmpi.config.reading import (
    RUN_TIME_KEYS,
    Config,
    from_settings,
    known_keys,
    read,
    read_table,
    validate,
)
from macmpi.config.sparse import Sparse
from macmpi.config.tables import (
    NESTED,
    Baseline,
    Method,
    Parallel,
    Penalty,
    Run,
    Selection,
    Start,
    Stochastic,
    WStep,
    ZStep,
)
from macmpi.config.writing import dump, flat

__all__ = [
    "FITTERS",
    "LAYERS",
    "LOSSES",
    "NESTED",
    "RUN_TIME_KEYS",
    "TRAINERS",
    "Activation",
    "Baseline",
    "Config",
    "Convolution",
    "Data",
    "Loss",
    "Method",
    "Model",
    "Parallel",
    "Penalty",
    "Recurrent",
    "Run",
    "Selection",
    "Site",
    "Sparse",
    "Start",
    "Stochastic",
    "WStep",
    "ZStep",
    "dump",
    "flat",
    "from_settings",
    "known_keys",
    "read",
    "read_table",
    "validate",
]
