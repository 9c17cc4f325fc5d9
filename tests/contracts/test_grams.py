"""What units share: the factor of their Gram, and the coordinates in which that is the identity."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.examples import summed
from numpy.testing import assert_allclose

from macmpi.solvers import W_SOLVERS
from macmpi.solvers.cholesky import PRECONDITIONER
from macmpi.solvers.grams import LayerGram, Whitening
from macmpi.typing import Array

RIDGES = [0.0, 1e-3, 7.0]


def factor(name: str, A: Array, ridge: float, activation: str = "linear") -> Array:
    system = W_SOLVERS[name]().system  # type: ignore[attr-defined]
    G = system.sum(A, summed(len(A), 3))
    found: Array = system.factor(LayerGram(G, ridge, A.dtype, activation=activation))
    return found


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("name", ["gauss_newton", "sgd", "lbfgs"])
def test_the_factor_is_that_of_the_gram_and_the_ridge(name: str, ridge: float, random: np.random.Generator) -> None:
    """gauss_newton's in units of the activation's steepest slope squared."""
    A = random.normal(size=(40, 6))
    D = np.hstack([A, np.ones((40, 1))])
    for activation, steepest in (("tanh", 1.0), ("sigmoid", 0.25)):
        L = factor(name, A, ridge, activation)
        own = ridge / steepest**2 if name == "gauss_newton" else ridge
        assert_allclose(L @ L.T, D.T @ D + own * np.eye(7), rtol=1e-6, atol=1e-6)
        assert not np.triu(L, 1).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inputs_that_are_0_or_alike_are_no_obstacle(dtype: type, random: np.random.Generator) -> None:
    A = random.normal(size=(40, 6)).astype(dtype)
    A[:, 2], A[:, 5] = 0.0, A[:, 4]
    L = factor("gauss_newton", A, 0.0)
    assert np.isfinite(np.linalg.inv(L)).all()
    D = np.hstack([A, np.ones((40, 1), dtype)]).astype(float)
    assert_allclose(L @ L.T, D.T @ D, atol=1e-4 if dtype is np.float32 else 10.0 * PRECONDITIONER * np.trace(D.T @ D))


@pytest.mark.parametrize("ridge", RIDGES)
def test_whitened_inputs_have_the_identity_as_their_gram(ridge: float, random: np.random.Generator) -> None:
    """And so [A, 1] theta^T stays what it is, gradients are pulled back by the chain rule, and there is a way back."""
    A, theta, G = random.normal(size=(40, 6)), random.normal(size=(3, 7)), random.normal(size=(3, 7))
    D = np.hstack([A, np.ones((40, 1))])
    whitening = Whitening(factor("sgd", A, ridge))
    features, phi = whitening.features(A), whitening.into(theta)
    lower = np.linalg.inv(np.linalg.cholesky(D.T @ D + ridge * np.eye(7)))
    assert_allclose(features.T @ features, np.eye(7) - ridge * lower @ lower.T, atol=1e-6)
    assert_allclose(features @ phi.T, D @ theta.T, rtol=1e-9, atol=1e-9)
    assert_allclose(whitening.back(phi), theta, rtol=1e-9, atol=1e-12)
    step = 1e-6 * random.normal(size=(3, 7))
    assert_allclose(np.vdot(whitening.pull(G), step), np.vdot(G, whitening.back(step)), rtol=1e-9)
    squares = [0.5 * np.sum(whitening.back(phi + s * step)[:, :-1] ** 2) for s in (1.0, -1.0)]
    assert_allclose(np.vdot(whitening.shrink(phi), step), 0.5 * (squares[0] - squares[1]), rtol=1e-6)
