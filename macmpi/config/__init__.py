"""The config of a run: its tables with their defaults, and how a TOML file becomes one."""

from macmpi.config.data import Data
from macmpi.config.loss import Loss
from macmpi.config.model import FITTERS, LAYERS, LOSSES, TRAINERS, Activation, Convolution, Model, Site
from macmpi.config.reading import (
    RUN_TIME_KEYS,
    Config,
    dump,
    flat,
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
