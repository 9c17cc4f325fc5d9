"""The contract of a trainer, for every row of TRAINERS; and how other packages bring trainers and layers."""

from __future__ import annotations

import importlib.metadata
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contracts.examples import cases, example_of, worked_example
from covering import each
from numpy.testing import assert_array_equal
from plans import plan_of

from macmpi import UsageError, config
from macmpi.config import TRAINERS as NAMES
from macmpi.config import tables
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.mac import Mac
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine, Linear
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.results import model_file
from macmpi.results.model import Model
from macmpi.solvers import W_SOLVERS, Z_SOLVERS
from macmpi.solvers.fitters import TRAINERS, KMeans, Subset
from macmpi.typing import Array

pytestmark = pytest.mark.filterwarnings("error")


@dataclass(frozen=True)
class Example:
    """Points, and the number of centres to find."""

    inputs: Array
    count: int


def cloud(n: int, d: int, count: int, random: np.random.Generator) -> Example:
    return Example(random.normal(size=(n, d)), count)


def alike(n: int, count: int, random: np.random.Generator) -> Example:
    """Most points are the same one."""
    A = np.full((n, 3), 0.3)
    A[: n // 4] = random.normal(size=(n // 4, 3))
    return Example(A, count)


EXAMPLES: dict[str, list[Callable[[np.random.Generator], Example]]] = {
    "kmeans": [
        lambda r: cloud(60, 3, 7, r),
        lambda r: cloud(9, 1, 9, r),
        lambda r: cloud(20, 5, 1, r),
        lambda r: alike(40, 12, r),
        lambda r: alike(3, 3, r),
    ],
    "subset": [lambda r: cloud(60, 3, 7, r), lambda r: cloud(9, 1, 9, r), lambda r: alike(40, 12, r)],
    "points": [lambda r: cloud(60, 3, 60, r), lambda r: alike(8, 8, r)],
}


COPIED = [case for case in cases(TRAINERS, EXAMPLES) if TRAINERS[case.values[0][0]]().copies]


case = each(cases(TRAINERS, EXAMPLES))


@pytest.fixture
def example(case: tuple[str, int], random: np.random.Generator) -> Example:
    return example_of(case, EXAMPLES, "EXAMPLES of test_trainers.py")(random)


@pytest.fixture
def trainer(case: tuple[str, int]) -> Any:
    return TRAINERS[case[0]]()


def drawn(seed: int = 0) -> Any:
    return stream(seed, "centres", 1)


def squares(A: Array, C: Array) -> float:
    """sum_n min_m ||a_n - c_m||^2, by brute force."""
    return float(np.sum(np.square(A[:, None].astype(float) - C).sum(axis=2).min(axis=1)))


# --- the contract -----------------------------------------------------------------------------------------------------


def test_the_words_of_the_config_are_the_registry() -> None:
    assert set(NAMES) == TRAINERS.keys()


def test_shapes(trainer: Any, example: Example) -> None:
    present = None
    for dtype in (np.float64, np.float32):
        for _ in range(2):
            present = trainer.fit(example.inputs.astype(dtype), example.count, present, drawn())
            assert present.shape == (example.count, example.inputs.shape[1])
            assert present.dtype == np.float64
            assert np.isfinite(present).all()


def test_the_same_inputs_give_the_same_bits_and_are_left_alone(trainer: Any, example: Example) -> None:
    """So that every rank could find them: which one does makes no difference."""
    A = example.inputs.copy()
    first = trainer.fit(A, example.count, None, drawn())
    assert_array_equal(trainer.fit(A.copy(), example.count, None, drawn()), first)
    present = first + 0.1
    kept = present.copy()
    again = trainer.fit(A, example.count, present, drawn())
    assert_array_equal(trainer.fit(A.copy(), example.count, present.copy(), drawn()), again)
    assert_array_equal(A, example.inputs)
    assert_array_equal(present, kept)


@pytest.mark.parametrize("case", COPIED, indirect=True)
def test_what_is_copied_are_rows_of_the_inputs_each_once(trainer: Any, example: Example) -> None:
    """Every rank takes them by itself."""
    found, left = trainer.fit(example.inputs, example.count, None, drawn()), example.inputs.tolist()
    for centre in found.tolist():
        left.remove(centre)
    assert len(left) == len(example.inputs) - example.count


def test_the_answer_is_within_reach_of_the_inputs(trainer: Any, example: Example) -> None:
    found = trainer.fit(example.inputs, example.count, None, drawn())
    assert (found >= example.inputs.min(axis=0) - 1e-12).all()
    assert (found <= example.inputs.max(axis=0) + 1e-12).all()


# --- each of them -----------------------------------------------------------------------------------------------------


def test_subsets_are_nested(random: np.random.Generator) -> None:
    """The first points of one order, which depends on the points in nothing but their number."""
    A, B = random.normal(size=(30, 3)), random.normal(size=(30, 2))
    whole = Subset().fit(A, 30, None, drawn())
    for count in (1, 5, 29):
        found = Subset().fit(A, count, None, drawn())
        assert_array_equal(found, whole[:count])
        order = [A.tolist().index(c) for c in found.tolist()]
        assert_array_equal(Subset().fit(B, count, random.normal(size=(count, 2)), drawn()), B[order])
    assert (Subset().fit(A, 30, None, drawn(1)) != whole).any()


def test_kmeans_does_not_raise_the_sum_of_squares(random: np.random.Generator) -> None:
    """From wherever it starts, iteration by iteration."""
    A = random.normal(size=(80, 2))
    for start_ in (A[:9], random.normal(size=(9, 2)), 50.0 + A[:9], np.zeros((9, 2))):
        before, present = squares(A, start_), start_
        for _ in range(5):
            present = KMeans(iterations=1).fit(A, 9, present, drawn())
            after = squares(A, present)
            assert after <= before * (1.0 + 1e-12)
            before = after
        assert squares(A, KMeans().fit(A, 9, start_, drawn())) <= squares(A, start_)


# --- in a run ---------------------------------------------------------------------------------------------------------


def points(n: int = 40) -> Dataset:
    random, unit = np.random.default_rng(3), Scaling(np.zeros(4), np.ones(4))
    X, X_val = (np.tanh(random.normal(size=(k, 2)) @ np.ones((2, 4)) + random.normal(size=(k, 4))) for k in (n, 9))
    return Dataset(X, X, X_val, X_val, unit, unit, "")


def planned(ranks: int = 1, **model_keys: Any) -> tuple[config.Config, Any]:
    table = {
        "model": {"hidden": [6, 2, 6], "activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"]},
        "start": {"method": "pca"},
    }
    table["model"] |= model_keys
    whole = config.validate(table, "this test")
    return whole, plan_of(whole, 4, 4, 40, 9, ranks)


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_centres_do_not_depend_on_the_number_of_ranks(name: str, random: np.random.Generator) -> None:
    A, hidden = random.normal(size=(40, 4)), [40, 2, 40] if name == "points" else [6, 2, 6]
    alone = planned(1, centres=name, hidden=hidden)[1]
    first = alone.centres(0, A, None)
    for ranks in (2, 5):
        _, p = planned(ranks, centres=name, hidden=hidden)
        assert_array_equal(p.centres(0, A, None), first)
        assert_array_equal(p.centres(0, A, first), alone.centres(0, A, first))


