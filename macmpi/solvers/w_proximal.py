"""W-step under restraints (l1, groups, bounds, zeros that stay): proximal Newton with the layers' Grams as metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.nets.design import adjoint, column_sums, row_dots
from macmpi.nets.layers.activation import function
from macmpi.parallel import tiles
from macmpi.reductions import ALONE, InPieces, OverPoints
from macmpi.solvers import BY_SUMS, WSolver
from macmpi.solvers.cholesky import NORMAL, PRECONDITIONER, jitter
from macmpi.solvers.grams import LayerGram, System, inputs_gram
from macmpi.solvers.shrinkage import Form, Quadratic, form_of
from macmpi.solvers.w_problem import WProblem, together, values
from macmpi.typing import Array

TRIALS, TRIALS_EXACT = 10, 2
"""Curvatures that are tried in an iteration; of linear units, whose own is known, a second against rounding."""

BEARABLE = 2.0
"""A trial is the last where the curvature along it was at most so much more than was thought."""

NEARLY = 0.3
"""A first trial is the last too where the logarithm of the curvature was right within this."""

FLATTER, STEEPER = 0.1, 16.0
"""From one trial or iteration to the next a curvature changes within these factors; it at least doubles if refused."""


class MeasuringGram(System):
    """The units of a layer measure their steps in G plus ridge / steepest^2: a unit at its steepest has that."""

    def factor(self, gram: LayerGram, in_pieces: InPieces = ALONE) -> Form:
        G, ridge = gram.G, gram.ridge / function(gram.activation).steepest ** 2
        share = NORMAL if gram.activation == "linear" else PRECONDITIONER
        added = np.full(len(G), jitter(G, share, gram.dtype))
        added[: len(G) - gram.bias] += ridge
        return form_of(G, added)

    def prepare(self, gram: LayerGram, in_pieces: InPieces = ALONE) -> Form:
        """The whole form: weights that do not exist are held at 0, and the others have its submatrix."""
        return self.factor(gram)


@dataclass(frozen=True)
class ProximalW(WSolver):
    """The objective plus l1 sum |v| + group sum_j ||V[:, j]||, least <= v <= most, lowered row by row.

    An iteration replaces the data's part by its gradient and curvature s_h G, G the Gram of the layer's inputs, and
    solves that with the restraint (`shrinkage`), so that weights become exactly 0 or reach their bounds.  s_h is 1 for
    linear units, whose quadratic is the objective and is solved to the end, once; else at first the mean of s'^2, then
    what the last trial says.  A trial that does not lower the objective, or met far more curvature, is repeated with a
    larger s_h; the lowest is taken, and the weights stay where none is lower.

    Of a segment, each block has the Gram of its own inputs, or where its map is not linear their mean square, and s is
    common to it.  Cost of an iteration: 4 N D w flops, 2 N D w a trial, and D^3 / 3 for each set of weights that are 0.
    """

    iterations: int = 3
    tolerance: float = 0.01

    takes: ClassVar[frozenset[str]] = frozenset({"units", "segment"})
    handles: ClassVar[Demands] = BY_SUMS | {Demand.RESTRAINED}
    system: ClassVar[System] = MeasuringGram()

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Passes over the points, and for each unit a system of about half of its inputs."""
        return super().effort(n_in, units, points) + units * n_in**3 / 8.0 / points

    def solve(self, problem: WProblem, over_points: OverPoints) -> Array:
        fit: Fit = Fit(problem, over_points) if problem.by_unit else SegmentFit(problem, over_points)
        theta = fit.inside(np.asarray(problem.start, dtype=np.float64))
        live, scale = np.ones(len(theta), dtype=bool), np.zeros(len(theta))
        for _ in range(1 if fit.problem.quadratic else self.iterations):
            model, first = fit.linearised(theta)
            scale = np.where(scale > 0.0, np.maximum(scale, fit.least * first), first)
            theta, before, after, scale = fit.lowered(model, scale, live)
            live &= fit.together(before - after) > self.tolerance * fit.together(before)
            if not live.any():
                break
        return theta


class Model(NamedTuple):
    """Rows theta, the smooth part of their objectives, minus its gradient, and the forms to measure moves in."""

    theta: Array
    smooth: Array
    slope: Array
    forms: Sequence[Form]


