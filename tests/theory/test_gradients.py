"""The recorded gradients are those of the objectives, and a run that waits for them ends as theorem B.3 says."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from theory.checks import deviation
from theory.nets import (
    AUGMENTED,
    anywhere,
    constraint,
    e1,
    e_q,
    feasible,
    forms,
    layers,
    loss_of,
    method,
    multipliers,
    of_sites,
    ridge,
    slopes,
    started,
    work,
)

from macmpi.half_steps.errors import gradients_of, slopes_of
from macmpi.mac import Mac
from macmpi.plan.resolved import Progress, Stationary
from macmpi.state import State
from macmpi.typing import Array

OBJECTIVES: dict[str, dict[str, Any]] = {
    "after": {},
    "before": {"sites": "before", "ridge_scale": "objective"},
    "mixed": {"sites": ["before", "after"], "activation": ["tanh", "sigmoid"], "ridge_scale": "objective"},
    "whole segments": {"sites": ["none", "after"], "activation": ["tanh", "tanh"]},
    "some units": {"sites": [{"before": 2}, "after"], "activation": "tanh", "ridge_scale": "objective"},
    "labels": {"loss": "cross_entropy", "sites": ["after", "none"]},
    "softmax": {"activation": ["softmax", "sigmoid"], "metric": "variance"},
    "variance": {"metric": "variance"},
    "curvature": {"metric": "curvature", "sites": "before"},
    "augmented": AUGMENTED,
    "augmented, a metric": {**AUGMENTED, "metric": "variance"},
    "several blocks": {"n": 700, "hidden": (2, 2)},
}


def size(*parts: Any) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(part))) for part in parts)))


def tails(mac: Mac, state: State) -> list[Array]:
    """dE1/dz_k of what lies behind each site, the coordinates before it feasible: by a complex step in z_k alone."""
    net, sites = layers(mac, state), of_sites(mac, feasible(mac, state))

    def behind(k: int, owner: SimpleNamespace) -> Any:
        A = owner.z
        for f in net[k:]:
            A = f(A)
        return loss_of(mac, A)

    owners = [SimpleNamespace(z=z) for z in sites]
    return [slopes(partial(behind, k, own), own, "z") for k, own in enumerate(owners, start=1)]


@pytest.mark.parametrize("choice", OBJECTIVES)
def test_they_are_the_gradients_of_the_objectives(choice: str) -> None:
    """By a complex step in the paper's formulas, the ridge as it is configured in both."""
    mac = method(**{"hidden": (3, 2), "n": 6, "ridge": 0.3} | OBJECTIVES[choice])
    state, N = anywhere(mac), mac.plan.n_train
    found = gradients_of(mac.parts, state)
    by_w = slopes(lambda: e_q(mac, state) - work(mac, state) + ridge(mac, state), state, "weights")
    by_z = slopes(lambda: e_q(mac, state) - work(mac, state), state, "Z")
    nested = slopes(lambda: e1(mac, state) + ridge(mac, state), state, "weights")
    deviation("‖grad E_Q‖", N * found.penalised, size(by_w, by_z))
    deviation("‖grad E1‖", N * found.nested, size(nested))
    deviation("grad E_Q by W", slopes_of(mac.parts, state)[0], by_w)


@pytest.mark.parametrize("choice", [name for name in OBJECTIVES if name != "several blocks"])
def test_what_the_multipliers_lack(choice: str) -> None:
    """The estimates lambda - mu M (z - f) at the present coordinates against eq. (kkt3') at feasible ones."""
    mac = method(**{"hidden": (3, 2), "n": 6} | OBJECTIVES[choice])
    state = anywhere(mac)
    found = gradients_of(mac.parts, state)
    pairs = zip(of_sites(mac, constraint(mac, state)), forms(mac, state), strict=True)
    estimates = np.hstack([-C @ M for C, M in pairs])
    if state.own.multipliers.size:
        estimates = estimates + state.own.multipliers
    state.Z[:] = feasible(mac, state)
    exact = np.hstack(multipliers(mac, state))
    deviation("multipliers of the net", mac.plan.n_train * found.multipliers, size(*tails(mac, state)))
    assert_allclose(found.multipliers, size(exact) / mac.plan.n_train, rtol=1e-9)
    assert_allclose(found.lacking, size(estimates - exact) / size(exact), rtol=1e-9)


