"""The config of a run: its tables with their defaults, and how a TOML file becomes one."""

from typing import TYPE_CHECKING, Any

from macmpi.config.data import Data
from macmpi.config.layer_tables import Convolution, Recurrent
from macmpi.config.loss import Loss
from macmpi.config.model import FITTERS, LAYERS, LOSSES, TRAINERS, Activation, Model, Site
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
from macmpi.config.whole import Config
from macmpi.config.writing import dump, flat

if TYPE_CHECKING:
    from macmpi.config.reading import from_settings, known_keys, read, read_table, validate

__all__ = [
    "FITTERS",
    "LAYERS",
    "LOSSES",
    "NESTED",
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


def __getattr__(name: str) -> Any:
    """Functions that read a config are imported when one of them is asked for: rank 0 alone reads."""
    if name not in __all__:
        raise AttributeError(name)
    from macmpi.config import reading

    return getattr(reading, name)
