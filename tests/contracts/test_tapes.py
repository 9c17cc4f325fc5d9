"""Segments and tapes: backpropagation inside a segment, and the means that run through it."""

from __future__ import annotations

import numpy as np
import pytest
from contracts.examples import SEGMENTS, SITES, dense_net, segment_problem, value
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.nets.chain import Segment
from macmpi.nets.segment import fixed
from macmpi.typing import Array

Made = tuple[Segment, list[Array], Array]


@pytest.fixture(params=SEGMENTS)
def made(request: pytest.FixtureRequest, random: np.random.Generator) -> Made:
    """A segment, its weights, and its inputs."""
    problem, _ = segment_problem(random, request.param, n=7)
    return problem.segment, problem.blocks(problem.start[0]), problem.inputs


def test_forward_leaves_its_inputs_alone(made: Made) -> None:
    segment, weights, A = made
    kept = A.copy()
    segment.forward(weights, A)
    segment.tape(weights, A)
    assert_array_equal(A, kept)


def test_weight_vjp_is_the_gradient(made: Made, random: np.random.Generator) -> None:
    segment, weights, A = made
    U, h = random.normal(size=(len(A), segment.n_out)), 1e-6
    found = segment.tape(weights, A).weight_vjp(U)
    assert [g.shape for g in found] == [W.shape for W in weights]
    for block, W in enumerate(weights):
        expected = np.empty_like(W)
        for index in np.ndindex(*W.shape):
            ahead, behind = (moved(weights, block, index, sign * h) for sign in (1.0, -1.0))
            expected[index] = np.sum(U * (segment.forward(ahead, A) - segment.forward(behind, A))) / (2.0 * h)
        assert_allclose(found[block], expected, rtol=1e-6, atol=1e-7)


def moved(weights: list[Array], block: int, index: tuple[int, ...], by: float) -> list[Array]:
    out = [W.copy() for W in weights]
    out[block][index] += by
    return out


def test_weight_jvp_is_the_transpose_of_weight_vjp(made: Made, random: np.random.Generator) -> None:
    segment, weights, A = made
    tape = segment.tape(weights, A)
    U, dW = random.normal(size=tape.F.shape), [random.normal(size=W.shape) for W in weights]
    right = sum(np.sum(g * d) for g, d in zip(tape.weight_vjp(U), dW, strict=True))
    assert_allclose(np.sum(U * tape.weight_jvp(dW)), right, rtol=1e-11)


@pytest.mark.parametrize("rows", [slice(0, 4), np.array([5, 1, 1, 6])], ids=["slice", "repeated"])
def test_a_tape_of_some_points_is_that_of_these_alone(
    made: Made, rows: slice | Array, random: np.random.Generator
) -> None:
    segment, weights, A = made
    found, alone = segment.tape(weights, A).of_rows(rows), segment.tape(weights, A[rows])
    U, dW = random.normal(size=alone.F.shape), [random.normal(size=W.shape) for W in weights]
    assert_allclose(found.F, alone.F, rtol=1e-12, atol=1e-13)
    assert_allclose(found.weight_jvp(dW), alone.weight_jvp(dW), rtol=1e-10, atol=1e-12)
    for ours, expected in zip(found.weight_vjp(U), alone.weight_vjp(U), strict=True):
        assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


def test_a_tangent_runs_through_the_segment(made: Made, random: np.random.Generator) -> None:
    segment, weights, A = made
    F, tangent = segment.linearise(weights, A)
    dA, h = random.normal(size=A.shape), 1e-6
    ahead, behind = (segment.forward(weights, A + sign * h * dA) for sign in (1.0, -1.0))
    assert_allclose(tangent.jvp(dA), (ahead - behind) / (2.0 * h), rtol=1e-6, atol=1e-8)
    U = random.normal(size=F.shape)
    assert_allclose(np.sum(U * tangent.jvp(dA), axis=1), np.sum(tangent.vjp(U) * dA, axis=1), rtol=1e-11, atol=1e-12)


