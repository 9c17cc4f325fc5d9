"""W-problems as the proximal W-solver reads them: rows with an objective each, its gradient, forms to measure in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.nets.design import adjoint, apply, column_dots, column_sums, row_dots
from macmpi.nets.layers.activation import function
from macmpi.parallel import tiles
from macmpi.reductions import ALONE, InPieces, OverPoints
from macmpi.solvers.grams import System, inputs_gram
from macmpi.solvers.regular import NORMAL, PRECONDITIONER, jitter
from macmpi.solvers.shrinkage import Form, Quadratic, form_of, stacked
from macmpi.solvers.w_problem import LayerGram, SegmentProblem, UnitProblem
from macmpi.typing import Array

EXACT_ROUNDS, EXACT = 1000, 1e-10
"""Rounds of Newton's steps and sweeps for linear units at most, and what their conditions may lack."""

ROUNDS, NEAR = 2, 0.05
"""The quadratic of other units is only a model: it is solved roughly."""


class MeasuringGram(System):
    """The units of a layer measure their steps in G plus ridge / steepest^2: a unit at its steepest has that."""

    def factor(self, gram: LayerGram, in_pieces: InPieces = ALONE) -> Form:
        G, ridge = gram.G, gram.ridge / function(gram.activation).steepest ** 2
        share = NORMAL if gram.activation == "linear" else PRECONDITIONER
        added = np.full(len(G), jitter(G, share, gram.dtype))
        added[: len(G) - gram.bias] += ridge
        return form_of(G, added)

    def of_masks(self, gram: LayerGram) -> Form:
        """The whole form: weights that do not exist are held at 0, and the others have its submatrix."""
        return self.factor(gram)


@dataclass(frozen=True)
class Fit:
    """A W-problem as `ProximalW` reads it: rows theta (m, P) with an objective each, which a restraint may join."""

    problem: Any
    least: ClassVar[float] = 0.0

    @property
    def quadratic(self) -> bool:
        """The smooth part of the objective is a quadratic, and the form with s = 1 its curvature."""
        raise NotImplementedError

    @property
    def joins(self) -> bool:
        """The rows have one objective together."""
        return False

    def joined(self, values: Array) -> Array:
        """The objectives that decide: of each row, or their sum for all."""
        return np.full(len(values), values.sum()) if self.joins else values

    def joined_in(self, done: Array) -> Array:
        """Tells which rows are done: all or none where they are joined."""
        return np.full(len(done), done.all()) if self.joins else done

    def common(self, scale: Array) -> Array:
        """Curvatures as the restraint can bear them: one for all rows that it joins."""
        return np.full(len(scale), scale.max()) if self.joins else scale

    def smooth(self, theta: Array, over_points: OverPoints) -> Array:
        """The errors and the ridge of each row.  Collective: where `over_points` is."""
        with np.errstate(over="ignore", invalid="ignore"):
            (found,) = over_points(lambda rows: self.problem.partial(theta, rows, slope=False))
        found += self.problem.ridge_part(theta)[0]
        return self.problem.in_pieces.agreed(found)

    def penalty(self, theta: Array) -> Array:
        """The restraint's penalty of each row."""
        raise NotImplementedError

    def inside(self, theta: Array) -> Array:
        """The nearest rows within the bounds."""
        raise NotImplementedError

    def linearised(self, theta: Array, over_points: OverPoints) -> tuple[Array, Array, Array, Sequence[Form]]:
        """The smooth part, minus its gradient, a first curvature, forms.  Collective: where `over_points` is."""
        raise NotImplementedError

    def step(self, theta: Array, slope: Array, scale: Array, forms: Sequence[Form], rows: Array) -> Array:
        """The model's minimum for some rows; the others as they are.  Collective: where `in_pieces` is."""
        raise NotImplementedError

    def curvature(self, move: Array, forms: Sequence[Form]) -> Array:
        """The moves' squares in the forms, (m,)."""
        raise NotImplementedError

    def _solved(self, model: Quadratic) -> Array:
        pieces, exact = self.problem.in_pieces, self.quadratic
        count, width = model.start.shape
        runs = [slice(0, count)] if model.restraint.joins else [t.rows for t in tiles.solved_tiles(count)]
        rounds, lack = (EXACT_ROUNDS, EXACT) if exact else (ROUNDS, NEAR)
        return pieces.rows(runs, width, lambda i: model.of(runs[i]).solved(rounds, lack, exact))


