"""The contract of a loss, for every row of LOSSES and every kind of metric; and of a metric."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.examples import METRICS, metric_example
from numpy.testing import assert_allclose, assert_array_equal
from pages import blocks_of_page
from targets import taken_by

from macmpi.nets.layers import Tangent
from macmpi.nets.losses import (
    LINKS,
    LOSSES,
    CrossEntropy,
    Loss,
    Root,
    Squared,
    dense,
    metric,
    times,
)
from macmpi.nets.losses.constant import best_constant
from macmpi.nets.losses.weighted import WeightedOutputs
from macmpi.results.scores import all_at_hand
from macmpi.typing import Array

SIZE = 4
PINBALL = "the worked example"
EXTREME = np.array([[1e3, -1e3, 0.0, 1.0], [-1e3] * 4, [1e3, 1e3, 1e3, -1e3], [700.0, -40.0, 30.0, 699.0]])


def named(name: str) -> Loss:
    """A row of LOSSES, or the loss that docs/extending/loss.md shows."""
    if name != PINBALL:
        return LOSSES[name]
    names: dict[str, Any] = {"__name__": "my_losses"}
    exec(compile(blocks_of_page("docs/extending/loss.md", "python")[0], "my_losses", "exec", dont_inherit=True), names)
    return names["upper"]  # type: ignore[no-any-return]


OF_RUNS = {name: named(name) for name in (*LOSSES, PINBALL)}
ALL = OF_RUNS | {f"squared, {kind}": LOSSES["squared"] for kind in METRICS}
SUMS = [name for name, own in OF_RUNS.items() if own.by_output]
"""Losses by their names: those of a run, those with metrics too, and those that are sums over outputs."""


@pytest.fixture(params=ALL)
def loss(request: pytest.FixtureRequest, random: np.random.Generator) -> Loss:
    name, _, kind = request.param.partition(", ")
    return Squared(metric_example(kind, SIZE, random, 2.0)) if kind else named(name)


@pytest.fixture(params=SUMS)
def incomplete(request: pytest.FixtureRequest) -> Loss:
    """A sum over outputs, some of which may be missing."""
    found: Loss = replace(named(request.param), missing=True)  # type: ignore[type-var]
    return found


@pytest.fixture
def outputs(loss: Loss, random: np.random.Generator) -> tuple[Array, Array]:
    """Targets that the loss takes, and outputs of either sign."""
    return taken_by(loss, random.normal(size=(6, SIZE))), random.normal(size=(6, SIZE))


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


def test_a_value_a_point(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    whole = loss.value(Y, F)
    assert whole.shape == (len(Y),)
    assert_allclose(loss.value(Y[2:5], F[2:5]), whole[2:5], rtol=1e-14)


@pytest.mark.parametrize("loss", SUMS, indirect=True)
def test_a_sum_over_outputs_says_so(loss: Loss, outputs: tuple[Array, Array]) -> None:
    """With a unit Hessian it is what lets the units of the last layer separate; a metric may couple them."""
    Y, F = outputs
    each = [loss.value(Y[:, [column]], F[:, [column]]) for column in range(SIZE)]
    assert_allclose(loss.value(Y, F), np.sum(each, axis=0), rtol=1e-13)


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


def test_the_square_of_the_root_is_the_curvature_that_the_loss_says(
    loss: Loss, outputs: tuple[Array, Array], random: np.random.Generator
) -> None:
    """The Hessian, or at least as much in every direction."""
    Y, F = outputs
    root, dF = loss.root(Y, F), random.normal(size=F.shape)
    H = -by_columns(lambda G: loss.residual(Y, G), F)
    B = factor(root, len(F))
    found = np.einsum("nji,njk->nik", B, B)
    assert_allclose(root.normal(dF), np.einsum("nij,nj->ni", found, dF), rtol=1e-12, atol=1e-13)
    assert loss.curvature in ("hessian", "majoriser", "bound")
    if loss.curvature == "hessian":
        assert_allclose(found, H, rtol=1e-7, atol=1e-8)
    else:
        assert np.linalg.eigvalsh(found - H).min() > -1e-6


def test_it_is_convex(loss: Loss, random: np.random.Generator) -> None:
    """Between any two outputs it lies below the chord."""
    Y = taken_by(loss, random.normal(size=(200, SIZE)))
    ends = [10.0 ** random.uniform(-2.0, 1.5, (200, 1)) * random.normal(size=Y.shape) for _ in "ab"]
    middle, (a, b) = loss.value(Y, 0.5 * (ends[0] + ends[1])), (loss.value(Y, F) for F in ends)
    assert (middle <= 0.5 * (a + b) * (1.0 + 1e-12) + 1e-12).all()
    assert (np.stack([middle, a, b]) >= 0.0).all()


@pytest.mark.parametrize("loss", [name for name, own in ALL.items() if own.curvature != "bound"], indirect=True)
def test_the_parabola_of_the_root_is_above_a_loss_that_says_so(loss: Loss, random: np.random.Generator) -> None:
    """loss(F + dF) <= 1/2 ||q - B dF||^2 + constant, for steps of any length; near F they agree to second order."""
    Y, F = taken_by(loss, random.normal(size=(300, SIZE))), 3.0 * random.normal(size=(300, SIZE))
    root = loss.root(Y, F)
    longest = 2.0 if loss.curvature == "majoriser" else -3.0
    dF = 10.0 ** random.uniform(-3.0, longest, (300, 1)) * random.normal(size=F.shape)
    moved = root.residual - root.after(Tangent(lambda A: A, lambda A: A)).jvp(dF)
    parabola = 0.5 * np.sum((moved - root.residual) * (moved + root.residual), axis=1)
    found, value = loss.value(Y, F + dF) - loss.value(Y, F), loss.value(Y, F)
    rounding = 1e-9 * (value + np.abs(parabola) + 1.0)
    assert (found <= parabola + rounding).all()
    if loss.curvature == "hessian":
        assert_allclose(found, parabola, rtol=0.0, atol=1e-6)


def test_a_newton_step_of_counts_lowers_the_loss_however_far_off(random: np.random.Generator) -> None:
    """The bound of the Hessian is what makes it so: with exp(f) alone a step from far below is exponentially long."""
    Y = np.floor(10.0 ** random.uniform(0.0, 6.0, (500, 1)))
    F = np.log(Y) + random.uniform(-20.0, 15.0, Y.shape)
    root = LOSSES["poisson"].root(Y, F)
    step = LOSSES["poisson"].residual(Y, F) / root.normal(np.ones_like(F))
    assert (np.abs(step) <= 1.0).all()
    assert (LOSSES["poisson"].value(Y, F + step) < LOSSES["poisson"].value(Y, F)).all()


def test_a_unit_hessian_is_the_identity(loss: Loss, outputs: tuple[Array, Array]) -> None:
    Y, F = outputs
    B = factor(loss.root(Y, F), len(F))
    assert loss.unit_hessian == bool((np.eye(SIZE) == B).all())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extreme_outputs_stay_finite(loss: Loss, dtype: type, random: np.random.Generator) -> None:
    F = EXTREME.astype(dtype)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        for label in range(SIZE):
            Y = np.tile(taken_by(loss, np.eye(SIZE)[[label]]).astype(dtype), (len(F), 1))
            root = loss.root(Y, F)
            back = root.after(Tangent(lambda A: A, lambda A: A)).vjp(root.residual)
            assert_allclose(back, loss.residual(Y, F), rtol=1e-3, atol=1e-6)
            for found in (loss.value(Y, F), root.residual, root.normal(F), loss.hessian(Y, F)):
                assert np.isfinite(found).all()
            assert (loss.value(Y, F) >= 0.0).all()


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.by_output])
def test_single_precision_has_the_digits_of_double(name: str, random: np.random.Generator) -> None:
    """Value, slope and curvature, near the target and far from it."""
    loss, far = LOSSES[name], 10.0 ** random.uniform(-3.0, 1.0, (400, 1))
    Y = taken_by(loss, random.normal(size=(400, SIZE))).astype(np.float32)
    F = (far * random.normal(size=Y.shape)).astype(np.float32)
    wide = Y.astype(float), F.astype(float)
    size = 1.0 + np.abs(wide[0]) + np.exp(np.minimum(wide[1], 30.0))

    def curvatures(Y: Array, F: Array) -> Array:
        return loss.root(Y, F).normal(np.ones_like(F))

    for of in (lambda Y, F: loss.value(Y, F)[:, None], loss.residual, curvatures):
        near = 32 * SIZE * np.finfo(np.float32).eps * (np.abs(of(*wide)) + size)
        assert (np.abs(of(Y, F) - of(*wide)) <= near).all()


# --- declarations, links and missing outputs --------------------------------------------------------------------------


def test_numbers_of_a_loss_come_before_what_all_have() -> None:
    assert type(LOSSES["huber"])(0.3) == replace(LOSSES["huber"], threshold=0.3)  # type: ignore[type-var,call-arg]
    assert not named(PINBALL).missing


def test_what_it_declares(loss: Loss) -> None:
    assert loss.link in LINKS
    assert loss.stiffness > 0.0
    assert loss.targets
    Y = np.array([[-1e3, -0.5, 0.0, 0.5], [1.0, 2.0, 1e3, 1e14]])
    assert loss.admits(Y).shape == Y.shape
    assert loss.admits(Y).all() == (loss.scaled and not loss.labels)


@pytest.mark.parametrize(
    "loss", [name for name, own in OF_RUNS.items() if own.link in ("sigmoid", "exp")], indirect=True
)
def test_the_link_of_the_least_outputs_is_the_target(loss: Loss, random: np.random.Generator) -> None:
    """The net predicts what its loss is least for: of the constants, the mean that they stand for has no slope."""
    Y = taken_by(loss, random.normal(size=(50, SIZE)))
    c = best_constant(loss, Y, all_at_hand(50), 50)
    assert_allclose(LINKS[loss.link](np.tile(c, (1, 1)))[0], Y.mean(axis=0), rtol=1e-8)


@pytest.mark.parametrize("loss", [name for name, own in OF_RUNS.items() if own.by_output or own.labels], indirect=True)
def test_no_constant_is_better_than_the_best(loss: Loss, random: np.random.Generator) -> None:
    Y = taken_by(loss, random.normal(size=(50, SIZE)))
    c = best_constant(loss, Y, all_at_hand(50), 50)
    least = loss.value(Y, np.broadcast_to(c, Y.shape)).sum()
    for length in (1e-3, 0.1, 1.0):
        for _ in range(20):
            other = c + length * random.normal(size=c.shape)
            assert loss.value(Y, np.broadcast_to(other, Y.shape)).sum() >= least * (1.0 - 1e-12)


def test_what_is_missing_adds_nothing(incomplete: Loss, random: np.random.Generator) -> None:
    """Each point is as if it had the other outputs alone."""
    Y, F = taken_by(incomplete, random.normal(size=(6, SIZE))), random.normal(size=(6, SIZE))
    M, dF = random.normal(size=(SIZE, SIZE)), random.normal(size=F.shape)
    gone = random.uniform(size=Y.shape) < 0.4
    gone[0], gone[1] = True, False
    Y = np.where(gone, np.nan, Y)
    with np.errstate(all="raise"):
        root, residual, value = incomplete.root(Y, F), incomplete.residual(Y, F), incomplete.value(Y, F)
        hessian, congruence = incomplete.hessian(Y, F), incomplete.congruence(Y, F, M + M.T)
    B = factor(root, len(F))
    for n in range(6):
        seen = ~gone[n]
        y, f = Y[[n]][:, seen], F[[n]][:, seen]
        assert_allclose(value[n], incomplete.value(y, f)[0] if seen.any() else 0.0, rtol=1e-13)
        assert_array_equal(residual[n, seen], incomplete.residual(y, f)[0])
        assert_allclose(root.normal(dF)[n, seen], incomplete.root(y, f).normal(dF[[n]][:, seen])[0], rtol=1e-13)
        for found in (residual[n], root.residual[n], root.normal(dF)[n], B[n].diagonal()):
            assert_array_equal(found[gone[n]], 0.0)
    assert_allclose(hessian, np.einsum("nji,njk->ik", B, B) / 6, rtol=1e-12, atol=1e-12)
    assert_allclose(congruence, np.einsum("nij,jk,nlk->il", B, M + M.T, B) / 6, rtol=1e-12, atol=1e-12)
    assert_array_equal(incomplete.with_residual(Y, F)[0], value)


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
        assert_allclose(loss.hessian(Y, F), loss.hessian(Y, wide), **near)
        curved, exact = (
            np.vecdot(d, loss.root(Y, f).normal(d)) for d, f in ((change.astype(np.float32), F), (change, wide))
        )
        assert_allclose(curved, exact, **near)


# --- weights of outputs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in (*LOSSES, PINBALL) if named(name).by_output])
def test_a_weight_for_each_output_multiplies_what_the_output_adds(name: str, random: np.random.Generator) -> None:
    """Value, slope, curvature and root of [Y, V] are V times those of the loss of each output; 0 times NaN is 0."""
    loss = named(name)
    Y, F = taken_by(loss, random.normal(size=(6, SIZE))), random.normal(size=(6, SIZE))
    V = random.uniform(0.1, 3.0, size=Y.shape) * (random.uniform(size=Y.shape) > 0.3)
    weighs, T = WeightedOutputs(loss), np.hstack([np.where(V > 0.0, Y, np.nan), V])
    each = [loss.value(Y[:, [c]], F[:, [c]]) for c in range(SIZE)]
    assert_allclose(weighs.value(T, F), np.sum(V.T * np.array(each), axis=0), rtol=1e-13)
    assert_allclose(weighs.residual(T, F), V * loss.residual(Y, F), rtol=1e-13)
    assert_array_equal(weighs.with_residual(T, F)[1], weighs.residual(T, F))
    root, curvatures = weighs.root(T, F), V * loss.root(Y, F).normal(np.ones_like(F))
    assert_allclose(root.normal(np.ones_like(F)), curvatures, rtol=1e-13)
    back = root.after(Tangent(lambda dF: dF, lambda dF: dF)).vjp(root.residual)
    assert_allclose(back, weighs.residual(T, F), rtol=1e-12, atol=1e-13)
    assert_allclose(weighs.hessian(T, F), np.diag(curvatures.mean(axis=0)), rtol=1e-13)
    M = random.normal(size=(SIZE, SIZE))
    B = factor(root, len(F))
    assert_allclose(weighs.congruence(T, F, M), np.mean(B @ M @ np.swapaxes(B, 1, 2), axis=0), rtol=1e-12)
    kept = weighs.link, weighs.curvature, weighs.stiffness, weighs.by_output, weighs.labels, weighs.unit_hessian
    assert kept == (loss.link, loss.curvature, loss.stiffness, True, False, False)


def test_the_best_constant_of_weighted_outputs_is_the_mean_as_they_weigh(random: np.random.Generator) -> None:
    Y, V, w = random.normal(size=(50, SIZE)), random.uniform(0.0, 2.0, (50, SIZE)), random.uniform(0.0, 2.0, 50)
    found = best_constant(WeightedOutputs(Squared()), np.hstack([Y, V]), all_at_hand(50), float(w.sum()), w)
    assert_allclose(found, np.average(Y, axis=0, weights=w[:, None] * V), rtol=1e-12)
