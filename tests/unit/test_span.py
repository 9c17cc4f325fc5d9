"""Fewer points than columns: training in coordinates of the points' span is training on all columns."""

from __future__ import annotations

import tomllib
import tracemalloc
from typing import Any

import numpy as np
import pytest

import macmpi
from macmpi.config import Config, validate
from macmpi.config.auto import Sizes
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling, ScalingRule, sparse_scaling, unscaled
from macmpi.data.wide import OfColumns, Span, SparseRows, in_span
from macmpi.nets.build import build_chain
from macmpi.plan.resolve import resolve_in_span
from macmpi.typing import Array

sparse = pytest.importorskip("scipy.sparse")

N, M, D, H = 9, 4, 40, 3
RANDOM = np.random.default_rng(8)
FILLED = sparse.random_array((N + M, D), density=0.3, rng=RANDOM, format="csr")
Y = RANDOM.normal(size=(N + M, 1))
EPS = float(np.finfo(float).eps)


def config_of(text: str) -> Config:
    return validate(tomllib.loads(f'data.source = "x.npz"\n{text}'), "a config")


def rows(kind: str) -> tuple[Any, Any]:
    """Training and validation rows, less a shift, as a scaling makes them."""
    shift = RANDOM.normal(size=D)
    A, B = (SparseRows(FILLED[part], shift) for part in (slice(N), slice(N, None)))
    return (A, B) if kind == "sparse" else (A[:], B[:])


def data(kind: str) -> Dataset:
    X, X_val = rows(kind)
    return Dataset(X, Y[:N], X_val, Y[N:], unscaled(D), unscaled(1), sha256="")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n", [N, N + M])
def test_weights_of_coordinates_are_weights_of_columns(kind: str, n: int) -> None:
    """W x = W' z at training and validation points, and what is within the span comes back."""
    given = data(kind)
    found = in_span(given, n)
    span: Span = found.span
    W = RANDOM.normal(size=(H, n + 1))
    V = of_columns(span, W)
    size = 100 * n * np.abs(W).sum() * np.linalg.cond(_least(span))
    for X, Z in ((given.X, found.X), (given.X_val, found.X_val)):
        np.testing.assert_allclose(np.asarray(X) @ V[:, :-1].T + V[:, -1], Z @ W[:, :-1].T + W[:, -1], atol=EPS * size)
    np.testing.assert_allclose(of_columns(span, span.within(V)), V, atol=EPS * size)
    points = np.asarray(span.points)
    assert np.isclose(np.square(found.X).sum(), n / D * np.square(points[:N]).sum())  # the columns' mean variance


def of_columns(span: Span, W: Array) -> Array:
    return OfColumns(span, {"best": W.ravel()}, len(W))["best"].reshape(len(W), -1)


def _least(span: Span) -> Array:
    values = np.linalg.eigvalsh(span.turn)
    return np.diag(values[values > 1e-8 * values[-1]])


def test_coordinates_of_repeated_points_are_those_of_the_span() -> None:
    """K is singular: what it lacks gets no weights, and outputs are those of the columns."""
    A = RANDOM.normal(size=(N, D))
    A[1], A[2] = A[0], 0.0
    span, own = Span.of(A)
    W = RANDOM.normal(size=(H, N + 1))
    Z, V = span.coordinates(A), of_columns(span, W)
    np.testing.assert_allclose(Z @ W[:, :-1].T, A @ V[:, :-1].T, atol=1e-9)
    np.testing.assert_allclose(Z[0], Z[1], atol=1e-9)
    np.testing.assert_allclose(own, Z, atol=1e-9)


def test_a_singular_span_moves_little_where_points_do() -> None:
    """Coordinates are continuous where eigenvectors are not: of points that span a circle, turned by rounding."""
    A = np.eye(N, D)
    B = A + 1e-12 * RANDOM.normal(size=A.shape)
    np.testing.assert_allclose(Span.of(A)[1], Span.of(B)[1], atol=1e-10)


