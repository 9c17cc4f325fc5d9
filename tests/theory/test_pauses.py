"""A run may be ended in the middle of an iteration: what a checkpoint holds there is all that the rest needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from plans import plan_of
from theory import basis_nets
from theory.nets import points

from macmpi.config import Config, Method
from macmpi.config.whole import resized
from macmpi.methods.choose import choose
from macmpi.parallel.team import Team
from macmpi.plan import tuned
from macmpi.state import Z_STEP, Architecture, State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import contents

TABLES = get_type_hints(Config)
NET = {"hidden": [7, 5]}
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "mac": {"model": NET},
    "multipliers, kept factors": {
        "model": {**NET, "sites": "before"},
        "penalty": {"method": "augmented_lagrangian", "metric": "variance"},
    },
    "feasible": {"model": NET, "method": {"acceleration": "feasible"}},
    "momentum": {"model": NET, "method": {"acceleration": "momentum"}, "z_step": {"minibatches": 2}},
    "running sums": {
        "model": {**NET, "sites": "before"},
        "method": {"acceleration": "none"},
        "z_step": {"minibatches": 3},
        "w_step": {"sums": "running"},
    },
    "stochastic": {"model": NET, "method": {"name": "stochastic"}, "stochastic": {"batch": 6}},
    "sgd": {"model": NET, "method": {"name": "sgd"}, "baseline": {"batch": 2, "momentum": 0.5}},
    "adam": {"model": NET, "method": {"name": "adam"}, "baseline": {"batch": 2, "momentum": 0.9}},
    "selection": {
        "model": {"hidden": [12, 2, 10], **basis_nets.NET, "centres": "subset"},
        "start": {"method": "pca"},
        "z_step": {"minibatches": 2},
        "selection": {"criterion": "aic", "epsilon2": [0.06], "every": 2, "sizes": [[4, 6, 8, 10], [], [4, 6, 8]]},
    },
    "sizes": {
        "model": {**NET, "activation": "sigmoid", "loss": "squared"},
        "selection": {"criterion": "aic", "epsilon2": 0.06, "every": 1, "sizes": [[2, 5], [2, 4]]},
    },
}
ITERATIONS = 3


def begun(tables: dict[str, dict[str, Any]]) -> tuple[Any, Any]:
    """A config and its data."""
    config = Config(**{"method": Method("mac"), **{name: TABLES[name](**keys) for name, keys in tables.items()}})
    data = basis_nets.autoencoder() if "centres" in tables["model"] else points(0, 150, 4, 3)
    return config, data


def method_of(config: Config, data: Any, state: State | None = None) -> Any:
    """As `run.py` makes it: of the sizes that a selection has found."""
    selected = state.own.architecture if state else Architecture()
    plan = plan_of(
        resized(config, *selected) if selected.units else config,
        data.X.shape[1],
        data.Y.shape[1],
        len(data.X),
        len(data.X_val),
        1,
    )
    return choose(plan, data, Team())


@pytest.mark.parametrize("tables", CASES.values(), ids=CASES)
def test_a_run_that_pauses_wherever_it_may_has_the_bits_of_one_that_never_does(
    tables: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "REMADE", 4)
    config, data = begun(tables)
    straight = method_of(config, data)
    first = straight.start(1.0, True, 0) if "centres" not in tables["model"] else _codes(straight)
    kept, _ = checkpoint.read(checkpoint.save(tmp_path, first, {}, 1))
    straight.begin(first)
    for _ in range(ITERATIONS):
        assert straight.sweep(first)
    pauses, whole = 0, False
    for _ in range(ITERATIONS):
        whole = False
        while not whole:
            method = method_of(config, data, kept)
            method.begin(kept)
            whole = method.sweep(kept, lambda: True)
            pauses += not whole
            kept, _ = checkpoint.read(checkpoint.save(tmp_path, kept, {}, 1))
    assert pauses >= ITERATIONS, "there must be something to go on from"
    expected, found = contents(first), contents(kept)
    for name in expected:
        np.testing.assert_array_equal(expected[name], found[name], err_msg=name)


def _codes(mac: Any) -> State:
    """Codes near a circle, and the weights that they give."""
    angles = np.linspace(0.0, 2.0 * np.pi, mac.plan.n_train, endpoint=False)
    state: State = mac.start_from(np.column_stack([np.cos(angles), np.sin(angles)]), 0, 1.0)
    return state


@pytest.mark.parametrize("tables", CASES.values(), ids=CASES)
def test_where_nothing_asks_for_it_no_sweep_pauses(tables: dict[str, dict[str, Any]]) -> None:
    """And before the first one the run can end."""
    config, data = begun(tables)
    method = method_of(config, data)
    state = method.start(1.0, True, 0) if "centres" not in tables["model"] else _codes(method)
    method.begin(state)
    assert method.finish(state).iteration == 0
    assert method.sweep(state, lambda: False)
    assert state.iteration == 1
    assert state.position == 0
    assert state.position == Z_STEP


@pytest.mark.parametrize("name", [name for name, tables in CASES.items() if "z_step" in tables])
def test_each_minibatch_of_coordinates_has_its_z_step_in_each_iteration(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in those in which sizes are selected, in the place of the last W-step."""
    config, data = begun(CASES[name])
    method = method_of(config, data)
    state = _codes(method) if "centres" in CASES[name]["model"] else method.start(1.0, True, 0)
    method.begin(state)
    moved, z_step = [], method.z_step
    monkeypatch.setattr(method, "z_step", lambda state: (moved.append(state.position // 2), z_step(state)))
    for _ in range(ITERATIONS):
        assert method.sweep(state)
    assert moved == ITERATIONS * list(range(config.z_step.minibatches))
