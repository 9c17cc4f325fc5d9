"""State: all that a run needs to go on, and nothing else.  A checkpoint is a State written down.

What all methods share are fields of State; what one method keeps between two iterations is a record of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from macmpi.typing import Array

BY_POINT = {"by_point": True}
"""Metadata of a field that holds an array with a row a point."""

Z_STEP, W_STEP = 0, 1
"""Positions in an iteration of MAC: which half step comes next."""

Pause = Callable[[], bool]
"""Asked by a sweep where a State is whole in the middle of an iteration: whether to end there.  Collective: yes."""


def never() -> bool:
    """Lets a sweep go on to its end, whenever it asks.  Collective: no."""
    return False


def block_views(flat: Array, shapes: Sequence[tuple[int, int]]) -> tuple[Array, ...]:
    """The weights W_k of each parameter block as views of one flat buffer."""
    return tuple(flat[a:b].reshape(shape) for a, b, shape in _places(tuple(shapes)))


@cache
def _places(shapes: tuple[tuple[int, int], ...]) -> list[tuple[int, int, tuple[int, int]]]:
    """Start, end and shape of each block in a flat buffer."""
    bounds = np.cumsum([0, *(h * d for h, d in shapes)]).tolist()
    return list(zip(bounds, bounds[1:], shapes, strict=False))


def nothing() -> Array:
    """An array that a record does not hold yet."""
    return np.empty(0)


class Architecture(NamedTuple):
    """Units of each hidden layer, widths and ridges where a selection has left others than the config's, else ()."""

    units: tuple[int, ...] = ()
    widths: tuple[float, ...] = ()
    ridges: tuple[float, ...] = ()


class Gradients(NamedTuple):
    """Euclidean norms, of objectives per point.

    penalised: of the gradient of E_Q + ridge by all of W and Z; nested: of that of E1 + ridge by W; multipliers: of
    (lambda_1, ..., lambda_K) of all points / N, at feasible coordinates; lacking: ||p - lambda|| / ||lambda||, where
    p_k = -mu M_k (z_k - f_k) at the present ones.
    """

    penalised: float
    nested: float
    multipliers: float
    lacking: float


class Errors(NamedTuple):
    """Per point, with the 1/2: nested errors on both sets; E_Q, the (augmented) Lagrangian and mean squared z - f.

    wrong_*: the share of misclassified points, for losses of labels.  watched: the validation error that the schedule
    compares, where it is not that of the weights that are shown.  zeros: the share of weights that are exactly 0, where
    l1 or groups ask for them.  move: mean squared mu M_k (z_k - f_k), where there are multipliers.  gradients: where
    they are asked for.  ridge: what of `train` is the ridge.
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
    zeros: float | None = None
    move: float = 0.0
    gradients: Gradients | None = None
    ridge: float = 0.0


@dataclass
class History:
    """The schedule's memory: e1_val, the validation error that it compares with; errors, those of the start and of each
    iteration, from which the length of a refit is read.

    reference: mean squared last move of the multipliers, or what they lacked then (inf: none yet); best_*: the weights
    with the lowest validation error since the sizes changed last, of those whose training error is not poor, above that
    of the best constant; best_poor: there are only poor ones so far.  fell_*: the validation error after its last
    noticeable fall, and when that was.  multipliers_norm: ||lambda|| per point at the start, where gradients are
    computed.
    """

    e1_val: float = float("inf")
    reference: float = float("inf")
    best_weights: Array = field(default_factory=nothing)
    best_e1_val: float = float("inf")
    best_iteration: int = 0
    fell_to: float = float("inf")
    fell_at: int = 0
    best_poor: bool = True
    multipliers_norm: float = 0.0
    errors: Array = field(default_factory=nothing)

    def progress(self, errors: Errors) -> dict[str, Any]:
        """A decision after these errors compares this (`Progress` in plan/resolved.py), once they are noted."""
        found = errors.gradients
        norms = {"gradient": found.penalised, "lacking": found.lacking} if found else {}
        slopes = {**norms, "multipliers": self.multipliers_norm}
        moves = {"now": self.e1_val, "move": errors.move, "reference": self.reference, "constraint": errors.constraint}
        return {**moves, "best": self.best_iteration, "fell": self.fell_at, **slopes}

    def forget(self) -> None:
        """Forgets the best weights and the error to compare with: those that there were are of another net."""
        self.best_weights, self.best_e1_val, self.best_poor, self.e1_val = nothing(), float("inf"), True, float("inf")


@dataclass
class Record:
    """The numbers that one method keeps between two iterations; global arrays are the same on every rank."""

    @property
    def result(self) -> Array:
        """The weights that the run shows and keeps instead of the iterate; empty where it is the iterate itself."""
        return np.empty(0)

    @property
    def architecture(self) -> Architecture:
        """The net where it is not the config's."""
        return Architecture()


@dataclass
class MacState(Record):
    """MAC: multipliers lambda, of the shape of Z, or empty; metric: the sites' forms M_k / mu, flat, or empty.

    metric_mu: the mu at which the metric was made; grams: of the layers' inputs, flat float64.  As a selection has left
    them: sizes, units of each hidden layer; widths, of model.width; ridges, of penalty.ridge; degrees, the effective
    numbers of weights of an output of each regression whose ridge is selected.  sums: of each minibatch one after the
    other, T^T [A, 1] where weights lie and behind them Grams, if they are kept.
    """

    multipliers: Array = field(default_factory=nothing, metadata=BY_POINT)
    metric: Array = field(default_factory=nothing)
    metric_mu: float = 0.0
    grams: Array = field(default_factory=nothing)
    sizes: Array = field(default_factory=nothing)
    widths: Array = field(default_factory=nothing)
    ridges: Array = field(default_factory=nothing)
    degrees: Array = field(default_factory=nothing)
    sums: Array = field(default_factory=nothing)

    @property
    def architecture(self) -> Architecture:
        """Units, widths and ridges, as a selection has left them."""
        return Architecture(
            tuple(int(n) for n in self.sizes), tuple(map(float, self.widths)), tuple(map(float, self.ridges))
        )


