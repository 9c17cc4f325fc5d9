"""Minimises many independent objectives at once, each of them a row of an array.

The rows are the points of a Z-step, the units of a W-step, or one whole segment: up to thousands of small problems
whose products, values and gradients are cheap together.  Each row has its own step length and coefficients, and rows
that are done are masked.  Linear systems are solved by conjugate gradients, other problems by descents with line
searches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from macmpi.nets.design import row_dots
from macmpi.typing import Array

Values = Callable[[Array], Array]
Gradients = Callable[[Array], tuple[Array, Array]]
Numbers = Array | float
FromRank0 = Callable[[Array], Array]

Precondition = Callable[[Array], Array]
"""A function that computes the preconditioned residuals of rows, (m, P) -> (m, P), in a new array."""

Product = Callable[[Array, bool], tuple[Array, Array | None, Array]]
"""(P, last) -> P^T S P row by row; S P, or None in the last iteration; the solution's change by a step of length 1."""

ARMIJO = 1e-4
"""A trial step t is accepted where it lowers the value by at least this share of t times the slope (Armijo)."""

PLANE_DAMPING = 1e-3
"""The number that `least_in_plane` adds to the diagonal, for directions scaled to curvature 1."""

PAIRS, CURVED = 10, 1e-10
"""L-BFGS keeps the last PAIRS steps s and changes y of the gradient, and uses those with s . y > CURVED ||s|| ||y||."""


class Direction:
    """A rule for search directions (m, P) from gradients, row by row; here steepest descent, d = -g.

    A subclass keeps what it needs of earlier gradients and steps.
    exact: whether the first trial of a line search is only a guess, so that a parabola refines it even if it is good.
    """

    exact = True

    def next(self, G: Array, X: Array) -> Array:
        return -G

    def moved(self, step: Array, G: Array) -> None:
        """Keeps the step (m, P) that was taken and the gradient (m, P) after it; here it does nothing."""


