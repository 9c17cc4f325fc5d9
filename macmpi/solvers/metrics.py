"""Metrics of the layers of a net: M_k is the mean curvature of the loss by the outputs of layer k.

It is carried back from the outputs map by map.  With the Gram G_k of the layer's inputs, the Kronecker product of M_k
and G_k approximates the Gauss-Newton matrix of the layer's weights; it equals it for a single point, and in the last
layer under a squared error.  Both are damped before they are inverted.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from macmpi.nets.losses import Loss, weighted
from macmpi.nets.segment import Step, Tape
from macmpi.parallel.lapack import lapack
from macmpi.parallel.shared_work import RowMaker
from macmpi.reductions import EVERY
from macmpi.solvers.cholesky import inverse
from macmpi.typing import Array


@dataclass(frozen=True)
class Seen:
    """The net at some points, from which gradients, Grams and metrics are computed.

    tape: the net, linearised at these points.
    Y (n, L): their targets.
    residual (n, n_out): minus the derivative of each loss with respect to the outputs.
    probed: the points from which Grams and metrics are computed; weighted points may occur several times.
    weights (n,): the weights of the points, with mean 1 over all points; None if all are 1.
    roots (m, 1): square roots of the weights of the probed points in means of curvatures and of products of slopes;
        None if points count equally.
    """

    tape: Tape
    Y: Array
    residual: Array
    probed: slice | Array = field(default_factory=lambda: EVERY)
    weights: Array | None = None
    roots: Array | None = None

    @property
    def count(self) -> int:
        """The number of probed points."""
        return len(self.Y[self.probed])

    @property
    def few(self) -> Seen:
        """The net at only the probed points, with weights 1."""
        rows = self.probed
        heavy = 1.0 if self.weights is None else self.weights[rows, None].astype(self.residual.dtype, copy=False)
        return Seen(self.tape.of_rows(rows), self.Y[rows], self.residual[rows] / heavy, EVERY)


Spectrum = tuple[Array, Array]
"""Eigenvalues (n,), and eigenvectors (n, n) as columns."""

OfSeen = Callable[[Seen, float, Array], None]
"""A function (seen, share, out) that writes `share` times a mean over probed points, a matrix, to `out`."""


class Averages(NamedTuple):
    """Functions by which ranks together compute means over all probed points, and products of large matrices.

    means: computes several mean matrices (n, n) in one exchange.  Its argument is a list of pairs (`OfSeen`, n).  For
        each matrix it returns a function that gives some rows of it, until the metrics are complete.
    mean: computes one mean matrix (n, n) from an `OfSeen` and n.
    product: computes V^T M V for weights V (h, d) without biases and M (h, h), or None for the identity.  Where its
        third argument gives the rows of a mean, the result is multiplied by that mean element by element.  The
        result must be read before the next call.
    Collective: yes.
    """

    means: Callable[[Sequence[tuple[OfSeen, int]]], list[RowMaker]]
    mean: Callable[[OfSeen, int], Array]
    product: Callable[[Array, Array | None, RowMaker | None], Array]


def metrics(loss: Loss, tape: Tape, over: Averages, kept: Container[int]) -> tuple[dict[int, Array], dict[int, Array]]:
    """Computes the metric M_k (h, h) of each layer k in `kept`, from the outputs of the net backwards.

    loss: defines the curvature at the outputs.
    tape: any of the tapes over which means are taken; only its maps, blocks and shapes are read.
    over: computes the means, together with the other ranks.
    kept: the layers (parameter blocks) whose metrics this rank needs.
    Returns two dicts by layer: the metrics, and for layers whose weights a later map transposes, a matrix to be added
    to their Gram.  If that map computes V^T z, s Z is added to the metric of V, with Z the mean of z z^T, and M / s
    to its Gram, with M the metric of the map's outputs; s makes both parts of the metric equally large.
    An elementwise map needs only the mean of the products of its slopes, which does not depend on M.  So all of these
    come in one exchange, with the curvature of the loss if that is not the identity.
    Cost: n h^2 flops a layer for its slopes, and 4 h h' max(h, h') between two layers.  Collective: as `over` is.
    """
    dtype, width = tape.F.dtype, tape.F.shape[1]
    bent = {i: step.map.n_out for i, step in enumerate(tape.steps) if i and "elementwise" in step.map.capabilities}
    known = loss.unit_hessian
    curved = [] if known else [(partial(_put_curvature, loss), width)]
    averaged = over.means([*curved, *((partial(_put_products, i), n) for i, n in bent.items())])
    M = np.eye(width, dtype=dtype) if known else averaged[0](EVERY).astype(dtype, copy=False)
    products = dict(zip(bent, averaged[len(curved) :], strict=True))
    carried, transposed = dict[int, list[Array]](), dict[int, tuple[Array, Array]]()
    multiplied = set[int]()
    for i, step in reversed(list(enumerate(tape.steps))):
        if step.block is not None and "transposed" in step.map.capabilities:
            Z = over.mean(partial(_put_squares, i), step.map.n_in)
            if step.block in kept:
                transposed[step.block] = Z, M.copy()
        elif step.W is not None and step.block is not None and step.block in kept:
            own = step.map.own.n_out
            carried.setdefault(step.block, []).append(shared_metric(M[:own, :own], len(step.W)).copy())
        if i in bent:
            M = M if i in multiplied else products[i](EVERY) * M
        elif i and (V := _matrix(step)) is not None:
            below = products.get(i - 1) if tape.steps[i - 1].block is None else None
            M = over.product(V, None if known else M, below)
            multiplied |= set() if below is None else {i - 1}
        elif i:
            M = over.mean(partial(_put_carried, i, M), step.varying)
        known = False
    return _with_transposed({k: sum(each[1:], each[0]) / len(each) for k, each in carried.items()}, transposed, dtype)


def _with_transposed(
    forms: dict[int, Array], transposed: Mapping[int, tuple[Array, Array]], dtype: np.dtype
) -> tuple[dict[int, Array], dict[int, Array]]:
    """Adds s Z to the metrics of transposed weights, and returns the metrics and the M / s to be added to Grams.

    transposed: Z and M of each layer whose weights a later map transposes (`metrics`).
    """
    added = dict[int, Array]()
    for k, (Z, M) in transposed.items():
        s = max(float(np.trace(forms[k])), 1e-30) / max(float(np.trace(Z)), 1e-30)
        forms[k] = forms[k] + np.asarray(s, dtype) * Z
        added[k] = np.pad(M / np.asarray(s, dtype), (0, 1))
    return forms, added


def _matrix(step: Step) -> Array | None:
    """Returns V of a map V a + c, without the columns for data; None for other maps."""
    if step.W is None:
        return None
    if "linear" in step.map.capabilities:
        return step.W[:, : step.varying]
    return step.map.matrix(step.W) if "patches" in step.map.capabilities else None


def _put_curvature(loss: Loss, seen: Seen, share: float, out: Array) -> None:
    """Writes `share` times the mean curvature of the loss by the outputs to `out`."""
    of_points = weighted(loss, None if seen.roots is None else np.square(seen.roots[:, 0]))
    out[:] = of_points.hessian(seen.Y[seen.probed], seen.tape.F[seen.probed])
    out *= share


def _put_products(i: int, seen: Seen, share: float, out: Array) -> None:
    """Writes `share` times the mean of s s^T to `out`, for the slopes s of the elementwise map i of a tape."""
    steps, rows = seen.tape.steps, seen.probed
    step, B = steps[i], steps[i + 1].A if i + 1 < len(steps) else seen.tape.F
    tangent = step.map.tangent(step.W, step.A[rows], B[rows, : step.map.n_out])
    each = np.full((seen.count, step.map.n_out), np.sqrt(share / seen.count), B.dtype)
    D = tangent.vjp(each if seen.roots is None else each * seen.roots.astype(B.dtype, copy=False))
    np.matmul(D.T, D, out=out)


def _put_squares(i: int, seen: Seen, share: float, out: Array) -> None:
    """Writes `share` times the mean of a a^T to `out`, for the inputs a of map i of a tape."""
    A = seen.tape.steps[i].A[seen.probed]
    np.matmul(A.T, A, out=out)
    out *= share / max(len(A), 1)


def _put_carried(i: int, M: Array, seen: Seen, share: float, out: Array) -> None:
    """Writes `share` times the mean of J^T M J to `out`, for map i of a tape."""
    step = seen.tape.steps[i]
    out[:] = step.map.pullback(step.W, step.A[seen.probed], M)[: step.varying, : step.varying]
    out *= share


def shared_metric(M: Array, units: int) -> Array:
    """Averages a metric M (P units, P units) of the units at P positions over the positions: (units, units)."""
    if len(M) == units:
        return M
    blocks = M.reshape(-1, units, len(M) // units, units)
    return np.einsum("phpk->hk", blocks) / len(blocks)


def shifts(G: Array, M: Array, damping: float) -> tuple[float, float]:
    """Returns shifts b of G and a of M with a b = damping; b / a is the ratio of the mean eigenvalues of G and M."""
    means = [max(float(np.trace(A)) / len(A), 1e-30) for A in (G, M)]
    ratio, root = np.sqrt(means[0] / means[1]), np.sqrt(damping)
    return float(ratio * root), float(root / ratio)


def shifted_inverse(A: Array, shift: float, double: bool = False) -> Array:
    """(A + shift I)^-1 in the precision of A; in float64 where that fails, or where `double` asks for it.

    In single precision it fails where the largest eigenvalue is about 1e5 times the shift, as in wide layers and where
    the metric is the identity.  If it fails in float64 too, the pseudoinverse is returned.  Cost: 4/3 n^3 flops.
    """
    for precision in (np.float64,) if double else (A.dtype, np.float64):
        shifted = A.astype(precision)
        shifted[np.diag_indices_from(A)] += shift
        with suppress(LinAlgError):
            return inverse(shifted)
    return np.linalg.pinv(shifted)


def decomposed(A: Array) -> Spectrum:
    """Computes the spectrum of a symmetric matrix (n, n) in its precision; eigenvalues below 0 become 0.

    If the iteration fails in single precision, it is repeated in double.  Raises LinAlgError if that fails too.
    Cost: 9 n^3 flops.
    """
    for precision in dict.fromkeys((A.dtype, np.dtype(np.float64))):
        solve = lapack.ssyevd if precision == np.float32 else lapack.dsyevd
        values, vectors, failed = solve(A.astype(precision, copy=False))
        if not failed:
            return np.maximum(values, 0.0).astype(A.dtype, copy=False), vectors.astype(A.dtype, copy=False)
    raise LinAlgError(f"no eigenvectors of a matrix of {len(A)} rows: dsyevd gives {failed}")
