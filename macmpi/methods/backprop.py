"""Baselines train the nested problem by backpropagation, with gradients of minibatches or of all points.

An iteration of stochastic gradient descent (section 4.2) and of Adam (Kingma and Ba, 2015) is an epoch.  An iteration
of nonlinear conjugate gradients (section 4.2) and of L-BFGS is a line search.  It takes the minimum of cubics through
values and slopes, and ends where the strong Wolfe conditions hold, f(t) <= f(0) + ARMIJO t f'(0) and |f'(t)| <= bend
|f'(0)|; Rasmussen's minimize.m, which the paper compares with, is of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.method import COORDINATES, FLAT, MethodText, TrainingMethod
from macmpi.nets.design import at
from macmpi.nets.losses import weighted
from macmpi.parallel import tiles
from macmpi.parallel.shared_work import TreeSum
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.plan.plan import SHARED, Plan
from macmpi.solvers.descent import ARMIJO, PAIRS, inverse_times, pair
from macmpi.state import AdamState, LineSearchState, MacState, Pause, RecordT, SgdState, State, block_views, never
from macmpi.typing import Array

BETA2, EPSILON = 0.999, 1e-8
"""Adam's decay of the mean squares of the gradient, and the number that it adds to their roots."""

STRETCH = 50
"""A run may be interrupted after every STRETCH minibatches of an epoch."""

TRIALS = 20
"""A line search makes at most this number of trials."""

LONGER = 10.0
"""The first trial of conjugate gradients is at most this many times as long as the last step."""

RESTART = 100
"""Iterations of conjugate gradients between two restarts along the gradient."""

GROW, WITHIN = (1.1, 10.0), 0.1
"""Trials extrapolate by GROW times the last step, and keep the share WITHIN of a bracket from its ends."""

Kind = TypeVar("Kind", bound=SgdState)


class Backprop(TrainingMethod[RecordT]):
    """Is the base of the baselines: it sums E1 and its gradient over points.  Collective: methods that say so.

    called: the method's name in messages.
    reads: the keys of [baseline] that the method reads.
    """

    called: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        super().__init__(plan, data, team)
        self.keys, self.size = plan.resolved.baseline, plan.offsets.weights[-1]

    @property
    def text(self) -> MethodText:
        """Names the method and its keys; columns of coordinates are not shown.  Collective: no."""
        given = ", ".join(f"{name} {vars(self.keys)[name]:g}" for name in self.reads)
        remedy = "a smaller baseline.rate" if "rate" in self.reads else "a smaller start.range"
        stepped = f"a step ({remedy} may help)" if "rate" in self.reads else "a step"
        how = f"{self.called}: {given}" if given else self.called
        return MethodText(how, "at the end", FLAT, COORDINATES | {"seconds_z"}, stepped, remedy)

    def add_gradient(self, weights: Array, rows: slice | Array, out: Array, of: Dataset | None = None) -> None:
        """Adds the weighted sums of dE1/dW and of the losses over some points to `out`.

        weights: (P,).
        rows: the points, as rows of the data set `of`; None stands for this rank's data set.
        out: (P + 1,); the gradient is added to the first P numbers, the losses to the last.
        Cost: three passes through the net.  Collective: no.
        """
        plan, shapes, data = self.plan, self.plan.chain.block_shapes, of or self.data
        tape = plan.chain.whole.tape(block_views(weights, shapes), data.X[rows])
        losses, residual = weighted(plan.resolved.loss, at(data.weights, rows)).with_residual(data.Y[rows], tape.F)
        for total, part in zip(block_views(out[:-1], shapes), tape.weight_vjp(-residual), strict=True):
            total += part
        out[-1] += losses.sum(dtype=float)


