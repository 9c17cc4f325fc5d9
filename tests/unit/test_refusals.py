"""What does not fit together is refused in one sentence with a remedy, and the remedy is accepted."""

from __future__ import annotations

import inspect
import pickle
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of
from refused import TABLE, TOPICS
from refused.case import SPARSE, TIED, Keys, configured, planned
from refused.words import WORDS

from macmpi import UsageError
from macmpi.config import NESTED, Config, Method, Penalty, ZStep
from macmpi.demand import Demand
from macmpi.nets import build
from macmpi.nets.chain import Chain
from macmpi.nets.layers import affine, codes, convolution, masked, patches, place, recurrent
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.fitted import Kernels
from macmpi.plan import choices, resolve, selectable, structure
from macmpi.plan.plan import Plan
from macmpi.plan.resolve import Refused
from macmpi.solvers import W_SOLVERS

often = settings(deadline=None, derandomize=True, database=None, max_examples=400)


def refusal(keys: Keys) -> str:
    with pytest.raises(UsageError) as caught:
        planned(keys)
    return str(caught.value)


@cache
def refused(name: str) -> pytest.ExceptionInfo[UsageError]:
    """What a row of the table is refused with."""
    with pytest.raises(UsageError) as caught:
        planned(TABLE[name].keys)
    return caught


@pytest.mark.parametrize("name", TABLE)
def test_it_is_refused_in_one_sentence_that_names_a_remedy(name: str) -> None:
    text = str(refused(name).value)
    assert "\n" not in text
    assert not re.search(r"(?<![\w.,-])1 ([a-z]+ )?(entries|lists|values|layers|centres|points|columns)\b", text)
    for words in TABLE[name].says:
        assert words in text


def why(keys: Keys) -> str:
    """What keys are refused for, without a remedy; nothing of those that are planned."""
    try:
        planned(keys)
    except UsageError as error:
        return str(error).split("; use ")[0]
    return ""


VALUE = r'(?:"[^"]*"|\[[^]]*\]+|[-+.\w]+)'


def offered(text: str) -> list[Keys]:
    """The settings that a refusal offers, each by itself."""
    found = re.findall(rf"(?:use|or) (\w+\.\w+) = ({VALUE}(?: or {VALUE})*)(?=,|$)", text)
    return [{key: tomllib.loads(f"_ = {value}")["_"]} for key, values in found for value in values.split(" or ")]


@pytest.mark.parametrize("name", TABLE)
def test_each_remedy_is_accepted(name: str) -> None:
    """And with no setting that the message offers, be it in no row, is the config refused for the same."""
    keys, said = TABLE[name].keys, str(refused(name).value)
    for remedy in TABLE[name].remedies:
        planned({**keys, **remedy})
    assert [setting for setting in offered(said) if why({**keys, **setting}) == said.split("; use ")[0]] == []


LAYERS = (affine, codes, convolution, masked, patches, place, recurrent)
MODULES = (structure, selectable, choices, build, *LAYERS)


def test_the_table_has_a_row_for_every_refusal_of_a_config() -> None:
    """Each UsageError of these modules is raised by some row here or by one of the tests below."""
    raised = {
        (module.__name__, i + 1)
        for module in MODULES
        for i, line in enumerate(inspect.getsource(module).splitlines())
        if "raise UsageError(" in line
    }
    found = set()
    for name in TABLE:
        if isinstance(refused(name).value, Refused):
            continue
        last = refused(name).traceback[-1]
        found.add((last.frame.f_globals["__name__"], last.lineno + 1))
    assert found <= raised
    assert len(raised - found) == 10, (
        "those that no config reaches: a library, a fitter that nobody gives, one of numbers, weights without a "
        "trainer, many points, restraints on layers of other packages that are not dense, no ridge to select; and two "
        "of autoencoders, by themselves"
    )


def test_a_refusal_reaches_another_process_whole() -> None:
    """As from a worker of a pool, which waits for ever for an error that it cannot read."""
    for here in (refused(name).value for name in TABLE):
        there = pickle.loads(pickle.dumps(here))
        assert (type(there), str(there), vars(there)) == (type(here), str(here), vars(here))


