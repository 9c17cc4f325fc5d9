"""A run that goes wrong ends with its best weights, where these are better than a constant, and says so; else it fails.

The output layer of Adam's net is multiplied by a factor after some iteration, which no run does by itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch.here import run_here
from numpy.testing import assert_allclose, assert_array_equal

import macmpi
from macmpi import MacmpiWarning
from macmpi.methods.choose import Method, choose
from macmpi.show import card_lines
from macmpi.state import MacState, Pause, State, block_views, never
from macmpi.training import end, loop
from macmpi.typing import Array

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(80, 3))
Y = np.sin(X[:, :2]) + 0.1 * RANDOM.normal(size=(80, 2))
HELD = X[60:], Y[60:]
ADAM: dict[str, Any] = {"method.name": "adam", "model.hidden": [6], "model.activation": "tanh", "run.max_iterations": 6}
WRONG = r"training went wrong after iteration {}: at the end E1 .training. is .*, against .* .predict the mean."

Spoil = Callable[..., None]


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """spoil(after, start=1, factor=30): factors for the outputs, at the start and once the next iteration has ended."""

    def spoiled(after: int, start: float = 1.0, factor: float = 30.0) -> None:
        def chosen(*args: Any) -> Method:
            method = choose(*args)
            sweep, begin = method.sweep, method.start

            def multiply(state: State[Any], by: float) -> None:
                block_views(state.weights, method.plan.chain.block_shapes)[-1][:] *= by

            def started(*words: Any) -> State[Any]:
                state = begin(*words)
                multiply(state, start)
                return state

            def swept(state: State[Any], pause: Pause = never) -> bool:
                complete = sweep(state, pause)
                if state.iteration + (not complete) == after + 1:
                    multiply(state, factor)
                return complete

            method.start, method.sweep = started, swept  # type: ignore[method-assign]
            return method

        monkeypatch.setattr(loop, "choose", chosen)

    return spoiled


def fitted(iterations: int = 6, validation: Any = HELD, **keys: Any) -> macmpi.Model:
    return macmpi.fit(X[:60], Y[:60], validation=validation, config=ADAM | {"run.max_iterations": iterations}, **keys)


def weights(model: macmpi.Model) -> Array:
    return np.concatenate([W.ravel() for W in model.weights])


def error(model: macmpi.Model) -> float:
    """E1 of the training points in that of the best constant."""
    return float(np.square(model.predict(X[:60]) - Y[:60]).sum() / np.square(Y[:60] - Y[:60].mean(axis=0)).sum())


def asked_at(iteration: int) -> dict[str, Any]:
    return {"callback": lambda record: record["iteration"] == iteration}


# --- good weights on the way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 3, 5])
def test_the_model_has_the_best_weights_of_before(after: int, spoil: Spoil) -> None:
    """Those of a run that ends there."""
    expected = fitted(after)
    spoil(after)
    with pytest.warns(MacmpiWarning, match=WRONG.format(after)):
        found = fitted()
    assert found.history[-1]["iteration"] == 6
    assert found.history[-1]["E1_train"] > 2.0
    assert_array_equal(weights(found), weights(expected))
    assert error(found) < 1.0
    assert found.card is not None and found.card.training.best_iteration == after


@pytest.mark.parametrize("way", [asked_at(4), asked_at(5)], ids=["asked right away", "asked later"])
def test_a_run_that_a_callback_ends_after_it_went_wrong_has_them_too(way: dict[str, Any], spoil: Spoil) -> None:
    expected = fitted(3)
    spoil(3)
    with pytest.warns(MacmpiWarning, match=WRONG.format(3)):
        found = fitted(**way)
    assert_array_equal(weights(found), weights(expected))


def test_a_run_that_only_made_its_start_worse_has_that(spoil: Spoil, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs F, in the scaling of the targets T, times the a of which ||a F - T||^2 is 1.5 ||T||^2.

    Worse than a constant, and not so far off that the run has diverged.  The steps are tiny.
    """
    monkeypatch.setitem(ADAM, "baseline.rate", 1e-9)
    begun = fitted(0)
    F, T = (begun.scaling_y.apply(outputs) for outputs in (begun.predict(X[:60]), Y[:60]))
    spoil(0, factor=np.roots([np.sum(F * F), -2.0 * np.sum(F * T), -0.5 * np.sum(T * T)]).max())
    with pytest.warns(MacmpiWarning, match=WRONG.format(0) + ".* the weights that the run started with"):
        found = fitted(max_time=1e-9)
    assert found.history[-1]["iteration"] <= 1
    assert error(found) < 1.0
    assert found.card is not None
    assert any("best weights: the start" in line for _, line in card_lines(found.card))


@pytest.mark.parametrize("factor", [30.0, np.inf])
def test_a_warning_says_that_the_model_gives_a_constant(factor: float, spoil: Spoil) -> None:
    """The start is worse than a constant, and training, be it to numbers that are not finite, makes it worse still."""
    spoil(0, start=30.0, factor=factor)
    with pytest.warns(MacmpiWarning) as heard:
        found = fitted(1)
    said = [str(warning.message) for warning in heard if "model" in str(warning.message)]
    assert len(said) == 1
    assert "the model gives the best constant, as no weights of before were better" in said[0]
    assert found.card is not None and found.card.training.constant


