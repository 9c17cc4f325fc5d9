"""Elastic embedding and principal codes against brute force, known data and symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.methods import neighbours as by_neighbours
from macmpi.methods.embedding import affinities, elastic_embedding, elastic_energy, principal_codes
from macmpi.methods.neighbours import HELD_OUT, SHARP, neighbour_bits, neighbour_loss, precision, signs
from macmpi.nets.nearest import neighbours
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


# --- bits by neighbours -----------------------------------------------------------------------------------------------


def test_neighbours_are_the_nearest_and_no_point_is_its_own(random: np.random.Generator) -> None:
    A = random.normal(size=(250, 3))
    D = distances(A)
    assert_array_equal(np.sort(neighbours(A, A[:203], 4)), np.sort(np.argsort(D, axis=1)[:203, :4]))
    np.fill_diagonal(D, np.inf)
    assert_array_equal(np.sort(neighbours(A, A[:203], 4, skip=True)), np.sort(np.argsort(D, axis=1)[:203, :4]))


@pytest.mark.parametrize("bits", [1, 5])
def test_the_loss_on_neighbours_is_its_formula_and_its_gradient_the_difference(
    bits: int, random: np.random.Generator
) -> None:
    F, U = random.normal(size=(40, 3)), random.normal(size=(3, bits))
    near, seen, weight, T = neighbours(F, F[:15], 2, skip=True), 25, 2.5, 0.8

    def loss(U: Array) -> float:
        S = np.tanh(SHARP * F @ U)
        e = np.exp(S[:15] @ S.T / 2.0 / T)
        far = [weight * sum(e[a, m] for m in set(range(seen)) - {a, *near[a]}) for a in range(15)]
        return -float(np.mean([np.log(e[a, near[a]] / (far[a] + e[a, near[a]].sum())) for a in range(15)]))

    value, slope = neighbour_loss(F, U, near, seen, weight, T)
    assert_allclose(value, loss(U), rtol=1e-5)
    step = 1e-6 * random.normal(size=U.shape)
    assert_allclose(np.vdot(slope, step), (loss(U + step) - loss(U - step)) / 2.0, rtol=1e-3, atol=1e-11)


def test_precision_is_the_mean_over_orders_of_points_equally_far(random: np.random.Generator) -> None:
    codes, asked = (np.where(random.random((n, 3)) < 0.5, -1.0, 1.0) for n in (20, 60))
    true = np.array([random.permutation(20)[:4] for _ in asked])
    found = []
    for _ in range(300):
        order = random.permutation(20)
        far = (codes[order] != asked[:, None]).sum(axis=2)
        first = order[np.argsort(far, axis=1, kind="stable")[:, :4]]
        found.append(np.mean([np.isin(row, own).mean() for row, own in zip(first, true, strict=True)]))
    assert_allclose(precision(codes, asked, true), np.mean(found), atol=0.01)


@pytest.mark.parametrize(("kind", "better"), [("clusters", True), ("wide", True), ("alike", False), ("few", False)])
def test_bits_by_neighbours_find_more_of_points_held_out_or_stay(
    kind: str, better: bool, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start stays too where no fit finds more than it."""
    n, D, H = {"few": (9, 3, 2), "wide": (200, 4, 9)}.get(kind, (300, 8, 4))
    A = 3.0 * random.standard_normal((9, D))[random.integers(0, 9, n)] * np.linspace(3.0, 1.0, D)
    A += random.standard_normal((n, D))
    A *= kind != "alike"
    W, held = random.standard_normal((H, D + 1)), min(HELD_OUT, n // 10)
    found = neighbour_bits(A, W, 0.1)
    if not better:
        assert_array_equal(found, W)
        return
    true = neighbours(A[held:], A[:held], round(0.1 * (n - held)))
    before, after = (precision(signs(A[held:], V), signs(A[:held], V), true) for V in (W, found))
    assert after > 1.1 * before
    far = np.r_[np.full(D, 2.0**80), 1.0]  # beyond what squares in single precision hold
    assert_allclose(neighbour_bits(A * far[0], W / far, 0.1) * far, found, rtol=1e-6)
    monkeypatch.setattr(by_neighbours, "fitted", lambda F, U, *_: random.standard_normal(U.shape))
    assert_array_equal(neighbour_bits(A, found, 0.1), found)


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