@dataclass
class Newton(Direction):
    """d = -H^-1 g by CG, which ends at `cg_tolerance` or where H is not positive along a direction (truncated Newton).

    H p is computed as a difference of gradients.  Cost: two gradients a CG iteration.
    with_gradient, from_rank0: as in `Descent.minimise`.
    """

    with_gradient: Gradients
    from_rank0: FromRank0
    cg_iterations: int
    cg_tolerance: float
    exact = False

    def next(self, G: Array, X: Array) -> Array:
        size = np.cbrt(np.finfo(X.dtype).eps) * (1.0 + np.abs(X).max(axis=1, initial=0.0))

        def product(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
            largest = np.abs(P).max(axis=1, initial=0.0)  # a row with P = 0 may have any step
            h = self.from_rank0(size / np.where(largest > np.sqrt(np.finfo(P.dtype).tiny), largest, 1.0))[:, None]
            with np.errstate(over="ignore", invalid="ignore"):
                there = ((X + s * h * P).astype(X.dtype, copy=False) for s in (1.0, -1.0))
                ahead, behind = (self.with_gradient(X)[1] for X in there)
                HP = np.nan_to_num((ahead - behind) / (2.0 * h), posinf=0.0, neginf=0.0)
            return self.from_rank0(row_dots(P, HP)), None if last else HP, P

        start, keys = np.zeros_like(G), (self.cg_iterations, self.cg_tolerance)
        D = conjugate_gradients(start, -G, product, np.copy, *keys, from_rank0=self.from_rank0)
        return np.where(D.any(axis=1, keepdims=True), D, -G)


@dataclass
class Conjugate(Direction):
    """d = -g + max(0, g . (g - g_old) / g_old . g_old) d_old: conjugate gradients, Polak-Ribiere cut off at 0 (PR+)."""

    _old: tuple[Array, Array] | None = None

    def next(self, G: Array, X: Array) -> Array:
        D = -G
        if self._old is not None:
            G_old, D_old = self._old
            below = row_dots(G_old, G_old)
            beta = np.maximum(row_dots(G, G - G_old), 0.0) / np.where(below > 0.0, below, 1.0)
            D += beta[:, None] * D_old
        self._old = G, D
        return D


@dataclass
class LBFGS(Direction):
    """d = -H g, where H comes from the last PAIRS steps and changes of the gradient of each row."""

    _pairs: list[Pair] = field(default_factory=list)
    _gradient: Array | None = None

    def next(self, G: Array, X: Array) -> Array:
        self._gradient = G
        self.exact = not self._pairs
        return -inverse_times(self._pairs, G)

    def moved(self, step: Array, G: Array) -> None:
        assert self._gradient is not None
        self._pairs = [*self._pairs[-PAIRS + 1 :], pair(step, G - self._gradient)]


Pair = tuple[Array, Array, Array]
"""Steps s (m, P), changes y of the gradient (m, P), and 1 / s.y (m,), which is 0 for pairs that are not used."""


def pair(step: Array, change: Array) -> Pair:
    """Makes the pair of L-BFGS from steps (m, P) and the changes (m, P) of the gradient."""
    sy = row_dots(step, change)
    useful = sy > CURVED * np.sqrt(row_dots(step, step) * row_dots(change, change))
    useful &= sy > 4.0 * np.finfo(change.dtype).tiny
    return step, change, np.where(useful, 1.0 / np.where(useful, sy, 1.0), 0.0)


def inverse_times(pairs: Sequence[Pair], G: Array) -> Array:
    """Computes H g for each row by the two loops of L-BFGS (Nocedal and Wright, 2006, algorithm 7.4).

    pairs: the oldest first.  H_0 = (s . y / y . y) I, from the last pair; without pairs H g = g.
    Cost: 8 P flops a pair and row.
    """
    Q, alphas = G.copy(), []
    for S, Y, rho in reversed(pairs):
        alpha = rho * row_dots(S, Q)
        alphas.append(alpha)
        Q -= alpha[:, None] * Y
    if pairs:
        S, Y, rho = pairs[-1]
        yy = row_dots(Y, Y)
        Q *= np.where(rho > 0.0, 1.0 / np.where(rho > 0.0, rho * yy, 1.0), 1.0)[:, None]
    for (S, Y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        Q += (alpha - rho * row_dots(Y, Q))[:, None] * S
    return Q


@dataclass(frozen=True)
class Descent:
    """Steepest descent with line searches, for each row; subclasses descend along another `direction`.

    iterations, halvings: the largest numbers of iterations, and of halvings of a step's length.
    tolerance: a row is done once its objective falls by a smaller share.
    """

    iterations: int = 10
    tolerance: float = 0.0
    halvings: int = 10

    direction: ClassVar[type[Direction]] = Direction

    def directions(self, with_gradient: Gradients, from_rank0: FromRank0) -> Direction:
        """Makes the rule for search directions of one descent.  with_gradient, from_rank0: as in `minimise`."""
        return self.direction()

    def minimise(
        self, objective: Values, with_gradient: Gradients, start: Array, from_rank0: FromRank0 = lambda numbers: numbers
    ) -> tuple[Array, Array]:
        """Lowers the objective of each row from `start` (m, P), and returns the rows and their objectives (m,).

        No objective rises.
        objective, with_gradient: functions that compute the objectives (m,) of rows, and the objectives with gradients
            (m, P).
        from_rank0: as in SharedMatrix, where ranks compute values and gradients together.  Collective: as from_rank0.
        """
        X, direction = start.copy(), self.directions(with_gradient, from_rank0)
        f, G = _finite(*with_gradient(X))
        live = np.ones(len(X), dtype=bool)
        G = from_rank0(G)
        length = from_rank0(1.0 / np.maximum(1.0, np.sqrt(row_dots(G, G))))
        for i in range(self.iterations):
            D = from_rank0(direction.next(G, X))
            slope = from_rank0(row_dots(D, G))
            wrong = slope >= 0.0
            D[wrong] = -G[wrong]
            slope = np.where(wrong, from_rank0(-row_dots(G, G)), slope) if wrong.any() else slope
            live &= slope < 0.0
            if not live.any():
                break
            trial = length if direction.exact else np.ones(len(X))
            length, after = line_search(objective, X, D, f, slope, trial * live, direction.exact, self.halvings)
            step = np.where((length > 0.0)[:, None], length.astype(X.dtype)[:, None] * D, 0.0)
            step = step.astype(X.dtype, copy=False)
            X += step
            live &= f - after > self.tolerance * f
            length = np.where(length > 0.0, length, trial)
            f = after
            if i + 1 == self.iterations or not live.any():
                break
            _, G = _finite(*with_gradient(X))
            G = from_rank0(G)
            direction.moved(step, G)
        return X, f


def _finite(f: Array, G: Array) -> tuple[Array, Array]:
    """Sets the gradient of a row to 0 where it is not finite, so that the row stays where it is."""
    return f, np.where(np.isfinite(G).all(axis=1)[:, None], G, 0.0).astype(G.dtype, copy=False)


def line_search(
    objective: Values, X: Array, D: Array, f: Array, slope: Array, first: Array, exact: bool, halvings: int
) -> tuple[Array, Array]:
    """Searches along D from X, and returns the step lengths (m,) and the objectives (m,) there.

    f, slope (m,): the objectives at X, and their slopes along D.
    first (m,): the first trial of each row; rows with 0 stay.
    exact: whether a second trial is made even where the first one was good.
    halvings: the largest number of further trials.
    The lowest trial that satisfies Armijo's rule is taken.  Each next trial is the minimum of the parabola through
    value, slope and the value of the trial before.
    """
    best, length = f.copy(), np.zeros(len(f))
    t, pending = first.copy(), first > 0.0
    for attempt in range(halvings + 1):
        if not pending.any():
            break
        with np.errstate(over="ignore", invalid="ignore"):
            trial = objective(X + t.astype(X.dtype)[:, None] * D)
            good = pending & (trial <= f + ARMIJO * t * slope) & (trial < best)
            parabola = parabola_minimum(f, slope, t, trial)
        best, length = np.where(good, trial, best), np.where(good, t, length)
        parabola = np.where(np.isfinite(trial), parabola, 0.0)
        if exact and attempt == 0:
            t = np.where(length > 0.0, np.clip(parabola, 0.1 * t, 100.0 * t), np.clip(parabola, 1e-3 * t, 0.5 * t))
        else:
            pending &= length == 0.0
            t = np.clip(parabola, 0.1 * t, 0.5 * t)
    return length, best


def parabola_minimum(f: Numbers, slope: Numbers, t: Numbers, trial: Numbers) -> Array:
    """-slope t^2 / 2 (trial - f - slope t): the minimum of the parabola through f, its slope and the value of a trial.

    It is inf where the parabola has no minimum.
    """
    curvature = trial - f - slope * t
    return np.where(curvature > 0.0, -0.5 * slope * t**2 / np.where(curvature > 0.0, curvature, 1.0), np.inf)


def least_in_plane(H: Array, b: Array) -> Array:
    """argmin over x of 1/2 x^T H x - b^T x, damped by PLANE_DAMPING once H is scaled to diagonal 1.  Collective: no."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
    scaled = H * scale[:, None] * scale
    return scale * np.linalg.solve(0.5 * (scaled + scaled.T) + PLANE_DAMPING * np.eye(len(b)), b * scale)


def conjugate_gradients(
    start: Array,
    R: Array,
    product: Product,
    precondition: Precondition,
    iterations: int,
    tolerance: float,
    live: Array | bool = True,
    from_rank0: Callable[[Array], Array] = lambda numbers: numbers,
    taken: Callable[[Array, bool], object] = lambda lengths, first: None,
) -> Array:
    """Solves S x = r for each row by preconditioned CG, and returns start + the sum of its steps.

    It overwrites `start` and R.
    R: the right sides, in the rows' shape; product, precondition: S and the preconditioner.
    tolerance: a row is done, and masked from then on, once its preconditioned residual has fallen to this share.
    live: the rows that are solved; others stay.
    from_rank0: as in SharedMatrix.
    taken: is called with the step lengths of each iteration, and whether it is the first.
    Collective: if one of `product`, from_rank0 and `taken` is.
    """
    X = start
    preconditioned = precondition(R)
    P, ry = preconditioned, from_rank0(row_dots(R, preconditioned))
    small = tolerance**2 * ry
    live = live & (ry > 0.0)
    for i in range(iterations):
        curvature, SP, T = product(P, i + 1 == iterations)
        live = live & (curvature > 0.0)
        lengths = np.where(live, ry / np.where(live, curvature, 1.0), 0.0)
        alpha = lengths[:, None]
        X += T * alpha if T is P else np.multiply(T, alpha, out=T)
        taken(lengths, i == 0)
        if SP is None:
            break
        SP *= alpha
        R -= SP
        preconditioned = precondition(R)
        ry_old, ry = ry, from_rank0(row_dots(R, preconditioned))
        live = live & (ry > small)
        if not live.any():
            break
        P = preconditioned + np.where(live, ry / np.where(live, ry_old, 1.0), 0.0)[:, None] * P
    return X