@dataclass(frozen=True)
class Fit:
    """A W-problem as `ProximalW` reads it, rows theta (m, P) with an objective each: units of one layer, a row each.

    A restraint may join the rows.  Collective: where `over_points` and the problem's `in_pieces` are.
    """

    problem: Any
    over_points: OverPoints
    least: ClassVar[float] = 0.01

    def joined(self, blocks: Sequence[Array]) -> Array:
        """The rows theta that consist of some blocks."""
        return np.concatenate([W.ravel() for W in blocks]).reshape(self.problem.start.shape)

    def summed(self, values: Sequence[Array]) -> Array:
        """A value for each row from those of each block's rows."""
        return values[0]

    def together(self, values: Array, by: Callable[[Array], Any] = np.sum) -> Array:
        """The values of rows, or where a restraint joins all of them what these are together: their sum, for all."""
        return together(self.problem.asked[0].restraint.joins, values, by)

    def smooth(self, theta: Array) -> Array:
        """The errors and the ridge of each row."""
        with np.errstate(over="ignore", invalid="ignore"):
            return values(self.problem, theta, self.over_points)

    def penalty(self, theta: Array) -> Array:
        """The restraint's penalty of each row."""
        pairs = zip(self.problem.blocks(theta), self.problem.asked, strict=True)
        return self.summed([asked.restraint.penalty(W, asked.penalised) for W, asked in pairs])

    def inside(self, theta: Array) -> Array:
        """The nearest rows within the bounds."""
        pairs = zip(self.problem.blocks(theta), self.problem.asked, strict=True)
        return self.joined([asked.restraint.inside(W, asked.penalised) for W, asked in pairs])

    def lowered(self, model: Model, scale: Array, live: Array) -> tuple[Array, Array, Array, Array]:
        """Rows after trials, their objectives before and after, and the curvatures that the last trials say.

        The second trial has the curvature that the first has met; further ones follow only where one was refused.
        """
        theta, quadratic = model.theta, self.problem.quadratic
        objective = model.smooth + self.penalty(theta)
        found, least, pending = theta.copy(), objective.copy(), live.copy()
        for attempt in range(TRIALS_EXACT if quadratic else TRIALS):
            if not pending.any():
                break
            tried = self.step(model, scale, pending)
            smooth = self.smooth(tried)
            now = smooth + self.penalty(tried)
            seen = self._seen(model, tried - theta, smooth)
            likely = np.clip(seen, FLATTER * scale, STEEPER * scale)
            right = np.isfinite(now) & (self.together(now) < self.together(objective)) & (seen <= BEARABLE * scale)
            taken = pending & np.isfinite(now) & (self.together(now) < self.together(least))
            found, least = np.where(taken[:, None], tried, found), np.where(taken, now, least)
            known = (np.abs(np.log(likely / scale)) < NEARLY) | (quadratic or attempt > 0)
            done = self.together((right & known) | ~(tried != theta).any(axis=1), np.all)
            scale = np.where(pending, np.where(right, likely, np.maximum(likely, 2.0 * scale)), scale)
            scale = self.together(scale, np.max)
            pending &= ~done
        return found, objective, least, scale

    def _seen(self, model: Model, move: Array, smooth: Array) -> Array:
        """The curvature along a move, in units of the forms, that its smooth part says."""
        agreed = self.problem.in_pieces.agreed
        curved, fall = agreed(self.curvature(move, model.forms)), agreed(row_dots(model.slope, move))
        with np.errstate(over="ignore", invalid="ignore"):
            seen = 2.0 * (smooth - model.smooth + fall) / np.where(curved > 0.0, curved, 1.0)
        return np.where(np.isfinite(seen), seen, np.inf)

    def step(self, model: Model, scale: Array, rows: Array) -> Array:
        """The model's minimum for some rows; the others as they are."""
        blocks, found = self.problem.blocks, []
        parts = zip(blocks(model.theta), blocks(model.slope), model.forms, self.problem.asked, strict=True)
        for W, own, form, asked in parts:
            some, moved = np.flatnonzero(np.broadcast_to(rows | asked.restraint.joins, len(W))), W.copy()
            scales, restraint = np.broadcast_to(scale, len(W)), asked.restraint
            whole = Quadratic(form, W, own, scales, asked.penalised, restraint, asked.limits(W))
            moved[some] = self._solved(whole.of(some))
            found.append(moved)
        return self.joined(found)

    def _solved(self, model: Quadratic) -> Array:
        count, width = model.start.shape
        runs = [slice(0, count)] if model.restraint.joins else [t.rows for t in tiles.solved_tiles(count)]
        return self.problem.in_pieces.rows(runs, width, lambda i: model.of(runs[i]).solved(self.problem.quadratic))

    def curvature(self, move: Array, forms: Sequence[Form]) -> Array:
        """The moves' squares in the forms, (m,)."""
        return row_dots(move @ forms[0].H, move)

    def linearised(self, theta: Array) -> tuple[Model, Array]:
        """The model at some rows, and a first curvature of each."""
        problem, agreed = self.problem, self.problem.in_pieces.agreed

        def partial(rows: slice) -> tuple[Array, ...]:
            errors, q, slopes = problem.local(theta, rows)
            s = slopes()
            squares = column_sums(problem.weigh(np.square(s), rows))
            return errors, adjoint(q * s, problem.inputs[rows], problem.bias), squares

        errors, slope, squares = self.over_points(partial)
        scale = np.ones(len(theta)) if problem.quadratic else np.maximum(squares / problem.rows, 1e-30)
        ridge, shrink = problem.ridge_part(theta)
        first = self.together(agreed(scale), np.max)
        return Model(theta, agreed(errors + ridge), agreed(slope - shrink), [problem.factor]), first


