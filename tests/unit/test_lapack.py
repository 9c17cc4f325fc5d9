"""Solves and factors by LAPACK have the bits of those of scipy.linalg."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from macmpi.parallel import lapack


@pytest.fixture
def G() -> np.ndarray:
    A = np.random.default_rng(0).standard_normal((40, 12))
    return A.T @ A


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_solution_has_the_bits_of_cho_solve(dtype: type, G: np.ndarray) -> None:
    lower = np.linalg.cholesky(G).astype(dtype)
    right = np.arange(36.0, dtype=dtype).reshape(3, 12).T
    found = lapack.solved(lower, right)
    assert found.dtype == dtype
    assert found.tobytes() == scipy.linalg.cho_solve((lower, True), right).tobytes()
    assert lapack.solved(lower, right[:, :0]).shape == (12, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_substitution_has_the_bits_of_solve_triangular(dtype: type, order: str, G: np.ndarray) -> None:
    upper = np.array(np.linalg.cholesky(G).T, dtype, order=order)
    right = np.arange(36.0, dtype=dtype).reshape(3, 12).T
    found = lapack.by_transpose(upper, right)
    assert found.tobytes() == scipy.linalg.solve_triangular(upper, right, trans=1).tobytes()
    with pytest.raises(np.linalg.LinAlgError, match="row 1"):
        lapack.by_transpose(np.diag([1.0, 0.0]), np.ones((2, 1)))


def test_a_factor_has_the_bits_of_cho_factor(G: np.ndarray) -> None:
    expected, _ = scipy.linalg.cho_factor(G, lower=True)
    assert np.tril(lapack.factored(G)).tobytes() == np.tril(expected).tobytes()
    with pytest.raises(np.linalg.LinAlgError, match="row 1"):
        lapack.factored(np.diag([1.0, -1.0]))