def test_sparse_rows_are_what_their_dense_ones_are() -> None:
    (A, B), C, V = rows("sparse"), RANDOM.normal(size=(H, N)), RANDOM.normal(size=(H, D))
    dense = np.asarray(A)
    np.testing.assert_allclose(A.times(B), dense @ np.asarray(B).T, atol=1e-12)
    combined = np.empty((H, D))
    A.combine(C, combined)
    np.testing.assert_allclose(combined, C @ dense, atol=1e-12)
    np.testing.assert_allclose(A.applied(V), V @ dense.T, atol=1e-12)
    np.testing.assert_allclose(A[2:5], dense[2:5])


@pytest.mark.parametrize("weights", [None, np.arange(N + M) + 1.0])
@pytest.mark.parametrize("kind", ["robust", "standard", "range", "none"])
def test_sparse_columns_are_scaled_by_the_rule(kind: str, weights: Array | None) -> None:
    raw, rule = SparseRows.of(FILLED), ScalingRule(kind)
    low, high, mean, squares = raw.moments(weights)
    dense = np.asarray(raw)
    np.testing.assert_allclose(mean, np.average(dense, axis=0, weights=weights), atol=1e-12)
    np.testing.assert_allclose(squares, np.average(dense**2, axis=0, weights=weights), atol=1e-12)
    assert (low == dense.min(axis=0)).all() and (high == dense.max(axis=0)).all()
    scaling = sparse_scaling(rule, low, high, mean, squares)
    np.testing.assert_allclose(np.asarray(raw.scaled(scaling, np.dtype(float))), scaling.apply(dense), atol=1e-12)
    if kind == "robust":
        assert np.abs(scaling.apply(dense)).max() <= 5.0 * (1.0 + 1e-12)
    later = Scaling(mean, np.full(D, 0.01), limit=3.0)
    np.testing.assert_allclose(
        np.asarray(raw.scaled(later, np.dtype(float)))[dense > 0], later.apply(dense)[dense > 0], atol=1e-12
    )


SMALL = {"run.max_iterations": 3, "model.precision": "float64"}


@pytest.mark.filterwarnings("ignore::macmpi.MacmpiWarning")
@pytest.mark.parametrize("method", ["stochastic", "mac"])
@pytest.mark.parametrize("labels", [False, True])
def test_a_model_of_a_wide_table_reads_its_columns(method: str, labels: bool) -> None:
    """What training has seen is what the model does: the same error at the validation points."""
    X = RANDOM.normal(size=(24, D))
    y = (X[:, 0] > 0).astype(int) if labels else X[:, 0]
    keys: dict[str, Any] = {"config": SMALL | {"method.name": method, "run.refit": False}, "seed": 1}
    loss = "cross_entropy" if labels else "squared"
    model = macmpi.fit(X[:18], y[:18], validation=(X[18:], y[18:]), hidden=[4], loss=loss, **keys)
    assert model.chain.n_in == D and model.card is not None and model.card.data.inputs == D
    best = model.card.errors["best"].validation
    if labels:
        P = model.probabilities(X[18:])
        np.testing.assert_allclose(-np.log(P[np.arange(6), y[18:]]).mean(), best, rtol=1e-8)
    else:
        residual = (model.predict(X[18:]) - y[18:]) / model.scaling_y.scale
        np.testing.assert_allclose(0.5 * np.square(residual).mean(), best, rtol=1e-8)
    config = keys["config"] | {"run.max_iterations": 0, "start.gradient_step": False, "start.weights": "best"}
    further = macmpi.fit(X[:18], y[:18], validation=(X[18:], y[18:]), loss=loss, start=model, config=config)
    np.testing.assert_allclose(further.history[0]["E1_val"], best, rtol=1e-8)


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::macmpi.MacmpiWarning")
def test_sparse_and_dense_inputs_give_one_model() -> None:
    X, y = FILLED, np.ravel(Y)
    keys: dict[str, Any] = {"hidden": [4], "config": SMALL | {"data.scale": "standard"}, "seed": 2}
    one, other = macmpi.fit(X, y, **keys), macmpi.fit(X.toarray(), y, **keys)
    np.testing.assert_allclose(one.predict(X), other.predict(X.toarray()), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.predict(X), one.predict(X.toarray()), rtol=1e-12)
    pairs = [macmpi.fit(A[:9], y[:9], validation=(B[9:], y[9:]), **keys) for A, B in ((X, X), (X, X.toarray()))]
    np.testing.assert_allclose(pairs[0].predict(X), pairs[1].predict(X), rtol=1e-6, atol=1e-9)
    rounded = X.astype(np.float32)
    assert macmpi.fit(rounded, y, **keys) == macmpi.fit(rounded.astype(float), y, **keys)