@dataclass(frozen=True)
class SegmentFit(Fit):
    """All weights of a segment, its blocks, in one row."""

    least: ClassVar[float] = 0.0

    def summed(self, values: Sequence[Array]) -> Array:
        return np.array([sum(part.sum() for part in values)])

    def curvature(self, move: Array, forms: Sequence[Form]) -> Array:
        pairs = zip(self.problem.blocks(move), forms, strict=True)
        return np.array([sum(float(np.vdot(M @ form.H, M)) for M, form in pairs)])

    def linearised(self, theta: Array) -> tuple[Model, Array]:
        problem, agreed = self.problem, self.problem.in_pieces.agreed

        def partial(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            own = problem.weights_at(rows)
            return (*problem.partial(theta, rows, slope=True), *tape.scales(lambda step: inputs_gram(step, own)))

        errors, gradient, *sums = self.over_points(partial)
        ridge, shrink = problem.ridge_part(theta)
        slope, wide = agreed(-gradient - shrink), [d for _, d in problem.shapes]
        grams = [agreed(S) if len(S) > 1 else np.eye(d) * agreed(S)[0, 0] for S, d in zip(sums, wide, strict=True)]
        model = Model(theta, agreed(errors + ridge), slope, self._forms(grams, np.ones(len(grams))))
        if not problem.quadratic:
            model = model._replace(forms=self._forms(grams, self._shares(model, grams)))
        return model, np.ones(1)

    def _forms(self, grams: Sequence[Array], shares: Array) -> list[Form]:
        """The Grams, each times its share, and the ridge."""
        problem, found = self.problem, []
        least = NORMAL if problem.quadratic else PRECONDITIONER
        parts = zip(grams, shares, problem.segment.fitted, problem.ridges_of_blocks, strict=True)
        for G, share, map_, ridge in parts:
            held = ridge * map_.penalised.all(axis=0)
            found.append(form_of(share * G, held + jitter(share * G, least, problem.inputs.dtype)))
        return found

    def _shares(self, model: Model, grams: list[Array]) -> Array:
        """The Gauss-Newton curvature along each block's own step in units of its Gram, so that s = 1 fits them all.

        The square of a sum of blocks is at most their number times the sum of the squares.
        """
        problem, theta, one = self.problem, model.theta, np.ones(1)
        moves = problem.blocks(self.step(model, one, one > 0.0) - theta)

        def partial(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            root, found = problem.loss_at(rows).root(problem.targets[rows], tape.F), []
            for i in range(len(moves)):
                alone = [move if i == j else np.zeros_like(move) for j, move in enumerate(moves)]
                change = tape.weight_jvp(problem.weights(self.joined(alone)))
                found.append(float(np.vdot(change, root.normal(change))))
            return (np.array(found),)

        curved = problem.in_pieces.agreed(self.over_points(partial)[0])
        squares = np.array([float(np.vdot(move @ G, move)) for move, G in zip(moves, grams, strict=True)])
        known = (squares > 0.0) & (curved > 0.0)
        return len(moves) * np.where(known, curved / np.where(known, squares, 1.0), 1.0)
