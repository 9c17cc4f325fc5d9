"""State: everything that a run needs to go on, and nothing else.  A checkpoint is a State written to a file.

The numbers that all methods need are fields of State; those that one method alone keeps between two iterations are in
its record, State.own.
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
"""Metadata of a field whose array has one row for each point."""

Z_STEP, W_STEP = 0, 1
"""The half step of MAC that comes next, as State.position says modulo 2."""

Pause = Callable[[], bool]
"""A function that a sweep calls where a State could be saved, and that says whether to stop there.  Collective: yes."""


def never() -> bool:
    """Tells a sweep that it need not stop before its end.  Collective: no."""
    return False


def block_views(flat: Array, shapes: Sequence[tuple[int, int]]) -> tuple[Array, ...]:
    """Returns the weights W_k of each parameter block, of these shapes, as views of one flat buffer (P,)."""
    return tuple(flat[a:b].reshape(shape) for a, b, shape in _places(tuple(shapes)))


@cache
def _places(shapes: tuple[tuple[int, int], ...]) -> list[tuple[int, int, tuple[int, int]]]:
    """Returns start, end and shape of each block in the flat buffer."""
    bounds = np.cumsum([0, *(h * d for h, d in shapes)]).tolist()
    return list(zip(bounds, bounds[1:], shapes, strict=False))


def nothing() -> Array:
    """Returns an empty array, for a field that holds nothing yet."""
    return np.empty(0)


class Architecture(NamedTuple):
    """The sizes of a net that a selection has chosen; () if it keeps those of the config.

    units: the number of units of each hidden layer.
    widths: the widths of the radial basis functions, in the order of the key model.width.
    ridges: the ridges, in the order of the key penalty.ridge.
    """

    units: tuple[int, ...] = ()
    widths: tuple[float, ...] = ()
    ridges: tuple[float, ...] = ()


class Gradients(NamedTuple):
    """Euclidean norms of gradients; the objectives are divided by the number of points N.

    penalised: the norm of the gradient of E_Q + ridge with respect to all weights and coordinates.
    nested: the norm of the gradient of E1 + ridge with respect to the weights.
    multipliers: ||lambda|| / N over all points, where lambda are the multipliers that belong to feasible coordinates.
    lacking: ||p - lambda|| / ||lambda||, where p_k = -mu M_k (z_k - f_k) at the present coordinates.
    """

    penalised: float
    nested: float
    multipliers: float
    lacking: float


class Errors(NamedTuple):
    """The errors of a state, per point and with the 1/2.

    train, validation: E1 (eq. 1) on the training and on the validation points.
    E_Q: the penalised objective (eq. 3); lagrangian: the augmented Lagrangian, where there are multipliers.
    constraint: the mean square of z_k - f_k(z_{k-1}).
    multiplier: the largest |lambda|, where there are multipliers.
    wrong_train, wrong_validation: the shares of misclassified points, where the loss is one of labels.
    watched: the validation error that the schedule compares, if it is not of the weights that the run shows.
    zeros: the share of weights that are exactly 0, where the config has l1 or groups.
    move: the mean square of mu M_k (z_k - f_k), where there are multipliers.
    gradients: the norms of gradients, where the schedule needs them.
    ridge: the ridge, which is contained in `train`.
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
    """The numbers of past iterations by which the schedule decides.

    e1_val: the validation error with which the next one is compared.
    reference: `move` or `lacking` when the multipliers moved last (inf: they have not moved yet).
    best_weights, best_e1_val, best_iteration: the weights with the lowest validation error since the sizes of the net
        changed last.
    best_poor: whether these have a higher training error than the best constant; weights with a lower one replace them.
    fell_to, fell_at: the validation error after its last noticeable fall, and the iteration of that.
    multipliers_norm: `Gradients.multipliers` at the start, where gradients are computed.
    errors: the validation errors of the start and of each iteration, from which the length of a refit follows.
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
        """Returns the fields of `Progress` (plan/resolved.py) that a decision after these errors compares.

        The errors must have been noted before (`State.note_validation`).
        """
        norms = errors.gradients
        slopes = {"gradient": norms.penalised, "lacking": norms.lacking} if norms else {}
        moves = {"now": self.e1_val, "move": errors.move, "reference": self.reference, "constraint": errors.constraint}
        known = {"best": self.best_iteration, "fell": self.fell_at, "multipliers": self.multipliers_norm}
        return {**moves, **known, **slopes}

    def forget(self) -> None:
        """Forgets the best weights and the error to compare with, because the sizes of the net have changed."""
        self.best_weights, self.best_e1_val, self.best_poor, self.e1_val = nothing(), float("inf"), True, float("inf")


@dataclass
class Record:
    """The numbers that one method keeps between two iterations; all but rows of points are the same on every rank."""

    @property
    def result(self) -> Array:
        """The weights that the run shows and keeps instead of the trained weights; empty if they are the same."""
        return np.empty(0)

    @property
    def architecture(self) -> Architecture:
        """The sizes of the net if they differ from the config's."""
        return Architecture()

    def free(self) -> None:
        """Frees the memory of the curvature, which only further steps would read."""
        for name in {"grams", "inverses", "spectra"} & vars(self).keys():
            setattr(self, name, nothing())


