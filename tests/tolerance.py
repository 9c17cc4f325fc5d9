"""Bounds on rounding errors, from the sizes of the operands: they hold for every order of summation, so on any CPU.

After Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 3.  u is the unit roundoff.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from macmpi.typing import Array


def gamma(n: float, dtype: Any = float) -> float:
    """n u / (1 - n u): what n roundings one after the other change a number by, in relative terms."""
    u = 0.5 * float(np.finfo(dtype).eps)
    return n * u / (1.0 - n * u)


def of_product(*factors: Array, dtype: Any = float) -> Array:
    """|fl(A B ...) - A B ...| <= gamma_n |A| |B| ..., n the sum of the inner lengths; for each element."""
    lengths = sum(factor.shape[0] for factor in factors[1:])
    sizes: Array = reduce(np.matmul, [np.abs(np.asarray(factor, float)) for factor in factors])
    return gamma(lengths, dtype) * sizes


def of_squared_distances(A: Array, C: Array, dtype: Any = float) -> Array:
    """gamma_(D + 6) (||a - s|| + ||c - s|| + 4 r)^2, s and r mean and spread of C: (n, D), (m, D) -> (n, m).

    D for a product's terms, 4 for two differences that were rounded before, 2 for three terms added.
    """
    s = C.mean(axis=0, dtype=float)
    a, c = np.linalg.norm(A - s, axis=1), np.linalg.norm(C - s, axis=1)
    bound: Array = gamma(A.shape[1] + 6, dtype) * (np.add.outer(a, c) + 4.0 * np.sqrt(np.mean(c**2))) ** 2
    return bound


def assert_within(found: Any, expected: Any, bound: Any) -> None:
    """No element is farther from what is expected than its bound."""
    away = np.abs(np.asarray(found, float) - expected)
    bounds = np.broadcast_to(bound, away.shape)
    at = tuple(map(int, np.unravel_index(np.argmax(away - bounds), away.shape)))
    assert (away <= bounds).all(), f"element {at} is off by {away[at]:.3g}, more than {bounds[at]:.3g}"
