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
    """The sizes of a net that a selection has chosen; () where it leaves those of the config.

    units: of each hidden layer.
    widths: as model.width has them.
    ridges: as penalty.ridge has them.
    """

    units: tuple[int, ...] = ()
    widths: tuple[float, ...] = ()
    ridges: tuple[float, ...] = ()


class Gradients(NamedTuple):
    """Euclidean norms of gradients, of objectives per point.

    penalised: of E_Q + ridge by all of W and Z.
    nested: of E1 + ridge by W.
    multipliers: of (lambda_1, ..., lambda_K) of all points / N, at feasible coordinates.
    lacking: ||p - lambda|| / ||lambda||, where p_k = -mu M_k (z_k - f_k) at the present coordinates.
    """

    penalised: float
    nested: float
    multipliers: float
    lacking: float


class Errors(NamedTuple):
    """The errors of a state, per point and with the 1/2.

    train, validation: E1 (eq. 1) on either set.
    E_Q: the penalised objective (eq. 3); lagrangian: the augmented Lagrangian, where there are multipliers.
    constraint: mean squared z_k - f_k(z_{k-1}).
    multiplier: the largest |lambda|, where there are multipliers.
    wrong_train, wrong_validation: shares of misclassified points, of losses of labels.
    watched: the validation error that the schedule compares, where that is not the one of the weights that are shown.
    zeros: the share of weights that are exactly 0, where l1 or groups ask for zeros.
    move: mean squared mu M_k (z_k - f_k), where there are multipliers.
    gradients: where they are asked for.
    ridge: the part of `train` that is the ridge.
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
    """The schedule remembers this of a run.

    e1_val: the validation error that the next one is compared with.
    reference: mean squared last move of the multipliers, or what they lacked then (inf: none yet).
    best_weights, best_e1_val, best_iteration: the weights with the lowest validation error since the sizes changed
        last; those whose training error is above that of the best constant count only if all are so: best_poor.
    fell_to, fell_at: the validation error after its last noticeable fall, and the iteration.
    multipliers_norm: ||lambda|| per point at the start, where gradients are computed.
    errors: the validation errors of the start and of each iteration, which give the length of a refit.
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
        norms = errors.gradients
        slopes = {"gradient": norms.penalised, "lacking": norms.lacking} if norms else {}
        moves = {"now": self.e1_val, "move": errors.move, "reference": self.reference, "constraint": errors.constraint}
        known = {"best": self.best_iteration, "fell": self.fell_at, "multipliers": self.multipliers_norm}
        return {**moves, **known, **slopes}

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
    """The record of MAC.

    multipliers: lambda, of the shape of Z; empty without multipliers.
    metric: M_k / mu of all sites, flat; empty where it is the identity; metric_mu: the mu that it was made at.
    grams: of the layers' inputs, flat, float64.
    sizes, widths, ridges: those of an `Architecture`, as a selection has left them.
    degrees: the effective number of weights of an output, of each regression whose ridge is selected.
    sums: of each minibatch one after the other, T^T [A, 1] where weights lie and behind them Grams, if they are kept.
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
        return Architecture(tuple(map(int, self.sizes)), tuple(map(float, self.widths)), tuple(map(float, self.ridges)))


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
    """The record of stochastic MAC.

    average: of the weights, running; step: the last one.
    grams: of the layers' inputs, running.
    inverses: of Grams and metrics, or their eigenvectors, whose eigenvalues are in spectra.
    damping: of the curvature.
    length: of a step, in directions; measured: the loss at which it was measured.
    level: the running mean of the loss.
    steps: their number so far.
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
    """The record of full-batch descent.

    direction: the next one.
    gradient (P + 1,): of E1 per point, and behind it E1.
    first: the first step that the next line search tries.
    pairs (2, m, P): of L-BFGS, the last steps and changes of the gradient, flat, the last first.
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
    """All that a run needs to go on, between two steps of a method.

    weights (P,), Z (N, H_1 + ... + H_K): in the precision of the run.
    mu: of the next half step; mu_done: of the iteration done last, for the postprocessing (0: none yet).
    own: the record of the method.
    iteration: the number of those done; position: the half step, or the minibatch, that comes next in the one under
        way.
    seconds: training time so far.
    finished: why the run has ended; "": it has not.
    Arrays are the same on every rank, but for rows of points, of which a rank may hold its own alone.
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
        """Tells whether an iteration has begun and not ended."""
        return self.position > 0

    @property
    def result(self) -> Array:
        """The weights that the run shows and keeps: the method's own, or else the iterate."""
        own = self.own.result
        return own if len(own) else self.weights

    @property
    def fingerprint(self) -> str:
        """SHA-256 of place and weights, by which this state is told from all others of its run; equal on all ranks."""
        place = f"{self.iteration} {self.position}"
        arrays = (np.ascontiguousarray(A).tobytes() for A in (self.weights, self.own.result))
        return hashlib.sha256(b"".join([place.encode(), *arrays])).hexdigest()

    def owned_by(self, own: RecordT) -> State[RecordT]:
        """Gives a State of the same weights, coordinates and history with another method's record."""
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
