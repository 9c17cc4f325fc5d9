"""Solvers of both half steps that need only gradients: descents (descent.py), and minibatches.

The paper names descents for the Z-step (section 2.3); they cost more than Gauss-Newton wherever that was measured
(docs/paper.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.parallel.streams import stream
from macmpi.reductions import AT_ONCE, Average, OverPoints
from macmpi.solvers import BY_SUMS, CONTINUOUS, WSolver, ZSolution, improved
from macmpi.solvers.descent import LBFGS, Conjugate, Descent, Direction, FromRank0, Gradients, Newton
from macmpi.solvers.grams import System, UnitWhitening
from macmpi.solvers.w_problem import WProblem, gradients, values
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array


@dataclass(frozen=True)
class TruncatedNewton(Descent):
    """Truncated Newton, which unlike Gauss-Newton uses the curvature of the maps too."""

    iterations: int = 3
    cg_iterations: int = 10
    cg_tolerance: float = 0.1

    def directions(self, with_gradient: Gradients, from_rank0: FromRank0) -> Direction:
        return Newton(with_gradient, from_rank0, self.cg_iterations, self.cg_tolerance)


# --- Z-solvers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientZ(Descent):
    """Steepest descent for each point.

    Cost of an iteration: 3 passes through the segments after the first, and one for each trial of the line search.
    """

    handles: ClassVar[Demands] = CONTINUOUS

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> None:
        """Does nothing, because points share nothing."""

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution:
        return ZSolution(*self.minimise(problem.values, problem.gradients, problem.Z))


class ConjugateGradientZ(GradientZ):
    """Nonlinear conjugate gradients, Polak-Ribiere cut off at 0 (PR+), for each point."""

    direction = Conjugate


class LBFGSZ(GradientZ):
    """L-BFGS for each point."""

    direction = LBFGS


@dataclass(frozen=True)
class NewtonZ(TruncatedNewton, GradientZ):
    """Truncated Newton for each point."""


# --- W-solvers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientW(Descent, WSolver):
    """Steepest descent for each row of theta: the units of a tile, or one whole segment.

    Units are fitted in coordinates in which the Gram of the layer is the identity, because the features of a sigmoid
    layer differ in scale by orders of magnitude.
    Cost of an iteration for w units: 4 N D w flops, and 2 N D w for each trial of the line search.
    """

    tolerance: float = 0.01

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = BY_SUMS
    system: ClassVar[System] = System()

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        start = np.asarray(problem.start, dtype=np.float64)
        whitened = UnitWhitening(problem.parts())
        begun = problem.shared_matrix.from_rank0(whitened.into(start))

        def slopes(phi: Array) -> tuple[Array, Array]:
            f, G = gradients(problem, whitened.back(phi), over_points)
            return f, whitened.pull(G)

        def errors(phi: Array) -> Array:
            return values(problem, whitened.back(phi), over_points)

        phi, _ = self.minimise(errors, slopes, begun, problem.shared_matrix.from_rank0)
        moved = (phi != begun).any(axis=1)
        return np.where(moved[:, None], whitened.back(phi), start)


class ConjugateGradientW(GradientW):
    """Nonlinear conjugate gradients, Polak-Ribiere cut off at 0 (PR+), for each row of theta."""

    direction = Conjugate


class LBFGSW(GradientW):
    """L-BFGS for each row of theta."""

    direction = LBFGS


@dataclass(frozen=True)
class NewtonW(TruncatedNewton, GradientW):
    """Truncated Newton for each row of theta."""


Gradient = Callable[[Array, Any], Array]
"""A function (phi, rows) that estimates the gradient of the objective with respect to phi from some points."""


@dataclass(frozen=True)
class SGDW(WSolver):
    """v <- momentum v - rate g, theta <- theta + v: stochastic gradient descent, for `iterations` epochs.

    g is the gradient of the next `batch` points, divided by their number and by the mean weight of all points.
    Units are fitted in coordinates in which the Gram of the layer is N I, so that a rate of 1 would be the whole step
    of a linear unit.
    The order of the points is keyed by the problem, so that every tile of a layer sees the same minibatches.  A row
    keeps its start where the epochs have not lowered its objective.
    Cost for w units: 4 N D w flops an epoch, and 4 N D w for the comparison at the end.
    """

    iterations: int = 1
    batch: int = 100
    rate: float = 0.1
    momentum: float = 0.9

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = (BY_SUMS | {Demand.RING}) - {Demand.SHARDED}
    system: ClassVar[System] = System()

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        whitened, N, weight = UnitWhitening(problem.parts()), len(problem.targets), problem.rows
        phi = whitened.into(np.asarray(problem.start, dtype=np.float64))
        velocity, scale = np.zeros_like(phi), float(N) if problem.factor is not None else N / weight

        def gradient(phi: Array, rows: Array) -> Array:
            theta = whitened.back(phi)
            _, G = problem.partial(theta, rows, slope=True)
            return scale * whitened.pull(G / len(rows) + problem.ridge_part(theta)[1] / N)

        with np.errstate(over="ignore", invalid="ignore"):
            for epoch in range(self.iterations):
                order = stream(problem.key[0] if problem.key else 0, "sgd", *problem.key[1:], epoch).permutation(N)
                batches = [order[first : first + self.batch] for first in range(0, N, self.batch)]
                phi, velocity = self.steps(phi, velocity, batches, gradient, self.rate)
            return improved(problem, whitened.back(phi), over_points)

    def steps(
        self, phi: Array, velocity: Array, batches: Iterable[Any], gradient: Gradient, rate: float
    ) -> tuple[Array, Array]:
        """Takes a step for each minibatch, and returns phi and the velocity after the last one.

        phi, velocity (m, P): their values before the first step.
        batches: the rows of each minibatch; gradient: gradient(phi, rows) is the gradient of a minibatch.
        """
        for rows in batches:
            velocity = self.momentum * velocity - rate * gradient(phi, rows)
            phi = phi + velocity
        return phi, velocity
