"""Hash functions h(x) = [V x + c > 0] are trained so that near points differ in few bits, and other points in many.

N(a) are the k points nearest to an anchor a.  By stochastic neighbour embedding of the codes (Hinton and Roweis, 2002)
they minimise

    L(V, c) = - mean_a mean_{p in N(a)} log( e_ap / (sum_{m in N(a)} e_am + weight sum_{b seen, not in N(a)} e_ab) )
    e_am = exp(-d_am / T),    d_am = (H - s_a . s_m) / 2,    s = tanh(SHARP u),    u = (V x + c) / its root mean square

d is the Hamming distance of two codes, except that bits near the threshold have an s between -1 and 1.  The best T
depends on the points and their number.  So T falls from H / 8 by factors of sqrt(2), and each fit begins at the best
codes so far.  Codes are judged by held-out points: by the share of the k points nearest to such a point that are among
the k nearest by code.  Once a T has been better than the start, the first worse T ends the search; if no T is better,
the start stays.
"""

from __future__ import annotations

import numpy as np

from macmpi.methods.embedding import principal_directions
from macmpi.nets.design import apply
from macmpi.nets.nearest import AT_A_TIME, neighbours
from macmpi.typing import Array

SEARCHED, HELD_OUT, ANCHORS = 50_000, 1000, 2000
"""The most points in all; those held out to choose T, at most a tenth of all; and the anchors a."""

PAIRS = 2**24
"""The most pairs of an anchor and a point b that it sees."""

SHARP = 3.0
"""The slope of s at 0."""

STEPS, ITERATIONS = 8, 20
"""Values of T, and iterations of L-BFGS for each, at most.  exp(H / (2 T)) stays within single precision."""


