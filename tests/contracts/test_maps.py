"""The contract of a map: what layers.Map promises, for every row of KINDS."""

from __future__ import annotations

import json

import numpy as np
import pytest
from contracts.examples import EPS, MAPS, WITH_EXAMPLE, MapExample, cases, example_of
from numpy.testing import assert_allclose, assert_array_equal
from tolerance import assert_within, gamma, of_squared_distances

from macmpi.nets.layers import KINDS, build
from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.nets.layers.codes import Binary, Quantiser
from macmpi.nets.layers.fitted import GaussianBasis
from macmpi.typing import Array

CAPABILITIES = {
    "transposed",
    "jacobian",
    "weight_jacobian",
    "bias",
    "centres",
    "units",
    "linear",
    "patches",
    "elementwise",
    "adds",
}
ROWS = np.array([4, 0, 7, 7])


@pytest.fixture(params=cases(WITH_EXAMPLE, MAPS))
def example(request: pytest.FixtureRequest, random: np.random.Generator) -> MapExample:
    return example_of(request.param, MAPS, "MAPS")(random)


def offering(*capabilities: str, weights: bool = False, code: bool = False) -> pytest.MarkDecorator:
    """Only the examples whose maps offer all of these; a kind without an example stays, and fails."""

    def offers(case: tuple[str, int]) -> bool:
        if case[0] not in MAPS:
            return True
        shown = MAPS[case[0]][case[1]](np.random.default_rng(0))
        lacking = (weights and shown.W is None) or (code and not shown.map.code)
        return shown.map.capabilities >= set(capabilities) and not lacking

    chosen = [case for case in cases(WITH_EXAMPLE, MAPS) if offers(case.values[0])]
    return pytest.mark.parametrize("example", chosen, indirect=True)


def jacobian(example: MapExample, row: int) -> Array:
    """J (n_out, n_in) at one point, column by column by central differences."""
    m, a, h = example.map, example.A[row], 1e-6
    steps = h * np.eye(m.n_in)
    return (m.forward(example.W, a + steps) - m.forward(example.W, a - steps)).T / (2.0 * h)


def rounding(example: MapExample, shape: tuple[int, ...]) -> float:
    """50 eps times the size of the terms that a product with the map adds up."""
    weights = 1.0 if example.W is None else float(np.abs(example.W).max())
    return 50.0 * EPS * (1.0 + float(np.abs(example.A).max())) * (1.0 + weights) * max(shape)


def test_shapes_and_capabilities(example: MapExample) -> None:
    m = example.map
    assert m.capabilities <= CAPABILITIES
    assert example.A.shape[1] == m.n_in
    assert m.forward(example.W, example.A).shape == (len(example.A), m.n_out)
    assert m.parameter_shape == (None if example.W is None else example.W.shape)
    assert m.trained_as in ("", *FUNCTIONS)


def test_forward_leaves_its_arguments_alone(example: MapExample) -> None:
    A, W = example.A.copy(), None if example.W is None else example.W.copy()
    B = example.map.forward(W, A)
    assert not np.shares_memory(A, B)
    assert_array_equal(A, example.A)
    if W is not None:
        assert_array_equal(W, example.W)


def test_what_a_map_does_not_offer_it_refuses(example: MapExample) -> None:
    m, W, A = example.map, example.W, example.A
    calls = {
        "jacobian": (
            lambda: m.tangent(W, A, m.forward(W, A)),
            lambda: m.congruence(W, A, np.eye(m.n_in)),
            lambda: m.pullback(W, A, np.eye(m.n_out)),
        ),
        "weight_jacobian": (
            lambda: m.weight_jvp(W, A, W),
            lambda: m.weight_vjp(W, A, np.ones((len(A), m.n_out))),
        ),
    }
    for capability in calls.keys() - m.capabilities:
        for call in calls[capability]:
            with pytest.raises(NotImplementedError):
                call()


@offering("jacobian")
def test_jvp_is_the_derivative(example: MapExample, random: np.random.Generator) -> None:
    dA = random.normal(size=example.A.shape)
    tangent = example.tangent
    expected = [jacobian(example, row) @ dA[row] for row in range(len(dA))]
    assert_allclose(tangent.jvp(dA), expected, rtol=1e-7, atol=1e-7)