def test_the_program_writes_the_model_and_says_it_in_one_line(spoil: Spoil, tmp_path: Path) -> None:
    np.savez(tmp_path / "points.npz", X=X[:60], Y=Y[:60], X_val=HELD[0], Y_val=HELD[1])
    (tmp_path / "run.toml").write_text('data = "points.npz"\nmodel.hidden = [6]\nmodel.activation = "tanh"\n')
    spoil(3)
    words = "run.toml", "--output", "run", "--iterations", 6, "--set", "method.name=adam"
    outcome = run_here(*words, cwd=tmp_path, code=0)
    said = [line for line in (outcome.out + outcome.err).splitlines() if "went wrong" in line]
    assert len(said) == 1 and "after iteration 3" in said[0]
    assert error(macmpi.load(tmp_path / "run" / "model.h5")) < 1.0
    with h5py.File(tmp_path / "run" / "model.h5") as file:
        assert file.attrs["best_iteration"] == 3
        assert file.attrs["best_E1_train"] < 1.0 < file.attrs["E1_train"]


@pytest.mark.parametrize("more", [0, 2])
def test_resumed_a_run_that_went_wrong_says_so_again(more: int, spoil: Spoil, tmp_path: Path) -> None:
    """It ends as it did, or goes on where more iterations are allowed; it is never said to be finished."""
    np.savez(tmp_path / "points.npz", X=X[:60], Y=Y[:60], X_val=HELD[0], Y_val=HELD[1])
    (tmp_path / "run.toml").write_text('data = "points.npz"\nmodel.hidden = [6]\nmodel.activation = "tanh"\n')
    words = "run.toml", "--output", "run", "--set", "method.name=adam", "--set", "baseline.rate=1e-9", "--iterations"
    spoil(0, factor=1e3)
    run_here(*words, 3, cwd=tmp_path, code=70)
    model = macmpi.load(tmp_path / "run" / "model.h5")
    assert model.card is not None and model.card.training.ended == "diverged"
    again = run_here(*words, 3 + more, "--resume", "auto", cwd=tmp_path, code=70)
    assert ("as training went wrong: nothing is left to go on from" in again.err) is (not more)
    assert "is finished" not in again.out + again.err


@pytest.mark.parametrize("factor", [0.5, 1e3])
def test_a_run_of_which_no_iteration_was_better_fails_where_it_ends_far_off(
    factor: float, spoil: Spoil, tmp_path: Path
) -> None:
    """Also where an iteration was better than the start: all are worse than the constant, which the model gives."""
    np.savez(tmp_path / "points.npz", X=X[:60], Y=Y[:60], X_val=HELD[0], Y_val=HELD[1])
    (tmp_path / "run.toml").write_text('data = "points.npz"\nmodel.hidden = [6]\nmodel.activation = "tanh"\n')
    words = "run.toml", "--output", "run", "--set", "method.name=adam", "--set", "baseline.rate=1e-3"
    spoil(2, start=30.0, factor=factor)
    said = run_here(*words, "--iterations", 3, cwd=tmp_path, code=70 if factor > 1.0 else 0).err
    assert ("the model gives the best constant" in said) is (factor > 1.0)
    lines = [json.loads(line) for line in (tmp_path / "run" / "curve.jsonl").read_text().splitlines()]
    assert lines[2]["E1_val"] < lines[0]["E1_val"]


# --- none -------------------------------------------------------------------------------------------------------------

WAYS: dict[str, dict[str, Any]] = {"to the end": {}, "asked": asked_at(1), "late": {"max_time": 1e-9}}


@pytest.mark.parametrize("way", WAYS)
def test_where_it_is_no_further_off_than_at_its_start_the_model_is_that_constant(way: str, spoil: Spoil) -> None:
    """Adam moves little in an iteration."""
    spoil(0, start=30.0, factor=0.9)
    found = fitted(**WAYS[way])
    assert_allclose(error(found), 1.0, rtol=1e-9)
    assert found.card is not None
    assert any("best weights: a constant" in line for _, line in card_lines(found.card))


# --- the rule ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=8))
def test_the_best_are_the_first_of_the_lowest_error_that_are_not_poor(noted: list[tuple[bool, float]]) -> None:
    state = State(np.zeros(2), np.zeros((0, 0)), 1.0, MacState())
    for i, (poor, validation) in enumerate(noted):
        state.iteration, state.weights = i, np.full(2, float(i))
        state.note_validation(validation, poor=poor)
    expected = min(range(len(noted)), key=lambda i: noted[i])
    assert state.history.best_iteration == expected
    assert (state.history.best_poor, state.history.best_e1_val) == noted[expected]
    assert_array_equal(state.history.best_weights, np.full(2, float(expected)))
    state.history.forget()
    state.note_validation(9.0, poor=True)
    assert_array_equal(state.history.best_weights, state.weights)


@pytest.mark.parametrize(("iteration", "bad"), [*itertools.product([0, 7], [3.5, np.inf, np.nan])])
def test_one_line_says_when_and_what_may_help(iteration: int, bad: float) -> None:
    said = end.gone_wrong(iteration, bad, 0.5, "predict the mean", "a smaller KEY")
    assert "\n" not in said
    assert said.startswith(f"training went wrong after iteration {iteration}: ")
    assert f"is {bad:g}, against 0.5 (predict the mean)" in said
    assert "a smaller KEY, another" in said
