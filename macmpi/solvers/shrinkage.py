"""Quadratics with restraints, one for each row of weights, from a Gram: coordinate descent and Newton's steps.

        min over w_h of -c_h (w_h - a_h)^T + s_h/2 (w_h - a_h) H (w_h - a_h)^T + restraint(v_h)

a: where the rows begin, c: minus the gradient of the smooth part there, s: a row's curvature in units of H.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.parallel.lapack import factored, lapack, solved_rows
from macmpi.solvers.cholesky import regular_factor, symmetric
from macmpi.solvers.grams import alike
from macmpi.solvers.w_problem import Restraint, together
from macmpi.typing import Array

COLUMNS = 32
"""Columns of a sweep whose gradients are brought up to date by one product."""

SWEEPS = 2
"""Sweeps between two of Newton's steps, which find what sweeps need hundreds for where inputs are nearly dependent."""

SINGLE = 3
"""Weights of a row that may leave 0 or a bound between two of Newton's steps, where it is solved to the end."""

EXACT_ROUNDS, EXACT = 1000, 1e-10
"""Rounds of Newton's steps and descent at most, and what conditions may lack, of what is solved to the end."""

ROUNDS, NEAR = 2, 0.05
"""Rounds and lack of what is solved roughly, where the quadratic is only a model."""

HALVINGS = 20
"""The search for the lowest place along a step halves what is left of it so often."""

ROUNDING = 4.0 * float(np.finfo(float).eps)
"""Share of its terms that a sum of them may be wrong by, as a rule."""


class Form(NamedTuple):
    """H (P, P), positive definite, and its inverse: a layer's Gram plus ridge."""

    H: Array
    inverse: Array


def form_of(G: Array, added: Array | float) -> Form:
    """G, known from the diagonal on at least, with `added` on the diagonal, and as much more as rounding takes."""
    H = symmetric(G.T)
    H[np.diag_indices_from(H)] += added
    lower = np.asfortranarray(regular_factor(H))
    return Form(H, symmetric(lapack.dpotri(lower, lower=1)[0]))