@dataclass(frozen=True)
class UnitFit(Fit):
    """Units of one layer, a row each."""

    problem: UnitProblem
    least: ClassVar[float] = 0.01

    @property
    def quadratic(self) -> bool:
        return self.problem.activation == "linear"

    @property
    def joins(self) -> bool:
        return self.problem.restraint.joins

    def penalty(self, theta: Array) -> Array:
        return self.problem.restraint.penalty(theta, self.problem.penalised)

    def inside(self, theta: Array) -> Array:
        return self.problem.restraint.inside(theta, self.problem.penalised)

    def linearised(self, theta: Array, over_points: OverPoints) -> tuple[Array, Array, Array, Sequence[Form]]:
        problem, agreed = self.problem, self.problem.in_pieces.agreed
        errors, slope, squares = over_points(lambda rows: self._partial(theta, rows))
        scale = np.ones(len(theta)) if self.quadratic else np.maximum(squares / problem.rows, 1e-30)
        ridge, shrink = problem.ridge_part(theta)
        return agreed(errors + ridge), agreed(slope - shrink), self.common(agreed(scale)), [self._form(over_points)]

    def _form(self, over_points: OverPoints) -> Form:
        """The layer's form, or where nobody has summed up its Gram, that of its sum now."""
        problem = self.problem
        if problem.factor is not None:
            return problem.factor
        G = MeasuringGram().sum(problem.inputs, over_points, problem.bias, weights=problem.point_weights)
        dtype = problem.inputs.dtype
        return MeasuringGram().factor(LayerGram(G, problem.ridge, dtype, problem.bias, problem.activation))

    def _partial(self, theta: Array, rows: slice) -> tuple[Array, ...]:
        """Errors, minus their gradient, and the sum of s'^2."""
        own, A = function(self.problem.activation), self.problem.inputs[rows]
        a = apply(A, theta)
        s = own.value(a, np.empty_like(a))
        r = self.problem.targets[rows] - s
        slopes, q = own.slope(a, s, np.empty_like(s)), self.problem.weigh(r, rows)
        errors = 0.5 * column_dots(q, r).astype(float)
        squares = column_sums(self.problem.weigh(np.square(slopes), rows))
        return errors, adjoint(q * slopes, A, self.problem.bias), squares

    def step(self, theta: Array, slope: Array, scale: Array, forms: Sequence[Form], rows: Array) -> Array:
        own, found = (np.arange(len(theta)) if self.joins else np.flatnonzero(rows)), theta.copy()
        asked = self.problem.penalised, self.problem.restraint, self.problem.connected
        model = Quadratic(forms[0], theta, slope, scale, *asked)
        found[own] = self._solved(model.of(own))
        return found

    def curvature(self, move: Array, forms: Sequence[Form]) -> Array:
        return row_dots(move @ forms[0].H, move)


