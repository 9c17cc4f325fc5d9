"""Runs in single precision: of that precision throughout, and close to those in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plans import plan_of

from macmpi import config
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.demand import Demand
from macmpi.mac import Mac
from macmpi.methods.starts import Origin, start
from macmpi.parallel.team import Team
from macmpi.solvers import W_SOLVERS, Z_SOLVERS

Keys = dict[str, dict[str, Any]]


def dataset(precision: str, inputs: str = "plain") -> Dataset:
    random = np.random.default_rng(7)
    X, X_val = (random.standard_normal((n, 8)) for n in (600, 40))
    for A in (X, X_val):
        if inputs == "alike":
            A[:, 4:] = A[:, :4]
    Y, Y_val = (np.tanh(A[:, :3]) for A in (X, X_val))
    scaling = Scaling(np.zeros(8), np.ones(8))
    return Dataset(*(A.astype(precision) for A in (X, Y, X_val, Y_val)), scaling, scaling, "")


def error_after(precision: str, keys: Keys, inputs: str = "plain") -> tuple[float, float]:
    """E1 at the start and after a short run with its postprocessing."""
    tables = {**keys, "model": {"hidden": [12, 6], "precision": precision, **keys.get("model", {})}}
    tables["penalty"] = {"mu_max": 1e4, **keys.get("penalty", {})}
    whole = config.validate(tables, "this test")
    data = dataset(precision, inputs)
    mac = Mac(plan_of(whole, 8, 3, 600, 40, 1), data, Team())
    state = start(mac, Origin())
    begun = mac.evaluate(state, feasible=True).train
    mac.begin(state)
    for _ in range(3):
        mac.sweep(state)
        assert state.weights.dtype == state.Z.dtype == precision
        assert np.isfinite(state.weights).all()
        assert np.isfinite(state.Z).all()
        state.mu *= 10.0
    after = mac.finish(state)
    assert after.weights.dtype == precision
    return begun, mac.evaluate(after, feasible=True).train


CASES: dict[str, Keys] = {
    **{
        f"Z by {name}": {
            "z_step": {"solver": name},
            "model": {"activation": "binary", "hidden": [12]} if Demand.SITE_OF_BITS in kind.handles else {},
        }
        for name, kind in Z_SOLVERS.items()
    },
    **{
        f"W by {name}": {"w_step": {"solver": name, "linear_solver": "same"}}
        for name in sorted(W_SOLVERS.keys() - {"closed_form", "hessian_free"})
    },
    "segments": {"model": {"sites": ["none", "after"]}, "w_step": {"solver": "hessian_free"}},
    "before": {"model": {"sites": "before", "activation": "tanh"}},
    "multipliers": {"penalty": {"method": "augmented_lagrangian", "metric": "variance"}},
}


@pytest.mark.parametrize("name", CASES)
def test_single_precision_is_close_to_double(name: str) -> None:
    begun, single = error_after("float32", CASES[name])
    _, double = error_after("float64", CASES[name])
    assert single < 0.96 * begun
    assert single == pytest.approx(double, rel=0.15)


@pytest.mark.parametrize("inputs", ["plain", "alike"])
@pytest.mark.parametrize("sites", ["after", "before"])
@pytest.mark.parametrize("ridge", [{"ridge": 0.0}, {"ridge": 1e-6}, {"ridge_scale": "objective", "mu0": 1e3}])
def test_a_small_ridge_or_none_is_no_obstacle(ridge: dict[str, Any], sites: str, inputs: str) -> None:
    """Inputs that depend on each other have a Gram that is singular to the precision of the points."""
    keys = {"model": {"sites": sites, "activation": "relu"}, "penalty": ridge}
    begun, single = error_after("float32", keys, inputs)
    assert single < 0.9 * begun