@dataclass
class AcceleratedState(MacState):
    """MAC from feasible coordinates: shown, the iterate with its output layer fitted; move, the iterate's last one."""

    shown: Array = field(default_factory=nothing)
    move: Array = field(default_factory=nothing)

    @property
    def result(self) -> Array:
        """The iterate with its output layer fitted."""
        return self.shown


@dataclass
class JointState(MacState):
    """MAC whose weights and coordinates move together: damping of the next step, per point."""

    damping: float = 0.0


@dataclass
class StochasticState(Record):
    """Stochastic MAC: running averages of the weights and of the layers' Grams, the last step, steps so far.

    inverses: of Grams and metrics, or their eigenvectors and, in spectra, eigenvalues; length: of a step, in
    directions; measured: the loss where it was measured; level: running mean of the loss.
    """

    average: Array = field(default_factory=nothing)
    step: Array = field(default_factory=nothing)
    grams: Array = field(default_factory=nothing)
    inverses: Array = field(default_factory=nothing)
    spectra: Array = field(default_factory=nothing)
    damping: float = 0.0
    length: float = 0.0
    measured: float = 0.0
    level: float = 0.0
    steps: int = 0

    @property
    def result(self) -> Array:
        """The averaged weights."""
        return self.average


@dataclass
class SgdState(Record):
    """Stochastic gradient descent: the running step, and how many there were."""

    velocity: Array = field(default_factory=nothing)
    steps: int = 0


@dataclass
class AdamState(SgdState):
    """Adam: velocity, the running mean of the gradient, and mean_squares, that of its squares."""

    mean_squares: Array = field(default_factory=nothing)


@dataclass
class LineSearchState(Record):
    """Full-batch descent: the next direction; the gradient of E1 per point, and E1 behind it (P + 1,).

    first: the first step that the next line search tries; pairs: of L-BFGS, steps and changes of the gradient
    (2, m, P), flat, the last first.
    """

    direction: Array = field(default_factory=nothing)
    gradient: Array = field(default_factory=nothing)
    first: float = 0.0
    pairs: Array = field(default_factory=nothing)


KINDS = (MacState, AcceleratedState, JointState, StochasticState, SgdState, AdamState, LineSearchState)
"""The records of the methods; a checkpoint names the one that it holds."""


RecordT = TypeVar("RecordT", bound=Record)
HeldT = TypeVar("HeldT", bound=Record, covariant=True)


@dataclass
class State(Generic[HeldT]):
    """Weights, coordinates, penalty and history between two steps of a method, and the method's own record.

    weights (flat), Z (N, H_1 + ... + H_K), in the precision of the run; mu of the next half step; position: the half
    step or the minibatch that comes next in the iteration under way; mu_done: mu of the iteration done last (0: none
    yet), which the postprocessing uses; seconds: training time so far; finished: why the run ended, or "".  Arrays are
    global and the same on every rank, but for rows of points, of which a rank may hold its own alone.
    """

    weights: Array
    Z: Array = field(metadata=BY_POINT)
    mu: float
    own: HeldT
    iteration: int = 0
    position: int = 0
    mu_done: float = 0.0
    seconds: float = 0.0
    finished: str = ""
    history: History = field(default_factory=History)

    @property
    def under_way(self) -> bool:
        """An iteration has begun and not ended."""
        return self.position > 0

    @property
    def result(self) -> Array:
        """The weights that the run shows and keeps: the method's own, or else the iterate."""
        own = self.own.result
        return own if len(own) else self.weights

    @property
    def fingerprint(self) -> str:
        """SHA-256 that tells this state from every other of its run, by what all ranks hold; not by the seconds."""
        place = f"{self.iteration} {self.position}"
        arrays = (np.ascontiguousarray(A).tobytes() for A in (self.weights, self.own.result))
        return hashlib.sha256(b"".join([place.encode(), *arrays])).hexdigest()

    def owned_by(self, own: RecordT) -> State[RecordT]:
        """The weights, coordinates and history as they are, for the method of another record."""
        return replace(self, own=own)  # type: ignore[arg-type, return-value]

    def completed(self) -> None:
        """Counts one more iteration, done at the present mu."""
        self.iteration, self.position, self.mu_done = self.iteration + 1, 0, self.mu

    def note_validation(
        self, e1_val: float, watched: float | None = None, poor: bool = False, noticeable: float = 0.0
    ) -> None:
        """Keeps the present weights if they are the best so far.  watched: as in Errors; poor: as in History.

        noticeable: the validation error must be lower by more than this share to have noticeably fallen.  The start
        counts as no better than the first iteration: it may be, by a closed form, and the steps pass it later.
        """
        history = self.history
        history.e1_val = e1_val if watched is None else watched
        history.errors = np.append(history.errors, e1_val)
        if (poor, e1_val) < (history.best_poor, history.best_e1_val):
            history.best_e1_val, history.best_iteration, history.best_poor = e1_val, self.iteration, poor
            history.best_weights = self.result.copy()
        if e1_val < (1.0 - noticeable) * history.fell_to:
            history.fell_to, history.fell_at = e1_val, self.iteration
        elif self.iteration == 1:
            history.fell_to = max(e1_val, history.fell_to)