@pytest.mark.parametrize(("n", "matrices"), [(300, 12.5), (600, 5.5)])
@pytest.mark.filterwarnings("ignore::macmpi.MacmpiWarning")
def test_a_fit_of_sparse_rows_takes_a_multiple_of_what_it_holds(n: int, matrices: float) -> None:
    """Its data and some matrices of points by points, never one of points by columns; a model holds no more than data.

    matrices: their number, of leading eigenvectors fewer, and a half for what cycles hold until they are collected.
    """
    D = 32 * n
    X, y = sparse.random_array((n, D), density=0.013, rng=RANDOM, format="csr"), RANDOM.normal(size=n)
    macmpi.fit(X[:60], y[:60], hidden=[3], config={"run.max_iterations": 1}, seed=0)  # what is imported once
    tracemalloc.start()
    model = macmpi.fit(X, y, hidden=[20], config={"run.max_iterations": 2, "run.refit": True}, seed=0)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held, of_one = X.data.nbytes + X.indices.nbytes, model.kept["best"].nbytes
    assert len(model.kept) == 3 and now < held + of_one
    assert peak < 2.0 * held + matrices * 8 * n * n


def test_weights_of_sparse_columns_take_no_more_than_themselves() -> None:
    span, _ = Span.of(SparseRows.of(sparse.random_array((20, 20000), density=0.01, rng=RANDOM, format="csr")))
    W = RANDOM.normal(size=(40, 21))
    tracemalloc.start()
    found = of_columns(span, W)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * found.nbytes


def test_numbers_at_one_place_are_added_and_the_given_matrix_stays() -> None:
    A = sparse.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 3, 3])), shape=(2, 3))
    assert SparseRows.of(A)[:].tolist() == [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    assert A.nnz == 3 and A.indices.tolist() == [1, 1, 0]


def test_a_sparse_number_that_is_none_is_refused_by_its_place() -> None:
    X = FILLED.copy().tolil()
    X[3, 5] = np.nan
    with pytest.raises(macmpi.UsageError, match=r"nan at \[3, 5\]"):
        macmpi.fit(X.tocsr(), Y)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", True),
        ('method.name = "mac"', True),
        ('method.name = "adam"', False),
        ('method.name = "mac"\npenalty.l1 = 0.1', False),
        ('method.name = "mac"\nstart.method = "elastic_embedding"', False),
        ('parallel.data = "sharded"', False),
        ('parallel.data = "node"', True),
        ('model.activation = "rbf"\nmodel.hidden = [5]', False),
        ('model.hidden = [{ units = 5, connections = "random", share = 0.5 }, 4]', False),
        ('model.skips = [[0, 3]]\nmodel.hidden = [5, 4]\nmodel.joining = "append"', False),
    ],
)
def test_what_depends_on_single_columns_is_trained_on_all_of_them(text: str, spans: bool) -> None:
    sizes = Sizes(D, 1, N, M, False, drawn=True)
    config = config_of(text)
    found = resolve_in_span(config, sizes)
    assert (found.columns, found.chain.n_in) == ((D, N + M) if spans else (0, D))
    many = resolve_in_span(config, Sizes(N, 1, D, M, False))
    assert many.columns == 0 and many.chain.n_in == N


def test_a_net_reads_other_columns() -> None:
    config = config_of('model.hidden = [3]\nmodel.activation = "relu"')
    chain = build_chain(config.model, 5, 2)
    assert chain.reading(D).block_shapes == ((3, D + 1), (2, 4)) and chain.reading(5) == chain