@offering("jacobian")
def test_vjp_is_the_transpose_of_jvp(example: MapExample, random: np.random.Generator) -> None:
    B, tangent = example.map.forward(example.W, example.A), example.tangent
    dA, dB = random.normal(size=example.A.shape), random.normal(size=B.shape)
    left, right = np.sum(dB * tangent.jvp(dA), axis=1), np.sum(tangent.vjp(dB) * dA, axis=1)
    assert_allclose(left, right, rtol=1e-12, atol=1e-12)


@offering("patches")
def test_the_weights_multiply_unfolded_inputs_position_by_position(example: MapExample) -> None:
    """What the W-step by units and the Grams of stochastic MAC rest on."""
    m, A, W = example.map, example.A, example.W
    assert W is not None
    rows, biases = m.unfold(A), W[:, -1] if "bias" in m.capabilities else 0.0
    assert rows.shape == (len(A) * m.own.positions, m.own.columns)
    expected = rows @ W[:, : m.own.columns].T + biases
    assert_allclose(m.forward(W, A), expected.reshape(len(A), m.n_out), rtol=1e-12, atol=1e-12)


@offering("patches")
def test_the_matrix_of_a_map_of_patches_is_its_derivative(example: MapExample, random: np.random.Generator) -> None:
    dA, J = random.normal(size=example.A.shape), example.map.matrix(example.W)
    assert_allclose(example.tangent.jvp(dA), dA @ J.T, rtol=1e-12, atol=1e-12)


@offering("jacobian", "patches")
def test_the_tangent_of_a_map_of_patches_reads_no_point(example: MapExample, random: np.random.Generator) -> None:
    nowhere, dA = np.empty((0, 0)), random.normal(size=example.A.shape)
    assert_array_equal(example.map.tangent(example.W, nowhere, nowhere).jvp(dA), example.tangent.jvp(dA))


@offering("jacobian", "elementwise")
def test_the_tangent_of_an_elementwise_map_reads_its_outputs_alone(
    example: MapExample, random: np.random.Generator
) -> None:
    dA = random.normal(size=example.A.shape)
    B = example.map.forward(example.W, example.A)
    assert_array_equal(example.map.tangent(example.W, np.empty((0, 0)), B).jvp(dA), example.tangent.jvp(dA))


@offering("weight_jacobian")
def test_weight_vjp_is_the_gradient_with_respect_to_the_weights(
    example: MapExample, random: np.random.Generator
) -> None:
    assert example.W is not None
    dB, h = random.normal(size=(len(example.A), example.map.n_out)), 1e-6
    expected = np.empty_like(example.W)
    for index in np.ndindex(*example.W.shape):
        step = np.zeros_like(example.W)
        step[index] = h
        ahead, behind = (example.map.forward(example.W + sign * step, example.A) for sign in (1.0, -1.0))
        expected[index] = np.sum(dB * (ahead - behind)) / (2.0 * h)
    if (existing := example.map.connected) is not None:
        expected[~existing] = 0.0
        assert_array_equal(example.map.weight_vjp(example.W, example.A, dB)[~existing], 0.0)
    assert_allclose(example.map.weight_vjp(example.W, example.A, dB), expected, rtol=1e-7, atol=1e-7)


@offering("weight_jacobian")
def test_weight_jvp_is_the_derivative_with_respect_to_the_weights(
    example: MapExample, random: np.random.Generator
) -> None:
    assert example.W is not None
    dW, h = random.normal(size=example.W.shape), 1e-6
    found = example.map.weight_jvp(example.W, example.A, dW)
    if (existing := example.map.connected) is not None:
        dW *= existing
    ahead, behind = (example.map.forward(example.W + sign * h * dW, example.A) for sign in (1.0, -1.0))
    assert_allclose(found, (ahead - behind) / (2.0 * h), rtol=1e-7, atol=1e-7)


@offering("weight_jacobian")
def test_weight_vjp_is_the_transpose_of_weight_jvp(example: MapExample, random: np.random.Generator) -> None:
    assert example.W is not None
    m, U = example.map, random.normal(size=(len(example.A), example.map.n_out))
    dW = random.normal(size=example.W.shape)
    left = np.sum(U * m.weight_jvp(example.W, example.A, dW))
    assert_allclose(left, np.sum(m.weight_vjp(example.W, example.A, U) * dW), rtol=1e-12, atol=1e-12)


