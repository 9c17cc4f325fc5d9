"""Quadratics with restraints, one for each row of weights, from a Gram: coordinate descent and Newton's steps.

        min over w_h of -c_h (w_h - a_h)^T + s_h/2 (w_h - a_h) H (w_h - a_h)^T + restraint(v_h)

a: where the rows begin, c: minus the gradient of the smooth part there, s: a row's curvature in units of H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.parallel.lapack import lapack
from macmpi.solvers.regular import regular_factor
from macmpi.solvers.restraint import Restraint
from macmpi.typing import Array

COLUMNS = 32
"""Columns of a sweep whose residuals are brought up to date by one product."""

SWEEPS = 2
"""Sweeps between two of Newton's steps, which find what sweeps need hundreds for where inputs are nearly dependent."""


class Form(NamedTuple):
    """H (P, P), positive definite, and its inverse: a layer's Gram plus ridge."""

    H: Array
    inverse: Array


def form_of(G: Array, added: Array | float) -> Form:
    """G, known from the diagonal on at least, with `added` on the diagonal, and as much more as rounding takes."""
    upper = np.triu(G)
    H: Array = upper + np.triu(upper, 1).T
    H[np.diag_indices_from(H)] += added
    lower = np.asfortranarray(regular_factor(H))
    inverse, _ = lapack.dpotri(lower, lower=1)
    inverse = np.tril(inverse)
    return Form(H, inverse + np.tril(inverse, -1).T)


@dataclass(frozen=True)
class Quadratic:
    """Rows W (w, P) of such a problem; penalised (w, P): where the restraint holds.

    connected: where weights exist; the others are 0 and stay 0.
    """

    form: Form
    start: Array
    slope: Array
    scale: Array
    penalised: Array
    restraint: Restraint
    connected: Array | None = None

    def of(self, rows: slice | Array) -> Quadratic:
        """Some rows; not of a restraint that joins them."""
        start, slope, scale, penalised = (A[rows] for A in (self.start, self.slope, self.scale, self.penalised))
        connected = None if self.connected is None else self.connected[rows]
        return Quadratic(self.form, start, slope, scale, penalised, self.restraint, connected)

    def smooth(self, W: Array) -> tuple[Array, Array]:
        """Value (w,) and gradient (w, P) without the restraint's penalty."""
        step = W - self.start
        curved = self.scale[:, None] * (step @ self.form.H)
        return 0.5 * row_dots(step, curved) - row_dots(self.slope, step), curved - self.slope

    def value(self, W: Array) -> Array:
        """The objective of each row, or of all rows joined in the first."""
        value, _ = self.smooth(W)
        if self.restraint.joins:
            value[0], value[1:] = value.sum(), 0.0
        return value + self.restraint.penalty(W, self.penalised)

    def solved(self, rounds: int, tolerance: float) -> Array:
        """Rows that lower the objective, or start, which lies within the bounds.

        Newton's steps and sweeps in turn, at most `rounds` times, until they lower it by a share of at most `tolerance`
        of what they have.  The sweeps alone where the restraint joins rows.
        """
        first = self.value(self.start)
        W, before, live = self.start.copy(), first.copy(), np.arange(len(first))
        for _ in range(rounds):
            part = self if self.restraint.joins else self.of(live)
            W[live] = part._round(W[live])
            now = part.value(W[live])
            going = before[live] - now > tolerance * (first[live] - now)
            before[live] = now
            live = live if self.restraint.joins and going.any() else live[going]
            if not len(live):
                break
        better = self.value(W) < first
        return np.where((better[:1] if self.restraint.joins else better)[:, None], W, self.start)

    def _round(self, W: Array) -> Array:
        low, high = self.restraint.limits(self.start, self.penalised)
        if self.connected is not None:
            low, high = (np.where(self.connected, bound, 0.0) for bound in (low, high))
        W = W.copy() if self.restraint.joins else self._newton(W, low, high)
        for _ in range(SWEEPS):
            self._sweep(W, low, high)
        return W

    def _sweep(self, W: Array, low: Array, high: Array) -> None:
        """Each column in turn at its minimum, all rows at once, in place.  Cost: 2 w P^2 flops."""
        H, scale = self.form.H, self.scale
        thresholds = np.ascontiguousarray((self.restraint.l1 * self.penalised).T)
        low, high = np.ascontiguousarray(low.T), np.ascontiguousarray(high.T)
        for first in range(0, len(H), COLUMNS):
            cut = slice(first, min(first + COLUMNS, len(H)))
            R = np.ascontiguousarray((self.slope[:, cut] - scale[:, None] * ((W - self.start) @ H[:, cut])).T)
            V = np.ascontiguousarray(W[:, cut].T)
            for i, j in enumerate(range(cut.start, cut.stop)):
                curvature = scale * H[j, j]
                new = self._shrunk(R[i] + curvature * V[i], curvature, thresholds[j], j)
                new = np.minimum(np.maximum(new, low[j]), high[j])
                moved = scale * (new - V[i])
                V[i] = new
                R[i + 1 :] -= H[j, cut.start + i + 1 : cut.stop, None] * moved
            W[:, cut] = V.T

    def _shrunk(self, right: Array, curvature: Array, threshold: Array, column: int) -> Array:
        """min over x of curvature/2 x^2 - right x + threshold |x|, and of the group's norm where there is one."""
        found = np.copysign(np.maximum(np.abs(right) - threshold, 0.0), right)
        if self.restraint.joins and self.penalised[0, column]:
            if self.restraint.least >= 0.0:
                found = np.maximum(found, 0.0)
            norm = float(np.sqrt(found @ found))
            found *= max(1.0 - self.restraint.group / norm, 0.0) if norm > 0.0 else 0.0
        return found / curvature + 0.0

    def _newton(self, W: Array, low: Array, high: Array) -> Array:
        """Each row where the first of three of Newton's steps ends that lowers its objective, or where it was.

        Towards the weights and signs that a step along the gradient, coordinate by coordinate, would leave free (the
        primal-dual active set); with the present ones, what would change sign or leave the bounds put there; and along
        that as far as the first of these.  Rows of the same free weights share a factor.  Cost of each: at most
        P^3 / 24 flops for each set of free weights, and 2 w P^2.
        """
        _, gradient = self.smooth(W)
        l1, before, found = self.restraint.l1 * self.penalised, self.value(W), W.copy()

        def towards(free: Array, signs: Array, held: Array) -> Array:
            right = -(gradient + l1 * signs) / self.scale[:, None] - held @ self.form.H
            return held + self._restricted(free, right)

        def take(rows: Array, tried: Array) -> Array:
            lower = self.of(rows).value(tried) < before[rows]
            found[rows[lower]] = tried[lower]
            return rows[~lower]

        pace = self.scale[:, None] * np.diag(self.form.H)
        ahead = W - gradient / pace
        aim = np.clip(np.copysign(np.maximum(np.abs(ahead) - l1 / pace, 0.0), ahead), low, high)
        free = (low < aim) & (aim < high) & ((aim != 0.0) | (l1 == 0.0))
        step = towards(free, np.sign(aim), np.where(free, 0.0, aim - W))
        rest = take(np.arange(len(W)), np.clip(np.where(free, W + step, aim), low, high))
        if not len(rest):
            return found
        part = self.of(rest)
        W, low, high, l1, gradient = W[rest], low[rest], high[rest], l1[rest], gradient[rest]
        crossing = (W != 0.0) & (l1 > 0.0)
        low = np.where(crossing & (W > 0.0), np.maximum(low, 0.0), low)
        high = np.where(crossing & (W < 0.0), np.minimum(high, 0.0), high)
        free = (low < W) & (high > W) & ((W != 0.0) | (l1 == 0.0))
        step = part._restricted(free, -(gradient + l1 * np.sign(W)) / part.scale[:, None])
        still = take(rest, np.clip(W + step, low, high))
        left = np.searchsorted(rest, still)
        length = _reach(W[left], step[left], low[left], high[left])
        take(still, np.clip(W[left] + length[:, None] * step[left], low[left], high[left]))
        return found

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
                found[rows] = 0.0
                found[rows[:, None], inside] = _solve(
                    self.form.H[inside[:, None], inside], right[rows[:, None], inside]
                )
            elif len(held):
                inverse, y = self.form.inverse, found[rows[:, None], held]
                found[rows] -= _solve(inverse[held[:, None], held], y) @ inverse[held]
                found[rows[:, None], held] = 0.0
        return found