@dataclass(frozen=True)
class SegmentFit(Fit):
    """All weights of a segment, in one row."""

    problem: SegmentProblem

    @property
    def quadratic(self) -> bool:
        maps, loss = self.problem.segment.maps, self.problem.loss
        return len(maps) == 1 and "linear" in maps[0].capabilities and loss.by_output and loss.unit_hessian

    def penalty(self, theta: Array) -> Array:
        parts = (restraint.penalty(W, marks).sum() for W, marks, restraint in self._blocks(theta))
        return np.array([sum(parts)])

    def inside(self, theta: Array) -> Array:
        return stacked([restraint.inside(W, marks) for W, marks, restraint in self._blocks(theta)])

    def _blocks(self, theta: Array) -> list[tuple[Array, Array, Any]]:
        problem = self.problem
        marks = [map_.penalised for map_ in problem.segment.fitted]
        return list(zip(problem.blocks(theta[0]), marks, problem.restraints_of_blocks, strict=True))

    def linearised(self, theta: Array, over_points: OverPoints) -> tuple[Array, Array, Array, Sequence[Form]]:
        problem, agreed = self.problem, self.problem.in_pieces.agreed

        def partial(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            own = problem.weights_at(rows)
            return (*problem.partial(theta, rows, slope=True), *tape.scales(lambda step: inputs_gram(step, own)))

        errors, gradient, *sums = over_points(partial)
        ridge, shrink = problem.ridge_part(theta)
        slope, wide = agreed(-gradient - shrink), [W.shape[1] for W in problem.blocks(theta[0])]
        grams = [agreed(S) if len(S) > 1 else np.eye(d) * agreed(S)[0, 0] for S, d in zip(sums, wide, strict=True)]
        shares = np.ones(len(grams)) if self.quadratic else self._shares(theta, slope, grams, over_points)
        return agreed(errors + ridge), slope, np.ones(1), self._forms(grams, shares)

    def _forms(self, grams: Sequence[Array], shares: Array) -> list[Form]:
        """The Grams, each times its share, and the ridge."""
        found, dtype, least = [], self.problem.inputs.dtype, NORMAL if self.quadratic else PRECONDITIONER
        for G, share, map_, ridge in zip(
            grams, shares, self.problem.segment.fitted, self.problem.ridges_of_blocks, strict=True
        ):
            found.append(form_of(share * G, ridge * map_.penalised.all(axis=0) + jitter(share * G, least, dtype)))
        return found

    def _shares(self, theta: Array, slope: Array, grams: list[Array], over_points: OverPoints) -> Array:
        """The Gauss-Newton curvature along each block's own step in units of its Gram, so that s = 1 fits them all.

        The square of a sum of blocks is at most their number times the sum of the squares.
        """
        problem, ones = self.problem, np.ones(1)
        forms = self._forms(grams, np.ones(len(grams)))
        moves = problem.blocks(self.step(theta, slope, ones, forms, ones > 0.0)[0] - theta[0])

        def partial(rows: slice) -> tuple[Array, ...]:
            tape = problem.segment.tape(problem.weights(theta[0]), problem.inputs[rows])
            root, found = problem.loss_at(rows).root(problem.targets[rows], tape.F), []
            for i in range(len(moves)):
                alone = [move if i == j else np.zeros_like(move) for j, move in enumerate(moves)]
                change = tape.weight_jvp(problem.weights(stacked(alone)[0]))
                found.append(float(np.vdot(change, root.normal(change))))
            return (np.array(found),)

        curved = problem.in_pieces.agreed(over_points(partial)[0])
        squares = np.array([float(np.vdot(move @ G, move)) for move, G in zip(moves, grams, strict=True)])
        known = (squares > 0.0) & (curved > 0.0)
        return len(moves) * np.where(known, curved / np.where(known, squares, 1.0), 1.0)

    def step(self, theta: Array, slope: Array, scale: Array, forms: Sequence[Form], rows: Array) -> Array:
        found = []
        slopes, maps = self.problem.blocks(slope[0]), self.problem.segment.fitted
        for (W, marks, restraint), own, form, map_ in zip(self._blocks(theta), slopes, forms, maps, strict=True):
            asked = marks, restraint, map_.connected
            found.append(self._solved(Quadratic(form, W, own, np.full(len(W), scale[0]), *asked)))
        return stacked(found)

    def curvature(self, move: Array, forms: Sequence[Form]) -> Array:
        pairs = zip(self.problem.blocks(move[0]), forms, strict=True)
        return np.array([sum(float(np.vdot(M @ form.H, M)) for M, form in pairs)])
