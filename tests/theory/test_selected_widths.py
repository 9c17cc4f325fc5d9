"""Selection of widths and ridges in the W-step: exact for each candidate, and E_Q + C never rises."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from theory.basis_nets import autoencoder, config, gaussians, planned
from theory.checks import deviation
from theory.test_selection import ROUNDING, order_of, select, selecting, totals

from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.methods.selection import Selection
from macmpi.parallel import tiles
from macmpi.parallel.team import Team
from macmpi.plan.selectable import Candidates
from macmpi.state import State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import contents
from macmpi.typing import Array

WIDTHS = [[1.2, 4.0], [0.5, 2.0, 5.0]]
RIDGES = [1e-4, 1e-2, 1.0]
KEPT = {"sizes": [[], [], []]}
BEFORE = {"activation": "tanh", "sites": "before", "hidden": [5, 2, 4], "width": 1.0, "centres": "kmeans"}
"""A dense net whose layers are all fitted in closed form."""

POOR = {"width": [9.0, 0.2]}

SETTINGS: dict[str, dict[str, Any]] = {
    "widths": {"model": POOR, "selection": {"widths": WIDTHS}, "penalty": {"ridge": 0.01}},
    "widths of one net": {"model": POOR, "selection": {"widths": [[], [0.5, 2.0]], **KEPT}, "penalty": {"ridge": 0.01}},
    "one list": {"selection": {"widths": [0.5, 1.0, 3.0], **KEPT}, "penalty": {"ridge": 0.01}},
    "ridges": {"selection": {"ridges": RIDGES}, "penalty": {"ridge": 0.1}},
    "ridges of one net": {"selection": {"ridges": [[], RIDGES], **KEPT}, "penalty": {"ridge": 0.1}},
    "both": {
        "selection": {"widths": WIDTHS, "ridges": RIDGES, "epsilon2": [0.3, 0.03]},
        "penalty": {"ridge": 0.1, "ridge_scale": "objective"},
    },
    "multipliers": {
        "selection": {"ridges": RIDGES, "widths": WIDTHS},
        "penalty": {"method": "augmented_lagrangian", "ridge": 0.1},
    },
    "dense": {"model": BEFORE, "selection": {"ridges": RIDGES}, "penalty": {"ridge": 0.1}},
    "some dense": {
        "model": {**BEFORE, "sites": ["before", "after", "after"]},
        "selection": {"ridges": [RIDGES, [], [], RIDGES]},
        "penalty": {"ridge": 0.1, "ridge_scale": "objective"},
    },
}


def inputs(method: Selection, state: State, c: Candidates, width: float) -> Array:
    """What the regression reads, centres of the largest candidate among them: (N, M), with a column of ones."""
    A = method.parts.inputs(c.segment, state)
    if c.layer >= 0:
        return gaussians(A, order_of(method, A, c.segment), width)
    segment = method.plan.chain.segments[c.segment]
    return np.hstack([segment.features(method.parts.weights(state), A), np.ones((len(A), 1))])


def targets(method: Selection, state: State, c: Candidates) -> Array:
    columns, mu = method.plan.chain.site_columns, state.mu
    if c.segment == len(columns):
        return method.data.Y
    shift = state.own.multipliers / mu if state.own.multipliers.size else np.zeros_like(state.Z)
    return (state.Z - shift)[:, columns[c.segment]]


def own_ridge(method: Selection, state: State, c: Candidates, ridge: float) -> float:
    last = c.segment == len(method.plan.chain.sites)
    scaled = method.begun.resolved.config.penalty.ridge_scale == "objective" and not last
    return ridge / state.mu if scaled else ridge


def fitted(Phi: Array, T: Array, ridge: Array) -> tuple[Array, float]:
    """The ridge regression by an augmented least-squares problem, and its effective number of weights an output.

    ridge: on each weight.
    """
    tall = np.vstack([Phi, np.diag(np.sqrt(ridge))])
    W = np.linalg.lstsq(tall, np.vstack([T, np.zeros((Phi.shape[1], T.shape[1]))]), rcond=None)[0]
    return W, float(np.trace(Phi @ np.linalg.pinv(tall)[:, : len(Phi)]))


def value(method: Selection, state: State, c: Candidates, width: float, ridge: float, count: int) -> float:
    """E_Q's part + C of a candidate, fitted by itself."""
    Phi, T = inputs(method, state, c, width)[:, :count], targets(method, state, c)
    penalised = np.full(count, own_ridge(method, state, c, ridge))
    penalised[-1] *= c.layer >= 0
    W, degrees = fitted(Phi, T, penalised)
    error = 0.5 * np.sum((T - Phi @ W) ** 2)
    weight = 1.0 if c.segment == len(method.plan.chain.sites) else state.mu
    if not c.ridges:
        return float(weight * (error + 0.5 * penalised @ np.sum(W**2, axis=1)) + c.price * (c.own + c.outputs) * count)
    return float(weight * error + c.price * (c.own * count + c.outputs * degrees))


def every(method: Selection, state: State, c: Candidates) -> dict[tuple[float, float, int], float]:
    shaping = method.plan.resolved.shaping
    ridges = c.ridges or (shaping.ridges[c.block],)
    triples = itertools.product(c.widths or (0.0,), ridges, c.counts.tolist())
    return {triple: value(method, state, c, *triple) for triple in triples}


