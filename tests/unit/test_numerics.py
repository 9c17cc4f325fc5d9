"""A number that is not finite is named by its half step, layer, unit and point."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import macmpi
from macmpi import MacmpiWarning
from macmpi.nets.chain import Chain
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.state import Errors, MacState, State
from macmpi.training import end

BAD = [np.nan, np.inf, -np.inf]
CHAIN = Chain(
    (Affine(4, 3), Activation("tanh", 3), Affine(3, 2), Activation("tanh", 2), Affine(2, 4)),
    (2, 4),
)
POINTS = 7


def state() -> State:
    random = np.random.default_rng(0)
    return State(
        random.normal(size=sum(h * d for h, d in CHAIN.block_shapes)), random.normal(size=(POINTS, 5)), 1.0, MacState()
    )


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6), st.sampled_from(BAD), st.sampled_from([np.float32, np.float64]))
def test_the_first_bad_number_is_found(at: int, bad: float, dtype: type) -> None:
    A = np.ones((30, 17), dtype)
    A.flat[at % A.size :: 5] = bad
    assert -end.first_bad(A) == at % A.size


@pytest.mark.parametrize(
    ("column", "named"),
    [(0, "unit 0 of site 1"), (2, "unit 2 of site 1"), (3, "unit 0 of site 2"), (4, "unit 1 of site 2")],
)
@pytest.mark.parametrize("bad", BAD)
def test_a_coordinate(column: int, named: str, bad: float) -> None:
    broken = state()
    broken.Z[5, column] = bad
    found = str(end.wrong_places(CHAIN, 3, end.bad_places(broken)))
    assert re.fullmatch(f"iteration 3: the Z-step gave point 5 .* {named}", found)


@pytest.mark.parametrize(("block", "unit", "column"), [(0, 0, 0), (0, 2, 4), (1, 1, 3), (2, 3, 2)])
def test_a_weight(block: int, unit: int, column: int) -> None:
    broken = state()
    before = sum(h * d for h, d in CHAIN.block_shapes[:block])
    broken.weights[before + unit * CHAIN.block_shapes[block][1] + column] = np.nan
    found = str(end.wrong_places(CHAIN, 3, end.bad_places(broken)))
    assert re.search(f"W-step gave layer {block + 1} .* unit {unit}, input {column}", found)


def test_the_first_of_all_ranks_is_named() -> None:
    """Sharded: each rank sees its own points, here 0 to 6 and 7 to 13, and both have come to a bad one."""
    held = [state(), state()]
    held[0].Z[5, 3], held[1].Z[2, 0] = np.nan, np.inf
    held[0].weights[1] = np.nan
    seen = [end.bad_places(own, POINTS * rank) for rank, own in enumerate(held)]
    worst = {name: max(places[name] for places in seen) for name in seen[0]}  # as Team.worst
    assert re.search(r"the Z-step gave point 5 .* unit 0 of site 2", str(end.wrong_places(CHAIN, 3, worst)))


@pytest.mark.parametrize("bad", BAD)
def test_an_error_that_is_not_finite_comes_with_the_remedies_of_one_that_is(bad: float) -> None:
    found = str(end.wrong_errors(Errors(1.0, bad, bad, 0.0), 3, "a smaller KEY"))
    assert f"iteration 3: E1 (validation) is {bad:g}, E_Q is {bad:g}" in found
    other = end.gone_wrong(3, 9.0, 1.0, "predict the mean", "a smaller KEY")
    assert found.partition("a smaller KEY")[2] == other.partition("a smaller KEY")[2] != ""
    assert end.wrong_errors(Errors(1.0, 1.0, 1.0, 0.0), 3, "a smaller KEY") is None


@pytest.mark.parametrize(
    ("error", "constant", "start", "wrong"),
    [
        (0.3, 1.0, 1.1, False),  # has learnt
        (5.0, 1.0, 5.0, False),  # a run of no iterations from a poor start
        (1.9, 1.0, 0.9, False),  # near the best constant
        (1e-3, 0.0, 1e-9, False),  # targets that are constant: nothing to compare with
        (1.9, 1.0, None, False),
        (6.6e67, 1.0, 0.9, True),
        (3.0, 1.0, 2.9, True),
        (3.0, 1.0, None, True),
    ],
)
def test_a_run_went_wrong_that_ends_far_above_the_best_constant(
    error: float, constant: float, start: float | None, wrong: bool
) -> None:
    assert end.went_wrong(error, constant, start, poor=True) is wrong
    assert end.went_wrong(error, constant, start, poor=False) is (constant > 0.0 and error > constant)


def test_where_numbers_are_no_longer_finite_the_best_weights_are_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start among them; a warning says so, and the run ends."""
    from macmpi.methods.stochastic.method import Stochastic

    random, sweep = np.random.default_rng(0), Stochastic.sweep
    X = random.normal(size=(60, 3))
    for spoilt in (1, 4):

        def spoil(method: Any, state: Any, *words: Any, spoilt: int = spoilt) -> Any:
            found = sweep(method, state, *words)
            if state.iteration == spoilt:
                state.weights[3] = np.nan
            return found

        monkeypatch.setattr(Stochastic, "sweep", spoil)
        with pytest.warns(MacmpiWarning, match=rf"iteration {spoilt}: .* not finite.*; the model ") as heard:
            model = macmpi.fit(X, X.sum(axis=1))
        assert model.card is not None
        assert model.card.training.ended == model.history[-1]["ended"] == "diverged"
        assert (
            model.card.training.best_iteration
            == min(
                (record["E1_val"], record["iteration"]) for record in model.history if record["phase"] != "postprocess"
            )[1]
        )
        said = "gives the best constant" if model.card.training.constant else "has the (best )?weights"
        assert re.search(f"; the model {said}", str(heard[0].message))
        assert np.isfinite(model.predict(X)).all()
