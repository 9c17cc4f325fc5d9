"""The noise level of a selection from a run with many units: two times its error, by output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import macmpi
from macmpi import UsageError, config
from macmpi.results import model_file
from macmpi.training.low_bias import with_epsilon

X = np.tanh(np.random.default_rng(0).normal(size=(60, 5)))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended."""
    folder = tmp_path_factory.mktemp("runs") / "large"
    macmpi.fit(X, hidden=[6], config={"method.name": "mac", "run.max_iterations": 2}, output=folder, verbose=False)
    return folder


def settled(low_bias: Any, n_out: int = 5, **keys: Any) -> config.Config:
    given = {"selection": {"criterion": "aic", "low_bias": str(low_bias), **keys}, "model": {"loss": "squared"}}
    found, _ = with_epsilon(config.validate(given, "this test"), n_out)
    return found


@pytest.mark.parametrize("inside", ["", "model.h5"])
def test_epsilon_is_the_mean_squared_error_of_an_output(inside: str, large: Path) -> None:
    found = settled(large / inside).selection
    _, numbers = model_file.notes(large / "model.h5")
    assert found.epsilon2 == 2.0 * numbers["E1_train"] / 5
    assert found.low_bias == "", "so that a run that goes on does not need it any more"


def test_it_is_explained_and_kept(large: Path) -> None:
    given = {"selection": {"criterion": "aic", "low_bias": str(large)}, "model": {"loss": "squared"}}
    found, decisions = with_epsilon(config.validate(given, "this test"), 5)
    assert [(d.key, d.value) for d in decisions] == [("selection.epsilon2", found.selection.epsilon2)]
    assert str(large / "model.h5") in decisions[0].why


def test_without_a_selection_nobody_reads_it() -> None:
    assert settled("nowhere", criterion="none").selection.low_bias == "nowhere"


def test_what_has_no_such_error_is_refused(large: Path, tmp_path: Path) -> None:
    for path, n_out, says in (
        (tmp_path / "gone", 5, "there is no such file"),
        (large, 4, "its net has 5 outputs, and the data have 4; name another run"),
        (large / "start.h5", 5, "it says nothing of an error at its end; name another run"),
        (large / "curve.jsonl", 5, "is not a model"),
    ):
        with pytest.raises(UsageError, match=r"selection\.low_bias = ") as caught:
            settled(path, n_out)
        assert says in str(caught.value)
    labels = {"selection": {"criterion": "aic", "low_bias": str(large)}, "model": {"loss": "cross_entropy"}}
    with pytest.raises(UsageError, match=r"give a number, selection\.epsilon2"):
        with_epsilon(config.validate(labels, "this test"), 5)


def test_a_number_and_a_run_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="leave one of them out"):
        settled("runs/large", epsilon2=0.1)


def test_a_fit_takes_it(large: Path) -> None:
    keys = {"selection.criterion": "aic", "selection.low_bias": str(large), "selection.sizes": [[2, 4, 6]]}
    keys |= {"selection.every": 1, "run.max_iterations": 2}
    found = macmpi.fit(X, hidden=[6], config=keys, verbose=False)
    _, numbers = model_file.notes(large / "model.h5")
    last = next(r for r in found.history[::-1] if "cost" in r)
    weights = last["units"][0] * 11 + 5
    assert last["cost"] == pytest.approx(2.0 * 2.0 * numbers["E1_train"] / 5 * weights / 48, rel=1e-12)
