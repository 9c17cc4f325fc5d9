"""What never rises, for every choice of solver, loss, sites, metric and method: the objective at fixed mu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contracts.examples import point_gradients
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from theory.checks import deviation
from theory.nets import (
    AUGMENTED,
    anywhere,
    e1,
    e_q,
    feasible,
    forms,
    jacobian_rows,
    last_features,
    method,
    of_sites,
    ridge,
    slopes,
    started,
    work,
)
from theory.problems import z_problem

from macmpi import UsageError
from macmpi.mac import Mac
from macmpi.nets.losses import LOSSES
from macmpi.state import State
from macmpi.typing import Array

SITES: dict[str, Any] = {
    "after": "after",
    "before": "before",
    "none": "none",
    "mixed": ["before", "after"],
    "none below": ["none", "after"],
    "none above": ["before", "none"],
    "both": ["both", "after"],
    "some units": [{"after": 3}, "before"],
}
ALL_SEGMENTS = ["auto", "hessian_free", "newton", "lbfgs", "ncg", "gradient", "sgd"]
UNITS_ALONE = ["gauss_newton"]
MUS = [0.1, 10.0, 1e4]
W_CHOICES = [
    *covering(ALL_SEGMENTS, SITES, LOSSES, MUS),
    *covering(UNITS_ALONE, ["after", "before", "mixed"], ["squared"], MUS),
]
Z_SOLVERS: dict[str, dict[str, Any]] = {
    "gauss_newton": {},
    "dual": {"direction": "dual", "cg_tolerance": 1e-4, "relaxation": 1.6},
    "direct": {"direction": "direct", "relaxation": 1.0},
    "alternating": {"solver": "alternating", "iterations": 2},
}
MEASURES: dict[str, dict[str, Any]] = {
    "identity": {},
    "variance": {"metric": "variance"},
    "curvature": {"metric": "curvature", "sites": "before"},
}
RIDGES: dict[str, dict[str, Any]] = {
    "small": {},
    "large": {"ridge": 3.0},
    "of the objective": {"ridge": 0.1, "ridge_scale": "objective"},
}
METHODS: dict[str, dict[str, Any]] = {"quadratic": {}, "augmented": AUGMENTED}


def objective(mac: Mac, state: State) -> float:
    """E_Q - sum lambda^T (z - f) + ridge."""
    return e_q(mac, state) - work(mac, state) + ridge(mac, state)


def size(mac: Mac, state: State) -> float:
    return e_q(mac, state) + abs(work(mac, state)) + ridge(mac, state)


def assert_descends(mac: Mac, state: State, sweeps: int = 2, rounding: float = 1e-11) -> None:
    """No half step raises the objective, and all of them together lower it.  The Z-step first renews the metric."""
    value = first = objective(mac, state)
    for half_step in (mac.z_step, mac.w_step) * sweeps:
        half_step(state)
        before, value = value, objective(mac, state)
        assert value <= before + rounding * size(mac, state)
    assert value < first


@pytest.mark.parametrize(("solver", "sites", "loss", "mu"), W_CHOICES)
def test_no_half_step_of_any_w_solver_raises_the_objective(solver: str, sites: str, loss: str, mu: float) -> None:
    mac = method(sites=SITES[sites], loss=loss, w_step={"solver": solver}, activation=["tanh", "sigmoid"], ridge=0.1)
    assert_descends(mac, anywhere(mac, mu=mu))


@pytest.mark.parametrize(
    ("solver", "loss", "sites", "by"), covering(Z_SOLVERS, LOSSES, [name for name in SITES if name != "none"], METHODS)
)
def test_no_half_step_of_any_z_solver_raises_the_objective(solver: str, loss: str, sites: str, by: str) -> None:
    for mu in (0.1, 1e3):
        mac = method(sites=SITES[sites], loss=loss, z_step=Z_SOLVERS[solver], **METHODS[by])
        assert_descends(mac, anywhere(mac, mu=mu))


@pytest.mark.parametrize(("measure", "loss", "solver", "by"), covering(MEASURES, LOSSES, Z_SOLVERS, METHODS))
def test_every_z_solver_ends_where_the_objective_is_stationary(measure: str, loss: str, solver: str, by: str) -> None:
    """The same objective for all of them: its gradient in Z vanishes with enough Z-steps."""
    mac = method((4, 3), n=6, loss=loss, z_step=Z_SOLVERS[solver], **MEASURES[measure] | METHODS[by])
    state = anywhere(mac, mu=3.0)

    def slope() -> float:
        return float(np.abs(point_gradients(z_problem(mac, slice(None), state), state.Z)[1]).max())

    first = slope()
    for _ in range(60):
        mac.z_step(state)
        if slope() < 1e-3 * first:
            return
    pytest.fail(f"{slope():g} of {first:g} is left")


@pytest.mark.parametrize(("loss", "sites", "by"), covering(LOSSES, SITES, METHODS))
def test_no_half_step_raises_the_objective_in_single_precision(loss: str, sites: str, by: str) -> None:
    """Beyond what float32 resolves."""
    if sites == "none" and by == "augmented":
        by = "quadratic"
    mac = method(sites=SITES[sites], loss=loss, precision="float32", mu_max=1e4, **METHODS[by])
    state = anywhere(mac)
    assert state.Z.dtype == state.weights.dtype == np.float32
    assert_descends(mac, state, rounding=1e-5)


@pytest.mark.parametrize(
    ("solver", "loss", "sites", "penalty"), covering(["auto", "hessian_free", "lbfgs", "sgd"], LOSSES, SITES, RIDGES)
)
def test_postprocessing_never_raises_e1_and_the_ridge(solver: str, loss: str, sites: str, penalty: str) -> None:
    mac = method(sites=SITES[sites], loss=loss, w_step={"solver": solver}, **RIDGES[penalty])
    state = started(mac)
    for _ in range(2):
        before = e1(mac, state) + ridge(mac, state)
        after = mac.finish(state)
        assert e1(mac, after) + ridge(mac, after) <= before * (1.0 + 1e-11)
        assert_allclose(after.Z, feasible(mac, after), rtol=1e-13, atol=1e-15)
        mac.sweep(state)


@pytest.mark.parametrize("relaxation", [1.0, 1.6, 0.5])
@pytest.mark.parametrize("choice", ["identity", "variance", "curvature"])
def test_postprocessing_of_a_linear_output_is_exact_whatever_the_choices(choice: str, relaxation: float) -> None:
    """It ends at the least-squares fit on g(X), with coordinates in any metric and multipliers at 0."""
    mac = method(w_step={"relaxation": relaxation}, ridge=0.0, **MEASURES[choice] | AUGMENTED)
    state = anywhere(mac)
    mac.sweep(state)
    mac.move_multipliers(state)
    after = mac.finish(state)
    assert_array_equal(after.own.multipliers, 0.0)
    _, rest, _, _ = np.linalg.lstsq(last_features(mac, after), mac.data.Y, rcond=None)
    assert_allclose(e1(mac, after), 0.5 * rest.sum(), rtol=1e-9)


# --- what the metrics are ---------------------------------------------------------------------------------------------


def test_the_variance_metric_measures_each_unit_by_its_variance() -> None:
    mac = method(metric="variance")
    state = anywhere(mac, mu=3.0)
    for M, z in zip(forms(mac, state), of_sites(mac, state.Z), strict=True):
        inverse = 1.0 / z.var(axis=0)
        deviation("variance metric", M, np.diag(3.0 * inverse / inverse.mean()))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [12, 1])
def test_the_curvature_metric_takes_the_mean_of_each_map_after_the_other(n: int, loss: str) -> None:
    """E[J_k^T M J_k] down the maps, from the loss's mean curvature, each site's scaled and damped.

    With one point that is the Gauss-Newton Hessian of each site; with several the mean of products is another matrix.
    """
    mac = method(metric="curvature", sites="before", n=n, loss=loss, activation="tanh", targets=4)
    state = anywhere(mac, mu=1.0)
    sites, (_, V2, V3) = of_sites(mac, state.Z), mac.parts.weights(state)
    M = LOSSES[loss].hessian(mac.data.Y, last(mac, state))
    expected = []
    for V, z in ((V3, sites[1]), (V2, sites[0])):
        slope = 1.0 - np.tanh(z) ** 2
        M = (V[:, :-1].T @ M @ V[:, :-1]) * (slope.T @ slope / n)
        damped = M / (np.trace(M) / len(M)) + 0.1 * np.eye(len(M))
        expected.insert(0, damped / (np.trace(damped) / len(M)))
    if n == 1:
        J2, J3 = jacobian_rows(mac, state, 0)[1:]
        assert_allclose(M, J2.T @ J3.T @ LOSSES[loss].hessian(mac.data.Y, last(mac, state)) @ J3 @ J2, rtol=1e-9)
    for found, wanted in zip(forms(mac, state), expected, strict=True):
        deviation("curvature metric", found, wanted)


def last(mac: Mac, state: State) -> Array:
    """The outputs f_{K+1}(z_K)."""
    return mac.plan.chain.segments[-1].forward(mac.parts.weights(state), of_sites(mac, state.Z)[-1])


@pytest.mark.parametrize("measure", ["variance", "curvature"])
def test_a_metric_is_made_once_a_mu_and_stays_within_bounds(measure: str) -> None:
    """What theorem B.3 needs of it: fixed within each mu, its eigenvalues within fixed bounds."""
    for activation in ("sigmoid", "tanh", "relu"):
        mac = method(activation=activation, **MEASURES[measure])
        state = started(mac)
        for _ in range(4):
            mac.sweep(state)
            kept = state.own.metric.copy()
            mac.sweep(state)
            assert_array_equal(state.own.metric, kept)
            for M, h in zip(forms(mac, state), mac.plan.chain.site_sizes, strict=True):
                values = np.linalg.eigvalsh(M / state.mu)
                assert 0.01 < values.min() <= values.max() < 100.0 * h
            state.mu *= 10.0
            mac.z_step(state)
            assert (state.own.metric != kept).any()
            mac.w_step(state)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_z_problems_gradient_is_that_of_the_objective(loss: str, measure: str) -> None:
    mac = method((4, 3), n=6, loss=loss, **MEASURES[measure] | AUGMENTED)
    state = anywhere(mac)
    problem = z_problem(mac, slice(None), state)
    _, G = point_gradients(problem, state.Z)
    deviation("grad E_Q by Z", G, slopes(lambda: e_q(mac, state) - work(mac, state), state, "Z"))


SUMS = [name for name, loss in LOSSES.items() if loss.by_output and not loss.unit_hessian]


@pytest.mark.parametrize("solver", UNITS_ALONE)
@pytest.mark.parametrize("loss", SUMS)
def test_nor_is_it_fitted_unit_by_unit(solver: str, loss: str) -> None:
    with pytest.raises(UsageError, match=r"segment 3, which do not separate \(it ends in model.loss"):
        method(w_step={"solver": solver}, loss=loss)