@dataclass
class MacState(Record):
    """The record of MAC.

    multipliers: lambda, of the shape of Z; empty without multipliers.
    metric: the metrics M_k of all sites, flat, without mu; empty where they are the identity.
    metric_mu: the mu at which `metric` was computed.
    grams: the Grams of the layers' inputs, flat, float64.
    sizes, widths, ridges: those of the `Architecture` that a selection has chosen.
    degrees: the effective number of weights per output, of each regression whose ridge is selected.
    sums: the sums of each minibatch in turn, the products T^T [A, 1] in the order of the weights, and then the Grams;
        empty where they are not kept.
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
        """The units, widths and ridges that a selection has chosen."""
        return Architecture(tuple(map(int, self.sizes)), tuple(map(float, self.widths)), tuple(map(float, self.ridges)))


@dataclass
class AcceleratedState(MacState):
    """The record of accelerated MAC.

    shown: the weights with the output layer fitted once more.
    move: the last move of the weights.
    """

    shown: Array = field(default_factory=nothing)
    move: Array = field(default_factory=nothing)

    @property
    def result(self) -> Array:
        """The weights with the output layer fitted once more."""
        return self.shown


@dataclass
class JointState(MacState):
    """The record of MAC whose weights and coordinates move together.

    damping: the damping of the next step, per point.
    """

    damping: float = 0.0


@dataclass
class StochasticState(Record):
    """The record of stochastic MAC.

    average: the running average of the weights; step: the last step of the weights.
    grams: the running averages of the Grams of the layers' inputs.
    inverses, spectra: the inverses of Grams and metrics; or their eigenvectors, and the eigenvalues in spectra.
    damping: the damping of the curvature.
    length: the length of a step in units of its direction; measured: the loss at which the length was measured.
    level: the running mean of the loss.
    steps: the number of steps so far.
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
    """The record of stochastic gradient descent.

    velocity: the running step; steps: the number of steps so far.
    """

    velocity: Array = field(default_factory=nothing)
    steps: int = 0


@dataclass
class AdamState(SgdState):
    """The record of Adam.

    velocity: the running mean of the gradient; mean_squares: the running mean of its squares.
    """

    mean_squares: Array = field(default_factory=nothing)


@dataclass
class LineSearchState(Record):
    """The record of full-batch descent.

    direction (P,): the direction of the next step.
    gradient (P + 1,): the gradient of E1 per point, followed by E1 itself.
    first: the step length that the next line search tries first.
    pairs: for L-BFGS, the last m steps and the changes of the gradient, the latest first; (2, m, P), kept flat.
    """

    direction: Array = field(default_factory=nothing)
    gradient: Array = field(default_factory=nothing)
    first: float = 0.0
    pairs: Array = field(default_factory=nothing)


KINDS = (MacState, AcceleratedState, JointState, StochasticState, SgdState, AdamState, LineSearchState)
"""The classes of records; a checkpoint names the one that it holds."""


RecordT = TypeVar("RecordT", bound=Record)
HeldT = TypeVar("HeldT", bound=Record, covariant=True)


@dataclass
class State(Generic[HeldT]):
    """Everything that a run needs to go on, between two steps of a method.

    weights (P,), Z (N, H_1 + ... + H_K): in the precision of the run.
    mu: the penalty weight of the next half step.
    mu_done: the mu of the last iteration that is complete, for the postprocessing (0: there is none yet).
    own: the record of the method.
    iteration: the number of iterations that are complete.
    position: the half step or the minibatch that comes next in the iteration under way.
    seconds: the training time so far.
    finished: why the run has ended; "" if it has not.
    history: what the schedule remembers.
    Arrays are the same on every rank, except that a rank may hold only its own points' rows.
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
        """The weights that the run shows and keeps: the method's own result, or else the trained weights."""
        own = self.own.result
        return own if len(own) else self.weights

    @property
    def fingerprint(self) -> str:
        """SHA-256 of iteration, position, weights and `own.result`: it tells states of a run apart on any rank."""
        place = f"{self.iteration} {self.position}"
        arrays = (np.ascontiguousarray(A).tobytes() for A in (self.weights, self.own.result))
        return hashlib.sha256(b"".join([place.encode(), *arrays])).hexdigest()

    def owned_by(self, own: RecordT) -> State[RecordT]:
        """Returns a State of the same weights, coordinates and history with the record of another method."""
        return replace(self, own=own)  # type: ignore[arg-type, return-value]

    def completed(self) -> None:
        """Counts one more complete iteration, done at the present mu."""
        self.iteration, self.position, self.mu_done = self.iteration + 1, 0, self.mu

    def note_validation(
        self, e1_val: float, watched: float | None = None, poor: bool = False, noticeable: float = 0.0
    ) -> None:
        """Notes a validation error, and keeps the present weights if they are the best so far.

        watched: as in `Errors`; poor: whether the training error is above that of the best constant.
        noticeable: a fall by more than this share of the error counts as noticeable.
        For noticeable falls, the error of the start counts as no better than that of the first iteration: a start by a
        closed form may be better than the first steps, which later go below it.
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
