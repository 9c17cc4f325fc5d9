"""A stochastic autoencoder's start: layers carry principal components, or are random on the scale of the points."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from plans import plan_of
from scalings import fit_scaling
from tolerance import assert_within, of_product
from unit.played import data_of, played

from macmpi.config import Config, Method, Model, Parallel, Run, Stochastic
from macmpi.data.dataset import Dataset
from macmpi.methods.stochastic import start as components
from macmpi.methods.stochastic.method import Stochastic as Method_
from macmpi.nets.build import build_chain
from macmpi.parallel.team import Team
from macmpi.plan import tuned
from macmpi.typing import Array

D, N = 9, 700


def points() -> Array:
    """Variances from 1 down, in random directions, about a mean of its own."""
    random = np.random.default_rng(0)
    mixed = np.linalg.qr(random.normal(size=(D, D)))[0] * 0.7 ** np.arange(D)
    return random.normal(size=(N, D)) @ mixed.T + random.normal(size=D)


def started(X: Array, Y: Array | None, hidden: list[int], activation: str = "sigmoid") -> tuple[Method_, list[Array]]:
    T = X if Y is None else Y
    data = Dataset(X, T, X[:50], T[:50], fit_scaling(X, "none"), fit_scaling(T, "none"), "")
    config = Config(
        model=Model(hidden, activation),  # type: ignore[arg-type]
        method=Method("stochastic"),
        stochastic=Stochastic(batch=50, parts=3),
        run=Run(max_iterations=1),
    )
    plan = plan_of(config, D, T.shape[1], N, 50, 1)
    method = Method_(plan, data, Team())
    return method, [W.copy() for W in method.parts.weights(method.start(0.0, False, 1))]


def pca_error(X: Array, kept: int) -> float:
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))
    return 0.5 * float(values[: D - kept].sum())


def error(method: Method_, weights: list[Array]) -> float:
    X = method.data.X
    return 0.5 * float(((X - method.plan.chain.forward(weights, X)) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize("hidden", [[4], [6, 3, 6], [9, 9, 5], [12, 4, 4, 11]])
def test_a_linear_net_begins_as_pca_but_for_the_ridge(hidden: list[int]) -> None:
    """No linear net of that width does better, and with all points in the sample the ridge alone keeps it from PCA.

    RIDGE ||V||^2 adds at most RIDGE / (RIDGE + N l) of what a feature of variance l explains, at each fit.
    """
    X = points()
    method, weights = started(X, None, hidden, "linear")
    best = pca_error(X, min(hidden))
    explained = 0.5 * float(np.cov(X.T, bias=True).trace())
    features = method.plan.chain.part(0, len(method.plan.chain.maps) - 1).forward(weights, X)
    least = np.sort(np.linalg.eigvalsh(np.cov(features.T, bias=True)))[-min(hidden) :].min()
    assert best * (1.0 - 1e-9) <= error(method, weights)
    assert error(method, weights) <= best + explained * len(hidden) / (1.0 + N * least) * 10.0
    assert error(method, weights) < 1.1 * best


def test_pre_activations_that_carry_are_the_leading_components() -> None:
    X = points()
    found = components.components_of(np.c_[X, np.ones(N)].T @ np.c_[X, np.ones(N)] / N)
    V, c = components.carrying(found, np.random.default_rng(3).normal(size=(6, 4)), "tanh")
    P = X @ V.T + c
    bound = of_product(np.abs(X), np.abs(V.T)).max() * N
    assert_within(P.mean(axis=0), 0.0, bound + 1e-12 * np.abs(c).max())
    assert_allclose(np.sqrt((P**2).mean()), tuned.CARRIED * tuned.START_SCALE)
    outside = np.linalg.eigh(np.cov(X.T, bias=True))[1][:, : D - 4]
    assert np.abs(V @ outside).max() < 1e-9 * np.abs(V).max()
    assert np.linalg.matrix_rank(V) == 4


def test_wide_layers_are_random_on_the_scale_of_the_points() -> None:
    A = points()
    W = np.random.default_rng(2).uniform(-1.0, 1.0, (40, D + 1)) / np.sqrt(D)
    drawn = W[:, -1].copy()
    components.spread(W, np.c_[A, np.ones(N)].T @ np.c_[A, np.ones(N)] / N, 0.5)
    P = A @ W[:, :-1].T + W[:, -1]
    assert_allclose(P.std(axis=0).mean(), tuned.SPREAD * 0.5)
    assert_allclose(P.mean(axis=0), tuned.SPREAD_BIASES * 0.5 * drawn * np.sqrt(3.0 * D), atol=1e-9)


@pytest.mark.parametrize(("model", "coded", "yes"), [
    (Model([12, 4, 11], "sigmoid"), True, True), (Model([5], "linear"), True, True),
    (Model([6, 3, 6], "tanh", tied=True), True, False), (Model([6, 6, 6], "tanh", skips=[[1, 3]]), True, False),  # type: ignore[list-item]
    (Model([6, 3], ["tanh", "rbf"]), True, False),  # type: ignore[arg-type]
    (Model([6] * tuned.PASSED, "relu"), False, False), (Model([6] * (tuned.PASSED + 1), "relu"), False, True),
])  # fmt: skip
def test_dense_nets_with_known_activations_start_so(model: Model, coded: bool, yes: bool) -> None:
    assert components.carries(build_chain(model, D, D), coded) == yes


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
def test_the_last_layer_of_a_deep_net_begins_with_all_that_the_inputs_say(activation: str) -> None:
    """A linear model of it explains four fifths of the inputs behind 40 layers, which no ridge pulls to nothing.

    Random layers leave less than a hundredth.
    """
    X = points()
    method, weights = started(X, X[:, :2], [D] * 40, activation)
    features = np.c_[method.plan.chain.part(0, len(method.plan.chain.maps) - 1).forward(weights, X), np.ones(N)]
    left = X - features @ np.linalg.lstsq(features, X, rcond=1e-9)[0]
    assert np.mean(left**2) < 0.2 * np.mean(X.var(axis=0))
    assert method.ridge.first == 0.0


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("held", ["replicated", "sharded"])
def test_a_start_has_the_same_bits_on_any_number_of_ranks(precision: str, held: str) -> None:
    """Products of few columns have other bits with other numbers of rows: no rank may take its points all at once."""
    model = Model([7, 5, 7], "sigmoid", precision=precision)
    keys = Stochastic(batch=50, parts=12)
    config = Config(model=model, method=Method("stochastic"), stochastic=keys, parallel=Parallel(held))
    data = data_of(403, columns=9)
    alone, *others = (played(config, data, ranks, 1) for ranks in (1, 2, 3, 5, 12))
    for states in others:
        assert all(p.state.weights.tobytes() == alone[0].state.weights.tobytes() for p in states)