def _solve(M: Array, right: Array) -> Array:
    """Rows x with M x = right for M symmetric; 0 where it is not positive definite in rounding."""
    if not len(M):
        return np.zeros_like(right)
    factor, failed = lapack.dpotrf(M, lower=1)
    if failed:
        return np.zeros_like(right)
    found, _ = lapack.dpotrs(factor, right.T, lower=1)
    solved: Array = found.T
    return solved


def alike(marks: Array) -> list[Array]:
    """Numbers of rows with the same marks, in the order of the first of each."""
    groups: dict[bytes, list[int]] = {}
    for h, row in enumerate(np.packbits(marks, axis=1)):
        groups.setdefault(row.tobytes(), []).append(h)
    return [np.array(rows) for rows in groups.values()]


def _reach(W: Array, step: Array, low: Array, high: Array) -> Array:
    """The share of its step, at most 1, at which the first of a row's weights is at a bound."""
    bound = np.where(step > 0.0, high, low)
    ends = np.isfinite(bound) & (step != 0.0)
    away = np.where(ends, bound - W, 0.0)
    with np.errstate(over="ignore"):
        length = np.where(ends, away / np.where(ends, step, 1.0), np.inf)
    return np.minimum(length.min(axis=1, initial=1.0), 1.0)


def stacked(parts: Sequence[Array]) -> Array:
    """Blocks of weights as one row (1, P)."""
    return np.concatenate([part.ravel() for part in parts])[None]
