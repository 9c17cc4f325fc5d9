"""Elastic embedding and principal codes against brute force, known data and symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.methods.embedding import affinities, elastic_embedding, elastic_energy, principal_codes
from macmpi.typing import Array


def distances(A: Array) -> Array:
    return np.square(A[:, None] - A[None]).sum(axis=2)


def problem(random: np.random.Generator, n: int, d: int) -> tuple[Array, Array]:
    return random.normal(size=(n, d)), affinities(random.normal(size=(n, 5)), 1.7)


# --- elastic embedding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (15, 2), (16, 2), (17, 3), (700, 2)])
def test_energy_is_its_formula_whatever_the_blocks(n: int, d: int, random: np.random.Generator) -> None:
    Z, W = problem(random, n, d)
    D = distances(Z)
    energy = (W * D).sum() + 7.0 * (np.exp(-D).sum() - n)
    assert_allclose(elastic_energy(Z, W, 7.0)[0], energy, rtol=1e-11, atol=1e-12)
    L = W - 7.0 * np.exp(-D)
    gradient = 4.0 * (L.sum(axis=1)[:, None] * Z - L @ Z)
    assert_allclose(elastic_energy(Z, W, 7.0)[1], gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("repulsion", [0.0, 1.0, 100.0])
def test_gradient_against_finite_differences(repulsion: float, random: np.random.Generator) -> None:
    Z, W = problem(random, 40, 3)
    gradient = elastic_energy(Z, W, repulsion)[1]
    for _ in range(5):
        step = 1e-5 * random.normal(size=Z.shape)
        rise = elastic_energy(Z + step, W, repulsion)[0] - elastic_energy(Z - step, W, repulsion)[0]
        assert_allclose(rise, 2.0 * np.vdot(gradient, step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("columns", [3, 60])
def test_coordinates_that_the_points_lack_are_drawn(columns: int, random: np.random.Generator) -> None:
    """Points on a line fill the plane; the seed draws how, and does nothing where X has the coordinates itself."""
    X = random.normal(size=(50, 1)) * np.arange(1.0, columns + 1.0)
    Z, same, other = (elastic_embedding(X, 2, 1.0, 10.0, 100, seed) for seed in (0, 0, 1))
    assert (Z.std(axis=0) > 0.3).all()
    assert_array_equal(Z, same)
    assert np.abs(Z - other).max() > 1e-3
    assert (elastic_embedding(np.ones((9, 2)), 2, 1.0, 10.0, 50, 0).std(axis=0) > 0.1).all()
    Y = random.normal(size=(50, 3))
    assert_array_equal(elastic_embedding(Y, 2, 1.0, 10.0, 9, 0), elastic_embedding(Y, 2, 1.0, 10.0, 9, 1))


# --- principal codes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(80, 6), (6, 80), (20, 20)])
def test_principal_codes_are_scaled_scores(n: int, d: int, random: np.random.Generator) -> None:
    X = random.normal(size=(n, d)) * np.geomspace(4.0, 1.0, d) + 3.0
    left, values, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    scores = (left * values)[:, :3]
    Z = principal_codes(X, 3, 0.25)
    assert_allclose(Z[:, 0].std(), 0.25, rtol=1e-12)
    assert_allclose(np.abs(Z), np.abs(scores * 0.25 / scores[:, 0].std()), rtol=1e-6, atol=1e-9)
    assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
