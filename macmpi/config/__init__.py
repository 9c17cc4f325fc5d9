"""The config of a run: its tables with their defaults, and how a TOML file becomes one."""

from macmpi.config.model import FITTERS, LAYERS, LOSSES, TRAINERS, Activation, Convolution, Model, Recurrent, Sparse
from macmpi.config.reading import read, validate
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
