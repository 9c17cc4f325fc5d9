"""The splitting of E_Q by parameter block: W-problems, each a regression by itself, and restraints on its weights.

If the units of a segment can be fitted one by one, a tile of units is a `UnitProblem`.  If they cannot (several
layers between two sites, softmax, cross-entropy), the whole segment is a `SegmentProblem`, whose gradient comes from
backpropagation inside the segment.  A solver sees both as m independent problems with P unknowns each, theta (m, P),
whose objectives are sums over points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from macmpi.nets.chain import Segment
from macmpi.nets.design import adjoint, apply, at, column_dots, ridge_value, weighed
from macmpi.nets.layers.activation import function
from macmpi.nets.losses import Loss, weighted
from macmpi.reductions import ALONE, EVERY, OverPoints, Rows, SharedMatrix
from macmpi.solvers.grams import WHOLE, Alike
from macmpi.typing import Array


@dataclass(frozen=True)
class Restraint:
    """l1 sum |v| + group sum_j ||V[:, j]||, with least <= v <= most, in addition to a regression; biases are free.

    Column j of V holds the weights of all units for input j.  kept: whether weights that are 0 stay 0.
    """

    l1: float = 0.0
    group: float = 0.0
    least: float = -math.inf
    most: float = math.inf
    kept: bool = False

    @property
    def joins(self) -> bool:
        """Tells whether the restraint couples the units of a layer, as groups do."""
        return self.group > 0.0

    def penalty(self, W: Array, penalised: Array) -> Array:
        """Computes the penalties of the rows of W, (w,); where groups couple rows, the sum of all is in the first.

        penalised: which weights the restraint holds for, of the shape of W.
        """
        V = np.where(penalised, W, 0.0)
        value: Array = self.l1 * np.abs(V).sum(axis=1)
        if self.joins:
            value[0] = value.sum() + self.group * np.sqrt(np.square(V).sum(axis=0)).sum()
            value[1:] = 0.0
        return value


FREE = Restraint()


class RestrainedBlock(NamedTuple):
    """The restraint on a block of weights.

    penalised: which weights ridge and restraint hold for, of the weights' shape.
    restraint: the restraint on these weights.
    exists: which weights exist; None if all do.
    """

    penalised: Array
    restraint: Restraint
    exists: Array | None

    def limits(self, W: Array) -> tuple[Array, Array]:
        """Returns the lower and the upper bound of each weight, of the shape of W.

        Those of biases are infinite; both are 0 where a weight does not exist, or is 0 and shall stay 0.
        """
        held = self.penalised & (W == 0.0) & self.restraint.kept
        held = held if self.exists is None else held | ~self.exists
        bounds = ((self.restraint.least, -math.inf), (self.restraint.most, math.inf))
        low, high = (np.where(held, 0.0, np.where(self.penalised, inside, free)) for inside, free in bounds)
        return low, high

    def inside(self, W: Array) -> Array:
        """Moves each weight to the nearest number within its bounds."""
        return np.clip(W, *self.limits(W))


def together(joins: bool, values: Array, by: Callable[[Array], Any] = np.sum) -> Array:
    """Returns the values (w,) of rows or, if a restraint couples the rows (`joins`), by(values) for each of them."""
    return np.full(len(values), by(values)) if joins else values


@dataclass(frozen=True)
class WProblem:
    """The problem of a W-solver: to minimise, from theta = start, the objective of each row of theta (m, P).

    The objectives are sums over points.

    inputs (N, D), targets (N, w): the inputs and targets of the points.
    ridge: the ridge of each unit, or of the segment.
    key: (seed, iteration, segment), by which a stochastic solver chooses its random streams.
    shared: the Gram of the layer's inputs, its upper half at least, or None.
    factor: what the solver's `System.prepare` made of the Gram, or None.
    points: the number of all points, or the sum of their weights; 0 where it is the number of targets here.
    shared_matrix: how ranks that solve the problem together share work that does not depend on points, and agree on
        decisions.
    point_weights (N,): the weights of the points; None if all are 1.

    by_unit -- whether the rows of theta are units.
    """

    inputs: Rows
    targets: Rows
    ridge: float
    start: Array
    _: KW_ONLY
    key: tuple[int, ...] = ()
    shared: Any = None
    factor: Any = None
    points: float = 0
    shared_matrix: SharedMatrix = ALONE
    point_weights: Array | None = None
    by_unit: ClassVar[bool]

    @property
    def rows(self) -> float:
        """The number of points, or the sum of their weights."""
        return self.points or len(self.targets)

    def weights_at(self, rows: Any) -> Array | None:
        """Returns the weights of some points; None if all are 1."""
        return at(self.point_weights, rows)

    def parts(self, units: slice = EVERY) -> list[Alike]:
        """Groups some of the units by the inputs that they read."""
        return [Alike(WHOLE, self.shared, self.factor)]

    @property
    def restrained(self) -> list[RestrainedBlock]:
        """The restraint on each block of weights."""
        raise NotImplementedError

    def blocks(self, theta: Array) -> list[Array]:
        """Returns views of theta as matrices W_b (H_b, D_b + 1): itself for units, the blocks of a segment's row."""
        raise NotImplementedError

    def joined(self, blocks: Sequence[Array]) -> Array:
        """Returns the theta (m, P) with these `blocks`."""
        return np.concatenate([W.ravel() for W in blocks]).reshape(self.start.shape)

    def penalties(self, theta: Array) -> list[Array]:
        """Computes the penalties of the restraints, for each block a penalty of each row."""
        pairs = zip(self.blocks(theta), self.restrained, strict=True)
        return [block.restraint.penalty(W, block.penalised) for W, block in pairs]

    def inside(self, theta: Array) -> Array:
        """Moves theta to the nearest place within the bounds."""
        pairs = zip(self.blocks(theta), self.restrained, strict=True)
        return self.joined([block.inside(W) for W, block in pairs])

    def partial(self, theta: Array, rows: Any, slope: bool) -> tuple[Array, ...]:
        """Computes the objective (m,) over some points, and with `slope` its gradient (m, P) too, without the ridge."""
        raise NotImplementedError

    def ridge_part(self, theta: Array) -> tuple[Array, Array]:
        """Computes the value (m,) and the gradient (m, P) of the ridge."""
        raise NotImplementedError


