"""Embeddings give points X (N, D) codes Z (N, d), by principal components or by neighbourhoods.

The elastic embedding (Carreira-Perpinan, ICML 2010) minimises, with sums over ordered pairs of points,

    E(Z) = sum_nm w_nm ||z_n - z_m||^2 + repulsion sum_{n != m} exp(-||z_n - z_m||^2),
    w_nm = exp(-||x_n - x_m||^2 / (2 width^2)), w_nn = 0:

similar points attract each other, and all points repel each other in the same way.
"""

from __future__ import annotations

import numpy as np

from macmpi.nets.design import mean_of, weighed
from macmpi.parallel.streams import stream
from macmpi.typing import Array

SPREAD = 0.1
"""Standard deviation of the first coordinate of the starting codes; of the final ones it is 1 to 2."""

PAIRS = 100_000
"""Pairs of points whose repulsions are computed at a time: less than a megabyte, so that they stay in the cache."""

ROUNDS = 50
"""Rounds of iterative quantisation, as in its paper."""

FLAT = 1e-6
"""Coordinates with less than this share of the first one's deviation are rounding errors."""


def elastic_embedding(X: Array, dimensions: int, width: float, repulsion: float, iterations: int, seed: int) -> Array:
    """Computes the elastic embedding Z (N, dimensions) by L-BFGS, from small principal codes.

    A point with no neighbour within a few widths is pushed away from the others until repulsion underflows.

    X: (N, D).
    width, repulsion: as in the formula above.
    iterations: the largest number of iterations of L-BFGS.
    seed: the seed of the first coordinates in dimensions beyond the rank of X.
    Memory: 8 N^2 bytes for the weights w_nm (3.2 GB for 20,000 points).
    Cost: N^2 D flops for the weights; an iteration takes N^2 / 2 exponentials and 6 N^2 d flops.
    """
    from scipy.optimize import minimize

    W = affinities(X, width)
    Z = principal_codes(X, dimensions, SPREAD)
    lacking = Z.std(axis=0) <= FLAT * SPREAD
    Z[:, lacking] = SPREAD * stream(seed, "embedding").standard_normal((len(Z), lacking.sum()))

    def objective(z: Array) -> tuple[float, Array]:
        energy, gradient = elastic_energy(z.reshape(Z.shape), W, repulsion)
        return energy, gradient.ravel()

    options = {"maxiter": iterations, "maxfun": 10 * iterations + 10, "ftol": 1e-12, "gtol": 0.0}
    return minimize(objective, Z.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(Z.shape)


def affinities(X: Array, width: float) -> Array:
    """Computes W (N, N), w_nm = exp(-||x_n - x_m||^2 / (2 width^2)), w_nn = 0.  Cost: N^2 D flops, N^2 exponentials."""
    A = _centred(X) / width
    half = 0.5 * np.einsum("nd,nd->n", A, A)
    W: Array = A @ A.T
    W -= half
    W -= half[:, None]
    np.exp(np.minimum(W, 0.0, out=W), out=W)
    np.fill_diagonal(W, 0.0)
    return W


def elastic_energy(Z: Array, W: Array, repulsion: float) -> tuple[float, Array]:
    """Computes E(Z) and dE/dZ (N, d) = 4 sum_m (w_nm - repulsion e_nm) (z_n - z_m), e_nm = exp(-||z_n - z_m||^2).

    The matrix e is never held as a whole.  It is computed block by block, and since it is symmetric, a block of rows
    has only the columns from its first row on.

    Z: (N, d).
    W: (N, N), symmetric.
    """
    N, d = Z.shape
    squares = np.einsum("nd,nd->n", Z, Z)
    left = np.column_stack([2.0 * Z, -squares, np.full(N, -1.0)])
    right = np.column_stack([Z, np.ones(N), squares])
    sums = np.zeros((N, d + 1))  # sum_m e_nm [z_m, 1]
    rows = max(16, PAIRS // N)
    for a in range(0, N, rows):
        b = min(a + rows, N)
        e = left[a:b] @ right[a:].T
        np.exp(e, out=e)
        np.fill_diagonal(e, 0.0)
        sums[a:b] += e @ right[a:, : d + 1]
        sums[b:] += e[:, b - a :].T @ right[a:b, : d + 1]
    attraction = W.sum(axis=1)[:, None] * Z - W @ Z
    repelled = sums[:, d:] * Z - sums[:, :d]
    energy = 2.0 * np.vdot(Z, attraction) + repulsion * sums[:, d].sum()
    return float(energy), 4.0 * (attraction - repulsion * repelled)


def principal_codes(X: Array, dimensions: int, spread: float, weights: Array | None = None) -> Array:
    """Projects X on its leading principal components, and multiplies all scores by one factor.

    Returns Z (N, dimensions), whose first column has the standard deviation `spread`.  Columns beyond the rank of X are
    0, or rounding errors.  The sign of each direction (D,) is such that its largest entry is positive.

    X: (N, D).
    weights (N,): the weights of the points; the components are those of w_n copies of point n.
    Cost: N D min(N, D) flops and an eigen-decomposition of the smaller Gram.
    """
    from scipy import linalg

    A = _centred(X, weights)
    B = A if weights is None else np.sqrt(weights)[:, None] * A
    wide = A.shape[1] > len(A)
    G = B @ B.T if wide else B.T @ B
    found = min(dimensions, len(G))
    values, vectors = linalg.eigh(G, subset_by_index=(len(G) - found, len(G) - 1))
    directions = B.T @ vectors if wide else vectors
    length = np.sqrt(np.maximum(values, np.finfo(float).tiny)) if wide else 1.0
    scores = vectors * length if wide and weights is None else A @ (directions / length)
    Z = np.zeros((len(A), dimensions))
    Z[:, :found] = (scores * _signs(directions))[:, ::-1]
    deviation = Z[:, 0].std() if weights is None else np.sqrt(weights @ np.square(Z[:, 0]) / weights.sum())
    return Z * (spread / deviation if deviation > 1e-12 * np.abs(X).max() else 0.0)


def rotation_to_signs(V: Array, start: Array, weights: Array | None = None) -> Array:
    """Finds an orthogonal R (H, H) that makes ||V R - sign(V R)||^2 small, by iterative quantisation.

    Each of ROUNDS rounds takes the signs B of V R, and then the R that brings V R nearest to B, by the SVD of V^T B
    (Gong and Lazebnik, 2011).

    V (n, H): centred scores.
    start (H, H): its orthogonal factor is the first R.
    weights (n,): the weights of the points.
    Cost: 4 n H^2 flops and an SVD per round.
    """
    R = np.linalg.qr(start)[0]
    weighing = weighed(V, weights)
    for _ in range(ROUNDS):
        left, _, right = np.linalg.svd(weighing.T @ np.where(V @ R > 0.0, 1.0, -1.0))
        R = left @ right
    return R


def principal_directions(C: Array, count: int) -> tuple[Array, Array]:
    """Returns the largest variances of a covariance C (D, D), and their principal directions as rows.

    There are `count` of them, or D if that is less.  The signs of the directions are LAPACK's.
    Cost: an eigen-decomposition.
    """
    values, vectors = np.linalg.eigh(C)
    return values[::-1][:count], vectors.T[::-1][:count]


def _centred(X: Array, weights: Array | None = None) -> Array:
    X = X.astype(np.float64, copy=False)
    return X - mean_of(X, weights)


def _signs(directions: Array) -> Array:
    """Returns the sign, +1 or -1, of each column's largest entry, or the first of several that differ by rounding."""
    size = np.abs(directions)
    first = np.argmax(size >= (1.0 - 1e-6) * size.max(axis=0), axis=0)
    return np.where(directions[first, np.arange(directions.shape[1])] < 0.0, -1.0, 1.0)
