"""What does not fit together is refused in one sentence with a remedy, and the remedy is accepted."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macmpi import UsageError, config, plan, refusals
from macmpi.chain import Chain
from macmpi.config import Config
from macmpi.layers.activation import Activation
from macmpi.layers.affine import Affine
from macmpi.plan import Plan, make_plan
from macmpi.solvers import W_SOLVERS, Z_SOLVERS

often = settings(deadline=None, derandomize=True, database=None, max_examples=150)

Keys = dict[str, Any]
WHOLE = sorted(name for name, kind in W_SOLVERS.items() if "segment" in kind.takes)  # type: ignore[attr-defined]


def configured(keys: Keys) -> Config:
    """The config of {"table.key": value}; two hidden layers."""
    table: dict[str, dict[str, Any]] = {"model": {"hidden": [5, 4]}}
    for name, value in keys.items():
        part, key = name.split(".")
        table.setdefault(part, {})[key] = value
    return config.validate(table, "this test")


def planned(keys: Keys) -> Plan:
    return make_plan(configured(keys), 4, 3, 37, 11, 2)


@dataclass(frozen=True)
class Row:
    """Keys that are refused, what the message says, and the remedies that it names, as keys on top."""

    keys: Keys
    says: tuple[str, ...]
    remedies: tuple[Keys, ...]


ONE_OF = f"use one of {', '.join(name for name in W_SOLVERS if name in WHOLE)}, or auto"
ANY_OF = (*({"w_step.solver": name} for name in WHOLE), {"w_step.solver": "auto"})
CURVATURE = Row(
    {"penalty.metric": "curvature"},
    ('penalty.metric = "curvature"', "linear and exact", 'model.sites = "before"', 'penalty.metric = "variance"'),
    ({"model.sites": "before"}, {"penalty.metric": "variance"}),
)

TABLE = {
    "a softmax of its own": Row(
        {"model.loss": "cross_entropy", "model.output": "sigmoid"},
        ('model.loss = "cross_entropy"', 'model.output = "sigmoid"', 'use model.output = "linear"'),
        ({"model.output": "linear"},),
    ),
    "two softmaxes": Row(
        {"model.loss": "cross_entropy", "model.output": "softmax"},
        ('model.output = "softmax"', 'use model.output = "linear"'),
        ({"model.output": "linear"},),
    ),
    "a weight too many": Row(
        {"penalty.site_weights": [1.0, 2.0, 3.0]},
        ("penalty.site_weights has 3 entries", "makes 2 sites", "give one for each"),
        ({"penalty.site_weights": [1.0, 2.0]}, {"penalty.site_weights": []}),
    ),
    "weights of layers without a site": Row(
        {"penalty.site_weights": [1.0, 2.0], "model.sites": ["after", "none"]},
        ("penalty.site_weights has 2 entries", "makes 1 sites", "give one for each"),
        ({"penalty.site_weights": [2.0]},),
    ),
    "mu beyond float32": Row(
        {"model.precision": "float32"},
        ('model.precision = "float32"', "penalty.mu_max = 1e+08", "use penalty.mu_max = 10000, or float64"),
        ({"penalty.mu_max": 1e4}, {"model.precision": "float64"}),
    ),
    "multipliers of nothing": Row(
        {"penalty.method": "augmented_lagrangian", "model.sites": "none"},
        ('penalty.method = "augmented_lagrangian"', 'model.sites = "none"', 'use model.sites = "after" or "before"'),
        ({"model.sites": "after"}, {"model.sites": "before"}),
    ),
    "multipliers of a list of nothing": Row(
        {"penalty.method": "augmented_lagrangian", "model.sites": ["none", "none"]},
        ("needs constraints", 'use model.sites = "after" or "before"'),
        ({"model.sites": ["none", "after"]}, {"model.sites": "before"}),
    ),
    "variance and the objective's ridge": Row(
        {"penalty.metric": "variance", "penalty.ridge_scale": "objective"},
        ('penalty.metric = "variance"', 'penalty.ridge_scale = "objective"', 'use ridge_scale = "unit"'),
        ({"penalty.ridge_scale": "unit"},),
    ),
    "curvature and the objective's ridge": Row(
        {"penalty.metric": "curvature", "penalty.ridge_scale": "objective", "model.sites": "before"},
        ('penalty.metric = "curvature"', 'use ridge_scale = "unit"'),
        ({"penalty.ridge_scale": "unit"},),
    ),
    "curvature of coupled units": CURVATURE,
    "curvature of a segment of two layers": replace(
        CURVATURE, keys={**CURVATURE.keys, "model.sites": ["none", "before"]}
    ),
    "curvature of regressions solved inexactly": replace(
        CURVATURE,
        keys={**CURVATURE.keys, "model.sites": "before", "w_step.solver": "lbfgs", "w_step.linear_solver": "same"},
        remedies=({"w_step.linear_solver": "closed_form"}, {"penalty.metric": "variance"}),
        says=('penalty.metric = "curvature"', "w_step.linear_solver", 'penalty.metric = "variance"'),
    ),
    **{
        f"{solver} and two layers between sites": Row(
            {"w_step.solver": solver, "model.sites": ["none", "after"]},
            (f'w_step.solver = "{solver}"', "segment 1", "holds 2 layers between two sites", ONE_OF),
            (*ANY_OF, {"model.sites": "after"}),
        )
        for solver in sorted(W_SOLVERS.keys() - {*WHOLE, "closed_form"})
    },
    "units and cross-entropy": Row(
        {"w_step.solver": "gauss_newton", "model.loss": "cross_entropy"},
        ('w_step.solver = "gauss_newton"', "segment 3", "ends in cross-entropy", ONE_OF),
        (*ANY_OF, {"model.loss": "squared"}),
    ),
    "units and softmax": Row(
        {"w_step.solver": "newton", "model.activation": ["tanh", "softmax"]},
        ('w_step.solver = "newton"', "segment 2", "ends in softmax", ONE_OF),
        (*ANY_OF, {"model.sites": "before"}, {"model.activation": "tanh"}),
    ),
    "units and an output of softmax": Row(
        {"w_step.solver": "gauss_newton_exact", "model.output": "softmax"},
        ('w_step.solver = "gauss_newton_exact"', "segment 3", "ends in softmax", ONE_OF),
        (*ANY_OF, {"model.output": "sigmoid"}),
    ),
}


def refusal(keys: Keys) -> str:
    with pytest.raises(UsageError) as caught:
        planned(keys)
    return str(caught.value)


@pytest.mark.parametrize("name", TABLE)
def test_it_is_refused_in_one_sentence_that_names_a_remedy(name: str) -> None:
    text = refusal(TABLE[name].keys)
    assert "\n" not in text
    for words in TABLE[name].says:
        assert words in text


@pytest.mark.parametrize("name", TABLE)
def test_each_remedy_is_accepted(name: str) -> None:
    for remedy in TABLE[name].remedies:
        planned({**TABLE[name].keys, **remedy})


def test_no_ridge_is_another_way_out_with_a_metric() -> None:
    planned({"penalty.metric": "variance", "penalty.ridge_scale": "objective", "penalty.ridge": 0.0})


def test_the_table_has_a_row_for_every_refusal_of_a_config() -> None:
    """Each UsageError of the file is raised by some row here or by one of the tests below."""
    lines = inspect.getsource(refusals).splitlines()
    raised = {i + 1 for i, line in enumerate(lines) if "raise UsageError(" in line}
    found = set()
    for row in TABLE.values():
        with pytest.raises(UsageError) as caught:
            planned(row.keys)
        found.add(caught.traceback[-1].lineno + 1)
    assert len(raised - found) == 3, "those that no config reaches: activations, and the needs of both half steps"


# --- what no config reaches -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opaque(Affine):
    """An affine map that offers what a W-step by gradients needs, and no more."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"weight_jacobian", "linear"})

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "kind": "opaque"}


