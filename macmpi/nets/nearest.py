"""Points nearest to some others are found here, and how many of these a search by codes of bits finds."""

from __future__ import annotations

import numpy as np

from macmpi.nets.design import squared_distances
from macmpi.typing import Array

AT_A_TIME = 50
"""Points whose distances to all others are held at a time."""


def neighbours(A: Array, asked: Array, k: int, skip: bool = False) -> Array:
    """The k nearest rows of A (n, D), in no order, to each of the rows asked for: (m, k).

    skip: these are the first ones of A, and none counts as its own neighbour.
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
    """Bits that differ between codes (n, H) and those asked for (m, H), of zeros and ones: int32 (m, n).

    Collective: no.  Cost: 2 n m H flops.
    """
    return np.rint(squared_distances(asked.astype(np.float32), bits)).astype(np.int32)


def within(bits: Array, asked: Array, near: Array) -> tuple[Array, Array]:
    """Points within 0, 1, ..., H bits of a query, and those of them that are near: means over queries, (H + 1,) each.

    bits (n, H), asked (m, H): zeros and ones.  near: (m, k), rows of bits.
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
