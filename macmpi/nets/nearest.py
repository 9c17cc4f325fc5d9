"""Finds nearest neighbours, and counts how many of them a search by codes of bits finds."""

from __future__ import annotations

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.typing import Array

AT_A_TIME = 50
"""The number of points whose distances to all others are in memory at a time."""


def neighbours(A: Array, asked: Array, k: int, skip: bool = False) -> Array:
    """Finds, for each row of `asked` (m, D), the k nearest rows of A (n, D), in no order: their numbers, (m, k).

    skip: whether the rows of `asked` are the first rows of A, of which none shall be its own neighbour.
    Collective: no.  Cost: 2 n m D flops.
    """
    found = []
    for begin in range(0, len(asked), AT_A_TIME):
        distances = squared_distances(asked[begin : begin + AT_A_TIME], A)
        if skip:
            np.fill_diagonal(distances[:, begin:], np.inf)
        found.append(np.argpartition(distances, k - 1)[:, :k].copy())
    return np.concatenate(found)


def hamming(bits: Array, asked: Array) -> Array:
    """Counts the bits in which codes `asked` (m, H) differ from codes `bits` (n, H), of zeros and ones: (m, n) int32.

    Collective: no.  Cost: 2 n m H flops.
    """
    return np.rint(squared_distances(asked.astype(np.float32), bits)).astype(np.int32)


def within(bits: Array, asked: Array, near: Array) -> tuple[Array, Array]:
    """Counts the points whose codes differ from that of a query in at most 0, 1, ..., H bits.

    Returns the means over the queries of these counts, and of the counts of true neighbours among them: (H + 1,) each.
    bits (n, H), asked (m, H): the codes of points and queries, of zeros and ones.
    near (m, k): the numbers of the true neighbours of each query.
    Collective: no.  Cost: 2 n m H flops.
    """
    counts = np.zeros((2, bits.shape[1] + 1))
    for begin in range(0, len(asked), AT_A_TIME):
        rows = slice(begin, begin + AT_A_TIME)
        distances = hamming(bits, asked[rows])
        for own, some in zip(counts, (distances, np.take_along_axis(distances, near[rows], axis=1)), strict=True):
            own += np.bincount(some.ravel(), minlength=len(own))
    found, hits = counts.cumsum(axis=1) / len(asked)
    return found, hits