@dataclass(frozen=True)
class Quadratic:
    """Rows W (w, P) of such a problem; penalised (w, P): where the restraint holds.

    bounds: least and most of each weight, (w, P) each.  Where the restraint joins rows, they have one scale.
    """

    form: Form
    start: Array
    slope: Array
    scale: Array
    penalised: Array
    restraint: Restraint
    bounds: tuple[Array, Array]

    def of(self, rows: slice | Array) -> Quadratic:
        """Some rows; of a restraint that joins them all."""
        if self.restraint.joins:
            return self
        parts = self.start, self.slope, self.scale, self.penalised, *self.bounds
        start, slope, scale, penalised, low, high = (A[rows] for A in parts)
        return Quadratic(self.form, start, slope, scale, penalised, self.restraint, (low, high))

    @cached_property
    def l1(self) -> Array:
        """The size of l1 at each weight, (w, P)."""
        return self.restraint.l1 * self.penalised

    @property
    def grouped(self) -> Array:
        """Marks the columns that are groups, (P,)."""
        return self.penalised[0] & self.restraint.joins

    def solved(self, to_the_end: bool) -> Array:
        """Rows that lower the objective, or start, which lies within the bounds; solved to the end or roughly.

        A round is one of Newton's steps and coordinate descent: sweeps, or of rows that nothing joins and that are
        solved to the end the few weights that lack most.  Those rows begin with all weights 0: some leave 0 in each
        round, while back they come one by one.  A row is done where each of its conditions holds to a share of l1 and
        the groups' size together, or without these of the largest gradient at 0, or to rounding.
        """
        rounds, tolerance = (EXACT_ROUNDS, EXACT) if to_the_end else (ROUNDS, NEAR)
        swept, (low, high) = self.restraint.joins or not to_the_end, self.bounds
        held = self.penalised & (not swept)
        W, live = np.where(held, np.clip(0.0, low, high), self.start), np.arange(len(self.start))
        for _ in range(rounds):
            W[live], going = self.of(live)._round(W[live], tolerance, swept)
            live = live[going]
            if not len(live):
                break
        change, _ = self._change(self.start, W, -self.slope)
        return np.where((change < 0.0)[:, None], W, self.start)

    def lack(self, W: Array, gradient: Array) -> Array:
        """The distance of the gradient of the smooth part from minus the subgradients of the restraint, (w, P).

        With these for V the objective is at most 1/2 sum_h v_h (s_h H)^-1 v_h^T above its minimum: a duality gap.
        """
        (low, high), l1 = self.bounds, self.l1
        shrink, lengths = self._groups(W)
        pull = -gradient - shrink * W
        side = l1 * np.sign(W)
        least = np.where(low >= W, -np.inf, np.where(W == 0.0, -l1, side))
        most = np.where(high <= W, np.inf, np.where(W == 0.0, l1, side))
        found: Array = np.maximum(np.maximum(least - pull, pull - most), 0.0)
        if self.restraint.joins:
            gone = self.grouped & (lengths == 0.0)
            norms = np.sqrt(np.square(found[:, gone]).sum(axis=0))
            found[:, gone] *= np.maximum(1.0 - self.restraint.group / np.where(norms > 0.0, norms, 1.0), 0.0)
        return found

    def _groups(self, W: Array) -> tuple[Array, Array]:
        """group / ||V_j|| of each column, 0 where it is 0 or free, and the lengths ||V_j|| of groups."""
        if not self.restraint.joins:
            return np.zeros(W.shape[1]), np.zeros(W.shape[1])
        lengths = np.sqrt(np.square(np.where(self.penalised, W, 0.0)).sum(axis=0))
        return np.where(lengths > 0.0, self.restraint.group / np.where(lengths > 0.0, lengths, 1.0), 0.0), lengths

    def _summed(self, values: Array) -> Array:
        """The values of each row, or where they are joined their sum."""
        return together(self.restraint.joins, values)

    def _together(self, values: Array) -> Array:
        """The largest of each row, or of all where they are joined."""
        return together(self.restraint.joins, values.max(axis=1, initial=0.0), np.max)

    def _limit(self, W: Array, tolerance: float) -> Array:
        """The most that a condition may lack, (w,)."""
        size, step = self.restraint.l1 + self.restraint.group, np.abs(W - self.start).sum(axis=1, keepdims=True)
        terms = np.abs(self.slope) + (self.scale * self.form.H.diagonal().max())[:, None] * step
        at_0 = size if size else np.abs(self.slope + self.scale[:, None] * (self.start @ self.form.H))
        return np.maximum(tolerance * self._together(np.broadcast_to(at_0, W.shape)), ROUNDING * self._together(terms))

    def _change(self, old: Array, new: Array, gradient: Array) -> tuple[Array, Array]:
        """The change of the objective of each row, or of all joined ones, and the new gradient of its smooth part.

        gradient: that at the old rows.
        """
        move = new - old
        curved = self.scale[:, None] * (move @ self.form.H)
        change = row_dots(gradient, move) + 0.5 * row_dots(curved, move)
        change += (self.l1 * (np.abs(new) - np.abs(old))).sum(axis=1)
        if self.restraint.joins:
            change[0] += self.restraint.group * (self._groups(new)[1] - self._groups(old)[1]).sum()
        return self._summed(change), gradient + curved

    def _round(self, W: Array, tolerance: float, swept: bool) -> tuple[Array, Array]:
        """The rows after Newton's steps and coordinate descent, and which of them are not done."""
        gradient = self.scale[:, None] * ((W - self.start) @ self.form.H) - self.slope
        W, gradient = self._newton(W, gradient)
        going = self._together(self.lack(W, gradient)) > self._limit(W, tolerance)
        if going.any():
            part = self.of(going)
            W[going] = (part._swept if swept else part._single)(W[going], gradient[going])
        return W, going

    def _single(self, W: Array, gradient: Array) -> Array:
        """Puts the weights of each row that lack most of their conditions at their minima, SINGLE one after another."""
        found, rows, (low, high) = W.copy(), np.arange(len(W)), self.bounds
        for _ in range(SINGLE):
            columns = self.lack(found, gradient).argmax(axis=1)
            at, curvature = (rows, columns), self.scale * self.form.H.diagonal()[columns]
            new = self._shrunk(curvature * found[at] - gradient[at], curvature, self.l1[at])
            move = np.minimum(np.maximum(new, low[at]), high[at]) - found[at]
            gradient = gradient + (self.scale * move)[:, None] * self.form.H[columns]
            found[at] = found[at] + move
        return found

    def _swept(self, W: Array, gradient: Array) -> Array:
        """Each column in turn at its minimum, all rows at once, SWEEPS times.  Cost: 2 w P^2 flops each."""
        H, scale = self.form.H, self.scale
        l1, low, high = (np.ascontiguousarray(M.T) for M in (self.l1, *self.bounds))
        W, gradient, grouped = W.T.copy(), gradient.T.copy(), self.grouped
        for first in SWEEPS * [*range(0, len(H), COLUMNS)]:
            cut = slice(first, min(first + COLUMNS, len(H)))
            V, R = W[cut].copy(), gradient[cut].copy()
            for i, j in enumerate(range(cut.start, cut.stop)):
                curvature = scale * H[j, j]
                new = self._shrunk(curvature * V[i] - R[i], curvature, l1[j], bool(grouped[j]))
                new = np.minimum(np.maximum(new, low[j]), high[j])
                R[i + 1 :] += H[j, j + 1 : cut.stop, None] * (scale * (new - V[i]))
                V[i] = new
            gradient += scale * (H[:, cut] @ (V - W[cut]))
            W[cut] = V
        return W.T

    def _shrunk(self, right: Array, curvature: Array, threshold: Array, grouped: bool = False) -> Array:
        """min over x of curvature/2 x^2 - right x + threshold |x|, and of the group's norm where there is one."""
        found = np.copysign(np.maximum(np.abs(right) - threshold, 0.0), right)
        if grouped:
            if self.restraint.least >= 0.0:
                found = np.maximum(found, 0.0)
            norm = float(np.sqrt(found @ found))
            found *= max(1.0 - self.restraint.group / norm, 0.0) if norm > 0.0 else 0.0
        return found / curvature + 0.0

    def _newton(self, W: Array, gradient: Array) -> tuple[Array, Array]:
        """Each row and its gradient where Newton's step ends, at the lowest place on the way to it, or where it was.

        The step is that of the weights that are free, with their signs; what would change sign, turn round or leave the
        bounds is put there.  The first of these places that is better is taken.
        """
        found, slopes = W.copy(), gradient.copy()
        (low, high), l1 = self.bounds, self.l1
        shrink, lengths = self._groups(W)
        free = (low < W) & (high > W) & ((W != 0.0) | (l1 == 0.0)) & ((lengths > 0.0) | ~self.grouped)
        right = -(gradient + shrink * W + l1 * np.sign(W)) / self.scale[:, None]
        step = self._bent(free, right, W) if self.restraint.joins else self._restricted(free, right)
        low = np.where((W > 0.0) & (l1 > 0.0), np.maximum(low, 0.0), low)
        high = np.where((W < 0.0) & (l1 > 0.0), np.minimum(high, 0.0), high)
        new = np.clip(W + step, low, high)
        turned = self.grouped & ((W * new).sum(axis=0) <= 0.0) if self.restraint.joins else self.grouped
        still = self._taken(np.arange(len(W)), np.where(turned, 0.0, new), found, slopes)
        if len(still):
            lowest = self.of(still)._lowest(W[still], step[still], gradient[still])
            self._taken(still, lowest, found, slopes)
        return found, slopes

    def _lowest(self, W: Array, step: Array, gradient: Array) -> Array:
        """Rows at their lowest place between W and W + step within the bounds; weights that cross 0 there are 0."""
        (low, high), l1, none = self.bounds, self.l1, np.zeros(len(W))
        begin, end = none, together(self.restraint.joins, _reach(W, step, low, high), np.min)
        slope, curvature = row_dots(gradient, step), self.scale * row_dots(step @ self.form.H, step)
        for _ in range(HALVINGS):
            middle = 0.5 * (begin + end)
            at = W + middle[:, None] * step
            rise = slope + middle * curvature + row_dots(self._groups(at)[0] * at + l1 * np.sign(at), step)
            up = self._summed(rise) > 0.0
            begin, end = np.where(up, begin, middle), np.where(up, middle, end)
        before, after = (W + length[:, None] * step for length in (begin, end))
        return np.where((l1 > 0.0) & (before * after < 0.0), 0.0, np.clip(after, low, high))

    def _taken(self, rows: Array, tried: Array, found: Array, slopes: Array) -> Array:
        """Puts better rows in place, and their gradients; gives the numbers of the others.

        Better: the objective is lower, or the same to rounding and closer to its conditions.
        """
        if not len(rows):
            return rows
        part, old, gradient = self.of(rows), found[rows], slopes[rows]
        change, now = part._change(old, tried, gradient)
        noise = ROUNDING * self._summed(self.restraint.penalty(old, part.penalised))
        closer = part._together(part.lack(tried, now)) < part._together(part.lack(old, gradient))
        better = (change < -noise) | ((change <= noise) & closer)
        found[rows[better]], slopes[rows[better]] = tried[better], now[better]
        return rows[~better]

    def _bent(self, free: Array, right: Array, W: Array) -> Array:
        """The minimum of the groups' second-order model too: x with (x H + (bend - u bend u^T) x)_F = right_F.

        bend_j = group / (s ||V_j||) and u_j = V_j / ||V_j||, over all rows.  Without u u^T the rows separate; these
        come back by Woodbury's formula, with S_ij = [i = j] / bend_j - sum_h u_hi u_hj (H_h^-1)_ij, H_h of the row's
        free weights with bend on the diagonal.  Cost: P^3 / 1.5 flops for each set of free weights, and 4 w P^2.
        """
        shrink, lengths = self._groups(W)
        bend = shrink / self.scale[0]
        kept = np.flatnonzero(lengths > 0.0)
        U = np.where(free & (lengths > 0.0), W / np.where(lengths > 0.0, lengths, 1.0), 0.0)
        S, step = np.zeros_like(self.form.H), np.zeros_like(W)
        S[kept, kept] = 1.0 / bend[kept]
        for rows, own, inverse in self._inverses(free, bend):
            step[rows[:, None], own] = right[rows[:, None], own] @ inverse
            V = U[rows[:, None], own]
            S[own[:, None], own] -= (V.T @ V) * inverse
        along = _solve(S[kept[:, None], kept], np.einsum("hj,hj->j", U, step)[None, kept])
        more = np.zeros_like(U)
        more[:, kept] = U[:, kept] * along
        for rows, own, inverse in self._inverses(free, bend):
            step[rows[:, None], own] += more[rows[:, None], own] @ inverse
        return step

    def _inverses(self, free: Array, bend: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Rows with the same free weights, these, and the inverse of H with `bend` on the diagonal there."""
        for rows in alike(free):
            own = np.flatnonzero(free[rows[0]])
            M = self.form.H[own[:, None], own]
            M[np.diag_indices_from(M)] += bend[own]
            yield rows, own, _solve(M, np.eye(len(own)))

    def _restricted(self, free: Array, right: Array) -> Array:
        """x with (H x)_F = right_F and 0 elsewhere, row by row, F the row's free weights.

        From H_FF where few are free; else x = y - H^-1[:, Z] (H^-1_ZZ)^-1 y_Z with y = H^-1 right, right 0 at the held
        weights Z.
        """
        right = np.where(free, right, 0.0)
        found = right @ self.form.inverse
        for rows in alike(free):
            own = free[rows[0]]
            inside, held = np.flatnonzero(own), np.flatnonzero(~own)
            if len(inside) <= len(held):
                H, found[rows] = self.form.H[inside[:, None], inside], 0.0
                found[rows[:, None], inside] = _solve(H, right[rows[:, None], inside])
            elif len(held):
                inverse, y = self.form.inverse, found[rows[:, None], held]
                found[rows] -= _solve(inverse[held[:, None], held], y) @ inverse[held]
                found[rows[:, None], held] = 0.0
        return found


def _solve(M: Array, right: Array) -> Array:
    """Rows x with M x = right for M symmetric; 0 where it is not positive definite in rounding."""
    try:
        return solved_rows(factored(M), right) if len(M) else np.zeros_like(right)
    except np.linalg.LinAlgError:
        return np.zeros_like(right)


def _reach(W: Array, step: Array, low: Array, high: Array) -> Array:
    """The share of its step, at most 1, at which the first of a row's weights is at a bound."""
    bound = np.where(step > 0.0, high, low)
    ends = np.isfinite(bound) & (step != 0.0)
    away = np.where(ends, bound - W, 0.0)
    with np.errstate(over="ignore"):
        length = np.where(ends, away / np.where(ends, step, 1.0), np.inf)
    return np.minimum(length.min(axis=1, initial=1.0), 1.0)