def test_layers_have_streams_of_their_own_and_seeds_of_the_run(random: np.random.Generator) -> None:
    A, (_, p) = random.normal(size=(40, 4)), planned(centres="subset")
    other = planned(centres="subset")[1]
    assert_array_equal(p.centres(0, A, None), other.centres(0, A, None))
    assert (p.centres(0, A, None) != p.centres(2, A, None)).any()


# --- from other packages ----------------------------------------------------------------------------------------------


def offer(monkeypatch: pytest.MonkeyPatch, things: dict[tuple[str, str], Any]) -> None:
    """As if another package's entry points named these: {(group, name): what it loads}."""

    def entry_points(group: str, name: str | None = None) -> list[Any]:
        return [
            SimpleNamespace(name=n, value="elsewhere", dist=None, load=lambda thing=thing: thing)
            for (g, n), thing in things.items()
            if g == group and name in (None, n)
        ]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def trained(whole: config.Config, data: Dataset, iterations: int = 2) -> tuple[Mac, Any, list[float]]:
    sizes = data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val)
    mac = Mac(plan_of(whole, *sizes, 1), data, Team())
    state = start(mac, Origin())
    mac.begin(state)
    errors = [mac.evaluate(state).E_Q]
    for _ in range(iterations):
        mac.sweep(state)
        errors.append(mac.evaluate(state).E_Q)
    return mac, state, errors