def test_at_a_fixed_mu_the_multipliers_are_not_those_of_the_net() -> None:
    """However small grad E_Q is: -mu (z - f) are multipliers of coordinates that are not feasible."""
    close = {"iterations": 3, "direction": "direct", "relaxation": 1.0}
    mac = method((2,), "tanh", n=10, d=1, targets=1, z_step=close, ridge=0.3, ridge_scale="objective")
    state = started(mac, wide=1.0)
    state.mu = 1.0
    for _ in range(300):
        mac.sweep(state)
    found = gradients_of(mac.parts, state)
    assert found.penalised < 1e-3 * found.multipliers
    assert found.nested > 0.1 * found.multipliers
    assert found.lacking > 0.3


# --- theorem B.3 ------------------------------------------------------------------------------------------------------

PATHS: dict[str, dict[str, Any]] = {
    "after": {"hidden": (2,)},
    "before": {"hidden": (2,), "sites": "before"},
    "mixed": {"hidden": (1, 1), "sites": ["before", "after"], "targets": 2},
}


def run(mac: Mac, state: State, iterations: int) -> list[dict[str, float]]:
    """Iterations and decisions as a training run makes them; a row for each mu, where it ends."""
    state.history.multipliers_norm = gradients_of(mac.parts, state).multipliers
    schedule, rows = mac.plan.resolved.schedule, []
    assert isinstance(schedule, Stationary)
    for _ in range(iterations):
        mac.sweep(state)
        errors, before = mac.evaluate(state), state.history.e1_val
        state.note_validation(errors.validation)
        decision = schedule.decide(Progress(state.iteration, state.mu, before, **state.history.progress(errors)))
        assert errors.gradients is not None
        if decision.mu != state.mu or decision.stop == "converged":
            tau = schedule.tolerance_at(state.mu, state.history.multipliers_norm)
            rows.append({"mu": state.mu, "tau": tau, **errors.gradients._asdict()})
        if decision.multipliers:
            mac.move_multipliers(state)
            state.history.reference = errors.gradients.lacking
        state.mu = decision.mu
        if decision.stop:
            break
    return rows


@pytest.mark.parametrize("path", PATHS)
def test_a_run_that_waits_for_the_gradient_follows_the_theorem(path: str) -> None:
    """The shipped half steps alone: each mu ends at ||grad E_Q|| <= tau_k; with tau_k -> 0 and mu_k -> infinity the
    gradient of E1, the multipliers' lack and the constraint go to 0."""
    close = {
        "z_step": {"cg_iterations": 20, "cg_tolerance": 0.0},
        "w_step": {"iterations": 3, "cg_iterations": 3, "tolerance": 0.0},
        "ridge_scale": "objective",
        "ridge": 0.3,
    }
    schedule = {"stop": "gradient", "mu0": 1.0, "factor": 2.0, "mu_max": 32.0, "max_iterations": 1000}
    mac = method(**{"activation": "tanh", "n": 10, "d": 1, "targets": 1} | close | schedule | PATHS[path])
    state = started(mac, wide=1.0)
    state.mu = 1.0
    rows = run(mac, state, 1000)
    assert [row["mu"] for row in rows] == [2.0**k for k in range(6)]
    for before, after in itertools.pairwise(rows):
        assert after["tau"] == pytest.approx(0.7 * before["tau"])
    for row in rows:
        assert row["penalised"] <= row["tau"]
        assert row["nested"] <= 3.0 * (row["tau"] + row["multipliers"] / row["mu"])
    first, last = rows[0], rows[-1]
    assert last["nested"] < 0.25 * first["nested"]
    assert last["lacking"] < 0.5 * first["lacking"]
    assert np.abs(state.Z - feasible(mac, state)).max() < 0.1
