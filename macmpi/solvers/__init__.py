"""The solvers of the two half steps: their interfaces, and the tables of all solvers.

To add a solver, write a class in a file of this package, and add its place to Z_SOLVERS or W_SOLVERS; the contract
tests then include it by themselves.  A solver is a frozen value.  Everything that changes during a run (weights,
coordinates, mu) is part of the problem that it gets, so nothing in a solver can be out of date.
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
"""Linear systems are solved in double precision where their residual must fall to a smaller share than this."""

ELEMENTWISE = 1150.0
"""The cost of activations, residuals and line search for a unit, point and iteration, in flops of matrix products."""

PASS = 26
"""A product with all inputs costs as much as one with this number of further units, because it reads the inputs."""


CONTINUOUS = USUAL - {Demand.SLOPES_LACKING, Demand.SITE_OF_BITS}
DISCRETE = USUAL - {Demand.SITE_OF_NUMBERS, Demand.SEVERAL_SITES, Demand.NO_CONSTRAINTS}
"""The demands that Z-solvers handle: solvers that move numbers by derivatives, and others that search bits."""

BY_SUMS = frozenset({Demand.SHARDED, Demand.SPARSE}) | WEIGHTS
"""The demands that macmpi's W-solvers handle, because they read points through sums, and know masks and weights."""


class ZSolution(NamedTuple):
    """The solution of a Z-problem: new coordinates Z (n, sum H), and the objective of eq. (4) there, errors (n,)."""

    Z: Array
    errors: Array


class ZSolver(Protocol):
    """Solves the Z-problem of some points; the objective of no point rises.

    handles -- the demands that it handles (macmpi/demand.py): `CONTINUOUS` for solvers that move numbers by
        derivatives, `DISCRETE` for those that search codes.
    """

    handles: ClassVar[Demands]

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Any:
        """Prepares, from a sample of points, what all points share, for instance a preconditioner.

        sample: the Z-problem of the sample; average: computes means over it.  Collective: if `average` is.
        """
        ...

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution: ...


class WSolver:
    """Solves a W-problem by rounds, each of which is a sum over points; the objective of no row rises.

    takes -- the kinds of problems that it solves: "units" (UnitProblem: rows of a block [A, 1] W^T by themselves, on
        different ranks; only closed_form also without the 1), "segment" (SegmentProblem: all weights of a segment);
    activations -- the activations under which it can fit units; None for all elementwise ones;
    exact -- whether it ends in the minimum from any start;
    handles -- the demands that it handles (macmpi/demand.py):
        SHARDED: it reads points only through sums over ranges of them; other solvers get only some rows where no rank
            holds all points;
        RESTRAINED: it obeys the restraints of the problem (l1, groups, bounds);
        SPARSE: it leaves weights that do not exist at 0 (UnitProblem.exists, Map.zero_missing), for instance by
            UnitWhitening(problem.parts()) of grams.py;
        WEIGHTED: it obeys the weights of points, `problem.point_weights`, as `partial`, `weigh` and `loss_at` do;
        WEIGHTED_OUTPUTS: it reads the targets of a segment only through its loss;
        RING: it can go round a ring of ranks, each of which holds some of the points;
    system -- the Gram that the units of a layer share; None if they share nothing.
    """

    takes: ClassVar[frozenset[str]]
    activations: ClassVar[frozenset[str] | None] = None
    exact: ClassVar[bool] = False
    handles: ClassVar[Demands] = frozenset()

    @property
    def system(self) -> System | None:
        return None

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Estimates the cost of fitting `units` units of n_in inputs, in flops a point; here about 3 gradients.

        points: the number of points, by which work that is done once is divided.  Work is assigned to ranks by this
        estimate and by the cost of the system.
        """
        return 14.0 * n_in * (units + PASS) + 3.0 * ELEMENTWISE * units

    def solve(self, problem: Any, over_points: OverPoints) -> Array:
        """Computes new weights, of the shape of problem.start, float64.

        over_points: sums over points, once in each round.  Collective: if `over_points` is.
        """
        raise NotImplementedError


def better(start: Array, before: Array, theta: Array, after: Array) -> Array:
    """Chooses, for each row, theta where this is finite and lowers the objective, and otherwise the start.

    before, after (m,): the objectives of the rows of the start and of theta.
    """
    kept = (after < before) & np.isfinite(theta).all(axis=1)
    return np.where(kept[:, None], theta, start)


def improved(problem: WProblem, theta: Array, over_points: OverPoints) -> Array:
    """Chooses, for each row, theta where it lowers the objective, and otherwise the start of the problem; float64.

    Collective: if `over_points` is.
    """
    start = np.asarray(problem.start, dtype=np.float64)
    sums = over_points(lambda rows: tuple(problem.partial(W, rows, slope=False)[0] for W in (start, theta)))
    ridges = [problem.ridge_part(W)[0] for W in (start, theta)]
    before, after = problem.shared_matrix.from_rank0(np.add(sums, ridges))
    return better(start, before, theta, after)


@dataclass(frozen=True)
class Thresholded(WSolver):
    """min over w_h of 1/2 sum_n (t_nh - [w_h a_n > 0])^2 + ridge/2 ||v_h||^2, approximately.

    The inner solver solves the same problem with sigmoids in place of bits.  The new weights of a unit are kept where
    its own objective does not rise.  Targets t are bits, shifted where there are multipliers.
    Cost: the cost of the inner solver, and 2 passes.
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
    """A table from words to objects, each given by its place "module:name".

    An object is imported when its word is looked up, because most runs need few of them.
    """

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