def present(method: Selection, state: State, c: Candidates) -> float:
    """E_Q's part + C of a regression as it is."""
    segment, W = method.plan.chain.segments[c.segment], method.parts.weights(state)
    A, T = method.parts.inputs(c.segment, state), targets(method, state, c)
    first = segment.part(0, segment.core)
    Phi = first.forward(W, A)
    if c.layer < 0:
        Phi = np.hstack([Phi, np.ones((len(A), 1))])
    shaping, V = method.plan.resolved.shaping, W[c.block]
    penalised = np.full(V.shape[1], own_ridge(method, state, c, shaping.ridges[c.block]))
    penalised[-1] *= c.layer >= 0
    error, count = 0.5 * np.sum((T - Phi @ V.T) ** 2), Phi.shape[1]
    weight = 1.0 if c.segment == len(method.plan.chain.sites) else state.mu
    if not c.ridges:
        return float(weight * (error + 0.5 * np.sum(penalised * V**2)) + c.price * (c.own + c.outputs) * count)
    return float(weight * error + c.price * (c.own * count + c.outputs * fitted(Phi, T, penalised)[1]))


def made(setting: str, **selection: Any) -> tuple[Selection, State]:
    tables = dict(SETTINGS[setting])
    tables["selection"] = {**tables["selection"], **selection}
    if "dense" not in setting:
        return selecting(**tables)
    data, keys = autoencoder(), {"criterion": "aic", "epsilon2": [0.1], "every": 1}
    given = config(**{**tables, "selection": {**keys, **tables["selection"]}})
    given = replace(given, start=replace(given.start, method="uniform", model=""))
    method = Selection(planned(given, data), data, Team())
    state = method.start(1.0, True, 1)
    method.begin(state)
    return method, state


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_candidate_has_the_value_of_its_own_fit(setting: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a Gram is made by rows and factored in pieces."""
    if rows:
        monkeypatch.setattr(tiles, "GRAM_WHOLE", 2)
        monkeypatch.setattr(tiles, "GRAM_ROWS", rows)
    method, state = made(setting)
    state.weights *= 0.9
    method.parts.begin_first(state)
    found, now = totals(method, state)
    assert [len(values) for values in found] == [len(every(method, state, c)) for c in method.candidates]
    for c, values, held in zip(method.candidates, found, now, strict=True):
        deviation("effective weights", values, list(every(method, state, c).values()))
        assert_allclose(held, present(method, state, c), rtol=1e-7)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_best_of_all_candidates_is_taken_and_nothing_rises(setting: str) -> None:
    """At fixed mu, selection after selection, and from weights that no W-step has made."""
    method, state = made(setting)
    chosen = set()
    for i in range(4):
        method.z_step(state)
        if i == 2:
            state.weights *= 0.7
            method.parts.begin_first(state)
        before = [present(method, state, c) for c in method.candidates]
        tables = [every(method, state, c) for c in method.candidates]
        select(method, state)
        for c, was, table in zip(method.candidates, before, tables, strict=True):
            now, best = present(method, state, c), min(table.values())
            assert now <= was * ROUNDING
            assert_allclose(now, min(best, was), rtol=1e-7)
        chosen.add(method._present()[1:])
    start = made(setting)[0]._present()[1:]
    assert chosen - {start}, "nothing was chosen"


def test_a_ridge_that_no_longer_holds_is_not_selected() -> None:
    """Beyond ridge_until_mu all candidates are one."""
    method, state = made("ridges")
    state.mu = 2.0 * method.begun.resolved.config.penalty.ridge_until_mu
    select(method, state)
    assert tuple(method.plan.resolved.shaping.ridges.values()) == (0.1, 0.1)


@pytest.mark.parametrize("setting", ["both", "dense", "widths"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_run_that_is_cut_keeps_widths_and_ridges(cut: int, setting: str, tmp_path: Path) -> None:
    method, state = made(setting, every=2)
    for _ in range(cut):
        method.sweep(state)
    saved, _ = checkpoint.read(checkpoint.save(tmp_path, state, {}, 1))
    other = resumed(saved, method.begun.resolved.config, method.data)
    assert other.notes(saved) == {k: v for k, v in method.notes(state).items() if k not in ("phase", "changed")}
    for _ in range(3):
        method.sweep(state)
        other.sweep(saved)
        ours, theirs = contents(state), contents(saved)
        for name in ours:
            assert_array_equal(theirs[name], ours[name], err_msg=name)
        assert other.notes(saved) == method.notes(state)


def resumed(saved: State, keys: Config, data: Dataset) -> Selection:
    plan = planned(keys, data)
    if (architecture := saved.own.architecture).units:
        plan = plan.resized(*architecture)
    method = Selection(plan, data, Team())
    method.begin(saved)
    return method


def test_the_record_says_what_is_chosen() -> None:
    method, state = made("both")
    assert method.notes(state)["ridges"] == [0.1, 0.1]
    select(method, state)
    notes = method.notes(state)
    assert notes["widths"] == [m.spec()["width"] for m in method.plan.chain.maps if m.spec()["kind"] == "rbf"]
    assert notes["ridges"] == list(method.plan.resolved.shaping.ridges.values())
    weights = [c.own * len(method.parts.weights(state)[2 * c.segment]) for c in method.candidates]
    price = [
        c.price * (w + c.outputs * d) for c, w, d in zip(method.candidates, weights, state.own.degrees, strict=True)
    ]
    assert_allclose(notes["cost"] * method.plan.n_train, sum(price))
