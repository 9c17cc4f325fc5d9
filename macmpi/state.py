"""State: all that a run needs to go on, and nothing else.  A checkpoint is a State written down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from macmpi.typing import Array

Pause = Callable[[], bool]
"""Asked by a sweep where a State is whole in the middle of an iteration: whether to end there.  Collective: yes."""


def never() -> bool:
    """A sweep that goes on to its end.  Collective: no."""
    return False


def block_views(flat: Array, shapes: Sequence[tuple[int, int]]) -> tuple[Array, ...]:
    """The weights W_k of each parameter block as views of one flat buffer."""
    bounds = np.cumsum([0, *(h * d for h, d in shapes)])
    return tuple(flat[a:b].reshape(s) for a, b, s in zip(bounds, bounds[1:], shapes, strict=False))


def _empty() -> Array:
    return np.empty(0)


class Errors(NamedTuple):
    """Per point, with the 1/2: nested errors on both sets; E_Q, the (augmented) Lagrangian and mean squared z - f.

    wrong_*: the share of misclassified points, for losses of labels.  watched: the validation error that the schedule
    compares, where it is not that of the weights that are shown.
    """

    train: float
    validation: float
    E_Q: float
    constraint: float
    lagrangian: float | None = None
    multiplier: float | None = None
    wrong_train: float | None = None
    wrong_validation: float | None = None
    watched: float | None = None


@dataclass
class State:
    """Weights, coordinates, penalty and history between two half steps.

    weights (flat), Z (N, H_1 + ... + H_K), in the precision of the run; multipliers lambda, of the shape of Z, or
    empty; metric: the sites' forms M_k / mu, flat, or empty, and metric_mu: the mu at which they were made; grams:
    of the layers' inputs, flat float64; mu of the next half step; mu_done: that of the iteration done last (0: none
    yet), which the postprocessing uses; e1_val: the validation error that the schedule compares with;
    reference: mean squared last move of the multipliers;
    sizes: units of each hidden layer where they are not the config's; best_*: the weights with the lowest validation
    error so far, since the sizes changed last; next_half: "z" or "w"; seconds: training time so far;
    finished: why the run ended, or "".  Of the stochastic method: average of the weights, momentum (the last step),
    statistics (Grams of the layers' inputs), inverses (of these and of the metrics), damping, length (of a step, in
    directions), level (running mean of the loss), steps so far and position in the epoch.  The baselines keep in the
    same places: sgd, adam the running step or gradient (momentum) and mean squares (statistics); cg, lbfgs the next
    direction (momentum), the gradient and E1 (statistics), the first trial step (level), pairs (inverses).  An
    accelerated alternation: average (the weights that the run shows) and momentum.  Arrays are global and the same on
    every rank, but for sharded coordinates.
    """

    weights: Array
    Z: Array
    mu: float
    iteration: int = 0
    next_half: str = "z"
    e1_val: float = float("inf")
    reference: float = float("inf")
    best_weights: Array = field(default_factory=_empty)
    best_e1_val: float = float("inf")
    best_iteration: int = 0
    seconds: float = 0.0
    finished: str = ""
    mu_done: float = 0.0
    multipliers: Array = field(default_factory=_empty)
    metric: Array = field(default_factory=_empty)
    metric_mu: float = 0.0
    grams: Array = field(default_factory=_empty)
    sizes: Array = field(default_factory=_empty)
    average: Array = field(default_factory=_empty)
    momentum: Array = field(default_factory=_empty)
    statistics: Array = field(default_factory=_empty)
    inverses: Array = field(default_factory=_empty)
    damping: float = 0.0
    length: float = 0.0
    level: float = 0.0
    steps: int = 0
    position: int = 0

    @property
    def under_way(self) -> bool:
        """An iteration has begun and not ended."""
        return self.next_half != "z" or self.position > 0

    @property
    def result(self) -> Array:
        """The weights that the run shows and keeps: the method's own ones, where it makes any beside the iterate."""
        return self.average if len(self.average) else self.weights

    @property
    def fingerprint(self) -> str:
        """SHA-256 that tells this state from every other of its run, by what all ranks hold; not by the seconds."""
        place = f"{self.iteration} {self.next_half} {self.position}"
        arrays = (np.ascontiguousarray(A).tobytes() for A in (self.weights, self.average))
        return hashlib.sha256(b"".join([place.encode(), *arrays])).hexdigest()

    def note_validation(self, e1_val: float, watched: float | None = None) -> None:
        """Keep the present weights if they are the best on validation so far.  watched: as in Errors."""
        self.e1_val = e1_val if watched is None else watched
        if e1_val < self.best_e1_val:
            self.best_e1_val, self.best_iteration = e1_val, self.iteration
            self.best_weights = self.result.copy()
