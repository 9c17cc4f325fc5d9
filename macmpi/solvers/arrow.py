"""Newton's method for E_Q in weights and coordinates together: an arrow system with one block of coordinates a point.

With c_k, q, B and Phi_k as in z_gauss_newton.py, and D_k dW for the change of the outputs of segment k by a change dW
of the weights, the Gauss-Newton model of a point is

    1/2 ||q - B (J_{K+1} dz_K + D_{K+1} dW)||^2 + 1/2 sum_k ||dz_k - J_k dz_{k-1} - D_k dW - c_k||_{M_k}^2.

Its minimum over the point's coordinates, the Schur complement, is 1/2 (r - B G dW)^T S^-1 (r - B G dW), where

    r = q - sum_k Phi_k c_k,    S = I + sum_k Phi_k M_k^-1 Phi_k^T  (L x L),

and G dW is the change of the net's outputs by dW alone, with dz_k = J_k dz_{k-1} + D_k dW.  This is the Gauss-Newton
model of the net itself in the metric S^-1, which tends to the identity as mu grows; so the system for the weights does
not become worse for large mu.

The curvature of the maps is sum_k p_k^T d^2 f_k, where p_k is the derivative of E_Q by the outputs of f_k.  It is added
for the joint change of dW and of the coordinates dz that the model gives for dW.  Its effect on these dz, which falls
like 1 / mu, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from macmpi.nets.design import weighed
from macmpi.nets.losses import Root, dense, times
from macmpi.nets.segment import Tape
from macmpi.parallel.streams import Stream
from macmpi.solvers.z_gauss_newton import Linearised, columns
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

Blocks = Sequence[Array]
"""An array for each parameter block of the net, of the block's shape."""

SMALL = 1e-9
"""A point takes the whole step where its objective can fall by at most this share, because rounding would hide that."""