class Seen(Opaque):
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})


def with_maps(monkeypatch: pytest.MonkeyPatch, *maps: Any) -> None:
    monkeypatch.setattr(plan, "build_chain", lambda model, n_in, n_out: Chain(maps, (2,)))


def test_a_need_that_a_map_does_not_offer_is_named_with_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Opaque(3, 2))
    assert re.search(r"'jacobian'; segment 2 \(opaque\) does not offer it; put no site before it", refusal({}))


def test_a_w_solvers_need_is_named_with_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2))
    assert re.search(r"W-solver of segment 2 needs '(weight_jacobian|linear)', which its opaque", refusal({}))


def test_an_activation_that_a_solver_cannot_train_under(monkeypatch: pytest.MonkeyPatch) -> None:
    class Smooth(W_SOLVERS["newton"]):  # type: ignore[misc]
        activations: ClassVar[frozenset[str]] = frozenset({"linear", "tanh"})

    monkeypatch.setitem(W_SOLVERS, "newton", Smooth)
    keys = {"w_step.solver": "newton", "model.activation": ["tanh", "relu"]}
    text = refusal(keys)
    assert 'w_step.solver = "newton" cannot train under "relu" (segment 2); use auto' in text
    for remedy in ({"w_step.solver": "auto"}, {"model.activation": "tanh"}):
        planned({**keys, **remedy})


# --- all that a config may say ----------------------------------------------------------------------------------------

WORDS: dict[str, Any] = {
    "model.activation": st.lists(
        st.sampled_from(["sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"]), min_size=2, max_size=2
    ),
    "model.output": st.sampled_from(["linear", "linear", "sigmoid", "softmax"]),
    "model.sites": st.lists(st.sampled_from(["after", "before", "none"]), min_size=2, max_size=2),
    "model.loss": st.sampled_from(["squared", "cross_entropy"]),
    "model.precision": st.sampled_from(["float64", "float32"]),
    "penalty.method": st.sampled_from(["quadratic", "augmented_lagrangian"]),
    "penalty.mu_max": st.sampled_from([1e3, 1e8]),
    "penalty.metric": st.sampled_from(["identity", "variance", "curvature"]),
    "penalty.ridge_scale": st.sampled_from(["unit", "objective"]),
    "z_step.solver": st.sampled_from(sorted(Z_SOLVERS)),
    "z_step.direction": st.sampled_from(["auto", "dual", "primal", "direct"]),
    "w_step.solver": st.sampled_from(["auto", *sorted(W_SOLVERS.keys() - {"closed_form"})]),
    "w_step.linear_solver": st.sampled_from(["closed_form", "same"]),
}


@often
@given(keys=st.fixed_dictionaries(WORDS))
def test_a_combination_is_planned_or_refused_and_a_plan_has_solvers_that_take_its_problems(keys: Keys) -> None:
    try:
        found = planned(keys)
    except UsageError as refused:
        assert "\n" not in str(refused)
        return
    for segment, solver, by_unit in zip(found.chain.segments, found.w_solvers, found.by_unit, strict=True):
        assert ("units" if by_unit else "segment") in solver.takes
        assert segment.separable or not by_unit
        if by_unit and solver.activations is not None:
            assert segment.activation in solver.activations
