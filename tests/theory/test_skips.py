"""Skip connections and sparse layers: the net that they describe, and what no half step raises."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from theory.nets import ACTIVATIONS, points

from macmpi import UsageError, config
from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.half_steps.problems import renew_metric
from macmpi.mac import Mac
from macmpi.nets.layers.convolution import Convolution
from macmpi.parallel.team import Team
from macmpi.solvers.w_problem import UnitProblem
from macmpi.state import State
from macmpi.typing import Array

ROUNDING = 1.0 + 1e-11

NETS: dict[str, dict[str, Any]] = {
    "residual": {"hidden": [6, 6, 6, 6], "skips": [[1, 3], [2, 4], [3, 5]]},
    "over two sites": {"hidden": [6, 5, 6, 4], "skips": [[1, 4]]},
    "crossing": {"hidden": [6, 6, 6, 6, 6], "skips": [[1, 4], [2, 5]]},
    "twice": {"hidden": [6, 6, 6, 6], "skips": [[1, 5], [1, 3]]},
    "appended": {"hidden": [6, 5, 4], "skips": [[1, 3], [2, 4]], "joining": "append"},
    "inputs everywhere": {"hidden": [6, 5, 4], "skips": [[0, 2], [0, 3], [0, 4]], "joining": "append"},
    "sparse": {
        "hidden": [{"units": 6, "connections": "random", "share": 0.5}, 6, {"units": 6, "connections": "banded"}],
        "skips": [[1, 3], [2, 4]],
    },
    "images": {
        "hidden": [{"channels": 3, "kernel": 2}, {"channels": 3}, {"channels": 3, "kernel": 1}, 5],
        "skips": [[1, 3], [2, 4]],
        "image": [2, 2],
    },
    "images appended": {
        "hidden": [{"channels": 3, "kernel": 2}, {"channels": 2}, {"channels": 3, "kernel": 2, "pool": 2}, 4],
        "skips": [[0, 2], [0, 3], [1, 3], [1, 5]],
        "joining": "append",
        "image": [2, 2],
    },
}
PLACES = ["after", "before", "both", "none"]


def configured(name: str, activation: str = "tanh", sites: Any = "after", **tables: Any) -> Config:
    model = {**NETS[name], "activation": activation, "sites": sites, "loss": "squared", **tables.pop("model", {})}
    return config.validate({"model": model, "method": {"name": "mac"}, **tables}, "this test")


def method(given: Config, data: Dataset | None = None) -> Mac:
    data = data or points(0, 37, 4, 3)
    return Mac(plan_of(given, *data.sizes.counts, 1), data, Team())


def reference(name: str, activation: str, weights: Any, X: Array) -> Array:
    """x_j reads g_j-1(x_j-1), and x_i of each skip [i, j]: written down layer by layer."""
    net, s = NETS[name], ACTIVATIONS[activation]
    reads, last = {1: X}, len(net["hidden"]) + 1
    for j in range(1, last + 1):
        W = weights[j - 1]
        if j == last:
            return reads[j] @ W[:, :-1].T + W[:, -1]
        own = net["hidden"][j - 1]
        after = net["hidden"][j] if j + 1 < last else 0
        g = s(layer(own, reads[j], W))
        if of_images(own) and own.get("pool", 1) == 2:
            g = g.reshape(len(X), 4, -1).max(axis=1)  # the whole image is one patch
        others = [reads[i + 1] for i, later in sorted(net["skips"]) if later == j + 1]
        if net.get("joining", "add") == "add":
            reads[j + 1] = sum(others, g)
        elif of_images(after):
            pixels = [other.reshape(len(X), 4, -1) for other in (g, *others)]
            reads[j + 1] = np.concatenate(pixels, axis=2).reshape(len(X), -1)
        else:
            reads[j + 1] = np.hstack([g, *others])
    raise AssertionError


def of_images(own: Any) -> bool:
    return isinstance(own, dict) and "channels" in own


def layer(own: Any, A: Array, W: Array) -> Array:
    """A dense layer, or one map of each patch of images of 2 x 2 pixels, before its activation."""
    if not of_images(own):
        return A @ W[:, :-1].T + W[:, -1]
    return Convolution(2, 2, A.shape[1] // 4, own["channels"], own.get("kernel", 3)).forward(W, A)


@pytest.mark.parametrize("sites", PLACES)
@pytest.mark.parametrize("name", NETS)
def test_a_chain_is_the_net_that_its_skips_describe(name: str, sites: str, random: np.random.Generator) -> None:
    mac = method(configured(name, sites=sites))
    chain, X = mac.plan.chain, random.normal(size=(9, 4))
    weights = [random.normal(size=shape) for shape in chain.block_shapes]
    assert_allclose(chain.forward(weights, X), reference(name, "tanh", weights, X), rtol=1e-12, atol=1e-12)
    units = [
        h if isinstance(h, int) else 4 * h["channels"] if of_images(h) else h["units"] for h in NETS[name]["hidden"]
    ]
    assert chain.layer_sizes == (4, *units, 3)
    assert len(chain.sites) == {"none": 0, "both": 2}.get(sites, 1) * len(units)


def test_a_residual_layer_has_no_coordinates_but_its_own() -> None:
    mac = method(configured("residual"))
    assert mac.plan.chain.site_sizes == (6, 6, 6, 6)
    assert method(configured("over two sites")).plan.chain.site_sizes == (6, 11, 6, 4)
    assert method(configured("inputs everywhere")).plan.chain.site_sizes == (18, 13, 8)


@pytest.mark.parametrize("sites", ["after", "before"])
@pytest.mark.parametrize("name", NETS)
def test_units_are_still_fitted_one_by_one(name: str, sites: str) -> None:
    names = [(r.name, r.by_unit) for r in method(configured(name, sites=sites)).plan.resolved.regressions.values()]
    hidden = len(NETS[name]["hidden"])
    solver = "closed_form" if sites == "before" else "gauss_newton"
    assert names == [(solver, True)] * hidden + [("closed_form", True)]


# --- half steps -------------------------------------------------------------------------------------------------------


def e_q(mac: Mac, state: State[Any]) -> float:
    """Of the chain's own segments: E_Q, without multipliers, and the ridge."""
    chain, weights = mac.plan.chain, mac.parts.weights(state)
    total, A = 0.0, mac.data.X
    for segment, columns in zip(chain.segments, chain.site_columns, strict=False):
        total += 0.5 * state.mu * float(np.square(state.Z[:, columns] - segment.forward(weights, A)).sum())
        A = state.Z[:, columns]
    total += 0.5 * float(np.square(mac.data.Y - chain.segments[-1].forward(weights, A)).sum())
    return total + mac.parts.shaping_of(state, range(len(chain.segments)), ridge_alone=True)