@dataclass(frozen=True)
class Arrow:
    """The model of some points, with their coordinates eliminated.  Its methods `add_*` add sums over the points.

    problem: the Z-problem of the points; tapes: the segments f_1, ..., f_{K+1}, linearised.
    root: B; model: the model in the coordinates alone; residual: r.
    inverses (n, m, m): S^-1; or (C_K^-1 + (B J_{K+1})^T B J_{K+1})^-1 where the last site has fewer units than the net
        has outputs.
    weights (n,): the weights of the points, or None.
    """

    problem: ZProblem
    tapes: Sequence[Tape]
    root: Root
    model: Linearised
    residual: Array
    inverses: Array
    weights: Array | None

    @property
    def values(self) -> Array:
        """The objective of each point at the coordinates of the problem: (n,)."""
        return self.problem.weigh(self.problem.Z, self.model.feasible, self.tapes[-1].F)

    @property
    def falls(self) -> Array:
        """The decrease of the model of each point from its present value to its minimum over the coordinates: (n,)."""
        q = self.model.residual
        twice = np.vecdot(q, q) - np.vecdot(self.residual, self.solved(self.residual))
        for form, c in zip(self.model.metrics, self.model.feasible, strict=True):
            twice += form.square(c)
        return 0.5 * twice

    def solved(self, U: Array) -> Array:
        """Computes S^-1 U, row by row."""
        if self.inverses.shape[1] == U.shape[1]:
            return np.matvec(self.inverses, U)
        last = self.model.tangents[-1]
        return U - last.jvp(np.matvec(self.inverses, last.vjp(U)))

    def coordinates(self, changes: Blocks | None = None) -> Array:
        """Computes the dz (n, sum H) that minimise the model for a change of the weights; None for no change."""
        terms, last = self._by_weights(changes)
        moved = self._outputs(terms, last)
        for term, c in zip(terms, self.model.feasible, strict=True):
            term += c
        return self._followed(terms, self.solved(self.residual - moved))

    def add_slope(self, out: Blocks) -> None:
        """Adds G^T B^T S^-1 r, which is minus the gradient with respect to W of min over Z of E_Q.  Cost: 2 passes."""
        self._pull(weighed(self.solved(self.residual), self.weights), out)

    def add_product(self, changes: Blocks, share: float, out: Blocks) -> None:
        """Adds the Hessian times dW: G^T B^T S^-1 B G dW, and the curvature of the maps unless `share` is 0.

        share: that curvature is a difference quotient, over this share of dW and of its dz.
        Cost: 4 passes, or 10 with the curvature.
        """
        terms, last = self._by_weights(changes)
        v = self.solved(self._outputs(terms, last))
        if share == 0.0:
            return self._pull(weighed(v, self.weights), out)
        dz = self._followed(terms, -v)
        ahead = self._slopes([W + share * d for W, d in zip(self.problem.weights, changes, strict=True)], share * dz)
        by_z = []
        for tape, (W_plus, z_plus), (W_here, z_here) in zip(self.tapes, ahead, self._here, strict=True):
            _add(tape, [(a - b) / share for a, b in zip(W_plus, W_here, strict=True)], out)
            by_z.append((z_plus - z_here) / share)
        by_z = by_z[1:]
        for k in range(len(by_z) - 1, 0, -1):
            by_z[k - 1] += self.model.tangents[k - 1].vjp(by_z[k])
        for tape, u in zip(self.tapes, by_z, strict=False):
            _add(tape, tape.weight_vjp(u), out)
        terms = [times(u, form.inverse) for u, form in zip(by_z, self.model.metrics, strict=True)]
        self._pull(weighed(v, self.weights) - self.solved(self._outputs(terms)), out)

    def draws(self, random: Stream) -> Iterator[tuple[Tape, Array]]:
        """Draws random rows (B G_k)^T u with E[u u^T] = S^-1 for each segment, and returns them with its tape.

        G_k is the derivative of the net's outputs with respect to the outputs of segment k; the mean square of the rows
        is a metric.
        """

        def signs(shape: tuple[int, ...]) -> Array:
            return random.choice([-1.0, 1.0], shape).astype(self.residual.dtype)

        terms = []
        for c, form in zip(self.model.feasible, self.model.metrics, strict=True):
            root = form.inverse @ form.root if form.root.ndim == 2 else form.inverse * form.root
            terms.append(times(signs(c.shape), root))
        U = self.solved(signs(self.residual.shape) + self._outputs(terms))
        return zip(self.tapes, self._backwards(U), strict=True)

    @cached_property
    def _here(self) -> list[tuple[list[Array], Array]]:
        return self._slopes(self.problem.weights, 0.0)

    def _slopes(self, weights: Blocks, dz: Array | float) -> list[tuple[list[Array], Array]]:
        """Computes p_k^T df_k by weights and by coordinates, for each segment, at these weights and at Z + dz."""
        problem, slopes = self.problem, list[tuple[list[Array], Array]]()
        inputs = [problem.X, *problem.ahead(problem.Z + dz)]
        pulls = problem.pulls(self.model.feasible, self.tapes[-1].F)
        for segment, A, pull in zip(problem.segments, inputs, pulls, strict=True):
            tape, p = segment.tape(weights, A), weighed(pull, self.weights)
            by_z = tape.tangent.vjp(p) if slopes else p
            slopes.append((tape.weight_vjp(p), by_z))
        return slopes

    def _by_weights(self, changes: Blocks | None) -> tuple[list[Array], Array]:
        """Computes D_k dW for each site, and B D_{K+1} dW."""
        made = [tape.weight_jvp(changes) if changes and tape.blocks else np.zeros_like(tape.F) for tape in self.tapes]
        return made[:-1], self.root.times(made[-1])

    def _outputs(self, terms: Sequence[Array], last: Array | float = 0.0) -> Array:
        """Computes last + sum_k Phi_k term_k."""
        terms = [term.copy() for term in terms]
        self.model.accumulate(terms)
        return last + self.model.tangents[-1].jvp(terms[-1])

    def _followed(self, terms: Sequence[Array], v: Array) -> Array:
        """Computes dz_k = J_k dz_{k-1} + term_k + M_k^-1 Phi_k^T v.  It overwrites the terms."""
        for term, form, u in zip(terms, self.model.metrics, self._backwards(v), strict=False):
            term += times(u, form.inverse)
        self.model.accumulate(terms)
        return np.hstack(terms)

    def _backwards(self, U: Array) -> list[Array]:
        """Computes Phi_k^T U for the outputs of each segment but the last, and B^T U for the last."""
        back = [U]
        for tangent in reversed(self.model.tangents):
            back.insert(0, tangent.vjp(back[0]))
        return [*back[:-1], self.root.transposed(U)]

    def _pull(self, U: Array, out: Blocks) -> None:
        """Adds G^T B^T U."""
        for tape, dF in zip(self.tapes, self._backwards(U), strict=True):
            _add(tape, tape.weight_vjp(dF), out)