@pytest.mark.parametrize("method", ["mac", "adam"])
@pytest.mark.parametrize("sites", ["after", "before", "none"])
def test_a_users_own_kind_of_weights(method: str, sites: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are fitted as a segment, alone or with others."""
    things = worked_example()
    layer = lambda n, units: [things["LowRank"](n, units, 2), Activation("tanh", units)]  # noqa: E731
    offer(monkeypatch, {("macmpi.layers", "low_rank"): layer, ("macmpi.maps", "low_rank"): things["LowRank"]})
    keys = {"hidden": [5, 3], "activation": ["low_rank", "tanh"], "sites": sites}
    whole, data = config.validate({"model": keys, "method": {"name": "mac"}}, "this test"), points()
    whole = replace(whole, method=config.Method(method), baseline=config.Baseline(batch=10))
    chosen = choose(plan_of(whole, 4, 4, len(data.X), len(data.X_val), 1), data, Team())
    begun = chosen.start(1.0, False, 0)
    chosen.begin(begun)
    before = chosen.evaluate(begun).E_Q
    for _ in range(3):
        chosen.sweep(begun)
    assert before > chosen.evaluate(begun).E_Q
    model_file.write(tmp_path / "model.h5", Model.of(chosen.plan.chain, {"last": begun.weights}, data), {})
    assert model_file.load(tmp_path / "model.h5").chain.maps == chosen.plan.chain.maps


def test_the_words_for_solvers_are_the_registries() -> None:
    assert set(tables.Z_SOLVERS) == Z_SOLVERS.keys()
    assert {*tables.W_SOLVERS, "closed_form"} == W_SOLVERS.keys()


class Small(Affine):
    """Its random weights begin smaller than by its inputs."""

    @property
    def fan_in(self) -> int:
        return 100 * self.n_in


def test_a_dense_layer_may_say_how_its_weights_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of its inputs, by which Grams and biases go, is another."""
    offer(monkeypatch, {("macmpi.layers", "small"): lambda n, units: [Small(n, units), Activation("tanh", units)]})
    whole = config.validate({"model": {"hidden": [5, 3], "activation": ["small", "tanh"]}}, "this test")
    mac, _, errors = trained(whole, points())
    begun = mac.start(2.0, False, 0)
    assert np.abs(mac.parts.weights(begun)[0]).max() <= 2.0 / np.sqrt(400.0)
    assert errors[-1] < errors[0]


@dataclass(frozen=True)
class Offering:
    """An affine map that offers only some of what it can do."""

    offered: frozenset[str]
    inner: Affine

    @property
    def capabilities(self) -> frozenset[str]:
        return self.offered

    def spec(self) -> dict[str, Any]:
        return {"kind": "offering"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def affine_that_offers(*capabilities: str) -> Callable[[int, int], list[Any]]:
    return lambda n, units: [Offering(frozenset(capabilities), Affine(n, units))]


LAYERS_OF_OTHERS: dict[str, Callable[[int, int], list[Any]]] = {
    "low_rank": lambda n, units: worked_example()["low_rank"](n, units),
    "by_gradients": affine_that_offers("jacobian", "weight_jacobian", "bias"),
    "by_units": affine_that_offers("jacobian", "weight_jacobian", "bias", "units"),
    "without_bias": lambda n, units: [Linear(n, units)],
    "before_tanh": lambda n, units: [Linear(n, units), Activation("tanh", units)],
}


def refusal(settings: dict[str, str]) -> str:
    """What is said of a net of one hidden layer; nothing where it is planned."""
    table: dict[str, dict[str, Any]] = {"model": {"hidden": [4]}}
    for key, value in settings.items():
        part, own = key.split(".")
        table.setdefault(part, {})[own] = value
    try:
        plan_of(config.validate(table, "this test"), 4, 4, 40, 9, 1)
    except UsageError as error:
        return str(error)
    return ""


def test_a_layer_of_another_package_that_has_derivatives_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By "auto", and by whatever fits segments; a solver of units names those instead."""
    offer(monkeypatch, {("macmpi.layers", name): maps for name, maps in LAYERS_OF_OTHERS.items()})
    solvers, linear = ("auto", *sorted(W_SOLVERS.keys() - {"closed_form"})), ("closed_form", "same")
    for name, sites, solver, how in itertools.product(LAYERS_OF_OTHERS, ("after", "before", "none"), solvers, linear):
        keys = {"model.activation": name, "model.sites": sites, "w_step.solver": solver, "w_step.linear_solver": how}
        said = refusal(keys)
        if sites == "before" and len(LAYERS_OF_OTHERS[name](4, 4)) == 1:
            assert "has no weights that a regression could fit" in said  # before its only map there is nothing
        elif solver == "auto" or "segment" in W_SOLVERS[solver].takes:
            assert not said, (keys, said)
        elif said:
            named = re.findall(r'"(\w+)"', said.rsplit("; use ", 1)[1])
            assert named[0] == "auto", said
            for other in named:
                assert not refusal(keys | {"w_step.solver": other})
