"""The W-step under restraints (l1, groups, bounds, zeros that stay): proximal Newton with the Grams as metric.

Each step replaces the smooth part of the objective by a quadratic, and solves for the rows of weights

        min over w_h of -c_h (w_h - a_h)^T + s_h/2 (w_h - a_h) H (w_h - a_h)^T + restraint(v_h),

where a are the present rows, c minus the gradient of the smooth part there, and s the curvatures in units of H.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.nets.design import adjoint, column_sums, row_dots
from macmpi.parallel import tiles
from macmpi.parallel.lapack import factored, solved, solved_rows
from macmpi.reductions import OverPoints
from macmpi.solvers import BY_SUMS, WSolver
from macmpi.solvers.cholesky import NORMAL, PRECONDITIONER, jitter
from macmpi.solvers.grams import MetricSystem, System, alike, inputs_gram, metric_of
from macmpi.solvers.w_problem import Restraint, WProblem, together, values
from macmpi.typing import Array

EXACT, EXACT_ROUNDS, ROUNDS = 1e-11, 300, 6
"""The conditions of a minimum may fail by this share; the most rounds of a quadratic solved exactly, and roughly."""

FEW, HALVINGS = 3, 20
"""The number of weights of a row that are moved between two Newton steps; the most halvings of a Newton step."""

ROUNDING = 4.0 * float(np.finfo(float).eps)
"""The usual rounding error of a sum, as a share of the sum of the sizes of its terms."""

TRIALS, BEARABLE, NEARLY = 10, 2.0, 0.3
"""The most trials of an iteration; linear units, whose curvature is known, need one.  A trial is the last one if the
curvature along it was at most BEARABLE times the estimate; the first one, if it was also within exp(+-NEARLY) of it."""

FLATTER, STEEPER, LEAST = 0.1, 16.0, 0.01
"""From a trial to the next an estimate of curvature changes at most by the first two factors, and at least doubles
after a refusal.  An iteration begins with at least LEAST times the estimate of a first iteration."""


@dataclass(frozen=True)
class Quadratic:
    """The restrained quadratics of some rows (w, P).  H (P, P), start (w, P), slope, scale (w,): H, a, c and s above.

    penalised (w, P): where the restraint holds; low, high (w, P): bounds.  Coupled rows have one scale.
    """

    H: Array
    start: Array
    slope: Array
    scale: Array
    penalised: Array
    low: Array
    high: Array
    restraint: Restraint

    def of(self, rows: Array | slice) -> Quadratic:
        """Returns the quadratics of some rows alone; all of them where a restraint couples the rows."""
        if self.restraint.joins:
            return self
        whole = self.start, self.slope, self.scale, self.penalised, self.low, self.high
        start, slope, scale, penalised, low, high = (part[rows] for part in whole)
        return Quadratic(self.H, start, slope, scale, penalised, low, high, self.restraint)

    @cached_property
    def curvature(self) -> Array:
        """s_h sum_i |H_ij|, (w, P): the diagonal of a separable quadratic that is nowhere below this one."""
        return np.multiply.outer(self.scale, np.abs(self.H).sum(axis=0))

    @cached_property
    def l1(self) -> Array:
        """The l1 of each weight, 0 where the restraint does not hold: (w, P)."""
        return self.restraint.l1 * self.penalised

    @property
    def grouped(self) -> Array:
        """The columns that are groups: (P,) bool."""
        return self.penalised[0] & self.restraint.joins

    def lengths(self, W: Array) -> Array:
        """Computes ||V_j|| of the columns that are groups, 0 for the others: (P,)."""
        return np.sqrt(np.square(W).sum(axis=0)) * self.grouped

    def solved(self, to_the_end: bool) -> Array:
        """Minimises each row, exactly or roughly; keeps the start, which is within the bounds, if nothing is better.

        A round is a proximal step, which finds the weights that are 0 or at bounds, and a Newton step of the others.
        Rows that are not coupled and are solved exactly begin with all weights 0, and each round first moves the FEW
        weights whose conditions fail most: several weights can leave 0 in a round, but return to it only one by one.
        A row is done where its conditions of a minimum fail by at most a share of l1 and group together (without these,
        of the largest gradient at 0), or by rounding errors.
        """
        few = to_the_end and not self.restraint.joins
        W = np.where(self.penalised & few, np.clip(0.0, self.low, self.high), self.start)
        live = np.arange(len(W))
        for _ in range(EXACT_ROUNDS if to_the_end else ROUNDS):
            part, V = self.of(live), W[live]
            gradient = part.scale[:, None] * ((V - part.start) @ self.H) - part.slope
            near = part.proximal(V, gradient)
            lack = (part.curvature * np.abs(near - V)).max(axis=1, initial=0.0)
            going = together(self.restraint.joins, lack, np.max) > part._limit(near)
            if going.any():
                begin, gradient = part._few(V, gradient) if few else (near, part._change(V, near, gradient)[1])
                near = np.where(going[:, None], part._newton(begin, gradient), near)
            W[live], live = near, live[going]
            if not len(live):
                break
        change, _ = self._change(self.start, W, -self.slope)
        return np.where((change < 0.0)[:, None], W, self.start)

    def proximal(self, W: Array, gradient: Array) -> Array:
        """argmin over X of sum_j g_j (x_j - w_j) + m_j/2 (x_j - w_j)^2 + restraint(x), where m is the `curvature`.

        The objective falls, unless the conditions of a minimum hold already.
        """
        X = self._shrunk(W, gradient, self.curvature, ...)
        if self.restraint.joins:  # groups allow no bounds but 0
            pull = self.curvature[0] * self.lengths(X)
            X *= np.maximum(1.0 - self.restraint.group * self.grouped / np.where(pull > 0.0, pull, 1.0), 0.0)
        return X

    def _shrunk(self, W: Array, gradient: Array, curvature: Array, at: Any) -> Array:
        """Computes `proximal` without groups for the weights at the places `at`; the arrays hold only these weights."""
        x = W - gradient / curvature
        x = np.copysign(np.maximum(np.abs(x) - self.l1[at] / curvature, 0.0), x)
        return np.clip(x, self.low[at], self.high[at]) + 0.0

    def _few(self, W: Array, gradient: Array) -> tuple[Array, Array]:
        """Moves the FEW weights of each row whose conditions fail most to their minima in turn; returns W, gradient."""
        W, rows = W.copy(), np.arange(len(W))
        for _ in range(FEW):
            columns = (self.curvature * np.abs(self.proximal(W, gradient) - W)).argmax(axis=1)
            at, curvature = (rows, columns), self.scale * self.H.diagonal()[columns]
            new = self._shrunk(W[at], gradient[at], curvature, at)
            gradient = gradient + (self.scale * (new - W[at]))[:, None] * self.H[columns]
            W[at] = new
        return W, gradient

    def _limit(self, W: Array) -> Array:
        """Returns by how much rows W (w, P) that are done may fail their conditions, (w,); one number if coupled."""
        size, step = self.restraint.l1 + self.restraint.group, np.abs(W - self.start).sum(axis=1, keepdims=True)
        terms = np.abs(self.slope) + self.curvature * (step + np.abs(W))
        at_0 = size if size else np.abs(self.slope + self.scale[:, None] * (self.start @ self.H))
        least = np.maximum(EXACT * np.broadcast_to(at_0, W.shape), ROUNDING * terms)
        return together(self.restraint.joins, least.max(axis=1), np.max)

    def _change(self, old: Array, new: Array, gradient: Array) -> tuple[Array, Array]:
        """Computes the change of the objective from rows `old` to `new`, (w,), and the smooth part's gradient at `new`.

        gradient: the gradient at the old rows.  Coupled rows have the change of their common objective.  The terms of
            each weight are added up first, so that near the minimum only the step adds a rounding error.
        """
        move = new - old
        curved = self.scale[:, None] * (move @ self.H)
        change = ((gradient + 0.5 * curved) * move + self.l1 * (np.abs(new) - np.abs(old))).sum(axis=1)
        if self.restraint.joins:
            both = self.lengths(old) + self.lengths(new)
            longer = (move * (new + old)).sum(axis=0) / np.where(both > 0.0, both, 1.0)
            change[0] += self.restraint.group * longer[self.grouped].sum()
        return together(self.restraint.joins, change), gradient + curved

    def _newton(self, W: Array, gradient: Array) -> Array:
        """Takes a Newton step in each row, halved until the objective falls; a row stays where no halving helps.

        Only free weights move, those that are not 0 by l1 and not at bounds.  A weight that would change its sign
        becomes 0, one that would leave its bounds stops there, and a group that would turn round becomes 0.
        """
        lengths = self.lengths(W)
        shrink = self.restraint.group * self.grouped / np.where(lengths > 0.0, lengths, np.inf)
        signed = (W != 0.0) & (self.l1 > 0.0)
        free = (self.low < W) & (self.high > W) & (signed | (self.l1 == 0.0)) & ((lengths > 0.0) | ~self.grouped)
        right = -(gradient + shrink * W + self.l1 * np.sign(W)) / self.scale[:, None]
        step = self._free_step(free, right, shrink / self.scale[0], W / np.where(lengths > 0.0, lengths, np.inf))
        low = np.where(signed & (W > 0.0), np.maximum(self.low, 0.0), self.low)
        high = np.where(signed & (W < 0.0), np.minimum(self.high, 0.0), self.high)
        best, pending = W, np.ones(len(W), dtype=bool)
        for length in 0.5 ** np.arange(HALVINGS + 1):
            tried = np.clip(W + length * step, low, high)
            if self.restraint.joins:
                tried[:, self.grouped & ((W * tried).sum(axis=0) <= 0.0)] = 0.0
            better = pending & (self._change(W, tried, gradient)[0] < 0.0)
            best, pending = np.where(better[:, None], tried, best), pending & ~better
            if not pending.any():
                break
        return best

    def _free_step(self, free: Array, right: Array, bend: Array, U: Array) -> Array:
        """Solves (x H + x B - sum_h (x_h u_h) u B)_F = right_F for the free weights F of each row; x is 0 elsewhere.

        B = diag(bend) with bend_j = group / (s ||V_j||), and u_j = V_j / ||V_j||, are the curvature of the lengths of
        groups, 0 without groups.  The rows are solved without u first, and u is added by Woodbury's formula, with
        S_ij = [i = j] / bend_j - sum_h u_hi u_hj (H_h^-1)_ij, where H_h is H + B of the free weights of row h.
        Cost: P^3 / 3 flops for each set of P free weights, with groups P^3 more; and 4 w P^2.
        """
        step, S, U = np.zeros_like(right), np.diag(1.0 / np.where(bend > 0.0, bend, 1.0)), np.where(free, U, 0.0)
        systems = []
        for rows in alike(free):
            columns = np.flatnonzero(free[rows[0]])
            block, at = (columns[:, None], columns), (rows[:, None], columns)
            M = self.H[block]
            M.flat[:: len(columns) + 1] += bend[columns]
            with suppress(np.linalg.LinAlgError):  # rounding errors may make M indefinite
                lower = factored(M) if len(columns) else M
                step[at] = solved_rows(lower, right[at])
                systems.append((lower, at))
                if self.restraint.joins:
                    S[block] -= (U[at].T @ U[at]) * solved(lower, np.eye(len(columns)))
        with suppress(np.linalg.LinAlgError):
            if self.restraint.joins:
                U *= solved_rows(factored(S), (U * step).sum(axis=0, keepdims=True))
                for lower, at in systems:
                    step[at] += solved_rows(lower, U[at])
        return step


@dataclass(frozen=True)
class ProximalW(WSolver):
    """Lowers the objective plus l1 sum |v| + group sum_j ||V[:, j]|| of each row, with least <= v <= most.

    An iteration replaces the smooth part by its gradient and curvature s_h G, with the Gram G of the layer's inputs,
    and solves that with the restraint (`Quadratic`); so weights become exactly 0 or reach their bounds.  For linear
    units s_h = 1 and one exact solution is enough.  For others s_h is at first the mean of s'^2, and then the curvature
    that the last trial met.  A trial that does not lower the objective, or meets far more curvature, is repeated with a
    larger s_h; the lowest trial is taken, and the weights stay where none is lower.

    In a segment, each block has the Gram of its inputs (their mean square where its map is not linear), and all have
    one s.  Cost of an iteration: 4 N D w flops, 2 N D w a trial, D^3 / 3 for each set of weights that are 0.
    """

    iterations: int = 3
    tolerance: float = 0.01

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = BY_SUMS | {Demand.RESTRAINED}
    system: ClassVar[System] = MetricSystem()

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Estimates flops per point: those of passes, and of a system for each unit in about half of its inputs."""
        return super().effort(n_in, units, points) + units * n_in**3 / 8.0 / points

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        fit: Fit = Fit(problem, over_points) if problem.by_unit else SegmentFit(problem, over_points)
        theta = problem.inside(np.asarray(problem.start, dtype=np.float64))
        live, scale = np.ones(1, dtype=bool), np.zeros(1)
        for _ in range(1 if fit.problem.quadratic else self.iterations):
            model, first = fit.linearised(theta)
            scale = np.where(scale > 0.0, np.maximum(scale, LEAST * first), first)
            theta, before, after, scale = fit.lowered(model, scale, live)
            live = live & (before - after > self.tolerance * before)
            if not live.any():
                break
        return theta


