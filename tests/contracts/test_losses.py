"""The contract of a loss, for every row of LOSSES."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.layers import Array
from macmpi.objective import LOSSES, Loss


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> Loss:
    return LOSSES[request.param]


@pytest.fixture
def outputs(random: np.random.Generator) -> tuple[Array, Array]:
    """Targets and outputs in (0, 1), a domain that every loss has."""
    return random.uniform(0.1, 0.9, (6, 4)), random.uniform(0.1, 0.9, (6, 4))


def test_residual_is_minus_the_derivative(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    h, expected = 1e-6, np.empty_like(F)
    for column in range(F.shape[1]):
        step = np.zeros_like(F)
        step[:, column] = h
        expected[:, column] = -(loss.value(Y, F + step) - loss.value(Y, F - step)) / (2.0 * h)
    assert_allclose(loss.residual(Y, F), expected, rtol=1e-7, atol=1e-8)


def test_a_value_a_point(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    whole = loss.value(Y, F)
    assert whole.shape == (len(Y),)
    assert_allclose(loss.value(Y[2:5], F[2:5]), whole[2:5], rtol=1e-14)


def test_results_are_fresh_arrays(loss: Loss, outputs: tuple[Array, Array]) -> None:
    """The objective adds to them in place."""
    Y, F = outputs[0].copy(), outputs[1].copy()
    for result in (loss.value(Y, F), loss.residual(Y, F)):
        result += 1.0
    assert_array_equal(Y, outputs[0])
    assert_array_equal(F, outputs[1])


def test_a_quadratic_loss_has_the_identity_as_hessian(
    loss: Loss, outputs: tuple[Array, Array], random: np.random.Generator
) -> None:
    if not loss.quadratic:
        pytest.skip("the loss does not say that it is quadratic")
    Y, F = outputs
    dF = random.normal(size=F.shape)
    assert_allclose(loss.residual(Y, F + dF), loss.residual(Y, F) - dF, rtol=1e-13, atol=1e-13)
