"""Inputs of a regression, eliminated one after the other: each is the one whose loss costs least, by single fits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tolerance import gamma

from macmpi.methods.unit_selection import LEAST, ROUNDED, Moments, moments, prefixes, ranked
from macmpi.reductions import sum_over
from macmpi.typing import Array

CASES = {"tall": (40, 6, 3, 0.1), "one target": (25, 5, 1, 1e-3), "more inputs than points": (5, 8, 2, 0.5)}


def problem(name: str) -> tuple[Array, Array, float, Moments]:
    """Correlated inputs far from 0, targets, the ridge, and their moments, summed in two runs of points."""
    N, D, L, ridge = CASES[name]
    random = np.random.default_rng(N)
    A = random.normal(size=(N, D)) @ random.normal(size=(D, D)) + 3.0
    T = np.tanh(A @ random.normal(size=(D, L))) + 0.1 * random.normal(size=(N, L)) - 1.0
    return A, T, ridge, moments(A, T, ridge, sum_over([slice(0, 2), slice(2, N)]))


def fitted(A: Array, T: Array, ridge: float) -> tuple[Array, float]:
    """W of min 1/2 ||T - [A, 1] W^T||^2 + ridge/2 ||V||^2 by an orthogonal factor, and that value."""
    D = A.shape[1]
    design = np.block([[A, np.ones((len(A), 1))], [np.sqrt(ridge) * np.eye(D), np.zeros((D, 1))]])
    right = np.vstack([T, np.zeros((D, T.shape[1]))])
    W = np.linalg.lstsq(design, right, rcond=None)[0]
    return W.T, 0.5 * float(np.square(right - design @ W).sum())


def rounding(of: Moments, points: int) -> float:
    """The condition of G times the roundings of its sums: what solving with it may be off by, in relative terms."""
    return 100.0 * float(np.linalg.cond(of.gram)) * gamma(points + len(of.gram))


@pytest.mark.parametrize("name", CASES)
def test_each_input_that_goes_is_the_one_without_which_least_is_lost(name: str) -> None:
    A, T, ridge, of = problem(name)
    order, left = ranked(of), list(range(A.shape[1]))
    assert sorted(order) == left
    for gone in order[::-1]:
        without = {h: fitted(A[:, [i for i in left if i != h]], T, ridge)[1] for h in left}
        assert without[int(gone)] <= min(without.values()) * (1.0 + rounding(of, len(A)))
        left.remove(int(gone))


@pytest.mark.parametrize("name", CASES)
def test_the_weights_of_each_number_of_inputs_are_those_of_a_single_fit(name: str) -> None:
    A, T, ridge, of = problem(name)
    order, sizes = ranked(of), range(1, A.shape[1] + 1)
    for size, kept in zip(sizes, prefixes(of, order, sizes), strict=True):
        assert_array_equal(kept.inputs, np.sort(order[:size]))
        W, _ = fitted(A[:, kept.inputs], T, ridge)
        assert_allclose(kept.weights, W, atol=rounding(of, len(A)) * np.abs(W).max(), rtol=0.0)


def test_the_ridge_is_at_least_what_rounding_asks_for() -> None:
    """Inputs that hardly vary around a large mean: their Gram, centred, is rounding alone."""
    A = np.full((60, 4), 0.5) + 1e-14 * np.random.default_rng(0).normal(size=(60, 4))
    of = moments(A, A[:, :1], 0.0, sum_over([slice(0, 60)]))
    assert np.diag(of.gram).min() >= 0.5 * ROUNDED * 60 * 0.25
    assert LEAST < 1.0
    assert np.isfinite(prefixes(of, ranked(of), [2])[0].weights).all()