def test_no_points_give_no_rows(example: MapExample) -> None:
    """A rank may hold none of a minibatch's points."""
    m, W, none = example.map, example.W, example.A[:0]
    B = m.forward(W, none)
    assert B.shape == (0, m.n_out)
    if "jacobian" in m.capabilities:
        tangent = m.tangent(W, none, B)
        assert tangent.jvp(none).shape == (0, m.n_out)
        assert tangent.vjp(B).shape == (0, m.n_in)
    if W is not None and "weight_jacobian" in m.capabilities:
        assert_array_equal(m.weight_vjp(W, none, B), np.zeros_like(W))


def test_some_points_give_those_rows(example: MapExample, random: np.random.Generator) -> None:
    """Points do not see each other: this is what lets the Z-step separate."""
    m, W, A = example.map, example.W, example.A
    B = m.forward(W, A)
    tolerance = rounding(example, B.shape)
    assert_allclose(m.forward(W, A[ROWS]), B[ROWS], rtol=0.0, atol=tolerance)
    if "jacobian" in m.capabilities:
        dA, dB = random.normal(size=A.shape), random.normal(size=B.shape)
        whole, part = example.tangent, m.tangent(W, A[ROWS], B[ROWS])
        assert_allclose(part.jvp(dA[ROWS]), whole.jvp(dA)[ROWS], rtol=0.0, atol=tolerance)
        assert_allclose(part.vjp(dB[ROWS]), whole.vjp(dB)[ROWS], rtol=0.0, atol=tolerance)


@offering("jacobian")
def test_congruence_and_pullback_of_one_point_are_exact(example: MapExample, random: np.random.Generator) -> None:
    m, a = example.map, example.A[:1]
    A = np.repeat(a, m.n_in, axis=0)
    tangent = m.tangent(example.W, A, m.forward(example.W, A))
    J = tangent.jvp(np.eye(m.n_in)).T
    forward, back = (symmetric(random, n) for n in (m.n_in, m.n_out))
    near = {"rtol": 1e-12, "atol": 1e-12 * max(np.abs(forward).max(), np.abs(back).max())}
    assert_allclose(m.congruence(example.W, a, forward), J @ forward @ J.T, **near)
    assert_allclose(m.pullback(example.W, a, back), J.T @ back @ J, **near)


@offering("jacobian")
def test_congruence_and_pullback_are_means_over_the_points(example: MapExample, random: np.random.Generator) -> None:
    m = example.map
    for method, n in ((m.congruence, m.n_in), (m.pullback, m.n_out)):
        M = symmetric(random, n)
        each = [method(example.W, example.A[i : i + 1], M) for i in range(len(example.A))]
        assert_allclose(method(example.W, example.A, M), np.mean(each, axis=0), rtol=1e-12, atol=1e-12)


def symmetric(random: np.random.Generator, size: int) -> Array:
    M = random.normal(size=(size, size))
    return M + M.T


@pytest.mark.parametrize("example", cases(KINDS, MAPS), indirect=True)
def test_spec_rebuilds_the_map(example: MapExample) -> None:
    spec = example.map.spec()
    again = build(json.loads(json.dumps(spec)))
    assert again == example.map
    assert again.spec() == spec
    assert_array_equal(again.forward(example.W, example.A), example.map.forward(example.W, example.A))


@offering("elementwise")
def test_an_elementwise_map_works_in_place(example: MapExample) -> None:
    expected, A = example.map.forward(example.W, example.A), example.A.copy()
    assert example.map.forward(example.W, A, out=A) is A
    assert_array_equal(A, expected)


@offering("elementwise")
def test_an_elementwise_map_has_a_diagonal_jacobian(example: MapExample) -> None:
    for row in range(len(example.A)):
        J = jacobian(example, row)
        assert_array_equal(J, np.diag(np.diag(J)))


