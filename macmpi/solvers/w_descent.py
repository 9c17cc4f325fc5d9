"""W-solvers that need gradients alone: descents of all units of a tile, or of a whole segment, and minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.parallel.streams import stream
from macmpi.reductions import OverPoints
from macmpi.solvers import BY_SUMS, WSolver, improved
from macmpi.solvers.descent import LBFGS, Conjugate, Direction, Newton, minimise
from macmpi.solvers.grams import System, UnitWhitening
from macmpi.solvers.w_problem import WProblem, gradients, values
from macmpi.typing import Array


@dataclass(frozen=True)
class GradientW(WSolver):
    """Steepest descent, step lengths from a parabola, for each row of theta; others descend along their `direction`.

    Units are fitted in coordinates in which the layer's Gram is the identity: features of a sigmoid layer differ in
    scale by orders of magnitude.  Cost of an iteration: 4 N D w flops, and 2 N D w a trial.
    """

    iterations: int = 10
    tolerance: float = 0.01
    halvings: int = 10

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = BY_SUMS
    system: ClassVar[System] = System()
    direction: ClassVar[type[Direction]] = Direction

    def descent(self) -> Direction:
        """Directions, and what they need."""
        return self.direction()

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        start = np.asarray(problem.start, dtype=np.float64)
        whitened = UnitWhitening(problem.parts())
        begun = problem.in_pieces.agreed(whitened.into(start))

        def slopes(phi: Array) -> tuple[Array, Array]:
            found, G = gradients(problem, whitened.back(phi), over_points)
            return found, whitened.pull(G)

        def errors(phi: Array) -> Array:
            return values(problem, whitened.back(phi), over_points)

        limits = self.iterations, self.halvings, self.tolerance
        found, _ = minimise(self.descent(), errors, slopes, begun, *limits, problem.in_pieces.agreed)
        moved = (found != begun).any(axis=1)
        return np.where(moved[:, None], whitened.back(found), start)


@dataclass(frozen=True)
class ConjugateGradientW(GradientW):
    """Nonlinear conjugate gradient, Polak-Ribiere cut off at 0 (PR+)."""

    direction: ClassVar[type[Direction]] = Conjugate


@dataclass(frozen=True)
class LBFGSW(GradientW):
    """L-BFGS."""

    direction: ClassVar[type[Direction]] = LBFGS


@dataclass(frozen=True)
class NewtonW(GradientW):
    """Truncated Newton."""

    iterations: int = 3
    cg_iterations: int = 10
    cg_tolerance: float = 0.1

    def descent(self) -> Direction:
        return Newton(cg_iterations=self.cg_iterations, cg_tolerance=self.cg_tolerance)


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
        """A step for each minibatch, from phi with a velocity; gives both as they are then."""
        for rows in batches:
            velocity = self.momentum * velocity - rate * gradient(phi, rows)
            phi = phi + velocity
        return phi, velocity