class Model(NamedTuple):
    """A model at rows theta: the smooth part of the objectives, minus its gradient, and the metric H of each block."""

    theta: Array
    smooth: Array
    slope: Array
    metrics: Sequence[Array]


@dataclass(frozen=True)
class Fit:
    """The fit of a W-problem by `ProximalW`, here of units of one layer, the rows of one block of weights.

    Each row has an objective, (m,), unless a restraint couples them all to a common one, (1,).  Collective: if
    `over_points` and the problem's `shared_matrix` are.
    """

    problem: Any
    over_points: OverPoints

    def summed(self, values: Sequence[Array], by: Callable[..., Any] = np.sum) -> Array:
        """Combines `values`, by block and row, for each objective: a common objective gets `by` of all of them."""
        apart = self.problem.by_unit and not self.problem.restrained[0].restraint.joins
        return values[0] if apart else np.array([by([by(part) for part in values])])

    def lowered(self, model: Model, scale: Array, live: Array) -> tuple[Array, Array, Array, Array]:
        """Tries minima of the model; returns rows, their objectives before and after, and the next scales.

        The second trial has the curvature that the first one met; further trials follow only after a refusal.
        """
        theta = best = model.theta
        objective = least = model.smooth + self.summed(self.problem.penalties(theta))
        pending = live & np.ones(len(objective), dtype=bool)
        for attempt in range(1 if self.problem.quadratic else TRIALS):
            if not pending.any():
                break
            tried = self.step(model, scale, pending)
            with np.errstate(over="ignore", invalid="ignore"):
                smooth = self.summed([values(self.problem, tried, self.over_points)])
            now = smooth + self.summed(self.problem.penalties(tried))
            seen = self._seen(model, tried - theta, smooth)
            likely = np.clip(seen, FLATTER * scale, STEEPER * scale)
            right = np.isfinite(now) & (now < objective) & (seen <= BEARABLE * scale)
            taken = pending & np.isfinite(now) & (now < least)
            best, least = np.where(taken[:, None], tried, best), np.where(taken, now, least)
            known = (np.abs(np.log(likely / scale)) < NEARLY) | (attempt > 0)
            stays = self.summed([(tried == theta).all(axis=1)], np.all)
            scale = np.where(pending, np.where(right, likely, np.maximum(likely, 2.0 * scale)), scale)
            pending &= ~((right & known) | stays)
        return best, objective, least, scale

    def _seen(self, model: Model, move: Array, smooth: Array) -> Array:
        """Computes the curvature of the smooth part along a move, in units of the metrics."""
        pairs = zip(self.problem.blocks(move), model.metrics, strict=True)
        curved = self.problem.shared_matrix.from_rank0(self.summed([row_dots(M @ H, M) for M, H in pairs]))
        fall = self.problem.shared_matrix.from_rank0(self.summed([row_dots(model.slope, move)]))
        with np.errstate(over="ignore", invalid="ignore"):
            seen = 2.0 * (smooth - model.smooth + fall) / np.where(curved > 0.0, curved, 1.0)
        return np.where(np.isfinite(seen), seen, np.inf)

    def step(self, model: Model, scale: Array, pending: Array) -> Array:
        """Computes the model's minimum for the rows of pending objectives; other rows stay."""
        blocks, exact, minima = self.problem.blocks, self.problem.quadratic, []
        parts = zip(blocks(model.theta), blocks(model.slope), model.metrics, self.problem.restrained, strict=True)
        for W, slope, H, block in parts:
            rows, moved = np.flatnonzero(np.broadcast_to(pending, len(W))), W.copy()
            scales, (low, high) = np.broadcast_to(scale, len(W)), block.limits(W)
            part = Quadratic(H, W, slope, scales, block.penalised, low, high, block.restraint).of(rows)
            count, joins = len(rows), block.restraint.joins
            runs = [slice(0, count)] if joins else [tile.rows for tile in tiles.solved_tiles(count)]
            solved = lambda i: part.of(runs[i]).solved(exact)  # noqa: B023, E731
            moved[rows] = self.problem.shared_matrix.rows(runs, W.shape[1], solved)
            minima.append(moved)
        return self.problem.joined(minima)

    def linearised(self, theta: Array) -> tuple[Model, Array]:
        """Makes the model at some rows, and a first estimate of the scale s of each objective."""
        problem, from_rank0 = self.problem, self.problem.shared_matrix.from_rank0

        def partial(rows: slice) -> tuple[Array, ...]:
            errors, q, slopes = problem.local(theta, rows)
            s = slopes()
            squares = column_sums(problem.weigh(np.square(s), rows))
            return errors, adjoint(q * s, problem.inputs[rows], problem.bias), squares

        errors, slope, squares = self.over_points(partial)
        scale = np.ones(len(theta)) if problem.quadratic else np.maximum(squares / problem.rows, 1e-30)
        ridge, shrink = problem.ridge_part(theta)
        smooth, scales = self.summed([from_rank0(errors + ridge)]), self.summed([from_rank0(scale)], np.max)
        return Model(theta, smooth, from_rank0(slope - shrink), [problem.factor]), scales