def values(problem: WProblem, theta: Array, over_points: OverPoints) -> Array:
    """Computes the objective of each row of theta: (m,).  Collective: if `over_points` is."""
    (errors,) = over_points(lambda rows: problem.partial(theta, rows, slope=False))
    return problem.shared_matrix.from_rank0(errors + problem.ridge_part(theta)[0])


def gradients(problem: WProblem, theta: Array, over_points: OverPoints) -> tuple[Array, Array]:
    """Computes the objective (m,) and the gradient (m, P) of each row of theta.  Collective: if `over_points` is."""
    errors, G = over_points(lambda rows: problem.partial(theta, rows, slope=True))
    ridge, slope = problem.ridge_part(theta)
    return problem.shared_matrix.from_rank0(errors + ridge), G + slope


@dataclass(frozen=True)
class UnitProblem(WProblem):
    """Some units of one parameter block, W = [V, c] (w, D + 1): eq. (3) split by unit,

        min over w_h of 1/2 sum_n w_n (t_nh - s(w_h [a_n; 1]))^2 + ridge/2 ||v_h||^2,  h = 1, ..., w,

    where w_n is the weight of a point, usually 1.  Biases c have no ridge; without biases W is V (w, D).  Units are
    independent: the solution for some units is those rows of the solution.
    activation: the name of s.
    rounded: the inputs in single precision, for search directions; None if these read `inputs`.
    restraint: the restraint on V, for solvers that handle RESTRAINED.
    exists: which weights exist, of the shape of W; the others are 0 and stay 0.  Only for solvers that handle SPARSE.
    kept: whether sums over points are kept for a later W-step, and so must not depend on the present weights.
    """

    activation: str
    rounded: Rows | None = None
    restraint: Restraint = FREE
    exists: Array | None = None
    kept: bool = False
    by_unit: ClassVar[bool] = True

    def parts(self, units: slice = EVERY) -> list[Alike]:
        if self.exists is None:
            return super().parts(units)
        return self.factor.units(self.exists[units])

    @property
    def read(self) -> Rows:
        """The inputs that search directions and their preconditioner read."""
        return self.inputs if self.rounded is None else self.rounded

    def weigh(self, R: Array, rows: Any) -> Array:
        """w_n r_n for the rows R (n, w) of some points, in their precision; R itself where points have no weights."""
        return weighed(R, self.weights_at(rows))

    @property
    def n_in(self) -> int:
        return self.inputs.shape[1]

    @property
    def bias(self) -> bool:
        """Tells whether the last column of W holds biases."""
        return self.start.shape[1] > self.n_in

    @property
    def penalised(self) -> Array:
        """The weights that ridge and restraint hold for, all but biases: bool, of the shape of W."""
        return np.broadcast_to(np.arange(self.start.shape[1]) < self.n_in, self.start.shape)

    @property
    def quadratic(self) -> bool:
        """Tells whether the objective without a restraint is quadratic, with the curvature G + ridge."""
        return self.activation == "linear"

    @property
    def restrained(self) -> list[RestrainedBlock]:
        return [RestrainedBlock(self.penalised, self.restraint, self.exists)]

    def blocks(self, theta: Array) -> list[Array]:
        return [theta]

    def local(self, theta: Array, rows: Any) -> tuple[Array, Array, Callable[[], Array]]:
        """Computes the errors (m,) of some points, their residuals (n, m) times weights, and a function for s'."""
        unit, a = function(self.activation), apply(self.inputs[rows], theta)
        s = unit.value(a, np.empty_like(a))
        r = self.targets[rows] - s
        q = self.weigh(r, rows)
        return 0.5 * column_dots(q, r).astype(float), q, lambda: unit.slope(a, s, np.empty_like(s))

    def partial(self, theta: Array, rows: Any, slope: bool) -> tuple[Array, ...]:
        errors, q, slopes = self.local(theta, rows)
        if not slope:
            return (errors,)
        q *= slopes()
        G = np.zeros(theta.shape)
        G -= adjoint(q, self.inputs[rows], self.bias)
        if self.exists is not None:
            G *= self.exists
        return errors, G

    def ridge_part(self, theta: Array) -> tuple[Array, Array]:
        slope = self.ridge * theta
        slope[:, self.n_in :] = 0.0
        return 0.5 * self.ridge * ridge_value(theta, self.n_in), slope


