"""Solvers of both half steps that need gradients alone: descents (descent.py), and minibatches.

Descents of all points of a tile at once, which the paper names (section 2.3), cost more than Gauss-Newton wherever that
was measured (docs/paper.md).
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
from macmpi.solvers.descent import LBFGS, Conjugate, Direction, Newton, minimise
from macmpi.solvers.grams import System, UnitWhitening
from macmpi.solvers.w_problem import WProblem, gradients, values
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array


@dataclass(frozen=True)
class Descent:
    """Steepest descent, step lengths from a parabola, for each row; others descend along their `direction`."""

    iterations: int = 10
    tolerance: float = 0.0
    halvings: int = 10

    direction: ClassVar[type[Direction]] = Direction

    def directions(self) -> Direction:
        """Makes what gives search directions."""
        return self.direction()

    @property
    def limits(self) -> tuple[int, int, float]:
        """The iterations, halvings and tolerance, the last arguments of `minimise`."""
        return self.iterations, self.halvings, self.tolerance


@dataclass(frozen=True)
class TruncatedNewton(Descent):
    """Truncated Newton: unlike Gauss-Newton with the maps' own curvature."""

    iterations: int = 3
    cg_iterations: int = 10
    cg_tolerance: float = 0.1

    def directions(self) -> Direction:
        return Newton(cg_iterations=self.cg_iterations, cg_tolerance=self.cg_tolerance)


# --- Z-solvers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientZ(Descent):
    """Steepest descent for each point.

    Cost of an iteration: 3 passes through the segments after the first, and one a trial.
    """

    handles: ClassVar[Demands] = CONTINUOUS

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> None:
        """Prepares nothing, for points share nothing."""

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution:
        return ZSolution(*minimise(self.directions(), problem.values, problem.gradients, problem.Z, *self.limits))


class ConjugateGradientZ(GradientZ):
    """Nonlinear conjugate gradient, Polak-Ribiere cut off at 0 (PR+)."""

    direction = Conjugate


class LBFGSZ(GradientZ):
    """L-BFGS."""

    direction = LBFGS


@dataclass(frozen=True)
class NewtonZ(TruncatedNewton, GradientZ):
    """Truncated Newton for each point."""


# --- W-solvers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientW(Descent, WSolver):
    """Steepest descent for each row of theta: all units of a tile, or a whole segment.

    Units are fitted in coordinates in which the layer's Gram is the identity: features of a sigmoid layer differ in
    scale by orders of magnitude.  Cost of an iteration: 4 N D w flops, and 2 N D w a trial.
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

        phi, _ = minimise(self.directions(), errors, slopes, begun, *self.limits, problem.shared_matrix.from_rank0)
        moved = (phi != begun).any(axis=1)
        return np.where(moved[:, None], whitened.back(phi), start)


class ConjugateGradientW(GradientW):
    """Nonlinear conjugate gradient, Polak-Ribiere cut off at 0 (PR+)."""

    direction = Conjugate


class LBFGSW(GradientW):
    """L-BFGS."""

    direction = LBFGS


@dataclass(frozen=True)
class NewtonW(TruncatedNewton, GradientW):
    """Truncated Newton for each row of theta."""


Gradient = Callable[[Array, Any], Array]
"""The gradient of the objective with respect to phi is taken from some points."""


@dataclass(frozen=True)
class SGDW(WSolver):
    """theta <- theta - rate v, v <- momentum v + mean gradient of the next `batch` points, for `iterations` epochs.
    (Mean: divided by their number and by the mean weight of all points.)

    For units in coordinates in which the layer's Gram is N I, so that the rate is a share of a linear unit's own step.

    The order of the points is keyed by the problem, so every tile of a layer sees the same minibatches.  A row keeps
    its start where the epochs have not lowered its objective.  Cost: 4 N D w flops an epoch, 4 N D w for the checks.
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
        """Takes a step for each minibatch; gives phi and the velocity after the last.

        phi, velocity (m, P): at the beginning.
        batches: the rows of each minibatch.
        gradient: gradient(phi, rows) of a minibatch.
        """
        for rows in batches:
            velocity = self.momentum * velocity - rate * gradient(phi, rows)
            phi = phi + velocity
        return phi, velocity