def _add(tape: Tape, slopes: Sequence[Array], out: Blocks) -> None:
    """Adds an array to each parameter block of a tape, in place in `out`."""
    for block, slope in zip(tape.blocks, slopes, strict=True):
        out[block][:] += slope


def arrow_of(problem: ZProblem, weights: Array | None = None) -> Arrow:
    """Makes the model at the weights and coordinates of a problem.  weights (n,): the weights of its points, or None.

    Cost: a pass, H_k passes through J_{k+1}, and 2 H_k H_{k+1} (H_k + H_{k+1}) flops a site and point.
    """
    F, tapes = problem.taped(problem.Z)
    root = problem.loss.root(problem.Y, F[-1])
    tangents = [tape.tangent for tape in tapes]
    tangents[-1] = root.after(tangents[-1])
    model = Linearised(problem.sizes, problem.missed(problem.Z, F), tangents, root.residual, problem.metrics)
    terms = [c.copy() for c in model.feasible]
    model.accumulate(terms)
    residual = root.residual - tangents[-1].jvp(terms[-1])
    first = problem.segments[0].tape(problem.weights, problem.X)
    return Arrow(problem, [first, *tapes], root, model, residual, _eliminated(model), weights)


def _eliminated(model: Linearised) -> Array:
    """Computes S^-1 for S = I + E C_K E^T with E = B J_{K+1}, or (C_K^-1 + E^T E)^-1 where that matrix is smaller.

    C_k = M_k^-1 + J_k C_{k-1} J_k^T is the covariance of the coordinates of site k under the constraints up to this
    site.
    """
    (n, L), dtype = model.residual.shape, model.residual.dtype
    C = np.tile(dense(model.metrics[0].inverse, model.sizes[0]), (n, 1, 1))
    J = [columns(t, n, h, dtype).astype(float) for t, h in zip(model.tangents, model.sizes, strict=True)]
    for form, transposed, h in zip(model.metrics[1:], J[:-1], model.sizes[1:], strict=True):
        C = dense(form.inverse, h) + transposed.transpose(0, 2, 1) @ C @ transposed
    E = J[-1]
    if model.sizes[-1] < L:
        matrix = np.linalg.inv(C) + E @ E.transpose(0, 2, 1)
    else:
        matrix = np.eye(L) + E.transpose(0, 2, 1) @ C @ E
    return np.linalg.inv(matrix).astype(dtype, copy=False)


def settled(problem: ZProblem) -> Array:
    """Computes the coordinates (n, sum H) after a whole Gauss-Newton step of the points that are near their minima.

    A point is near where its objective can fall by at most the share SMALL; the others stay.
    """
    arrow = arrow_of(problem)
    near = arrow.falls <= SMALL * arrow.values
    return problem.Z + np.where(near[:, None], arrow.coordinates(), 0.0)