@pytest.mark.parametrize("title", TOPICS)
def test_each_combination_is_shown_by_some_row_and_each_row_is_of_one(title: str) -> None:
    topic = TOPICS[title]
    of = {name: [c for c in topic.COMBINATIONS if c.startswith(row.of)] for name, row in topic.TABLE.items()}
    assert {name: found for name, found in of.items() if len(found) != 1} == {}
    assert {c for found in of.values() for c in found} == set(topic.COMBINATIONS)


# --- what no config reaches -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opaque(Affine):
    """An affine map that offers what a W-step by gradients needs, and no more."""

    kind: ClassVar[str] = "opaque"
    capabilities: ClassVar[frozenset[str]] = frozenset({"weight_jacobian", "linear", "bias"})


class Seen(Opaque):
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "bias"})


class Frozen(Opaque):
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})


def with_maps(monkeypatch: pytest.MonkeyPatch, *maps: Any) -> None:
    monkeypatch.setattr(resolve, "build_chain", lambda model, n_in, n_out: Chain(maps, (2,)))


def test_a_need_that_a_map_does_not_offer_is_named_with_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Opaque(3, 2))
    said = refusal({"method.acceleration": "none"})
    assert "a layer of the kind opaque in segment 2" in said
    assert said.endswith("use it as the first of model.hidden, with no site before it")


def test_a_layer_whose_units_no_solver_fits_one_by_one_is_named_with_its_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2))
    keys = {"method.acceleration": "none", "w_step.solver": "gauss_newton"}
    assert re.search(r"the units of segment 2, which do not separate \(it is opaque, without 'linear'\)", refusal(keys))


@pytest.mark.parametrize("start", ["pca", "greedy"])
def test_a_start_that_fits_dense_layers_is_refused_for_others(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2))
    said = refusal({"method.acceleration": "none", "start.method": start})
    assert said.startswith(f'start.method = "{start}" does not go with a layer of the kind opaque: ')


def test_a_fitter_that_nobody_gives_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2), Kernels(2, 3, 5, 1.0, fitter="mine"))
    assert 'a layer names the fitter "mine", which nobody gives' in refusal({"method.acceleration": "none"})


def test_weights_that_nothing_trains_are_named_with_their_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Frozen(3, 2))
    assert "segment 2 (opaque) has no weights that a regression could fit" in refusal({"method.acceleration": "none"})
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Frozen(3, 5), Affine(5, 2))
    assert re.search(
        r"segment 2 \(opaque\) offers neither 'weight_jacobian' nor 'centres'", refusal({"method.acceleration": "none"})
    )


def test_a_solver_that_does_not_say_that_it_keeps_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unaware(W_SOLVERS["lbfgs"]):  # type: ignore[misc]
        handles = W_SOLVERS["lbfgs"].handles - {Demand.SPARSE}

    monkeypatch.setattr("macmpi.solvers.gradient_solvers.LBFGSW", Unaware)
    planned({"w_step.solver": "lbfgs"})
    with pytest.raises(
        UsageError, match=r'"lbfgs" does not go with a sparse layer of segment 1.*Unaware.handles have Demand.SPARSE'
    ):
        planned({**SPARSE, "w_step.solver": "lbfgs"})
    planned(SPARSE)


def test_an_activation_that_a_solver_cannot_train_under(monkeypatch: pytest.MonkeyPatch) -> None:
    class Smooth(W_SOLVERS["lbfgs"]):  # type: ignore[misc]
        activations: ClassVar[frozenset[str]] = frozenset({"linear", "tanh"})

    monkeypatch.setattr("macmpi.solvers.gradient_solvers.LBFGSW", Smooth)
    keys = {"w_step.solver": "lbfgs", "model.activation": ["tanh", "relu"]}
    text = refusal(keys)
    assert 'w_step.solver = "lbfgs" cannot train under "relu" (segment 2); use auto' in text
    for remedy in ({"w_step.solver": "auto"}, {"model.activation": "tanh"}):
        planned({**keys, **remedy})


# --- all that a config may say ----------------------------------------------------------------------------------------

