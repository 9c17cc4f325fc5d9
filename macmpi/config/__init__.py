"""The config of a run: its tables with their defaults, and how a TOML file becomes one."""

from typing import TYPE_CHECKING, Any

from macmpi.config.model import FITTERS, LAYERS, LOSSES, TRAINERS, Activation, Convolution, Model, Recurrent, Sparse
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
    from macmpi.config.reading import read, validate


def __getattr__(name: str) -> Any:
    """Imports the functions that read a config when one of them is used first, because rank 0 alone reads configs."""
    if name not in ("read", "validate"):
        raise AttributeError(name)
    from macmpi.config import reading

    return getattr(reading, name)
