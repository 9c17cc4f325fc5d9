"""Spectra of symmetric matrices, also where single precision finds none."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from macmpi.solvers import metrics


@pytest.fixture
def G() -> np.ndarray:
    A = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)
    return A.T @ A


def failing(*names: str) -> SimpleNamespace:
    """LAPACK whose solvers of these names find nothing."""
    found = {name: getattr(metrics.lapack, name) for name in ("ssyevd", "dsyevd")}
    return SimpleNamespace(**found | {name: lambda A: (A[0], A, 3) for name in names})


def test_double_precision_is_asked_where_single_fails(G: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "lapack", failing("ssyevd"))
    values, vectors = metrics.decomposed(G)
    assert values.dtype == vectors.dtype == np.float32
    error = np.abs((vectors * values) @ vectors.T - G).max()
    assert error <= 8 * np.finfo(np.float32).eps * len(G) * np.linalg.norm(G)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_failure_of_both_is_an_error(dtype: type, G: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "lapack", failing("ssyevd", "dsyevd"))
    with pytest.raises(np.linalg.LinAlgError, match="no eigenvectors of a matrix of 8 rows"):
        metrics.decomposed(G.astype(dtype))