def begun(mac: Mac, off: float, seed: int = 0) -> State[Any]:
    """Random weights, coordinates that are `off` the feasible ones."""
    state = mac.start(2.0, False, seed)
    state.Z += off * np.random.default_rng(seed).normal(size=state.Z.shape)
    mac.begin(state)
    renew_metric(mac.parts, state)
    return state


SETTINGS: list[dict[str, Any]] = [
    {"penalty": {"mu0": 1.0, "ridge": 0.1}},
    {"penalty": {"mu0": 100.0, "ridge": 0.0}, "w_step": {"solver": "lbfgs"}},
    {"penalty": {"mu0": 0.1, "ridge": 1.0, "ridge_scale": "objective"}, "z_step": {"solver": "alternating"}},
    {"penalty": {"mu0": 1.0, "ridge": 0.1}, "w_step": {"solver": "hessian_free"}},
]


@pytest.mark.parametrize(
    ("name", "sites", "activation"),
    [
        (name, sites, ("tanh", "relu", "sigmoid")[i % 3])
        for i, (name, sites) in enumerate(itertools.product(NETS, [*PLACES, "mixed"]))
    ],
)
def test_no_half_step_raises_e_q(name: str, sites: str, activation: str) -> None:
    hidden = len(NETS[name]["hidden"])
    where = ["none", "after", "before", "none", "after"][:hidden] if sites == "mixed" else sites
    for i, tables in enumerate(SETTINGS):
        if tables.get("w_step") == {"solver": "hessian_free"} and sites in ("after", "before"):
            continue
        mac = method(configured(name, activation, where, **tables))
        state = begun(mac, 0.3 * (i % 2), i)
        values = [e_q(mac, state)]
        for half_step in (mac.z_step, mac.w_step) * 3:
            half_step(state)
            values.append(e_q(mac, state))
        assert all(after <= before * ROUNDING for before, after in itertools.pairwise(values))
        assert values[-1] < values[0]
        for W, map_ in zip(mac.parts.weights(state), mac.plan.chain.blocks, strict=True):
            if map_.connected is not None:
                assert_array_equal(W[~map_.connected], 0.0)


@pytest.mark.parametrize("name", NETS)
def test_a_linear_units_targets_are_what_is_not_added(name: str) -> None:
    """With the closed form no weight of a dense layer moves E_Q any further: its gradient is 0."""
    mac = method(configured(name, "linear", penalty={"mu0": 1.0, "ridge": 0.1}))
    state = begun(mac, 0.5)
    mac.w_step(state)
    least, step = e_q(mac, state), 1e-4
    for i in np.random.default_rng(1).choice(len(state.weights), 12, replace=False):
        if state.weights[i] == 0.0:
            continue  # no such weight
        for sign in (1.0, -1.0):
            state.weights[i] += sign * step
            assert e_q(mac, state) > least
            state.weights[i] -= sign * step


def test_what_units_are_fitted_to_is_the_rest(random: np.random.Generator) -> None:
    from macmpi.half_steps.problems import prepare_w, w_problem

    mac = method(configured("residual", "tanh"))
    state = begun(mac, 0.4)
    given = prepare_w(mac.parts, mac.plan.work.regressions([1]), state)
    (job,) = mac.plan.work.jobs(1)
    problem = w_problem(given, job)
    assert isinstance(problem, UnitProblem)
    before, here = (state.Z[:, columns] for columns in mac.plan.chain.site_columns[:2])
    assert_allclose(problem.targets[:], here - before, rtol=1e-13, atol=1e-13)
    assert_array_equal(problem.inputs[:], before)


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skip", [[1, 2], [2, 1], [1, 6], [0, 1], [3, 3]])
def test_a_skip_goes_two_layers_on_at_least(skip: list[int]) -> None:
    with pytest.raises(UsageError, match="one at least two later, at most 5"):
        configured("residual", model={"skips": [skip]})


@pytest.mark.parametrize("skip", [[1], [1, 2, 3], [-1, 2], [1.0, 3]])
def test_a_skip_is_a_pair_of_numbers(skip: list[Any]) -> None:
    with pytest.raises(UsageError, match=r"model\.skips\.0"):
        configured("residual", model={"skips": [skip]})


def test_what_is_carried_is_taken_in_the_order_of_its_use() -> None:
    once = configured("twice")
    again = replace(once, model=replace(once.model, skips=once.model.skips[::-1]))
    assert method(once).plan.chain == method(again).plan.chain