def neighbour_bits(A: Array, W: Array, share: float) -> Array:
    """Improves bits W = [V, c] (H, D + 1) so that their codes keep more neighbours together.

    Returns W itself if no other weights find more neighbours of held-out points.  The new V lies in the span of the 2 H
    leading principal directions, and V x + c of each unit has the root mean square of all units of W together.

    A: (n, D), in random order.
    share: the part of the points that are a point's neighbours.
    Cost: 2 n D flops for each anchor and held-out point; for each iteration 6 H flops and an exponential per pair.
    """
    held = min(HELD_OUT, len(A) // 10)
    if not held:
        return W
    asked, B, mean = A[:held], A[held:], A.mean(axis=0)
    k, M = min(max(1, round(share * len(B))), len(B) - 1), min(ANCHORS, len(B))
    variances, directions = principal_directions(np.cov(A, rowvar=False, bias=True).reshape(A.shape[1], -1), 2 * len(W))
    unit = np.sqrt(max(variances.mean(), 0.0)) or 1.0
    C = ((A - mean) / unit).astype(np.float32)
    true, near = neighbours(C[held:], C[:held], k), neighbours(C[held:], C[held : held + M], k, skip=True)
    seen = min(len(B), PAIRS // M)
    rows, places = np.unique(np.concatenate([np.arange(seen), near.ravel()]), return_inverse=True)
    near, weight = places[seen:].reshape(near.shape), (len(B) - k) / seen
    F = np.hstack([C[held + rows] @ directions.T, np.ones((len(rows), 1))]).astype(np.float32)
    U = np.linalg.lstsq(F.astype(float), apply(B[rows], W), rcond=None)[0]
    size = np.sqrt(np.mean(np.square(F @ U)))
    best, found = precision(signs(B, W), signs(asked, W), true), W
    for step in range(STEPS):
        tried = fitted(F, U, near, seen, weight, len(W) / 8.0 * 2.0 ** (-step / 2.0))
        V = tried[:-1].T @ directions / unit
        new = size * np.hstack([V, (tried[-1] - V @ mean)[:, None]])
        now = precision(signs(B, new), signs(asked, new), true)
        if now > best:
            best, found, U = now, new, tried
        elif found is not W:
            break
    return found


def fitted(F: Array, U: Array, near: Array, seen: int, weight: float, T: float) -> Array:
    """Minimises L over U (d, H) by L-BFGS from the given U, where each column of F U has a root mean square of 1."""
    from scipy.optimize import minimize

    G = (F.T @ F).astype(float) / len(F)

    def scaled(w: Array) -> tuple[Array, Array]:
        U = w.reshape(len(G), -1)
        size = np.sqrt(np.maximum(np.einsum("dh,dh->h", U, G @ U), np.finfo(float).tiny))
        return U / size, size

    def objective(w: Array) -> tuple[float, Array]:
        U, size = scaled(w)
        loss, slope = neighbour_loss(F, U.astype(np.float32), near, seen, weight, T)
        return loss, ((slope - G @ U * np.einsum("dh,dh->h", U, slope)) / size).ravel()

    found = minimize(objective, scaled(U)[0].ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return scaled(np.asarray(found.x))[0]


def neighbour_loss(F: Array, U: Array, near: Array, seen: int, weight: float, T: float) -> tuple[float, Array]:
    """Computes L and dL/dU (d, H) for points F (n, d), of which the first M are anchors.

    near (M, k): the neighbours of each anchor, as rows of F.
    seen: anchors see the first `seen` >= M points.
    weight: the weight in L of each point seen.
    Memory: 2,000 bytes for each point seen.
    """
    from scipy.sparse import csr_array

    (M, k), S = near.shape, np.tanh(np.float32(SHARP) * (F @ U))
    loss, slope = 0.0, np.zeros_like(S)
    for begin in range(0, M, 10 * AT_A_TIME):
        anchors = slice(begin, min(begin + 10 * AT_A_TIME, M))
        s, own = S[anchors] * np.float32(0.5 / T), near[anchors]
        E = np.exp(s @ S[:seen].T)
        E *= np.float32(weight)
        E[np.arange(len(s)), np.arange(begin, anchors.stop)] = 0.0
        a, which = np.nonzero(own < seen)
        E[a, own[a, which]] = 0.0
        alike = np.einsum("ah,akh->ak", s, S[own])
        e = np.exp(alike)
        sums = E.sum(axis=1, keepdims=True) + e.sum(axis=1, keepdims=True)
        loss += float(np.log(sums).sum(dtype=float) - alike.sum(dtype=float) / k)
        E /= sums
        q = (e / sums - np.float32(1.0 / k)).ravel()
        Q = csr_array((q, own.ravel(), np.arange(0, own.size + 1, k)), (len(s), len(S)))
        slope += Q.T @ s
        slope[:seen] += E.T @ s
        slope[anchors] += (E @ S[:seen] + Q @ S) * np.float32(0.5 / T)
    return loss / M, (F.T @ (slope * (1.0 - S * S))).astype(float) * (SHARP / M)


def signs(A: Array, W: Array) -> Array:
    """Computes codes as signs, 1 where V x + c > 0, else -1: (n, H), float32."""
    return np.where(apply(A, W) > 0.0, np.float32(1.0), np.float32(-1.0))


def precision(codes: Array, asked: Array, true: Array) -> float:
    """Computes the share of the true neighbours that a search by Hamming distance finds, as a mean over queries.

    The search returns the k nearest codes.  Among equally distant codes it would draw; the share is the expectation
    over this draw.

    codes: (n, H), signs.
    asked: (m, H), the signs of the queries.
    true: (m, k), the neighbours of each query, as rows of codes.
    """
    k, hits = true.shape[1], 0.0
    for begin in range(0, len(asked), AT_A_TIME):
        rows = slice(begin, begin + AT_A_TIME)
        distances = -(asked[rows] @ codes.T)
        last = np.partition(distances, k - 1)[:, k - 1 : k]
        chance = (k - (distances < last).sum(axis=1)) / (distances == last).sum(axis=1)
        own = np.take_along_axis(distances, true[rows], axis=1)
        hits += float(((own < last).sum(axis=1) + (own == last).sum(axis=1) * chance).sum())
    return hits / true.size