@dataclass(frozen=True)
class SegmentFit(Fit):
    """The fit of a whole segment: all its weights, block after block, are one row with one objective."""

    def linearised(self, theta: Array) -> tuple[Model, Array]:
        problem, from_rank0 = self.problem, self.problem.shared_matrix.from_rank0

        def partial(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            weights = problem.weights_at(rows)
            return (*problem.partial(theta, rows, slope=True), *tape.scales(lambda step: inputs_gram(step, weights)))

        errors, gradient, *sums = self.over_points(partial)
        ridge, shrink = problem.ridge_part(theta)
        slope, wide = from_rank0(-gradient - shrink), [d for _, d in problem.shapes]
        pairs = zip(map(from_rank0, sums), wide, strict=True)
        grams = [S if len(S) > 1 else np.eye(d) * S[0, 0] for S, d in pairs]
        shares = np.ones(len(grams)) if problem.quadratic else self._shares(theta, slope, grams)
        least, metrics = NORMAL if problem.quadratic else PRECONDITIONER, []
        parts = zip(grams, shares, problem.segment.fitted, problem.ridges_of_blocks, strict=True)
        for G, share, map_, of_block in parts:
            added = of_block * map_.penalised.all(axis=0) + jitter(share * G, least, problem.inputs.dtype)
            metrics.append(metric_of(share * G, added))
        return Model(theta, from_rank0(errors + ridge), slope, metrics), np.ones(1)

    def _shares(self, theta: Array, slope: Array, grams: list[Array]) -> Array:
        """Computes the Gauss-Newton curvature along each block of the slope in units of its Gram; then s = 1 fits all.

        It is multiplied by the number of blocks, because the square of a sum is at most that times the sum of squares.
        """
        problem, moves = self.problem, self.problem.blocks(slope)

        def partial(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            root, curvatures = problem.loss_at(rows).root(problem.targets[rows], tape.F), []
            for i in range(len(moves)):
                alone = [move if i == j else np.zeros_like(move) for j, move in enumerate(moves)]
                change = tape.weight_jvp(problem.weights(problem.joined(alone)))
                curvatures.append(float(np.vdot(change, root.normal(change))))
            return (np.array(curvatures),)

        curved = problem.shared_matrix.from_rank0(self.over_points(partial)[0])
        squares = np.array([float(np.vdot(move @ G, move)) for move, G in zip(moves, grams, strict=True)])
        known = (squares > 0.0) & (curved > 0.0)
        return len(moves) * np.where(known, curved / np.where(known, squares, 1.0), 1.0)
