"""The config of a run: its tables with their defaults, and how a TOML file becomes one."""

from typing import TYPE_CHECKING, Any

from macmpi.config.layer_tables import Convolution, Recurrent, Sparse
from macmpi.config.model import FITTERS, LAYERS, LOSSES, TRAINERS, Activation, Model, Site
from macmpi.config.tables import (
    NESTED,
    Baseline,
    Data,
    Loss,
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
from macmpi.config.whole import Config, dump, flat

if TYPE_CHECKING:
    from macmpi.config.reading import from_settings, known_keys, lengthen, read, read_table, validate

READING = ("from_settings", "known_keys", "lengthen", "read", "read_table", "validate")
"""Functions that read a config are imported when one of them is asked for: rank 0 alone reads."""


def __getattr__(name: str) -> Any:
    if name not in READING:
        raise AttributeError(name)
    from macmpi.config import reading

    return getattr(reading, name)
