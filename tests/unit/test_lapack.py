"""The compiled functions are those of scipy.linalg, and what is made of them has its bits."""

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


def test_a_factor_has_the_bits_of_cho_factor(G: np.ndarray) -> None:
    expected, _ = scipy.linalg.cho_factor(G, lower=True)
    assert np.tril(lapack.factored(G)).tobytes() == np.tril(expected).tobytes()
    with pytest.raises(np.linalg.LinAlgError, match="row 1"):
        lapack.factored(np.diag([1.0, -1.0]))


@pytest.mark.parametrize("public", lapack.COMPILED)
def test_another_scipy_gives_its_public_functions(public: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "find_spec", lambda name: None)
    assert lapack._functions(public) is getattr(scipy.linalg, public)
