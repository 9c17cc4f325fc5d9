"""The contract of a loss, for every row of LOSSES and every kind of metric; and of a metric."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.examples import METRICS, metric_example, one_hot
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.nets.layers import Tangent
from macmpi.nets.losses import LOSSES, CrossEntropy, Loss, Root, Squared, dense, metric, times
from macmpi.typing import Array

SIZE = 4
EXTREME = np.array([[1e3, -1e3, 0.0, 1.0], [-1e3] * 4, [1e3, 1e3, 1e3, -1e3], [700.0, -40.0, 30.0, 699.0]])


@pytest.fixture(params=[*LOSSES, *(f"squared, {kind}" for kind in METRICS)])
def loss(request: pytest.FixtureRequest, random: np.random.Generator) -> Loss:
    name, _, kind = request.param.partition(", ")
    return Squared(metric_example(kind, SIZE, random, 2.0)) if kind else LOSSES[name]


@pytest.fixture
def outputs(loss: Loss, random: np.random.Generator) -> tuple[Array, Array]:
    """Targets in (0, 1), one-hot where the loss takes labels, and outputs of either sign."""
    Y = one_hot(random, 6, SIZE) if loss.labels else random.uniform(0.1, 0.9, (6, SIZE))
    return Y, random.normal(size=(6, SIZE))


def by_columns(function: object, F: Array, h: float = 1e-6) -> Array:
    """Central differences of a function of F, row by row: the last axis is the column of F that changes."""
    found = []
    for column in range(F.shape[1]):
        step = np.zeros_like(F)
        step[:, column] = h
        found.append((function(F + step) - function(F - step)) / (2.0 * h))  # type: ignore[operator]
    return np.stack(found, axis=-1)


def factor(root: Root, n: int) -> Array:
    """B of each point, (n, L, L), column by column."""
    along = root.after(Tangent(lambda dF: dF, lambda dF: dF))
    return np.stack([along.jvp(np.tile(e, (n, 1))) for e in np.eye(SIZE)], axis=-1)


def test_residual_is_minus_the_derivative(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    expected = -by_columns(lambda G: loss.value(Y, G), F)
    assert_allclose(loss.residual(Y, F), expected, rtol=1e-7, atol=1e-8)


def test_value_and_residual_in_one_pass_are_the_same_numbers(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    value, residual = loss.with_residual(Y, F)
    assert_array_equal(value, loss.value(Y, F))
    assert_array_equal(residual, loss.residual(Y, F))


def test_a_value_a_point(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    whole = loss.value(Y, F)
    assert whole.shape == (len(Y),)
    assert_allclose(loss.value(Y[2:5], F[2:5]), whole[2:5], rtol=1e-14)


def test_a_sum_over_outputs_says_so(loss: Loss, outputs: tuple[Array, Array]) -> None:
    """`by_output` with a unit Hessian is what lets the units of the last layer separate."""
    if not (loss.by_output and loss.unit_hessian):
        pytest.skip("the loss does not say that its outputs separate")
    Y, F = outputs
    each = [loss.value(Y[:, [column]], F[:, [column]]) for column in range(SIZE)]
    assert_allclose(loss.value(Y, F), np.sum(each, axis=0), rtol=1e-13)


def test_results_are_fresh_arrays(loss: Loss, outputs: tuple[Array, Array]) -> None:
    """The objective adds to them in place."""
    Y, F = outputs[0].copy(), outputs[1].copy()
    root = loss.root(Y, F)
    for result in (loss.value(Y, F), loss.residual(Y, F), root.residual, loss.hessian(F)):
        result += 1.0
    assert_array_equal(Y, outputs[0])
    assert_array_equal(F, outputs[1])


# --- the root ---------------------------------------------------------------------------------------------------------


def test_the_transposed_root_of_its_residual_is_minus_the_gradient(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    root = loss.root(Y, F)
    back = root.after(Tangent(lambda dF: dF, lambda dF: dF)).vjp(root.residual)
    assert_allclose(back, loss.residual(Y, F), rtol=1e-12, atol=1e-13)


def test_root_and_its_transpose(loss: Loss, outputs: tuple[Array, Array], random: np.random.Generator) -> None:
    """B J and its transpose, for an arbitrary J."""
    Y, F = outputs
    J, dA, U = random.normal(size=(SIZE, 3)), random.normal(size=(6, 3)), random.normal(size=(6, SIZE))
    root = loss.root(Y, F)
    tangent = root.after(Tangent(lambda dA: dA @ J.T, lambda dF: dF @ J))
    assert_allclose(np.sum(U * tangent.jvp(dA), axis=1), np.sum(tangent.vjp(U) * dA, axis=1), rtol=1e-12, atol=1e-12)
    expected = np.einsum("nij,jk,nk->ni", factor(root, 6), J, dA)
    assert_allclose(tangent.jvp(dA), expected, rtol=1e-12, atol=1e-12)


def test_the_square_of_the_root_is_the_hessian(
    loss: Loss, outputs: tuple[Array, Array], random: np.random.Generator
) -> None:
    Y, F = outputs
    root, dF = loss.root(Y, F), random.normal(size=F.shape)
    H = -by_columns(lambda G: loss.residual(Y, G), F)
    B = factor(root, len(F))
    assert_allclose(np.einsum("nji,njk->nik", B, B), H, rtol=1e-7, atol=1e-8)
    assert_allclose(root.normal(dF), np.einsum("nij,nj->ni", H, dF), rtol=1e-7, atol=1e-8)


def test_near_the_outputs_the_loss_is_the_root_s_square(loss: Loss, outputs: tuple[Array, Array]) -> None:
    """loss(F + dF) = 1/2 ||q - B dF||^2 + constant, up to third order."""
    Y, F = outputs
    root = loss.root(Y, F)
    dF = 1e-3 * np.cos(np.arange(F.size)).reshape(F.shape)
    moved = root.residual - root.after(Tangent(lambda A: A, lambda A: A)).jvp(dF)
    expected = 0.5 * np.sum(moved**2 - root.residual**2, axis=1)
    assert_allclose(loss.value(Y, F + dF) - loss.value(Y, F), expected, rtol=0.0, atol=1e-9)


def test_a_unit_hessian_is_the_identity(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    B = factor(loss.root(Y, F), len(F))
    assert loss.unit_hessian == bool((np.eye(SIZE) == B).all())


def test_congruence_and_hessian_are_means(
    loss: Loss, outputs: tuple[Array, Array], random: np.random.Generator
) -> None:
    Y, F = outputs
    M = random.normal(size=(SIZE, SIZE))
    M, B = M + M.T, factor(loss.root(Y, F), len(F))
    assert_allclose(loss.congruence(F, M), np.einsum("nij,jk,nlk->il", B, M, B) / len(F), rtol=1e-12, atol=1e-12)
    assert_allclose(loss.hessian(F), np.einsum("nji,njk->ik", B, B) / len(F), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extreme_outputs_stay_finite(loss: Loss, dtype: type, random: np.random.Generator) -> None:
    F = EXTREME.astype(dtype)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        for label in range(SIZE):
            Y = np.tile(np.eye(SIZE, dtype=dtype)[label], (len(F), 1))
            root = loss.root(Y, F)
            back = root.after(Tangent(lambda A: A, lambda A: A)).vjp(root.residual)
            assert_allclose(back, loss.residual(Y, F), rtol=1e-3, atol=1e-6)
            for found in (loss.value(Y, F), root.residual, root.normal(F), loss.hessian(F)):
                assert np.isfinite(found).all()
            assert (loss.value(Y, F) >= 0.0).all()


def test_single_precision_stays_single(random: np.random.Generator) -> None:
    for loss in LOSSES.values():
        Y, F = one_hot(random, 6, SIZE).astype(np.float32), random.normal(size=(6, SIZE)).astype(np.float32)
        root = loss.root(Y, F)
        for found in (loss.value(Y, F), loss.residual(Y, F), root.residual, root.normal(F)):
            assert found.dtype == np.float32


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", METRICS)
def test_inverse_and_root_of_a_metric(kind: str, random: np.random.Generator) -> None:
    form = metric_example(kind, SIZE, random, 3.0)
    M, inverse, root = (dense(x, SIZE) for x in (form.M, form.inverse, form.root))
    assert_allclose(M @ inverse, np.eye(SIZE), rtol=0.0, atol=1e-13)
    assert_allclose(root @ root, M, rtol=1e-13, atol=1e-13)
    assert_allclose(root, root.T, rtol=0.0, atol=1e-14)
    assert np.linalg.eigvalsh(root).min() > 0.0
    assert np.ndim(form.M) == np.ndim(form.inverse) == np.ndim(form.root)


@pytest.mark.parametrize("kind", METRICS)
def test_square_and_times(kind: str, random: np.random.Generator) -> None:
    form, C = metric_example(kind, SIZE, random, 3.0), random.normal(size=(5, SIZE))
    M = dense(form.M, SIZE)
    assert_allclose(form.square(C), np.einsum("ni,ij,nj->n", C, M, C), rtol=1e-13)
    out = np.empty_like(C)
    assert times(C, form.M, out=out) is out
    assert_allclose(out, C @ M, rtol=1e-13)
    assert_allclose(times(C, form.M), C @ M, rtol=1e-13)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_a_metric_is_made_in_double_and_kept_in_the_precision_asked_for(kind: str, random: np.random.Generator) -> None:
    double = metric_example(kind, SIZE, random, 3.0)
    single = metric(double.M, np.float32)
    for found, expected in zip(vars(single).values(), vars(double).values(), strict=True):
        assert found.dtype == np.float32
        assert_array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize("sure", [0.0, 5.0, 15.0, 30.0])
def test_cross_entropy_has_digits_far_below_the_rounding_of_one(sure: float, random: np.random.Generator) -> None:
    """Value, gradient and curvature in float32 against float64, for points that are all but certain of their label."""
    loss, Y = CrossEntropy(), np.eye(4)[random.integers(4, size=9)]
    F = (random.normal(size=Y.shape) + sure * Y).astype(np.float32)
    wide, change = F.astype(float), random.normal(size=Y.shape)
    near = {"rtol": 2e-5, "atol": 0.0}
    assert_allclose(loss.value(Y.astype(np.float32), F), loss.value(Y, wide), **near)
    assert_allclose(
        loss.value(Y, wide), np.log1p((np.exp(wide) * (1.0 - Y)).sum(1) / (np.exp(wide) * Y).sum(1)), rtol=1e-12
    )
    assert_allclose(loss.residual(Y.astype(np.float32), F), loss.residual(Y, wide), **near)
    assert_allclose(loss.residual(Y, wide).sum(axis=1), 0.0, atol=1e-15)
    if sure < 20.0:  # smaller probabilities are raised
        assert_allclose(loss.hessian(F), loss.hessian(wide), **near)
        curved, exact = (
            np.vecdot(d, loss.root(Y, f).normal(d)) for d, f in ((change.astype(np.float32), F), (change, wide))
        )
        assert_allclose(curved, exact, **near)
