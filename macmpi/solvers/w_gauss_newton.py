"""The W-step by Gauss-Newton with directions by preconditioned CG: for each unit of a tile, or for a whole segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.design import adjoint, apply, column_dots, column_sums, ridge_value, row_dots
from macmpi.nets.layers import is_dense
from macmpi.nets.layers.activation import function
from macmpi.nets.losses import Root
from macmpi.nets.segment import Tape
from macmpi.parallel.lapack import solved_rows
from macmpi.reductions import ALONE, EVERY, OverPoints, SharedMatrix
from macmpi.solvers import BY_SUMS, ELEMENTWISE, PASS, SINGLE, WSolver
from macmpi.solvers.cholesky import SEGMENT, jitter
from macmpi.solvers.descent import conjugate_gradients, line_search
from macmpi.solvers.grams import LayerGram, System, inputs_gram, scattered
from macmpi.solvers.metrics import Averages, OfSeen, Seen, metrics, shifted_inverse, shifts
from macmpi.solvers.w_problem import SegmentProblem, UnitProblem, gradients, values
from macmpi.typing import Array

SHIFT = 1e-6
"""A metric and a Gram are damped before they are inverted, by this share of the product of their traces."""


class SteepestSystem(System):
    """The system G + ridge / steepest^2 I: the curvature of a unit that is at its steepest, divided by steepest^2."""

    def factor(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Array:
        return super().factor(replace(gram, ridge=gram.ridge / function(gram.activation).steepest ** 2), shared_matrix)


@dataclass(frozen=True)
class GaussNewtonW(WSolver):
    """min over w_h of 1/2 sum_n (t_nh - s(w_h^T [a_n; 1]))^2 + ridge/2 ||v_h||^2, for each unit h of a tile.

    An iteration linearises s, takes up to `cg_iterations` CG steps on the normal equations
    (A^T diag(s'^2) A + ridge I) p = A^T diag(s') r - ridge w, and searches along p from step `relaxation`, then 1.
    No Gram of a single unit is formed: all units share a preconditioner, the Cholesky factor of the layer's Gram plus
    ridge, which is scaled with the mean s'^2 of each unit.
    tolerance: a unit is done once its objective falls by a smaller share.
    cg_precision: with "single", p, [A, 1] p and the Gram are in single precision, and residuals and inputs are rounded
        for them; objectives never are.

    Rounds: iterations (2 + 2 cg_iterations + line search).  Cost for w units: 2 N D w flops at the start, and 4 N D w
    times cg_iterations for an iteration; D^3 / 3 for the factor of a layer.
    """

    iterations: int = 3
    relaxation: float = 1.0
    cg_iterations: int = 1
    cg_tolerance: float = 0.1
    cg_precision: str = "double"
    tolerance: float = 0.01
    halvings: int = 10

    takes: ClassVar[frozenset[str]] = frozenset({"units"})
    handles: ClassVar[Demands] = BY_SUMS

    @property
    def system(self) -> System:
        """The system of CG, in single precision where `cg_precision` says so and `cg_tolerance` allows it."""
        return SteepestSystem(self.cg_precision == "single" and self.cg_tolerance >= SINGLE)

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Estimates the cost as `WSolver.effort` defines it.

        It is 2 D flops a unit and point to start, 4 D for each CG step of an iteration, and the elementwise work.
        """
        products = (2.0 + self.iterations * self.system.pace * 4.0 * self.cg_iterations) * n_in
        return products * (units + PASS) + self.iterations * ELEMENTWISE * units

    def solve(self, problem: UnitProblem, over_points: OverPoints) -> Array:
        ridge, W = problem.ridge, np.array(problem.start, dtype=np.float64)
        fit = Fit(problem, self.cg_iterations == 1)
        (errors,) = over_points(lambda rows: fit.start(W, rows))
        objective = problem.shared_matrix.from_rank0(errors + ridge * ridge_value(W))
        live = np.ones(len(W), dtype=bool)
        for i in range(self.iterations):
            step, moved = self._direction(fit, W, live, over_points)
            length, errors = self._line_search(fit, W, step, moved, errors, objective, over_points)
            W += length[:, None] * step
            before, objective = objective, problem.shared_matrix.from_rank0(errors + ridge * ridge_value(W))
            live &= before - objective > self.tolerance * before
            if i + 1 == self.iterations or not live.any():
                break
            over_points(lambda rows: fit.move(length, rows))  # noqa: B023
        return W

    def _direction(self, fit: Fit, W: Array, live: Array, over_points: OverPoints) -> tuple[Array, Array]:
        """Computes the Gauss-Newton direction (w, D + 1) by CG, and which units (w,) have one.

        W (w, D + 1): the present weights.
        live (w,): the units that are not done; the others are masked and not left out, so that the bits of products do
            not depend on them.
        """
        problem, ridge, from_rank0 = fit.problem, fit.problem.ridge, fit.problem.shared_matrix.from_rank0
        residual, slopes = over_points(fit.gradient)
        residual[:, :-1] -= ridge * W[:, :-1]
        scale, parts = np.maximum(slopes / problem.rows, 1e-30)[:, None], problem.parts()

        def precondition(R: Array) -> Array:
            return scattered(parts, R, lambda part, rows: solved_rows(part.factor, rows)) / scale

        def product(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
            curvature, *products = over_points(lambda rows: fit.product(P, last, rows))
            curvature = from_rank0(curvature + ridge * ridge_value(P))
            if last:
                return curvature, None, P
            products[0][:, :-1] += ridge * P[:, :-1]
            return curvature, products[0], P

        def taken(lengths: Array, first: bool) -> None:
            over_points(lambda rows: fit.advance(lengths, first, rows))

        systems = np.zeros_like(W), residual, product, precondition, self.cg_iterations, self.cg_tolerance
        step = from_rank0(conjugate_gradients(*systems, live, from_rank0, taken))
        return step, live & (step != 0.0).any(axis=1)

    def _line_search(
        self, fit: Fit, W: Array, step: Array, moved: Array, errors: Array, objective: Array, over_points: OverPoints
    ) -> tuple[Array, Array]:
        """Halves the step length of each unit until its objective falls; returns the lengths (w,) and the errors there.

        The length is 0 where no trial lowers the objective; such a unit is done.

        A fall must exceed the rounding errors of [A, 1] w and [A, 1] step, which can be huge where inputs are nearly
        dependent and there is no ridge.
        """
        problem, ridge, n = fit.problem, fit.problem.ridge, fit.problem.rows
        root = 4.0 * np.sqrt(np.trace(problem.shared) / n)
        resolution, of_step = (root * np.finfo(A.dtype).eps for A in (fit.a, fit.along))
        blurred = of_step * np.sqrt(row_dots(step, step)) if of_step > resolution else 0.0
        length, over = moved * self.relaxation, self.relaxation > 1.0
        pending = moved.copy()
        trial = errors
        for _ in range(self.halvings + 1):
            if not pending.any():
                break
            (trial,) = over_points(lambda rows: fit.trial(length, rows))  # noqa: B023
            moved_to = W + length[:, None] * step
            blur = resolution * np.sqrt(row_dots(moved_to, moved_to)) + length * blurred
            value = trial + ridge * ridge_value(moved_to) + blur * (2.0 * np.sqrt(n * trial) + n * blur)
            pending &= ~problem.shared_matrix.from_rank0(value < objective)
            length = np.where(pending, 1.0 if over else 0.5 * length, length)
            over = False
        length[pending] = 0.0
        return length, np.where(length > 0.0, trial, errors)


class Fit:
    """The arrays (N, w) that a fit of units keeps between its rounds; everything else is computed in each round.

    a: the pre-activations [A, 1] W^T.
    direction, along: [A, 1] P^T of the CG direction P, and [A, 1] step^T, in the precision of directions.
    If CG makes a single step, both are one array, which holds s'^2 until the direction is known.
    """

    def __init__(self, problem: UnitProblem, one_direction: bool) -> None:
        self.problem, self.function, self.targets = problem, function(problem.activation), problem.targets
        self.read, self.dtype = problem.read, problem.read.dtype
        self.a, self.along = (np.empty(self.targets.shape, dtype) for dtype in (self.targets.dtype, self.dtype))
        self.direction, self.once = self.along if one_direction else np.empty_like(self.along), one_direction

    def start(self, W: Array, rows: slice) -> tuple[Array, ...]:
        a = self.a[rows] = apply(self.problem.inputs[rows], W)
        return (self._errors(a, rows),)

    def _errors(self, a: Array, rows: slice) -> Array:
        r = self.targets[rows] - self.function.value(a, np.empty_like(a))
        return column_dots(self.problem.weigh(r, rows), r)

    def _curved(self, rows: slice) -> tuple[Array, Array, Array]:
        """Computes s at some points, and s' and s'^2 times the points' weights in the precision of directions."""
        a = self.a[rows]
        s = self.function.value(a, np.empty_like(a))
        slope = self.function.slope(a, s, np.empty_like(s)).astype(self.dtype, copy=False)
        curvature = slope * slope
        weights = self.problem.weights_at(rows)
        if weights is not None:
            w = weights.astype(self.dtype, copy=False)[:, None]
            curvature *= w
            slope *= w
        return s, slope, curvature

    def gradient(self, rows: slice) -> tuple[Array, ...]:
        """Computes A^T diag(w s') r and the sum of w s'^2 over some points, where w are the points' weights."""
        s, slope, curvature = self._curved(rows)
        slope *= (self.targets[rows] - s).astype(self.dtype, copy=False)
        if self.once:
            self.direction[rows] = curvature
        return adjoint(slope, self.read[rows]), column_sums(curvature)

    def product(self, P: Array, last: bool, rows: slice) -> tuple[Array, ...]:
        """Computes p^T H p and, unless it is the last CG step, H P, over some points and without the ridge."""
        B = apply(self.read[rows], P)
        Q = B * (self.direction[rows] if self.once else self._curved(rows)[2])
        self.direction[rows] = B
        curvature = column_dots(Q, B)
        return (curvature,) if last else (curvature, adjoint(Q, self.read[rows]))

    def advance(self, alpha: Array, first: bool, rows: slice) -> tuple[Array, ...]:
        """along += alpha * direction, or along = alpha * direction for the first direction of CG."""
        alpha = alpha.astype(self.dtype, copy=False)
        if first:
            np.multiply(self.direction[rows], alpha, out=self.along[rows])
        else:
            self.along[rows] += self.direction[rows] * alpha
        return ()

    def trial(self, length: Array, rows: slice) -> tuple[Array, ...]:
        return (self._errors(self._moved(length, rows), rows),)

    def _moved(self, length: Array, rows: slice, out: Array | None = None) -> Array:
        along = self.along[rows] * length.astype(self.dtype, copy=False)
        return np.add(self.a[rows], along, out=out)

    def move(self, length: Array, rows: slice) -> tuple[Array, ...]:
        self._moved(length, rows, self.a[rows])
        return ()


@dataclass(frozen=True)
class HessianFreeW(WSolver):
    """(sum_n J^T B^T B J + ridge) p = -gradient, where J is the derivative of the segment by all its weights.

    It is solved by up to `cg_iterations` CG steps.  The preconditioner maps the block R of a dense layer to
    M^-1 R G^-1, with its damped metric M (solvers/metrics.py) and the Gram G of its inputs; for other layers it uses
    the Gram alone or, where a map is not linear, the mean square of its inputs.  A line search from step 1 follows; if
    it fails, another one along the preconditioned gradient.  CG stops at the square root of the rounding unit, because
    beyond it directions to which the outputs are blind (a common shift before a softmax) would grow without bound.
    Cost of an iteration, with F flops for a pass through the segment: 4 F, 4 F a CG step, and N (D^2 + H^2) a layer.
    """

    iterations: int = 1
    cg_iterations: int = 10
    cg_tolerance: float = 0.1
    tolerance: float = 0.01
    halvings: int = 10

    takes: ClassVar[frozenset[str]] = frozenset({"segment"})
    handles: ClassVar[Demands] = BY_SUMS

    def solve(self, problem: SegmentProblem, over_points: OverPoints) -> Array:
        theta, from_rank0 = np.asarray(problem.start, dtype=np.float64).copy(), problem.shared_matrix.from_rank0

        def value(theta: Array) -> Array:
            return values(problem, theta, over_points)

        for _ in range(self.iterations):
            before, G = gradients(problem, theta, over_points)
            for cg_iterations in (self.cg_iterations, 1):
                step = from_rank0(self._direction(problem, theta, G, cg_iterations, over_points))
                slope = from_rank0(row_dots(step, G))
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
        """Computes p (1, P) by CG.  Each range of points is linearised once, and its tape kept."""
        tapes: dict[int, tuple[Tape, Root]] = {}

        def linearise(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            tapes[rows.start] = tape, problem.loss_at(rows).root(problem.targets[rows], tape.F)
            point_weights = problem.weights_at(rows)
            return tuple(tape.scales(lambda step: inputs_gram(step, point_weights)))

        maps, scales = problem.segment.fitted, over_points(linearise)
        known = layer_metrics(problem, {start: tape for start, (tape, _) in tapes.items()}, over_points)
        inverses = []
        for k, (scale, ridge) in enumerate(zip(scales, problem.ridges_of_blocks, strict=True)):
            if k in known:
                b, a = shifts(scale, known[k], ridge + SHIFT * float(np.trace(scale) * np.trace(known[k])))
                inverses.append((shifted_inverse(known[k], a), shifted_inverse(scale, b)))
            else:
                scale[np.diag_indices_from(scale)] += ridge + jitter(scale, SEGMENT)
                inverses.append((np.eye(1), np.linalg.inv(scale)))

        def precondition(R: Array) -> Array:
            blocks = zip(problem.blocks(R[0]), inverses, maps, strict=True)
            return problem.joined([map_.zero_missing(_times(_times(B.T, M).T, G)) for B, (M, G), map_ in blocks])

        from_rank0 = problem.shared_matrix.from_rank0

        def multiplied(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
            def product(rows: slice) -> tuple[Array, ...]:
                tape, root = tapes[rows.start]
                return (problem.joined(tape.weight_vjp(root.normal(tape.weight_jvp(problem.weights(P[0]))))),)

            (HP,) = over_points(product)
            HP += problem.ridge_part(P)[1]
            return from_rank0(row_dots(P, HP)), None if last else HP, P

        tolerance = max(self.cg_tolerance, float(np.sqrt(np.finfo(problem.inputs.dtype).eps)))
        system = np.zeros_like(theta), -G, multiplied, precondition, cg_iterations, tolerance
        return conjugate_gradients(*system, from_rank0=from_rank0)


def _times(B: Array, A: Array) -> Array:
    """B A, where A is a matrix or a number (1, 1).  Collective: no."""
    return B @ A if A.size > 1 else A * B


def layer_metrics(problem: SegmentProblem, tapes: dict[int, Tape], over_points: OverPoints) -> dict[int, Array]:
    """Computes the metric M_k of each layer of a segment, as the weighted mean over all points.

    It returns {} if a layer is not dense or shares its weights, or a map between layers is not elementwise.
    tapes: the tape of each range of points, by the first point.  Collective: if `over_points` is.
    """
    segment = problem.segment
    if not all(map(is_dense, segment.fitted)) or sum(b is not None for b in segment.blocks) > len(segment.fitted):
        return {}
    between = [m for m, block in zip(segment.maps, segment.blocks, strict=True) if block is None]
    if any("elementwise" not in m.capabilities for m in between):
        return {}

    def means(matrices: Sequence[tuple[OfSeen, int]]) -> list[Any]:
        def part(rows: slice) -> tuple[Array, ...]:
            tape, Y, point_weights = tapes[rows.start], problem.targets[rows], problem.weights_at(rows)
            roots = None if point_weights is None else np.sqrt(point_weights)[:, None]
            sums = [np.zeros((n, n)) for _, n in matrices]
            for (of, _), out in zip(matrices, sums, strict=True):
                if len(Y):
                    of(Seen(tape, Y, Y, roots=roots), len(Y) / problem.rows, out)
            return tuple(sums)

        return [M.__getitem__ for M in over_points(part)]

    def mean(of: OfSeen, n: int) -> Array:
        return means([(of, n)])[0](EVERY)

    def product(V: Array, M: Array | None, below: Any) -> Array:
        carried = V.T @ V if M is None else V.T @ M @ V
        return carried if below is None else carried * below(EVERY)

    tape = next(iter(tapes.values()))
    forms, _ = metrics(problem.loss, tape, Averages(means, mean, product), range(len(segment.fitted)))
    return {k: M.astype(float) for k, M in forms.items()}
