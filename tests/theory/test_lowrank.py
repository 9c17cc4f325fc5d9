"""Inverses of wide Grams and metrics in their leading eigenvectors: laws of the formula, and of subspace iteration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from plans import plan_of
from unit.played import data_of, played

from macmpi.config import Config, Method, Model, Run, Stochastic
from macmpi.methods.stochastic.layers import Dense, LowRank, leading, shares
from macmpi.nets.build import build_chain
from macmpi.nets.losses import loss_of
from macmpi.plan import tuned
from macmpi.plan.directions import Layout, curvature_forms, explained_forms
from macmpi.typing import Array

D, R = 40, 5


def symmetric(values: Array, seed: int = 0) -> tuple[Array, Array]:
    """A matrix of these eigenvalues, from the largest down, and its eigenvectors."""
    U = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values),) * 2)).Q
    return (U * values) @ U.T, U


def spread(top: float = 100.0) -> Array:
    """R eigenvalues well above the others."""
    return np.concatenate([top * 0.7 ** np.arange(R), 0.01 * 0.9 ** np.arange(D - R)])


@given(st.floats(1e-3, 10.0), st.floats(1e-3, 1.0))
def test_it_is_the_inverse_where_the_other_eigenvalues_are_equal(shift: float, rest: float) -> None:
    values = np.concatenate([np.arange(R, 0.0, -1.0) + rest, np.full(D - R, rest)])
    A, U = symmetric(values)
    found = LowRank(U[:, :R], shares(A, (values[:R], U[:, :R]), shift)).of_rows(np.eye(D))
    exact = np.linalg.inv(A + shift * np.eye(D))
    assert_allclose(found, exact, atol=1e-9 * np.abs(exact).max())


@given(st.floats(1e-4, 10.0))
def test_the_other_eigenvalues_count_as_no_more_than_their_mean(shift: float) -> None:
    """The geometric mean is below the arithmetic one, and above the least."""
    values = spread()
    A, U = symmetric(values)
    t = 1.0 / shares(A, (values[:R], U[:, :R]), shift)[-1]
    assert values[R:].min() + shift <= t * (1.0 + 1e-9)
    assert t <= (values[R:].mean() + shift) * (1.0 + 1e-9)
    geometric = np.exp(np.log(values[R:] + shift).mean())
    assert abs(t - geometric) <= abs(values[R:].mean() + shift - geometric) + 1e-12 * t


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_and_units_are_those_of_the_matrix(dtype: type) -> None:
    """Also for inputs without their last column, which is of ones."""
    random = np.random.default_rng(1)
    A, U = symmetric(spread())
    low = LowRank(U[:, :R].astype(dtype), shares(A, (spread()[:R], U[:, :R]), 0.1).astype(dtype))
    matrix = low.of_rows(np.eye(D, dtype=dtype))
    Q, S, units = random.normal(size=(7, D)).astype(dtype), random.normal(size=(D, 6)).astype(dtype), slice(3, 9)
    bound = 20 * D * np.finfo(dtype).eps * np.abs(matrix).max() * max(np.abs(Q).max(), np.abs(S).max())
    for inverse in (low, Dense(matrix)):
        assert inverse.of_rows(Q).dtype == dtype
        assert_allclose(inverse.of_rows(Q), Q @ matrix, rtol=0.0, atol=bound)
        rows, found = inverse.times(S), np.full((6, 6), np.nan, dtype)
        for some in (slice(0, 3), units):
            assert_allclose(rows(some, found[: some.stop - some.start]), (matrix @ S)[some], rtol=0.0, atol=bound)
        with_ones = np.hstack([Q[:, :-1], np.ones((len(Q), 1), dtype)])
        assert_allclose(inverse.of_rows(Q[:, :-1]), with_ones @ matrix, rtol=0.0, atol=bound)


def angle(U: Array, V: Array) -> float:
    """The sine of the largest angle between two subspaces."""
    return float(np.linalg.norm(V - U @ (U.T @ V), 2))


def test_subspace_iteration_finds_the_leading_eigenvectors() -> None:
    """Each product makes the angle smaller by the ratio of the first eigenvalue left out to the last one kept."""
    values = spread()
    A, U = symmetric(values)
    found, V = leading(A, np.zeros((D, R)), 3)
    ratio = values[R] / values[R - 1]
    start = np.random.default_rng(0).normal(size=(D, R))
    tangent = np.linalg.norm(U[:, R:].T @ start, 2) / np.linalg.svd(U[:, :R].T @ start)[1].min()
    assert angle(U[:, :R], V) <= 100.0 * tangent * ratio**tuned.PRODUCTS_COLD
    assert_allclose(V.T @ V, np.eye(R), atol=1e-12)
    assert (found <= values[0] * (1.0 + 1e-12)).all()
    assert_allclose(np.sort(found)[::-1], values[:R], rtol=1e-6)


def test_wide_grams_and_metrics_of_dense_nets_are_inverted_in_eigenvectors() -> None:
    """Not those that a metric is known of, nor of layers that are damped in all of their eigenvectors."""
    config = Config(model=Model([1000, 500, 30, 500, 1000], "sigmoid"))
    chain, loss = build_chain(config.model, 784, 784), loss_of(config)
    found = curvature_forms(chain, loss, True, 250.0)
    ranks = [rank for form in found.layers for rank in form.ranks]
    sides = [side for h, d in chain.block_shapes for side in (d, h)]
    assert [k for k, form in enumerate(found.layers) if form.spectral] == [2, 3]
    assert [j for j, rank in enumerate(ranks) if rank] == [0, 1, 2, 3, 8, 9, 10]
    assert all(0 < tuned.LOW_RANK_SHARE * rank <= side for rank, side in zip(ranks, sides, strict=True) if rank)
    regression = curvature_forms(chain, loss, False, 250.0)
    assert not any(form.spectral for form in regression.layers) and not regression.dense_autoencoder
    also = [rank for form in regression.layers for rank in form.ranks]
    assert all(wide for rank, wide in zip(ranks, also, strict=True) if rank)
    layout = Layout(chain.block_shapes, found.layers)
    assert layout.squares[-1][-1].stop == sum(side * (rank or side) for rank, side in zip(ranks, sides, strict=True))


def test_each_layer_is_explained_with_a_reason_of_its_own() -> None:
    config = Config(model=Model([9, 3, 8], "sigmoid"), method=Method("stochastic"))
    first, *layers = explained_forms(plan_of(config, 20, 20, 500, 50, 1))
    assert len(layers) == 4 and all(line.startswith("# ") for line in (first, *layers))
    assert "by shifts, G whole, M whole: it reads the inputs" in layers[0]
    assert "in the eigenvectors of G and M: " in layers[1]
    assert "M the identity: a linear output layer of the squared error" in layers[3]
    assert "regressions" in explained_forms(plan_of(config, 20, 3, 500, 50, 1))[1]
    assert explained_forms(plan_of(Config(method=Method("mac")), 20, 20, 500, 50, 1)) == []


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_any_number_of_ranks_gives_the_same_bits(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LOW_RANK_WIDE", 6), ("LOW_RANK_SHARE", 3), ("SPECTRAL_TURNS", 0.0)):
        monkeypatch.setattr(tuned, name, value)
    config = Config(
        model=Model([9, 3, 8], "sigmoid", precision=precision),  # type: ignore[arg-type]
        method=Method("stochastic"),
        stochastic=Stochastic(batch=20, parts=5),
        run=Run(max_iterations=3),
    )
    data = data_of(70)
    X, X_val = (A.astype(precision) for A in (data.X, data.X_val))
    data = replace(data, X=X, Y=X, X_val=X_val, Y_val=X_val)
    (alone,), *others = (played(config, data, ranks) for ranks in (1, 2, 3, 5, 12))
    assert alone.state.own.inverses.any()
    for ranks in others:
        for found in ranks:
            for name in ("average", "inverses", "spectra", "grams"):
                np.testing.assert_array_equal(getattr(found.state.own, name), getattr(alone.state.own, name))
