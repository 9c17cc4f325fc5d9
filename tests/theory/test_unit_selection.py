"""Selection of the units of dense layers: E1 + C never rises, estimates are exact, the rest keeps its bits."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from theory.nets import points

from macmpi.config import Config
from macmpi.config.whole import resized
from macmpi.data.dataset import Dataset
from macmpi.methods.choose import choose
from macmpi.methods.unit_selection import Net, UnitSelection
from macmpi.parallel.team import Team
from macmpi.plan.selectable import CRITERIA
from macmpi.state import State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import contents

TABLES = get_type_hints(Config)
SIZES = [[2, 4, 6], [], [1, 3, 5]]
SETTINGS: dict[str, dict[str, Any]] = {
    "after": {},
    "before": {"model": {"sites": "before", "activation": "tanh"}},
    "some sites": {"model": {"sites": ["none", "after", "none"]}},
    "momentum": {"method": {"acceleration": "momentum"}},
    "labels": {"model": {"loss": "cross_entropy"}},
    "an output activation": {"model": {"output": "tanh"}},
}
ROUNDING = 1.0 + 1e-11


def selecting(epsilon2: float = 0.02, every: int = 1, **tables: dict[str, Any]) -> tuple[UnitSelection, State]:
    """A net of 4-8-6-7-3 units, the second hidden layer keeps its size; the state at the start."""
    keys: dict[str, dict[str, Any]] = {
        "model": {"hidden": [8, 6, 7], "activation": "sigmoid", "loss": "squared"},
        "method": {"name": "mac"},
        "selection": {"criterion": "aic", "epsilon2": epsilon2, "every": every, "sizes": SIZES},
        "start": {"range": 2.0},
    }
    for name, own in tables.items():
        keys[name] = {**keys.get(name, {}), **own}
    config = Config(**{name: TABLES[name](**own) for name, own in keys.items()})
    data = points(0, 80, 4, 3, keys["model"]["loss"])
    method = of(config, data)
    state = method.start(2.0, True, 0)
    method.begin(state)
    return method, state


def of(config: Config, data: Dataset, hidden: list[int] | None = None) -> UnitSelection:
    plan = plan_of(config, data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val), 1)
    method = choose(plan.resized(hidden) if hidden else plan, data, Team())
    assert isinstance(method, UnitSelection)
    return method


def units(method: UnitSelection) -> list[int]:
    return list(method.plan.chain.layer_sizes[1:-1])


def cost(method: UnitSelection, hidden: list[int]) -> float:
    """C per point, by its definition."""
    sizes, keys = [4, *hidden, 3], method.begun.resolved.config.selection
    weights = sum(b * (a + 1) for a, b in pairwise(sizes))
    return {"aic": 1.0, "bic": 0.5 * math.log(80)}[keys.criterion] * float(keys.epsilons(1)[0]) * weights / 80


def total(method: UnitSelection, state: State) -> float:
    """E1 + C as the run would end here."""
    after = method.finish(deepcopy(state))
    return method.evaluate(after, feasible=True).E_Q + cost(method, units(method))


@pytest.mark.parametrize("epsilon2", [1e-4, 0.02, 0.2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_no_selection_raises_e1_and_the_cost(setting: str, epsilon2: float) -> None:
    method, state = selecting(epsilon2, every=100, **SETTINGS[setting])
    changes = 0
    for _ in range(4):
        method.sweep(state)
        before, hidden = total(method, state), units(method)
        method._select(state)
        assert total(method, state) <= before * ROUNDING
        assert method.changed == (units(method) != hidden)
        assert all(now <= old for now, old in zip(units(method), hidden, strict=True))
        changes += method.changed is True
    assert changes or epsilon2 < 0.01


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_a_candidate_is_said_to_have_is_what_its_net_has(setting: str) -> None:
    """E1 and C of the net of those sizes and weights, the output layer fitted where that is exact; what C falls by."""
    method, state = selecting(every=100, **SETTINGS[setting])
    for _ in range(2):
        method.sweep(state)
    net = Net(method, state, [0.0])
    for place in method.places:
        hidden = units(method)
        found = method._candidates(place, net)
        assert [len(c.kept.inputs) for c in found] == [s for s in place.sizes[::-1] if s < hidden[place.layer]]
        for candidate in found:
            smaller = [*hidden]
            smaller[place.layer] = len(candidate.kept.inputs)
            assert_allclose(candidate.saved, cost(method, hidden) - cost(method, smaller), rtol=1e-12)
            made = method._net_of(candidate, net)
            assert list(made.method.plan.chain.layer_sizes[1:-1]) == smaller
            exact = method.plan.resolved.regressions[len(method.plan.chain.sites)].solver.exact
            weights = made.method.finish(made.state).weights if exact else made.state.weights
            error = made.method.evaluate(replace(made.state, weights=weights), feasible=True).E_Q
            if method.begun.resolved.config.method.acceleration == "none":
                assert_allclose(candidate.value, error + cost(method, smaller), rtol=1e-7)


def test_selections_come_in_iterations_that_lie_farther_and_farther_apart() -> None:
    method, state = selecting(every=2, selection={"sizes": [[8], [], []]})
    found = []
    for i in range(1, 17):
        method.sweep(state)
        found += [i] if method.changed is not None else []
    assert found == [2, 4, 8, 16]


@pytest.mark.parametrize("criterion", ["aic", "bic"])
def test_the_record_says_what_was_done_and_what_it_costs(criterion: str) -> None:
    method, state = selecting(0.05, every=2, selection={"criterion": criterion})
    for phase in (None, "selection", None, "selection"):
        method.sweep(state)
        notes = method.notes(state)
        assert notes.get("phase") == phase
        assert notes["units"] == units(method)
        assert_allclose(notes["cost"], cost(method, units(method)), rtol=1e-12)
        assert ("trained" in notes) == (phase is not None)
    assert CRITERIA[criterion](80) > 0.0


def test_a_change_forgets_the_best_weights_and_does_not_settle_the_run() -> None:
    method, state = selecting(0.05, every=100)
    method.sweep(state)
    state.note_validation(method.evaluate(state).validation)
    assert len(state.history.best_weights)
    method._select(state)
    assert method.changed
    assert not len(state.history.best_weights)
    assert (state.history.e1_val, state.history.best_e1_val) == (math.inf, math.inf)
    assert (state.iteration, state.position) == (1, 0)


def test_a_winner_that_would_raise_e1_and_the_cost_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose error rises while it is trained further, against a smaller one."""

    def spoilt(method: UnitSelection, rival: Net, best: Net, saves: float) -> bool:
        rival.values.append(1e9)
        return True

    monkeypatch.setattr(UnitSelection, "_beats", spoilt)
    method, state = selecting(0.05)
    method.sweep(state)
    assert (units(method), method.changed) == ([8, 6, 7], False)


@pytest.mark.parametrize("setting", ["after", "momentum", "labels"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_run_cut_before_or_after_a_selection_goes_on_with_the_same_bits(
    cut: int, setting: str, tmp_path: Path
) -> None:
    method, state = selecting(0.05, every=2, **SETTINGS[setting])
    for _ in range(cut):
        method.sweep(state)
    saved, _ = checkpoint.read(checkpoint.save(tmp_path, state, {}, 1))
    assert (len(saved.own.sizes) > 0) == (cut >= 2)
    other = of(method.begun.resolved.config, method.data, saved.own.architecture.units)
    other.begin(saved)
    for _ in range(3):
        method.sweep(state)
        other.sweep(saved)
        ours, theirs = contents(state), contents(saved)
        for name in ours:
            assert_array_equal(theirs[name], ours[name], err_msg=name)
        assert other.notes(saved) == method.notes(state)
    assert_array_equal(other.finish(saved).weights, method.finish(state).weights)


def test_a_config_of_other_sizes_drops_the_candidates_above_them() -> None:
    method, _ = selecting()
    found = resized(method.begun.resolved.config, [4, 6, 2])
    assert found.model.hidden == [4, 6, 2]
    assert found.selection.sizes == [[2, 4], [], [1, 2]]
