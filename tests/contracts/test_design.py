"""Products with the design matrix, however they are cut."""

from __future__ import annotations

import numpy as np
import pytest
from tolerance import assert_within, gamma, of_product

from macmpi.nets.design import FEWEST, SMALL, apply

SHAPES = [(500, 300, 40), (500, 20, 100), (FEWEST - 1, 300, 40), (50, 3, 2), (97, 1000, 20), (500, 300, 100)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "D", "w"), SHAPES)
@pytest.mark.parametrize("biases", [0, 1])
def test_apply_is_the_product(n: int, D: int, w: int, biases: int, dtype: type, random: np.random.Generator) -> None:
    """Also of some columns of a larger array, and in runs of rows with a remainder."""
    wide, W = random.normal(size=(n, D + 7)), random.normal(size=(w, D + biases))
    A = wide.astype(dtype)[:, 3 : D + 3]
    found, expected = apply(A, W), A.astype(float) @ W[:, :D].T + W[:, D:].sum(axis=1)
    assert found.dtype == dtype
    design, V = (np.hstack([part, np.ones((len(part), biases))]) for part in (A, W[:, :D]))
    V[:, D:] = W[:, D:]
    assert_within(
        found, expected, of_product(design, V.T, dtype=dtype) + gamma(2, dtype) * np.abs(design) @ np.abs(V.T)
    )


def test_the_shapes_are_of_every_kind() -> None:
    runs = [SMALL // (D * w) // 8 * 8 for _, D, w in SHAPES]
    assert any(FEWEST <= rows < n and n % rows for rows, (n, _, _) in zip(runs, SHAPES, strict=True))
    assert any(rows < FEWEST for rows in runs)
    assert any(rows > n for rows, (n, _, _) in zip(runs, SHAPES, strict=True))
