"""The console's words before and after a run: every number is that of the plan, the data and the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.cases import curve, write_case
from launch.here import run_here
from plans import plan_of

from macmpi.config import NESTED, Config, Method, Model
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.half_steps.method import COORDINATES, MethodText
from macmpi.plan.plan import Plan
from macmpi.state import Errors, MacState, State
from macmpi.training.end import Best
from macmpi.training.record import COLUMNS, closing, describe

ACCOUNT = MethodText("W-step of the segments: closed_form (2)", end="after a test", settled="settled for a test")
UNIT = Scaling(np.zeros(6), np.ones(6))


def dataset(targets: int = 0, labels: tuple[int, ...] = ()) -> Dataset:
    """1,200 training and 34 validation points.  targets = 0: an autoencoder; labels: those of the training points."""
    X, X_val = np.zeros((1200, 6)), np.zeros((34, 6))
    Y, Y_val = (np.zeros((len(A), targets)) if targets else A for A in (X, X_val))
    if labels:
        Y[np.arange(1200), np.resize(labels, 1200)] = 1.0
    return Dataset(X, Y, X_val, Y_val, UNIT, UNIT, "", np.arange(targets) + 100 if labels else None)


def told(model: Model, data: Dataset, ranks: int = 1, **keys: Any) -> list[str]:
    config = Config(model=model, **{"method": Method("mac"), **keys})
    plan: Plan = plan_of(config, *data.sizes.counts, ranks)
    return describe(plan, data, ranks, ACCOUNT).splitlines()


@pytest.mark.parametrize(("ranks", "words"), [(1, "1 rank"), (12, "12 ranks")])
def test_the_first_line_counts_layers_weights_points_and_ranks(ranks: int, words: str) -> None:
    """(6 + 1) 150 + (150 + 1) 6 weights."""
    first, how = told(Model([150], activation="sigmoid"), dataset(), ranks)
    assert first == (f"macmpi: 6-150-6 autoencoder, 1,956 weights, 1,200 training and 34 validation points, {words}")
    assert how == f"  {ACCOUNT.how}"


# --- the end ----------------------------------------------------------------------------------------------------------

ERRORS = Errors(train=1.25, validation=2.5, E_Q=9.0, constraint=8.0)


def ended(finished: str, best: Best | None = None, **errors: Any) -> list[str]:
    state = State(np.zeros(1), np.zeros((1, 1)), 10.0, MacState(), iteration=17, seconds=75.0, finished=finished)
    found = ERRORS._replace(**errors)
    best = Best(np.zeros(1), 17, found, last=True) if best is None else best
    return closing(state, found, ACCOUNT, best)


@pytest.mark.parametrize(
    ("finished", "reason"),
    [
        ("converged", ACCOUNT.settled),
        ("max_iterations", "the last iteration allowed"),
        ("stopped by a test", "stopped by a test"),
    ],
)
def test_the_end_gives_its_reason_iterations_and_time(finished: str, reason: str) -> None:
    first, errors = ended(finished)
    assert first == f"finished ({reason}) after 17 iterations, 1:15 of training"
    assert errors.split() == [*f"{ACCOUNT.end}, the best".split(), "E1", "train", "1.2500", "validation", "2.5000"]


def test_the_best_weights_have_a_line_of_their_own_where_the_last_ones_are_worse() -> None:
    better = Best(np.zeros(1), 12, ERRORS._replace(train=1.5, validation=2.0))
    _, last, best = ended("converged", better)
    assert last.split() == [*ACCOUNT.end.split(), "E1", "train", "1.2500", "validation", "2.5000"]
    assert best.split() == ["the", "best,", "iteration", "12", "E1", "train", "1.5000", "validation", "2.0000"]


def test_the_share_of_weights_that_are_0_is_said_where_it_is_asked_for() -> None:
    *_, last = ended("converged", None, zeros=0.512)
    assert last.endswith("   51.2% of the weights under l1 or group_lasso are 0")
    assert not any("are 0" in line for line in ended("converged", None))


# --- of a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NESTED)
def test_a_method_without_coordinates_speaks_of_itself_and_not_of_mac(name: str, tmp_path: Path) -> None:
    """The console alone: records have the same keys whatever the method."""
    write_case(tmp_path, "regression")
    words = ("--set", f'method.name="{name}"', "--output", "run", "--iterations", 1)
    said = run_here("regression.toml", *words, cwd=tmp_path, code=0).out.splitlines()
    how, table = said[1], next(line for line in said if line.lstrip().startswith("iter"))
    assert {"cg": "conjugate gradients", "lbfgs": "l-bfgs"}.get(name, name) in how.lower()
    titles = {key: title for key, title, _ in COLUMNS}
    assert [key for key in COORDINATES if titles[key] in table.split()] == []
    assert titles["E1_val"] in table
    assert not any("W-step" in line or "postprocessing" in line or "largest mu" in line for line in said)
    assert curve(tmp_path / "run")[-1].keys() >= titles.keys() - {"error_val", "zeros"}