@dataclass(frozen=True)
class SegmentProblem(WProblem):
    """All weights of one segment together, theta (1, P), in which its blocks follow one another:

        min over theta of sum_n w_n loss(t_n, f_k(a_n; theta)) + sum_b ridge_b/2 ||V_b||^2.

    segment: f_k, with parameter blocks numbered from 0.
    loss: the loss of its outputs, which is the squared error where they are compared with coordinates.
    shapes: the shapes of the blocks.
    ridges, restraints: the ridge and the restraint of each block.  `ridges` is () if all blocks have `ridge`;
        `restraints` is () if no block has one.
    """

    segment: Segment
    loss: Loss
    shapes: tuple[tuple[int, int], ...]
    ridges: tuple[float, ...] = ()
    restraints: tuple[Restraint, ...] = ()
    by_unit: ClassVar[bool] = False

    @property
    def quadratic(self) -> bool:
        """Tells whether the objective without a restraint is quadratic, with the curvature G + ridge."""
        maps = self.segment.maps
        return len(maps) == 1 and "linear" in maps[0].capabilities and self.loss.by_output and self.loss.unit_hessian

    @property
    def restrained(self) -> list[RestrainedBlock]:
        pairs = zip(self.segment.fitted, self.restraints or (FREE,) * len(self.shapes), strict=True)
        return [RestrainedBlock(map_.penalised, restraint, map_.connected) for map_, restraint in pairs]

    def blocks(self, theta: Array) -> list[Array]:
        """Returns views W_b (H_b, D_b + 1) of the blocks of theta, (P,) or (1, P)."""
        theta, out, at = theta.ravel(), [], 0
        for h, d in self.shapes:
            out.append(theta[at : at + h * d].reshape(h, d))
            at += h * d
        return out

    def weights(self, theta: Array) -> list[Array]:
        """Returns the blocks of theta in the precision of the points."""
        return self.blocks(theta.astype(self.inputs.dtype, copy=False))

    def partial(self, theta: Array, rows: Any, slope: bool) -> tuple[Array, ...]:
        A, T, loss = self.inputs[rows], self.targets[rows], self.loss_at(rows)
        if not slope:
            return (loss.value(T, self.segment.forward(self.weights(theta[0]), A)).sum(keepdims=True),)
        tape = self.segment.tape(self.weights(theta[0]), A)
        return loss.value(T, tape.F).sum(keepdims=True), self.joined(tape.weight_vjp(-loss.residual(T, tape.F)))

    def loss_at(self, rows: Any) -> Any:
        """Returns the loss of some points, with their weights."""
        return weighted(self.loss, self.weights_at(rows))

    @property
    def ridges_of_blocks(self) -> tuple[float, ...]:
        """The ridge of each block."""
        return self.ridges or (self.ridge,) * len(self.shapes)

    @cached_property
    def _shrinks(self) -> Array:
        """The ridge of each weight, 0 for biases: (P,)."""
        pairs = zip(self.ridges_of_blocks, self.segment.fitted, strict=True)
        return np.concatenate([ridge * np.ravel(map_.penalised) for ridge, map_ in pairs])

    def ridge_part(self, theta: Array) -> tuple[Array, Array]:
        slope = self._shrinks * theta
        return 0.5 * np.einsum("mp,mp->m", slope, theta), slope
