"""W-step for a whole segment: Gauss-Newton by CG, its products by backpropagation inside the segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.design import row_dots
from macmpi.nets.losses import Root
from macmpi.nets.tape import Tape
from macmpi.reductions import OverPoints
from macmpi.solvers import BY_SUMS, WSolver
from macmpi.solvers.descent import line_search
from macmpi.solvers.grams import inputs_gram
from macmpi.solvers.linear_systems import conjugate_gradients
from macmpi.solvers.regular import SEGMENT, jitter
from macmpi.solvers.w_problem import SegmentProblem, gradients, values
from macmpi.typing import Array


@dataclass(frozen=True)
class HessianFreeW(WSolver):
    """(sum_n J^T B^T B J + ridge) p = -gradient, J the derivative of the segment with respect to all its weights.

    Up to `cg_iterations` CG steps, each block preconditioned by the inverse Gram of its inputs, or where its map is not
    linear by their mean square; backtracking from 1, and where no step helps once more along the preconditioned
    gradient.  CG stops at the square root of rounding: what the outputs do not see (a common shift before a softmax)
    would run away beyond it.
    Cost of an iteration, with F flops for a pass through the segment: 4 F, 4 F a CG step, and N D^2 for each Gram.
    """

    iterations: int = 1
    cg_iterations: int = 10
    cg_tolerance: float = 0.1
    tolerance: float = 0.01
    halvings: int = 10

    takes: ClassVar[frozenset[str]] = frozenset({"segment"})
    handles: ClassVar[Demands] = BY_SUMS

    def solve(self, problem: SegmentProblem, over_points: OverPoints) -> Array:
        theta, agreed = np.asarray(problem.start, dtype=np.float64).copy(), problem.in_pieces.agreed

        def value(theta: Array) -> Array:
            return values(problem, theta, over_points)

        for _ in range(self.iterations):
            before, G = gradients(problem, theta, over_points)
            for cg_iterations in (self.cg_iterations, 1):
                step = agreed(self._direction(problem, theta, G, cg_iterations, over_points))
                slope = agreed(row_dots(step, G))
                first = (slope < 0.0) * 1.0
                length, after = line_search(value, theta, step, before, slope, first, False, self.halvings)
                if length[0] > 0.0:
                    break
            theta += length[:, None] * step
            if not before[0] - after[0] > self.tolerance * before[0]:
                break
        return theta

    def _direction(
        self, problem: SegmentProblem, theta: Array, G: Array, cg_iterations: int, over_points: OverPoints
    ) -> Array:
        """p (1, P) by CG.  Chunks are linearised once and kept."""
        tapes: dict[int, tuple[Tape, Root]] = {}

        def linearise(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            tapes[rows.start] = tape, problem.loss_at(rows).root(problem.targets[rows], tape.F)
            own = problem.weights_at(rows)
            return tuple(tape.scales(lambda step: inputs_gram(step, own)))

        def product(P: Array, rows: slice) -> tuple[Array, ...]:
            tape, root = tapes[rows.start]
            found = tape.weight_vjp(root.normal(tape.weight_jvp(problem.weights(P[0]))))
            return (np.concatenate([g.ravel() for g in found])[None],)

        inverses = []
        for scale, ridge in zip(over_points(linearise), problem.ridges_of_blocks, strict=True):
            scale[np.diag_indices_from(scale)] += ridge + jitter(scale, SEGMENT)
            inverses.append(np.linalg.inv(scale))

        masks = [1.0 if m.connected is None else m.connected for m in problem.segment.fitted]

        def precondition(R: Array) -> Array:
            blocks = zip(problem.blocks(R[0]), inverses, masks, strict=True)
            return np.concatenate([np.ravel((B @ M if M.size > 1 else M * B) * mask) for B, M, mask in blocks])[None]

        agreed = problem.in_pieces.agreed

        def multiplied(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
            (HP,) = over_points(lambda rows: product(P, rows))
            HP += problem.ridge_part(P)[1]
            return agreed(row_dots(P, HP)), None if last else HP, P

        tolerance = max(self.cg_tolerance, float(np.sqrt(np.finfo(problem.inputs.dtype).eps)))
        system = np.zeros_like(theta), -G, multiplied, precondition, cg_iterations, tolerance
        return conjugate_gradients(*system, agreed=agreed)
