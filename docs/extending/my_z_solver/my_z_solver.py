"""Nonlinear conjugate gradients on the coordinates of each point."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.losses import times
from macmpi.solvers import CONTINUOUS, ZSolution
from macmpi.solvers.z_problem import split_columns


def dots(A, B):
    return np.sum(A * B, axis=1, keepdims=True)


@dataclass(frozen=True)
class ConjugateZ:
    """Directions of Polak and Ribiere, steps that the Gauss-Newton model of eq. (4) asks for, point by point.

    A step that does not lower a point's objective is halved; after `halvings` of them its z stays.
    """

    iterations: int = 10
    halvings: int = 4

    handles: ClassVar[Demands] = CONTINUOUS

    def prepare(self, sample, average=None):
        return None

    def solve(self, problem, shared):
        Z, errors = problem.Z.copy(), problem.values(problem.Z)
        D, before = np.zeros_like(Z), np.ones_like(Z)
        for _ in range(self.iterations):
            G, curvature = self.model(problem, Z)
            along = np.maximum(dots(G, G - before) / np.maximum(dots(before, before), 1e-300), 0.0)
            D = along * D - G
            D = np.where(dots(D, G) < 0.0, D, -G)
            step, before = -dots(G, D) / np.maximum(curvature(D), 1e-300), G
            for _ in range(self.halvings + 1):
                trial = (Z + step * D).astype(Z.dtype)
                values = problem.values(trial)
                better = values < errors
                Z[better], errors[better] = trial[better], values[better]
                step = np.where(better[:, None], 0.0, 0.5 * step)
        return ZSolution(Z, errors)

    def model(self, problem, Z):
        """The gradient of each point (n, sum H), and D -> d^T B d (n, 1) with the Gauss-Newton matrix B."""
        F, tangents = problem.linearise(Z)
        root = problem.loss.root(problem.Y, F[-1])
        tangents[-1] = root.after(tangents[-1])
        G, sizes = np.empty_like(Z), problem.sizes
        pulls = [times(c, m.M) for c, m in zip(problem.missed(Z, F), problem.metrics)]
        for g, tangent, pull, ahead in zip(split_columns(sizes, G), tangents, pulls, [*pulls[1:], -root.residual]):
            g[:] = tangent.vjp(ahead) - pull

        def curvature(D):
            parts = split_columns(sizes, D)
            images = [tangent.jvp(d) for tangent, d in zip(tangents, parts)]
            moved = [parts[0], *(a - d for a, d in zip(images, parts[1:]))]
            squares = sum(metric.square(c) for metric, c in zip(problem.metrics, moved))
            return squares[:, None] + dots(images[-1], images[-1])

        return G, curvature