class Minibatches(Backprop[Kind]):
    """Takes a step for each minibatch, by its mean gradient g.

    If points have weights, g is sum w_n g_n over the minibatch's points, divided by their number and by the mean weight
    of all points, so its expectation is the gradient of E1.  Collective: methods that say so."""

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        super().__init__(plan, data, team)
        self.batch = min(self.keys.batch, plan.n_train)
        self.sum = TreeSum(min(SHARED, self.batch), team)

    def sweep(self, state: State[Kind], pause: Pause = never) -> bool:
        """Does an epoch over the points in a new order, beginning with minibatch `state.position`.

        Points after the last whole minibatch are left out.  Collective: yes.
        """
        order = stream(self.plan.seed, "epoch", state.iteration).permutation(self.plan.n_train)
        steps = len(order) // self.batch
        while state.position < steps:
            first = state.position * self.batch
            with self.team.clock("w"):
                self.step(order[first : first + self.batch], state)
            state.position += 1
            if state.position % STRETCH == 0 and state.position < steps and pause():
                return False
        state.completed()
        return True

    def step(self, numbers: Array, state: State[Kind]) -> None:
        """Takes a step for one minibatch: ranks compute its parts, and an Allgatherv sums them.  Collective: yes.

        numbers (batch,): the indices of its points.
        """
        parts, (data, rows) = tiles.cut(len(numbers), self.sum.leaves), self.parts.minibatch(numbers)

        def add(i: int, out: Array) -> None:
            self.add_gradient(state.weights, rows[parts[i].rows], out, data)

        gradient = self.sum(add, self.size + 1, self.plan.dtype)[:-1]
        gradient /= len(rows) * (self.parts.points.total_weight / self.plan.n_train)
        state.own.steps += 1
        self.move(gradient, state)

    def move(self, gradient: Array, state: State[Kind]) -> None:
        """Takes the step for a mean gradient (P,), over which it may write.  Collective: no."""
        raise NotImplementedError


class Sgd(Minibatches[SgdState]):
    """Trains by w <- w - rate v, v <- momentum v + g.  Collective: as Minibatches."""

    called, reads = "SGD", ("batch", "rate", "momentum")

    def new_record(self, state: State[MacState]) -> SgdState:
        """Makes a record whose velocity is 0.  Collective: no."""
        return SgdState(np.zeros_like(state.weights))

    def move(self, gradient: Array, state: State[SgdState]) -> None:
        """Does v <- momentum v + g, w <- w - rate v; writes over the gradient.  Collective: no."""
        state.own.velocity *= self.keys.momentum
        state.own.velocity += gradient
        state.weights -= np.multiply(state.own.velocity, self.keys.rate, out=gradient)


class Adam(Minibatches[AdamState]):
    """Trains by w <- w - rate m / (sqrt(v) + EPSILON), m and v the corrected means of g and g^2.

    Collective: as Minibatches.
    """

    called = "Adam"

    def new_record(self, state: State[MacState]) -> AdamState:
        """Makes a record whose means of g and of g^2 are 0.  Collective: no."""
        return AdamState(np.zeros_like(state.weights), mean_squares=np.zeros_like(state.weights))

    def move(self, gradient: Array, state: State[AdamState]) -> None:
        """Takes Adam's step; writes over the gradient.  Collective: no."""
        beta1, beta2, t = self.keys.momentum, BETA2, state.own.steps
        state.own.velocity *= beta1
        state.own.velocity += (1.0 - beta1) * gradient
        gradient *= gradient
        gradient *= 1.0 - beta2
        state.own.mean_squares *= beta2
        state.own.mean_squares += gradient
        below = np.sqrt(state.own.mean_squares, out=gradient)
        below *= 1.0 / np.sqrt(1.0 - power(beta2, t))
        below += EPSILON
        np.divide(state.own.velocity, below, out=below)
        below *= self.keys.rate / (1.0 - power(beta1, t))
        state.weights -= below


def power(base: float, exponent: int) -> float:
    """Computes base^exponent by products, which every machine rounds alike.  Collective: no.

    The `pow` of C libraries differs in the last bit, but every rank computes all weights by itself.
    """
    found = 1.0
    while exponent:
        found *= base if exponent % 2 else 1.0
        base, exponent = base * base, exponent // 2
    return found


