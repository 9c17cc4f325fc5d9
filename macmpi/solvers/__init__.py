"""Solvers of the two half steps: what each takes and gives, and the registry.

To add a solver, write one class in a file of this package and add a row with its place to Z_SOLVERS or
W_SOLVERS; the contract tests then pick it up by themselves.  A solver is a frozen value: all that changes along a run
(weights, coordinates, mu) reaches it in the problem, so nothing in it can go stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from macmpi.demand import USUAL, WEIGHTS, Demand, Demands
from macmpi.nets.design import apply, column_dots, ridge_value
from macmpi.reductions import AT_ONCE, Average, OverPoints
from macmpi.solvers.grams import System
from macmpi.solvers.w_problem import UnitProblem, WProblem
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

SINGLE = 1e-4
"""Linear systems to be solved to a smaller share of their residual stay in double precision."""

ELEMENTWISE = 1150.0
"""Activations, residuals and line search cost this a unit, point and iteration, in flops of matrix products."""

PASS = 26
"""A product with all inputs costs this many units more: the inputs are read and put in order for it."""


CONTINUOUS = USUAL - {Demand.SLOPES_LACKING, Demand.SITE_OF_BITS}
DISCRETE = USUAL - {Demand.SITE_OF_NUMBERS, Demand.SEVERAL_SITES, Demand.NO_CONSTRAINTS}
"""The demands that Z-solvers handle: those that move numbers by derivatives, and one that searches codes of bits."""

BY_SUMS = frozenset({Demand.SHARDED, Demand.SPARSE}) | WEIGHTS
"""The demands that macmpi's W-solvers handle: they read points by sums, and heed masks and weights of points."""


class ZSolution(NamedTuple):
    """Z (n, sum H): new coordinates; errors (n,): the objective of eq. (4) there."""

    Z: Array
    errors: Array


class ZSolver(Protocol):
    """Solves the Z-problem of some points, of none of which the objective rises.

    handles -- what may be demanded of it (macmpi/demand.py): `CONTINUOUS` of solvers that move numbers by derivatives,
        `DISCRETE` of one whose coordinates stay 0 or 1.
    """

    handles: ClassVar[Demands]

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Any:
        """Makes what all points share from the Z-problem of a few of them; `average` takes means over these.

        Collective: where `average` is.
        """
        ...

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution: ...