def test_a_tangent_in_a_lower_precision(made: Made, random: np.random.Generator) -> None:
    segment, weights, A = made
    F, tangent = segment.linearise(weights, A)
    low = fixed(zip(segment.maps, segment.blocks, strict=True), [W.astype(np.float32) for W in weights])
    same, rounded = segment.linearise(weights, A, low)
    assert_array_equal(same, F)
    for product, exact, n in ((rounded.jvp, tangent.jvp, segment.n_in), (rounded.vjp, tangent.vjp, segment.n_out)):
        given = random.normal(size=(len(A), n)).astype(np.float32)
        found, expected = product(given), exact(given.astype(float))
        assert found.dtype == np.float32
        assert_allclose(found, expected, rtol=0.0, atol=1e-5 * np.abs(expected).max())


def test_congruence_and_pullback_of_one_point(made: Made, random: np.random.Generator) -> None:
    segment, weights, A = made
    _, tangent = segment.linearise(weights, np.repeat(A[:1], segment.n_in, axis=0))
    J = tangent.jvp(np.eye(segment.n_in)).T
    for method, size, left in ((segment.congruence, segment.n_in, J), (segment.pullback, segment.n_out, J.T)):
        M = random.normal(size=(size, size))
        M = M @ M.T
        assert_allclose(method(weights, A[:1], M), left @ M @ left.T, rtol=1e-11, atol=1e-12)


def test_congruence_of_the_first_maps(made: Made) -> None:
    segment, weights, A = made
    M = np.eye(segment.n_in)
    assert_array_equal(segment.congruence(weights, A, M, maps=0), M)
    head = Segment(segment.maps[:-1], segment.blocks[:-1])
    last = len(segment.maps) - 1
    assert_allclose(segment.congruence(weights, A, M, maps=last), head.congruence(weights, A, M), rtol=1e-13)


def test_the_identity_segment(random: np.random.Generator) -> None:
    """No maps at all: what stands before the only site of an alternating Z-step."""
    A, dA, M = random.normal(size=(3, 2)), random.normal(size=(3, 2)), np.diag([1.0, 2.0])
    identity = Segment((), ())
    assert_array_equal(identity.forward((), A), A)
    F, tangent = identity.linearise((), A)
    assert_array_equal(F, A)
    assert_array_equal(tangent.jvp(dA), dA)
    assert_array_equal(identity.pullback((), A, M), M)


# --- separability -----------------------------------------------------------------------------------------------------


def test_a_separable_segment_has_units_that_do_not_see_each_other(made: Made, random: np.random.Generator) -> None:
    """And one that is not separable has units that do."""
    segment, weights, A = made
    before, alone = segment.forward(weights, A), True
    for block, W in enumerate(weights):
        for unit in range(len(W)):
            other = [w.copy() for w in weights]
            other[block][unit] += random.normal(size=W.shape[1])
            changed = (segment.forward(other, A) != before).any(axis=0)
            alone &= len(weights) == 1 and changed.sum() == 1 and bool(changed[unit])
    assert segment.separable == alone


SEPARABLE = [name for name in SEGMENTS if segment_problem(np.random.default_rng(0), name, n=7)[0].segment.separable]


@pytest.mark.parametrize("made", SEPARABLE, indirect=True)
def test_a_separable_segment_is_its_features_weights_and_activation(made: Made) -> None:
    segment, weights, A = made
    a = segment.features(weights, A) @ weights[0][:, :-1].T + weights[0][:, -1]
    assert_allclose(value(segment.activation, a), segment.forward(weights, A), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("cut", SITES)
def test_the_segments_make_up_the_chain(cut: str, random: np.random.Generator) -> None:
    chain, weights = dense_net(random, (4, 5, 3, 6, 2), "tanh", cut=cut)
    X = random.normal(size=(6, 4))
    A = X
    for segment in chain.segments:
        A = segment.forward(weights, A)
    assert_allclose(A, chain.forward(weights, X), rtol=1e-13, atol=1e-14)
    assert_allclose(chain.whole.forward(weights, X), A, rtol=1e-13, atol=1e-14)
    assert sum((s.parameter_blocks for s in chain.segments), ()) == tuple(range(4))
    assert chain.site_sizes == tuple(Z.shape[1] for Z in chain.coordinates(weights, X))
    assert chain.layer_sizes == (4, 5, 3, 6, 2)