class Descent(Backprop[LineSearchState]):
    """Trains by w <- w + t d, with t from a line search, so that E1 never rises.  Collective: methods that say so.

    Its record is in float64.  Every rank takes the same steps: products of whole vectors, which processors may round
    differently, come from rank 0.
    """

    bend: ClassVar[float]
    """A line search ends where the slope is at most this share of the slope at its start."""

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        super().__init__(plan, data, team)
        self.sum = TreeSum(len(plan.work.train.blocks), team)

    def new_record(self, state: State[MacState]) -> LineSearchState:
        """Makes an empty record; `begin` fills it.  Collective: no."""
        return LineSearchState()

    def begin(self, state: State[LineSearchState]) -> None:
        """Computes the gradient at the start, if the record has none, and sets the direction to minus the gradient.

        Collective: yes.
        """
        if not len(state.own.gradient):
            state.own.gradient = self.error(state.weights)
            self.restart(state)

    def error(self, weights: Array) -> Array:
        """Computes the gradient of E1 per point, followed by E1 itself: (P + 1,), float64.  Collective: yes.

        Cost: three passes through the net.
        """

        blocks = dict(self.plan.work.train.blocks_of(self.team.rank))

        def add(block: int, out: Array) -> None:
            for tile in blocks[block]:
                self.add_gradient(weights, tile.rows, out)

        with self.team.clock("w"):
            return self.sum(add, self.size + 1) / self.parts.points.total_weight

    def sweep(self, state: State[LineSearchState], pause: Pause = never) -> bool:
        """Does one line search and, if it finds no lower E1, another one along minus the gradient.  Collective: yes."""
        if not self.descend(state):
            self.restart(state)
            self.descend(state)
        state.completed()
        return True

    def descend(self, state: State[LineSearchState]) -> bool:
        """Moves the state along its direction by a line search, and sets the next direction.

        Returns False, and moves nothing, if E1 does not fall along the direction.  Collective: yes.
        """
        before, direction = state.own.gradient, state.own.direction
        slope = self.product(direction, before[:-1])
        if not slope < 0.0:
            return False

        def moved(t: float) -> Array:
            return (state.weights + t * direction).astype(self.plan.dtype, copy=False)

        def tried(t: float) -> Trial:
            found = self.error(moved(t))
            return Trial(t, float(found[-1]), self.product(direction, found[:-1]), found)

        best = search(tried, Trial(0.0, float(before[-1]), slope, before), state.own.first, self.bend, TRIALS)
        if not best.t:
            return False
        state.weights[:], state.own.gradient = moved(best.t), best.gradient
        self.turn(best.t, slope, before[:-1], state)
        return True

    def product(self, a: Array, b: Array) -> float:
        """Returns a . b as rank 0 computes it, since processors round it differently.  Collective: yes."""
        return self.team.from_root(lambda: float(a @ b))

    def restart(self, state: State[LineSearchState]) -> None:
        """Sets the direction to minus the gradient and forgets former steps.  Collective: yes."""
        gradient = state.own.gradient[:-1]
        state.own.direction, state.own.first = -gradient, 1.0 / (1.0 + self.product(gradient, gradient))
        state.own.pairs = np.empty(0)

    def turn(self, t: float, slope: float, before: Array, state: State[LineSearchState]) -> None:
        """Sets the next direction, after a step t d along the last direction d.

        slope: the derivative of E1 along d at the start of the step.
        before: the gradient (P,) there.  Collective: yes.
        """
        raise NotImplementedError