class WSolver:
    """Solves a W-problem, of which no row's objective rises: a loop of rounds, each one a sum over points.

    takes -- the kinds of problem that it solves: "units" (UnitProblem: the rows of a block [A, 1] W^T apart, on
        different ranks; only closed_form without the 1), "segment" (SegmentProblem: all weights of a segment at once);
    activations -- the activations it can train units under, or None for all elementwise ones;
    exact -- it ends in the minimum, whatever the start;
    handles -- what may be demanded of it (macmpi/demand.py):
        SHARDED: it reads the points through sums over runs of them alone; where no rank holds all, a solver that does
            not is given the rows of some;
        RESTRAINED: it heeds the problem's restraints (l1, groups, bounds);
        SPARSE: weights that do not exist stay 0 (UnitProblem.exists, Map.zero_missing; UnitWhitening(problem.parts())
            of grams.py does this);
        WEIGHTED: it heeds the weights of points: the problem's `point_weights` (which `partial`, `weigh` and `loss_at`
            do);
        weights of points and outputs: it reads the targets of a segment through its loss alone;
        RING: it may go round a ring of ranks, each of which has some of the points;
    system -- the Gram that the units of a layer share, or None where they share nothing.
    """

    takes: ClassVar[frozenset[str]]
    activations: ClassVar[frozenset[str] | None] = None
    exact: ClassVar[bool] = False
    handles: ClassVar[Demands] = frozenset()

    @property
    def system(self) -> System | None:
        return None

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Estimates what `units` of n_in inputs cost, in flops a point or what else takes as long: here 3 gradients.

        points: how many there are, over which work that is done once is spread.  By the estimate, and by the cost of
        the system, work is assigned.
        """
        return 14.0 * n_in * (units + PASS) + 3.0 * ELEMENTWISE * units

    def solve(self, problem: Any, over_points: OverPoints) -> Array:
        """New weights, of the shape of problem.start; in float64."""
        raise NotImplementedError


def better(start: Array, before: Array, theta: Array, after: Array) -> Array:
    """Chooses row by row: theta where its objective is lower than that of the start, else the start.

    before, after (m,): the objectives of the start's rows and of theta's.
    """
    kept = (after < before) & np.isfinite(theta).all(axis=1)
    return np.where(kept[:, None], theta, start)


def improved(problem: WProblem, theta: Array, over_points: OverPoints) -> Array:
    """Chooses row by row, in float64: theta where it lowers the objective, else the problem's start.

    Collective: where `over_points` is.
    """
    start = np.asarray(problem.start, dtype=np.float64)
    sums = over_points(lambda rows: tuple(problem.partial(W, rows, slope=False)[0] for W in (start, theta)))
    ridges = [problem.ridge_part(W)[0] for W in (start, theta)]
    before, after = problem.shared_matrix.from_rank0(np.add(sums, ridges))
    return better(start, before, theta, after)


@dataclass(frozen=True)
class Thresholded(WSolver):
    """min over w_h of 1/2 sum_n (t_nh - [w_h a_n > 0])^2 + ridge/2 ||v_h||^2, through the same with sigmoids.

    The new weights of a unit are kept where its own objective, that of the bits, does not rise.  Targets t are bits, or
    bits less the multipliers' share.
    Cost: that of the inner solver and 2 passes.
    """

    inner: WSolver

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    activations: ClassVar[frozenset[str] | None] = frozenset({"sigmoid"})

    @property
    def handles(self) -> Demands:  # type: ignore[override]
        return self.inner.handles

    @property
    def system(self) -> System | None:
        return self.inner.system

    def effort(self, n_in: int, units: int, points: int) -> float:
        return self.inner.effort(n_in, units, points)

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        old = np.asarray(problem.start, dtype=np.float64)
        new = self.inner.solve(problem, over_points)
        objectives = [self._objective(problem, W, over_points) for W in (old, new)]
        before, after = problem.shared_matrix.from_rank0(np.array(objectives))
        return np.where((after <= before)[:, None], new, old)

    def _objective(self, problem: UnitProblem, W: Array, over_points: OverPoints) -> Array:
        def partial(rows: slice) -> tuple[Array, ...]:
            R = problem.targets[rows] - (apply(problem.inputs[rows], W) > 0.0)
            return (0.5 * column_dots(problem.weigh(R, rows), R),)

        (errors,) = over_points(partial)
        return errors + 0.5 * problem.ridge * ridge_value(W, problem.n_in)


class Table(Mapping[str, Any]):
    """Words, each with the place "module:name" of what it stands for, which is imported when it is looked up: most runs
    need few of them."""

    def __init__(self, **places: str) -> None:
        self._places = places

    def __getitem__(self, word: str) -> Any:
        return resolve_name(self._places[word])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


Z_SOLVERS = Table(
    gauss_newton="macmpi.solvers.z_gauss_newton:GaussNewtonZ",
    alternating="macmpi.solvers.z_gauss_newton:AlternatingZ",
    binary="macmpi.solvers.z_binary:BinaryZ",
    newton="macmpi.solvers.gradient_solvers:NewtonZ",
    lbfgs="macmpi.solvers.gradient_solvers:LBFGSZ",
    ncg="macmpi.solvers.gradient_solvers:ConjugateGradientZ",
    gradient="macmpi.solvers.gradient_solvers:GradientZ",
)
W_SOLVERS = Table(
    gauss_newton="macmpi.solvers.w_gauss_newton:GaussNewtonW",
    closed_form="macmpi.solvers.closed_form:ClosedForm",
    hessian_free="macmpi.solvers.w_gauss_newton:HessianFreeW",
    newton="macmpi.solvers.gradient_solvers:NewtonW",
    lbfgs="macmpi.solvers.gradient_solvers:LBFGSW",
    ncg="macmpi.solvers.gradient_solvers:ConjugateGradientW",
    gradient="macmpi.solvers.gradient_solvers:GradientW",
    sgd="macmpi.solvers.gradient_solvers:SGDW",
    proximal="macmpi.solvers.w_proximal:ProximalW",
)
