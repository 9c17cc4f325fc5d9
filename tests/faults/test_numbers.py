"""Problems at the edge of what numbers hold: finite, and no half step that claims descent raises its objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from faults.conftest import Tally
from theory.nets import AUGMENTED, anywhere, method, points, started

from macmpi.data.dataset import Dataset
from macmpi.half_steps.problems import renew_metric
from macmpi.mac import Mac
from macmpi.state import State

ROUNDING = {"float64": 1e-9, "float32": 1e-3}
"""Relative: what the sums behind an objective may lose."""

NETS: dict[str, dict[str, Any]] = {
    "after": {},
    "before": {"sites": "before"},
    "tanh, augmented": {"activation": "tanh", **AUGMENTED},
    "relu": {"activation": "relu"},
    "classifier": {"loss": "cross_entropy"},
    "curvature": {"metric": "curvature", "sites": "before", "ridge": 0.0},
    "float32": {"precision": "float32", "mu_max": 1e4},
    "lbfgs": {"w_step": {"solver": "lbfgs"}, "z_step": {"solver": "alternating"}},
}


"""curvature: without ridge, since the ridge of a unit is measured in its own form, not in the coupled one."""


def collinear(data: Dataset) -> None:
    data.X[:, 1] = data.X[:, 0] * (1.0 + 1e-12)
    data.X[:, 2] *= 1e-6


def duplicates(data: Dataset) -> None:
    data.X[:], data.Y[:] = data.X[:1], data.Y[:1]


def nothing(data: Dataset) -> None:
    pass


def scaled(by: float) -> Callable[[State], None]:
    def change(state: State) -> None:
        state.weights *= by

    return change


def at(mu: float) -> Callable[[State], None]:
    def change(state: State) -> None:
        state.mu = mu

    return change


def dead(state: State) -> None:
    """All hidden units of a rectifier off; a sigmoid's at 0."""
    state.weights[:] = -np.abs(state.weights) - 30.0


def same(state: State) -> None:
    pass


PROBLEMS: dict[str, tuple[Callable[[Dataset], None], Callable[[State], None]]] = {
    "ill-conditioned": (collinear, same),
    "duplicate points": (duplicates, same),
    "dead units": (nothing, dead),
    "saturated": (nothing, scaled(1e3)),
    "weights of 1e6": (nothing, scaled(1e6)),
    "mu = 1e12": (nothing, at(1e12)),
    "mu = 1e-6": (nothing, at(1e-6)),
}


def objective(mac: Mac, state: State) -> float:
    """E_Q, or the augmented Lagrangian, of all points, with the ridge."""
    errors = mac.evaluate(state)
    value = errors.E_Q if errors.lagrangian is None else errors.lagrangian
    return value * mac.plan.n_train + mac.parts.shaping_of(state, range(len(mac.plan.chain.segments)), ridge_alone=True)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("start", [started, anywhere])
def test_half_steps(start: Callable[[Mac], State], problem: str, net: str, tally: Tally) -> None:
    tally.row("numbers at the edge")
    spoil, change = PROBLEMS[problem]
    words = NETS[net]
    precision = words.get("precision", "float64")
    if net == "float32" and problem == "mu = 1e12":
        pytest.skip("float32 is refused beyond mu = 1e4")
    data = points(0, 37, 4, 3, words.get("loss", "squared"), precision)
    spoil(data)
    mac = method(data=replace(data), **words)
    state = start(mac)
    change(state)
    state.own.metric_mu = 0.0
    renew_metric(mac.parts, state)
    mac.parts.begin_first(state)
    values = [objective(mac, state)]
    for _ in range(3):
        mac.z_step(state)
        values.append(objective(mac, state))
        mac.w_step(state)
        state.iteration += 1
        values.append(objective(mac, state))
    assert np.isfinite(state.Z).all() and np.isfinite(state.weights).all() and np.isfinite(values).all()
    rounding = ROUNDING[precision] * np.maximum(np.abs(values[:-1]), 1.0)
    assert not any(after > before + r for before, after, r in zip(values, values[1:], rounding, strict=False)), values