EASY = {"penalty.method", "penalty.mu_max", "penalty.ridge_scale", "w_step.linear_solver"}
FEW = st.lists(st.sampled_from(sorted(WORDS)), max_size=5, unique=True)


def test_a_combination_is_planned_or_refused_and_a_plan_has_solvers_that_take_its_problems() -> None:
    """Of those that few others speak against each word is in some plan: not everything is refused.

    With a setting that the refusal offers the config is not refused for the same.
    """
    drawn, in_plans = set[tuple[str, Any]](), set[tuple[str, Any]]()

    @often
    @given(keys=FEW.flatmap(lambda few: st.fixed_dictionaries({key: st.sampled_from(WORDS[key]) for key in few})))
    def check(keys: Keys) -> None:
        words, keys = {(key, keys[key]) for key in EASY & keys.keys()}, {"model.image": [2, 2], **keys}
        drawn.update(words)
        try:
            found = planned(keys)
        except UsageError as error:
            said = str(error)
            assert "\n" not in said or said.startswith("1 mistake in ")
            assert said.split("; use ")[0] not in [why({**keys, **setting}) for setting in offered(said)]
            return
        in_plans.update(words)
        assert {k for k, s in enumerate(found.chain.segments) if s.parameter_blocks} == {*found.resolved.regressions}
        for k in (k for k, group in enumerate(found.chain.groups) if group):
            segment, own = found.chain.segments[k], found.resolved.regressions[k]
            solver, by_unit = own.solver, own.by_unit
            assert ("units" if by_unit else "segment") in solver.takes
            assert segment.separable or not by_unit
            if by_unit and solver.activations is not None:
                assert segment.activation in solver.activations
            assert Demand.RESTRAINED in solver.handles or not set(segment.regressed) & set(
                found.resolved.shaping.restrained
            )

    check()
    assert len(drawn) == sum(len(WORDS[key]) for key in EASY)
    assert drawn - in_plans == set()


@pytest.mark.parametrize("name", NESTED)
def test_keys_of_half_steps_mean_nothing_to_methods_that_take_none(name: str) -> None:
    """Not even what would not fit: the plan is that of the defaults."""
    penalty = Penalty("augmented_lagrangian", metric="curvature")
    method = Method(name)  # type: ignore[arg-type]
    config, plain = Config(method=method, penalty=penalty, z_step=ZStep("binary")), Config(method=method)
    assert plan_of(config, 5, 5, 40, 9, 2) == plan_of(plain, 5, 5, 40, 9, 2)


@pytest.mark.parametrize(
    ("keys", "named", "not_named"),
    [
        ({"model.sites": "before", "w_step.linear_solver": "same"}, "w_step.linear_solver", "model.sites"),
        ({"model.sites": ["before"] * 2, "w_step.linear_solver": "same"}, "w_step.linear_solver", "model.sites"),
        ({"model.sites": "after"}, "model.sites", "w_step.linear_solver"),
    ],
)
def test_a_remedy_names_nothing_that_the_config_has_already(keys: Keys, named: str, not_named: str) -> None:
    text = refusal({"penalty.metric": "curvature", **keys}).rsplit("use ", 1)[1]
    assert named in text
    assert not_named not in text


def test_a_tied_net_has_one_code_and_one_ridge_a_layer() -> None:
    """Refusals of autoencoders, whose targets are as many as their inputs."""

    def autoencoder(keys: Keys) -> Plan:
        return plan_of(configured({**TIED, **keys}), 4, 4, 37, 11, 2)

    with pytest.raises(UsageError) as caught:
        autoencoder({"model.hidden": [5, 2, 2, 5]})
    assert "4-5-2-2-5-4 are no mirror with one code in the middle; use model.hidden = [5, 2, 5]" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        autoencoder({"model.hidden": [5, 2, 5], "penalty.ridge": [0.1] * 8})
    assert "a list penalty.ridge" in str(caught.value)
    assert "give one number" in str(caught.value)
    assert autoencoder({"model.hidden": [5, 2, 5], "penalty.ridge": 0.1}).chain.groups == ((0, 3), (1, 2), (), ())
