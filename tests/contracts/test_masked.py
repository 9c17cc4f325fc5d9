"""Layers whose weights exist only where a mask says: laws of every W-solver that declares `masks`."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from contracts.examples import (
    EPS,
    INPUTS,
    W_ARGUMENTS,
    W_EXCESS,
    W_THOROUGH,
    example_of,
    inputs,
    masked_example,
    reachable,
    sharing,
    solvers_of,
    summed,
    unit_objectives,
)
from covering import each
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.demand import Demand
from macmpi.methods.stochastic.passes import put_slopes
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import is_plain
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.masked import as_text, from_text
from macmpi.nets.losses import Squared
from macmpi.reductions import OverPoints
from macmpi.solvers import W_SOLVERS
from macmpi.solvers.closed_form import ClosedForm
from macmpi.solvers.metrics import Seen
from macmpi.solvers.w_problem import Restraint, SegmentProblem, UnitProblem, gradients, values
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")

UNITS = [(name, act) for name in solvers_of("units") for act in W_SOLVERS[name].activations or ("sigmoid", "relu")]


pair = each(UNITS, ids="-".join)


def mask(random: np.random.Generator, units: int, n_in: int) -> Array:
    """Units 0 and 2 read the same inputs, the last one all; biases exist."""
    found = random.uniform(size=(units, n_in + 1)) < 0.4
    found[:, -1] = found[-1] = True
    found[:, 0] |= ~found[:, :-1].any(axis=1)
    found[2] = found[0]
    return found


def masked(
    solver: Any, A: Array, T: Array, W: Array, activation: str, ridge: float, connected: Array | None
) -> tuple[UnitProblem, OverPoints]:
    over_points = summed(len(A), 2)
    rounded = A.astype(np.float32) if solver.system.single else None
    problem = UnitProblem(A, T, ridge, W, activation, rounded, exists=connected)
    return sharing(solver, problem, over_points), over_points


def well_posed(random: np.random.Generator, activation: str) -> tuple[Array, Array, Array, Array]:
    """Inputs, targets in range, weights and a mask: 40 points, 6 inputs, 5 units."""
    A, connected = random.normal(size=(40, 6)), mask(random, 5, 6)
    W = 0.5 * random.normal(size=(5, 7)) * connected
    return A, reachable(random, (40, 5), activation), W, connected


@pytest.mark.parametrize("kind", INPUTS)
def test_weights_that_do_not_exist_stay_0_and_no_unit_gets_worse(
    kind: str, pair: tuple[str, str], random: np.random.Generator
) -> None:
    name, activation = pair
    for arguments, ridge, (n, d) in product(W_ARGUMENTS.get(name, [{}]), (0.0, 0.1), ((5, 7), (40, 6))):
        solver, A = W_SOLVERS[name](**arguments), inputs(random, n, d, kind)
        connected = mask(random, 5, d)
        W, T = random.normal(size=(5, d + 1)) * connected, random.normal(size=(n, 5))
        problem, over_points = masked(solver, A, T, W, activation, ridge, connected)
        found = solver.solve(problem, over_points)
        assert_array_equal(found[~connected], 0.0)
        assert np.isfinite(found).all()
        before, after = unit_objectives(problem, W), unit_objectives(problem, found)
        assert (after <= before * (1.0 + 50.0 * n * EPS)).all()


def test_a_unit_is_fitted_as_if_it_had_no_other_inputs(pair: tuple[str, str], random: np.random.Generator) -> None:
    """The minimum that the same solver finds for a dense unit of these inputs alone."""
    name, activation = pair
    solver = W_SOLVERS[name](**example_of((name, 0), W_THOROUGH, "W_THOROUGH"))
    A, T, W, connected = well_posed(random, activation)
    problem, over_points = masked(solver, A, T, W, activation, 0.1, connected)
    found = unit_objectives(problem, solver.solve(problem, over_points))
    for h in range(5):
        own = connected[h]
        alone, over = masked(solver, A[:, own[:-1]], T[:, [h]], W[[h]][:, own], activation, 0.1, None)
        least = unit_objectives(alone, solver.solve(alone, over))
        assert_allclose(found[h], least[0], rtol=W_EXCESS.get(name, 1e-7) * 2.0)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 0.3])
def test_the_closed_form_is_each_units_least_squares(ridge: float, random: np.random.Generator) -> None:
    A, T, W, connected = well_posed(random, "linear")
    problem, over_points = masked(ClosedForm(), A, T, W, "linear", ridge, connected)
    found = ClosedForm().solve(problem, over_points)
    for h, own in enumerate(connected):
        D = np.column_stack([A, np.ones(len(A))])[:, own]
        shrunk = ridge * np.diag(np.arange(D.shape[1]) < D.shape[1] - 1)
        assert_allclose(found[h, own], np.linalg.solve(D.T @ D + shrunk, D.T @ T[:, h]), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "restraint",
    [
        Restraint(l1=0.5),
        Restraint(group=0.5),
        Restraint(least=-0.1, most=0.2),
        Restraint(least=0.1, most=0.2),
        Restraint(l1=0.1, kept=True),
    ],
)
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_restraints_hold_for_the_weights_that_exist(
    activation: str, restraint: Restraint, random: np.random.Generator
) -> None:
    solver = W_SOLVERS["proximal"]()
    A, T, W, connected = well_posed(random, activation)
    problem, over_points = masked(solver, A, T, W, activation, 0.01, connected)
    problem = replace(problem, restraint=restraint)
    start = problem.inside(W)
    found = solver.solve(problem, over_points)
    before, after = (
        unit_objectives(problem, V).sum() + restraint.penalty(V, problem.penalised).sum() for V in (start, found)
    )
    assert after < before
    assert_array_equal(found[~connected], 0.0)
    assert_array_equal(problem.inside(found), found)


# --- segments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", solvers_of("segment"))
def test_in_a_segment_weights_that_do_not_exist_stay_0(name: str, random: np.random.Generator) -> None:
    first, last = masked_example(6, 5, 0.4, random).map, Affine(5, 3)
    segment = Segment((first, Activation("tanh", 5), last), (0, None, 1))
    A, T = random.normal(size=(30, 6)), random.normal(size=(30, 3))
    assert first.connected is not None
    W = [random.normal(size=(5, 7)) * first.connected, random.normal(size=(3, 6))]
    for arguments in W_ARGUMENTS.get(name, [{}]):
        flat, over_points = np.concatenate([B.ravel() for B in W]), summed(30, 2)
        problem = SegmentProblem(A, T, 0.1, flat[None], segment, Squared(), ((5, 7), (3, 6)))
        found = W_SOLVERS[name](**arguments).solve(problem, over_points)
        assert_array_equal(problem.blocks(found[0])[0][~first.connected], 0.0)
        before, after = (values(problem, theta, over_points)[0] for theta in (problem.start, found))
        assert after <= before * (1.0 + 50.0 * 30 * EPS)
        assert name == "sgd" or after < before


# --- what is shared ---------------------------------------------------------------------------------------------------


def test_connections_are_text_and_back(random: np.random.Generator) -> None:
    for shape in ((3, 5), (1, 1), (40, 33)):
        connections = random.uniform(size=shape) < 0.3
        assert_array_equal(from_text(as_text(connections), *shape), connections)


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", as_text(np.ones((9, 9), dtype=bool))])
def test_damaged_connections_are_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="its connections are"):
        from_text(text, 3, 5)


def test_every_solver_of_units_or_segments_keeps_masks() -> None:
    """A new one is held to the laws above once it says so."""
    assert [name for name, kind in W_SOLVERS.items() if Demand.SPARSE not in kind.handles] == []  # type: ignore[attr-defined]


def test_no_gradient_has_weights_that_do_not_exist(random: np.random.Generator) -> None:
    """What W-solvers of other packages rest on."""
    A, T, W, connected = well_posed(random, "tanh")
    problem, over_points = masked(W_SOLVERS["lbfgs"](), A, T, W, "tanh", 0.1, connected)
    dense, _ = masked(W_SOLVERS["lbfgs"](), A, T, W, "tanh", 0.1, None)
    (_, found), (_, whole) = (gradients(each, W, over_points) for each in (problem, dense))
    assert_array_equal(found, np.where(connected, whole, 0.0))
    assert (whole[~connected] != 0.0).any()


def test_stochastic_gradients_are_masked_before_any_inverse(random: np.random.Generator) -> None:
    """So that a direction whose mask is applied last is one of descent."""
    first, last = masked_example(6, 5, 0.4, random).map, Affine(5, 3)
    assert not is_plain(first) and is_plain(last) and first.connected is not None
    chain = Chain((first, Activation("tanh", 5), last), ())
    weights = [random.normal(size=(5, 7)) * first.connected, random.normal(size=(3, 6))]
    tape = chain.whole.tape(weights, random.normal(size=(30, 6)))
    found = [np.empty((5, 7)), np.empty((3, 6))]
    put_slopes(Seen(tape, tape.F, random.normal(size=(30, 3))), [], [(False, False)] * 2, found)
    assert_array_equal(found[0][~first.connected], 0.0)
    assert (found[0][first.connected] != 0.0).all()