class ConjugateGradients(Descent):
    """Sets d <- -g + max(0, g . (g - g_old) / g_old . g_old) d, and d <- -g every RESTART iterations.

    Collective: as Descent.
    """

    called = "conjugate gradients"
    bend = 0.3

    def turn(self, t: float, slope: float, before: Array, state: State[LineSearchState]) -> None:
        """Sets the next direction by Polak-Ribiere, PR+.

        The first trial of the next line search predicts the same change t d . g as this step did at its start, but its
        t is at most LONGER times the last t.  Collective: yes.
        """
        gradient = state.own.gradient[:-1]
        beta = max(0.0, self.product(gradient, gradient - before) / self.product(before, before))
        if (state.iteration + 1) % RESTART == 0:
            beta = 0.0
        state.own.direction = beta * state.own.direction - gradient
        state.own.first = t * min(LONGER, slope / min(self.product(state.own.direction, gradient), -1e-300))


class Lbfgs(Descent):
    """Sets d = -H g, with H from the last PAIRS steps and changes of the gradient.  Collective: as Descent."""

    called = "L-BFGS"
    bend = 0.9

    def turn(self, t: float, slope: float, before: Array, state: State[LineSearchState]) -> None:
        """Sets the next direction to -H g, by `descent.inverse_times`.  Collective: yes."""
        gradient, kept = state.own.gradient[:-1], state.own.pairs.reshape(2, -1, self.size)
        new = np.stack([t * state.own.direction, gradient - before])[:, None]
        if self.team.from_root(lambda: bool(pair(*new)[2] > 0.0)):
            kept = np.concatenate([new, kept[:, : PAIRS - 1]], axis=1)
            state.own.pairs = kept.ravel()
        pairs = [pair(*kept[:, i : i + 1]) for i in reversed(range(kept.shape[1]))]
        state.own.direction, state.own.first = -inverse_times(pairs, gradient[None])[0], 1.0
        self.team.share_array(state.own.direction)


class Trial(NamedTuple):
    """Holds a step t, the value and slope there, and as `gradient` (P + 1,) what `Descent.error` returned."""

    t: float
    value: float
    slope: float
    gradient: Array


def search(tried: Callable[[float], Trial], start: Trial, first: float, bend: float, trials: int) -> Trial:
    """Searches a line for a step that satisfies the strong Wolfe conditions (above).

    Returns this step; after `trials` trials the lowest trial that satisfies the first condition, or `start` if none
    does.

    tried: evaluates a step t.
    start: the trial t = 0, with a slope below 0.
    first: the first t that is tried.
    bend: the constant of the second condition.
    Collective: if `tried` is.
    """
    low, high, t = start, None, first
    for _ in range(trials):
        new = tried(t)
        if not (new.value <= start.value + ARMIJO * t * start.slope and new.value < low.value):
            high = new
        elif abs(new.slope) <= -bend * start.slope:
            return new
        else:
            ahead = high is None or high.t > low.t
            if (new.slope >= 0.0) == ahead:
                high = low
            before, low = low, new
        t = _outside(before, low) if high is None else _inside(low, high)
    return low


def _outside(before: Trial, last: Trial) -> float:
    least, most = (last.t + f * (last.t - before.t) for f in GROW)
    t = cubic_minimum(before, last)
    return min(max(t, least), most) if t > last.t else most


def _inside(low: Trial, high: Trial) -> float:
    margin = WITHIN * (high.t - low.t)
    a, b = sorted((low.t + margin, high.t - margin))
    t = cubic_minimum(low, high)
    return min(max(t, a), b) if math.isfinite(t) else 0.5 * (a + b)


def cubic_minimum(a: Trial, b: Trial) -> float:
    """Computes the minimum of the cubic through two values and slopes.

    Returns NaN if there is no minimum, a value is not finite, or both steps are equal, as in a bracket that has shrunk
    to a point.  Collective: no.
    """
    width = b.t - a.t
    if not (width and math.isfinite(b.value) and math.isfinite(b.slope)):
        return math.nan
    d = a.slope + b.slope - 3.0 * (b.value - a.value) / width
    inside = d * d - a.slope * b.slope
    if inside < 0.0:
        return math.nan
    root = math.copysign(math.sqrt(inside), width)
    below = b.slope - a.slope + 2.0 * root
    return b.t - width * (b.slope + root - d) / below if below else math.nan