@offering("units", weights=True)
def test_a_unit_changes_its_own_output_alone(example: MapExample, random: np.random.Generator) -> None:
    """What lets the W-step separate: at each position the output of that unit."""
    assert example.W is not None
    for unit in range(len(example.W)):
        W = example.W.copy()
        W[unit] += random.normal(size=W.shape[1])
        changed = example.map.forward(W, example.A) != example.map.forward(example.W, example.A)
        changed = changed.reshape(-1, len(example.W))
        assert changed[:, unit].all()
        assert not np.delete(changed, unit, axis=1).any()


@offering("elementwise")
def test_a_layer_is_trained_under_its_own_function(example: MapExample) -> None:
    """Where it has a derivative; one without is trained under another, and one with weights under none."""
    m = example.map
    if m.parameter_shape is not None:
        assert m.trained_as == ""
    elif "jacobian" in m.capabilities:
        expected = FUNCTIONS[m.trained_as].value(example.A.copy(), np.empty_like(example.A))
        assert_array_equal(m.forward(example.W, example.A), expected)
    else:
        assert m.trained_as


@offering(code=True)
def test_each_run_of_a_code_is_the_row_of_its_alphabet_with_the_largest_score(example: MapExample) -> None:
    """And the numbers of these rows, in binary, are its bits."""
    code, A = example.map.code, example.A
    assert code is not None
    assert_array_equal(np.unique(code.alphabet), [0.0, 1.0])
    numbers = np.stack([(A[:, run] @ code.alphabet.T).argmax(axis=1) for run in code.runs], axis=1)
    B = code.forward(None, A)
    assert B.dtype == A.dtype
    assert_array_equal(B, np.hstack([code.alphabet[own] for own in numbers.T]))
    digits = np.ceil(np.log2(len(code.alphabet))).astype(int)
    text = ["".join(f"{number:0{digits}b}" for number in row) for row in numbers]
    assert_array_equal(code.bits(B), [[digit == "1" for digit in row] for row in text])
    assert code.n_bits == len(text[0])


# --- formulas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("off", [0.0, 1e4])
@pytest.mark.parametrize("width", [0.3, 1.0, 20.0])
def test_radial_basis_functions(width: float, off: float, dtype: type, random: np.random.Generator) -> None:
    """exp(-||(a - c) / width||^2): 1 at the centre, 0 far away, never above; as good far from the origin."""
    A, C = random.normal(size=(20, 3)), random.normal(size=(6, 3))
    A[0], A[1] = C[2], 1e3 * width
    A, C = (A + off).astype(dtype), (C + off).astype(dtype)
    B = GaussianBasis(3, 6, width).forward(C, A)
    exponents = np.square((A[:, None].astype(float) - C) / width).sum(axis=2)
    of_exponents = of_squared_distances(A, C, dtype) / width**2 + gamma(8, dtype) * exponents
    bound = np.exp(-exponents) * (np.expm1(of_exponents) + gamma(8, dtype)) + np.finfo(dtype).tiny
    assert_within(B, np.exp(-exponents), bound)
    assert_array_equal(B[1], 0.0)
    assert B.min() >= 0.0 and B.max() <= 1.0


def test_a_quantiser_gives_the_nearest_codeword_and_of_equals_the_first(random: np.random.Generator) -> None:
    A, C = random.normal(size=(50, 3)), random.normal(size=(7, 3))
    nearest = [min(range(7), key=lambda i: np.sum((a - C[i]) ** 2)) for a in A]
    quantiser = Quantiser(3, 7)
    assert_array_equal(quantiser.forward(C, A), C[nearest])
    assert_array_equal(quantiser.forward(C, C), C)
    words = np.array([[4.0], [1.0], [-1.0], [1.0]])
    assert_array_equal(Quantiser(1, 4).forward(words, np.array([[0.0], [2.5], [-0.5]])), [[1.0], [4.0], [-1.0]])
    assert_array_equal(Quantiser(1, 3).forward(-words[1:], np.array([[0.0]])), [[-1.0]])


def test_a_binary_unit_is_off_at_0() -> None:
    A = np.array([[-2.0, -0.0, 0.0, 5e-324, 3.0]])
    assert_array_equal(Binary(5).forward(None, A), [[0.0, 0.0, 0.0, 1.0, 1.0]])


def test_an_unknown_kind_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no such kind"):
        build({"kind": "no such kind"})
