"""What goes with what: each part is refused with each demand that it does not list, and each remedy works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plans import plan_of as planned_of
from refused import TABLE
from refused.case import (
    BASIS,
    BITS,
    CODES,
    FOREST,
    HALVES,
    IMAGES,
    OWN,
    RECURRENT,
    RIDGES,
    SKIPS,
    SPARSE,
    UNITS,
    Keys,
    configured,
)
from scalings import fit_scaling
from unit.played import played

from macmpi import UsageError
from macmpi.config.auto import Sizes, decide
from macmpi.config.whole import with_value
from macmpi.data.dataset import Dataset
from macmpi.demand import USUAL, Demand, Demands
from macmpi.plan import demands
from macmpi.plan.resolve import Refused, resolve
from macmpi.solvers import W_SOLVERS

D = Demand
WEIGHTED: Keys = {"weighted": True}

ASKING: dict[Demand, Keys] = {
    D.SKIPS: SKIPS,
    D.SHARED: RECURRENT,
    D.CONVOLUTIONS: IMAGES,
    D.SPARSE: SPARSE,
    D.OTHER_LAYERS: IMAGES,
    D.NOT_AFFINE: FOREST,
    D.NO_FILTERS: FOREST | {"model.trees": 1},
    D.NO_SLOPES: CODES,
    D.NO_WEIGHT_SLOPES: CODES,
    D.SLOPES_LACKING: {"model.activation": ["tanh", "quantise"], "model.words": 8},
    D.NO_BITS: {},
    D.BASIS: BASIS,
    D.ALL_POINTS: CODES | {"model.words": 37, "model.centres": "points"},
    D.INSEPARABLE: {"model.sites": ["none", "after"]},
    D.INEXACT: {"model.activation": "tanh"},
    D.OUTPUT: {"model.output": "sigmoid"},
    D.MISSING: {"loss.missing": True},
    D.WEIGHTED: WEIGHTED,
    D.WEIGHTED_OUTPUTS: {"weighted": "outputs"},
    D.RESTRAINED: {"penalty.l1": 0.1},
    D.FITTED: FOREST,
    D.RIDGE_OF_OBJECTIVE: {"penalty.ridge_scale": "objective"},
    D.RIDGE_OF_UNITS: {"penalty.ridge_scale": "unit"},
    D.NO_CLOSED_FORM: {"w_step.linear_solver": "same"},
    D.METRIC: {"penalty.metric": "variance"},
    D.MULTIPLIERS: {"penalty.method": "augmented_lagrangian"},
    D.NO_CONSTRAINTS: {"model.sites": "none"},
    D.SEVERAL_SITES: {"model.sites": "after"},
    D.SOME_UNITS: {"model.sites": [{"after": 2}, "none"], "model.activation": ["linear", "tanh"]},
    D.SITE_OF_BITS: BITS,
    D.SITE_OF_NUMBERS: {"model.sites": "after"},
    D.SETTLING: {"penalty.mu_every": 0},
    D.COUNTED: {"penalty.mu_every": 3},
    D.GRADIENTS: {"penalty.gradients": True},
    D.ACCELERATED: {"method.acceleration": "momentum"},
    D.TOGETHER: {"method.acceleration": "joint"},
    D.RING: OWN | {"w_step.schedule": "ring"},
    D.SELECTED: RIDGES,
    D.SELECTED_UNITS: UNITS,
    D.GIVEN_START: {"start.method": "model", "start.model": "model.h5"},
    D.STREAM: {"method.name": "stochastic", "stochastic.stream": True},
    D.HALVES: HALVES,
}
"""Keys of a config that asks for a demand; "weighted": its data have weights of points, or of points and "outputs"."""


def handles_of(solver: Any) -> Demands:
    """A W-solver of segments needs no units one by one."""
    found: Demands = solver.handles | ({D.INSEPARABLE} if "segment" in solver.takes else set())
    return found


ALSO: Keys = {
    "run.refit": {"penalty.mu_every": 3},
    "penalty.stop": {"penalty.ridge_scale": "objective"},
}
"""What else a part needs to be there."""

PARTS: dict[str, tuple[Keys, Demands]] = {
    **{
        f"{key} {value}": ({key: value} | ALSO.get(key, {}), row.handles)
        for key, rows in demands.TABLE.items()
        for value, row in rows.items()
    },
    "selection": (RIDGES, demands.SELECTION - {D.NO_CLOSED_FORM}),
    **{
        f"solver {name}": ({"w_step.solver": name}, handles_of(W_SOLVERS[name]))
        for name in sorted(W_SOLVERS.keys() - {"closed_form"})
    },
}
PARTS["start.method file"][0]["start.coordinates"] = "z.h5"

OF_A_SEGMENT = {D.RESTRAINED, D.WEIGHTED, D.WEIGHTED_OUTPUTS, D.RING, D.SPARSE, D.INSEPARABLE}
"""The demands that the solver of a segment is asked for."""

PAIRS = [
    (name, demand)
    for name, (_, handles) in PARTS.items()
    for demand in sorted(USUAL - handles, key=lambda demand: demand.name)
    if not name.startswith("solver") or demand in OF_A_SEGMENT
]


def together(name: str, demand: Demand) -> Keys:
    """A config with the part that asks for the demand."""
    own = PARTS[name][0]
    return ASKING[demand] | own if name.startswith(("method.name", "start")) else own | ASKING[demand]


def plan_of(keys: Keys) -> None:
    weighted = keys.get("weighted", False)
    config = configured({key: value for key, value in keys.items() if key != "weighted"})
    planned_of(config, 4, 3, 37, 11, 2, weighted)


@pytest.mark.parametrize(("name", "demand"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_a_part_is_refused_with_what_it_does_not_handle(name: str, demand: Demand) -> None:
    """In one line that names a remedy; and each remedy works."""
    keys = together(name, demand)
    with pytest.raises(UsageError) as caught:
        plan_of(keys)
    assert "\n" not in str(caught.value)
    assert "; use " in str(caught.value) or "; make it" in str(caught.value)
    assert_remedies_work(keys, caught.value)


def test_most_pairs_are_refused_by_the_loop_and_for_what_they_are() -> None:
    """The rest meets another refusal first: a net that is no net of two halves, say."""
    found = set()
    for name, demand in PAIRS:
        with pytest.raises(UsageError) as caught:
            plan_of(together(name, demand))
        if isinstance(caught.value, Refused) and caught.value.demand == demand:
            found.add((name, demand))
    assert len(found) > 0.75 * len(PAIRS), sorted(f"{n}, {d.name}" for n, d in set(PAIRS) - found)


@pytest.mark.parametrize("demand", ASKING, ids=lambda demand: demand.name)
def test_a_config_asks_for_the_demand_and_some_net_has_it(demand: Demand) -> None:
    """Where every part handled it the config would be planned; one that none lists is refused."""
    keys = ASKING[demand]
    if demand not in USUAL:
        with pytest.raises(Refused):
            plan_of(keys)
        return
    if demand is D.SLOPES_LACKING:
        return
    plan_of({"parallel.data": "replicated"} | keys if demand is not D.NOT_AFFINE else keys)


def test_every_demand_is_asked_for_here() -> None:
    """Of rows at hand nobody is asked: a solver that does not sum over points is given them."""
    assert ASKING.keys() == set(Demand) - {D.SHARDED}


# --- steps behind full MAC ------------------------------------------------------------------------------------------


AS_IT_IS: dict[str, Keys] = {
    "plain": {},
    "file": {"start.method": "file", "start.coordinates": "z.h5", "model.sites": ["after", "none"]},
    **{word: {"start.method": word} for word in ("uniform", "pca", "itq", "neighbours", "greedy", "staged")},
    "embedding": {"start.method": "elastic_embedding", "model.sites": ["after", "none"]},
}
"""Keys that the steps behind full MAC do not read."""


@pytest.mark.parametrize("start", AS_IT_IS)
def test_steps_behind_full_mac_refuse_nothing_that_it_takes(start: str) -> None:
    """Of an autoencoder they are by "auto" where they handle all that it asks, else it ends as it is."""
    ended = set()
    for demand in [None, *ASKING]:
        keys = AS_IT_IS[start] | (ASKING[demand] if demand else {})
        weights = {None: 0, True: 1, "outputs": 4}[keys.pop("weighted", None)]
        sizes = Sizes(4, 4, 37, 11, True, weights=weights)
        try:
            resolve(configured(keys | {"run.finish": False}), sizes)
        except UsageError:
            continue
        ended.add(resolve(configured(keys), sizes).finishing is not None)
    assert ended == {True, False}


# --- remedies ---------------------------------------------------------------------------------------------------------


def data_for(config: Any) -> Dataset:
    random = np.random.default_rng(3)
    X, Y = random.normal(size=(48, 4)), random.normal(size=(48, 3))
    if config.model.loss == "cross_entropy":
        Y = np.eye(3)[random.integers(0, 3, 48)]
    if config.model.loss in ("logistic", "poisson"):
        Y = (Y > 0.0).astype(float)
    unit = fit_scaling(X, "none")
    return Dataset(X[:37], Y[:37], X[37:], Y[37:], unit, fit_scaling(Y, "none"), "")


def assert_remedies_work(keys: Keys, refused: UsageError) -> None:
    """With each that the message offers the config trains, or it is refused for another reason than before."""
    if not isinstance(refused, Refused):
        return
    weighted = keys.get("weighted", False)
    for setting in refused.settings:
        config, _ = decide(with_value(configured({k: v for k, v in keys.items() if k != "weighted"}), *setting), 4)
        try:
            planned_of(config, 4, 3, 37, 11, 1, weighted)
        except Refused as other:
            assert (other.part.said, other.demand) != (refused.part.said, refused.demand)
            continue
        except UsageError:
            continue
        if weighted or config.start.method in ("file", "model") or config.parallel.data == "node":
            continue
        config = replace(config, run=replace(config.run, refit="auto"))
        assert np.isfinite(played(config, data_for(config), 1, sweeps=1)[0].errors[-1].validation)


@pytest.mark.parametrize("name", TABLE)
def test_each_remedy_that_a_message_offers_is_accepted_and_runs(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_of(TABLE[name].keys)
    assert_remedies_work(TABLE[name].keys, caught.value)
