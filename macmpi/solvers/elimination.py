"""Inputs of a least-squares regression, eliminated one after the other: an order of which every prefix is a candidate.

    min over W of 1/2 ||T - [A, 1] W^T||^2 + ridge/2 ||V||^2,  W = [V, c]

Without input h the least value is higher by 1/2 ||v_h||^2 / (G^-1)_hh, G the Gram of the centred inputs plus ridge I.
The input that costs least goes first; G^-1 and V without it follow by a step of rank one.  So one inverse ranks all
inputs, and one Gram holds the weights that are best for each number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from macmpi.nets.design import adjoint, gram
from macmpi.parallel.lapack import factored, solved
from macmpi.reductions import OverPoints, Rows
from macmpi.typing import Array

LEAST, ROUNDED = 1e-8, 1e-12
"""The ridge is at least these shares of the mean diagonal of the centred Gram, and of the largest of the other one."""


class Moments(NamedTuple):
    """Means of inputs A (N, D) and targets T (N, L); G = A^T A + ridge I and C = A^T T of the centred ones."""

    inputs: Array
    targets: Array
    gram: Array
    crossed: Array


class Kept(NamedTuple):
    """The inputs that are left, in increasing order, and the best weights of them, W (L, number of them + 1)."""

    inputs: Array
    weights: Array


def moments(A: Rows, T: Rows, ridge: float, over_points: OverPoints) -> Moments:
    """One sum over points.  Cost: N D (D + 2 L) flops.  Collective: where `over_points` is."""

    def part(rows: slice) -> tuple[Array, ...]:
        own, given = (B[rows].astype(np.float64, copy=False) for B in (A, T))
        return gram(own), adjoint(given, own)

    G, crossed = over_points(part)
    N, D = G[-1, -1], len(G) - 1
    a, t = G[-1, :D] / N, crossed[:, D] / N
    centred = G[:D, :D] - N * np.outer(a, a)
    least = LEAST * float(np.trace(centred)) / D + ROUNDED * max(float(np.diag(G)[:D].max()), 1.0)
    centred[np.diag_indices(D)] += max(ridge, least)
    return Moments(a, t, centred, (crossed[:, :D] - N * np.outer(t, a)).T)


def ranked(of: Moments) -> Array:
    """The inputs, those that are worth most first: the reverse of the order in which they go.  Cost: 2 D^3 flops."""
    left, order = np.arange(len(of.gram)), []
    inverse = solved(factored(of.gram), np.eye(len(left)))
    V = inverse @ of.crossed
    while len(left):
        diagonal = np.diag(inverse)
        h = int((np.einsum("hl,hl->h", V, V) / diagonal).argmin())
        share, v = inverse[:, h] / diagonal[h], V[h]
        V = np.delete(V - np.outer(share, v), h, axis=0)
        inverse = np.delete(np.delete(inverse - np.outer(share, inverse[h]), h, axis=0), h, axis=1)
        order.append(left[h])
        left = np.delete(left, h)
    return np.array(order[::-1])


def prefixes(of: Moments, order: Array, sizes: Sequence[int]) -> list[Kept]:
    """The best weights of the first inputs of an order, for each number of them.  Cost: D^3 / 3 flops each."""
    found = []
    for size in sizes:
        kept = np.sort(order[:size])
        V = solved(factored(of.gram[np.ix_(kept, kept)]), of.crossed[kept]).T
        found.append(Kept(kept, np.column_stack([V, of.targets - V @ of.inputs[kept]])))
    return found
