"""Keys that say "auto": what is decided, from what, and how it is pinned."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
import pytest
from launch.here import run_here
from refused.case import BASIS, BITS, CODES, FOREST, IMAGES, SKIPS, SPARSE, TIED, WORDS, Keys, configured

from macmpi import UsageError, config
from macmpi.config.auto import Sizes, decide, in_short
from macmpi.config.model import LAYERS, Activation
from macmpi.config.tables import PAPER_DEFAULTS
from macmpi.config.whole import ignored, with_value
from macmpi.data.gathered import FEW, with_loss
from macmpi.plan.plan import make_plan
from macmpi.plan.resolve import resolve, resolve_in_span
from macmpi.training.explanation import explanation

ALWAYS = ("method.name", "model.hidden", "model.activation", "model.loss", "start.method")
"""Keys with "auto" that nothing but the sizes of the data is needed for."""

OF_MAC = (*(f"penalty.{key}" for key in PAPER_DEFAULTS), "method.acceleration", "model.sites")
"""Those that full MAC alone reads."""

SAID: dict[str, Any] = {"data.scale": "none", "model.sites": "none", "model.fitters": "linear_svm"}
SAID |= dict.fromkeys(("run.finish", "run.refit"), True) | dict.fromkeys(("z_step.solver", "w_step.solver"), "newton")
SAID |= {"penalty.ridge_scale": "unit", "method.acceleration": "none", "stochastic.averaging": 0.5}
SAID |= dict.fromkeys((*(f"penalty.{key}" for key in PAPER_DEFAULTS), "stochastic.ridge", "stochastic.parts"), 3) | SAID
"""A value of each key that may say "auto" in a run."""

EXPLAINED: list[dict[str, dict[str, Any]]] = [
    {},
    {"stochastic": {"batch": "all"}},
    {"method": {"name": "mac"}},
    {"method": {"name": "lbfgs"}},
    {"model": {"hidden": [7, 3], "activation": ["binary", "relu"]}},
    {"penalty": {"stop": "gradient"}},
    {
        "method": {"name": "alternating"},
        "model": {"hidden": [5, 2, 5], "activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"]},
    },
]

CENTRES = ("kmeans", "subset", "points")
"""How centres are found."""

SIZES = list(itertools.product([1, 2, 3, 64], [False, True]))
"""Columns of X, and whether the net is an autoencoder."""

GIVEN: list[dict[str, dict[str, Any]]] = [
    {},
    {"model": {"hidden": [7, 3]}},
    {"model": {"hidden": [7, 3], "activation": ["relu", "binary"], "sites": "after"}},
    {"model": {"loss": "cross_entropy", "activation": "tanh"}},
    {"method": {"name": "adam"}},
    {"penalty": {"mu0": 0.5}},
    {"start": {"method": "elastic_embedding"}},
    *({"model": {"hidden": [5], "activation": word}} for word in LAYERS),
]


@pytest.mark.parametrize("tables", GIVEN, ids=str)
def test_nothing_is_left_open_and_what_is_given_stays(tables: dict[str, Any]) -> None:
    given = config.validate(tables, "this test")
    for n_in, autoencoder in SIZES:
        found, decisions = decide(given, n_in, autoencoder)
        values = config.flat(found)
        decided = (*ALWAYS, *OF_MAC) if found.method.name == "mac" else ALWAYS
        assert "auto" not in [values[key] for key in decided]
        assert {d.key for d in decisions} == {key for key in decided if config.flat(given)[key] == "auto"}
        assert {k: v for k, v in values.items() if k not in {d.key for d in decisions}} == {
            k: v for k, v in config.flat(given).items() if k not in {d.key for d in decisions}
        }
        assert decide(found, n_in, autoencoder) == (found, [])
        assert all(d.why for d in decisions)


@pytest.mark.parametrize("autoencoder", [False, True])
@pytest.mark.parametrize("tables", EXPLAINED, ids=str)
def test_each_auto_that_a_run_reads_is_explained(tables: dict[str, Any], autoencoder: bool) -> None:
    """A line of --explain, or a comment, has every such key."""
    sizes = Sizes(6, 6 if autoencoder else 1, 200, 50, autoencoder)
    of = resolve_in_span(config.validate(tables, "this test"), sizes)
    lines = explanation(make_plan(of, 200, 50, 1), sizes)
    said = {line.removeprefix("# ").partition(":")[0] for line in lines}
    left = [key for key, value in of.settings.items() if value == "auto"]
    settled = with_value(of.config, "run.finish", of.finishing is not None)
    assert {key for key in left if key not in ignored(*[with_value(settled, key, SAID[key])] * 2)} <= said
    assert "data.scale" in left


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({}, "stochastic"),
        *(({"model": {"activation": word}}, "stochastic") for word in get_args(Activation)),
        *(({"model": {"activation": word}}, "mac") for word in LAYERS if word not in get_args(Activation)),
        ({"penalty": {"mu0": 1.0}}, "mac"),
        ({"z_step": {"iterations": 2}}, "mac"),
        ({"w_step": {"solver": "lbfgs"}}, "mac"),
        ({"selection": {"every": 3}}, "mac"),
        ({"method": {"acceleration": "momentum"}}, "mac"),
        ({"model": {"sites": "before"}}, "mac"),
        ({"start": {"method": "elastic_embedding"}}, "mac"),
        ({"stochastic": {"batch": 20}, "run": {"threads": 1}}, "stochastic"),
    ],
    ids=str,
)
def test_the_method_is_the_fastest_that_can_do_what_is_asked(tables: dict[str, Any], name: str) -> None:
    assert decide(config.validate(tables, "this test"), 9)[0].method.name == name


SCHEDULES: dict[str, dict[str, dict[str, Any]]] = {
    "first layer binary or argmax": {"model": {"activation": "argmax"}},
    "radial basis functions, the first": {"model": {"hidden": [6, 2], "activation": ["rbf", "linear"]}},
    "other autoencoders": {},
    "labels": {"model": {"loss": "cross_entropy"}},
    "numbers": {},
    "any, `stop": {"penalty": {"stop": "gradient"}},
}
"""Rows of the page of full MAC, and nets of theirs."""


@pytest.mark.parametrize("columns", [4, 400])
@pytest.mark.parametrize("net", SCHEDULES)
def test_the_schedules_that_auto_takes_are_those_of_the_page(net: str, columns: int) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "algorithms" / "mac.md").read_text(encoding="utf-8")
    keys, row = (
        next(line for line in page.splitlines() if line.startswith(f"| {begins}")).strip("| ").split(" | ")[1:]
        for begins in ("net | mu0", net)
    )
    given = config.validate({"method": {"name": "mac"}} | SCHEDULES[net], "this test")
    found = config.flat(decide(given, columns, net.startswith("other"))[0])
    for key, cell in zip(keys, row, strict=True):
        value = found[f"method.{key}" if key == "acceleration" else f"penalty.{key}"]
        first, *others = re.findall(r"[\w.]+", cell)
        said = min(float(first) * columns, float(others[-1])) if " D" in cell else first
        assert str(value) == said if isinstance(value, str) else value == float(said), key


def test_a_code_is_narrower_than_the_inputs_of_an_autoencoder() -> None:
    codes = [decide(config.Config(), n_in, True)[0].model.units[1] for n_in in (1, 2, 3, 5, 16, 300)]
    assert codes == [1, 1, 1, 2, 8, 8]
    assert decide(config.Config(), 300)[0].model.units == [100]


FULL: dict[str, Any] = {"method": {"name": "mac"}}


@pytest.mark.parametrize(
    "tables",
    [
        {"model": {"activation": "rbf"}},
        {"model": {"sites": "none"}},
        {"model": {"activation": "binary"}, "penalty": {"method": "augmented_lagrangian"}},
        {"penalty": {"method": "augmented_lagrangian"}},
        {"penalty": {"metric": "variance"}},
        {"penalty": {"tolerance_decay": 0.5}},
        {"penalty": {"tolerance": 0.1}},
        {"selection": {"criterion": "aic"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_the_penalty_is_the_papers_where_no_other_was_measured(tables: dict[str, Any], loss: str) -> None:
    given = config.validate(FULL | tables | {"model": {"loss": loss} | tables.get("model", {})}, "this test")
    found = decide(given, 9)[0]
    assert {key: getattr(found.penalty, key) for key in PAPER_DEFAULTS} == PAPER_DEFAULTS
    assert found.method.acceleration == "none"


@pytest.mark.parametrize(("keys", "expected"), [({}, ("joint", 10.0)), ({"schedule": "ring"}, ("none", 2.0))], ids=str)
def test_a_path_of_stationary_points_moves_all_together_where_it_can(keys: Any, expected: tuple[str, float]) -> None:
    given = config.validate(FULL | {"penalty": {"stop": "gradient"}, "w_step": keys}, "this test")
    found = decide(given, 9)[0]
    assert (found.method.acceleration, found.penalty.factor) == expected


@pytest.mark.parametrize("autoencoder", [False, True])
@pytest.mark.parametrize("codebook", [False, True])
@pytest.mark.parametrize("centres", [*CENTRES, *itertools.product(CENTRES, repeat=2)], ids=str)
def test_fewer_centres_than_points_have_a_path_in_small_steps(centres: Any, codebook: bool, autoencoder: bool) -> None:
    """As many as points in the first layer of them have the paper's, whatever others have; the reason is the rule's."""
    first = centres if isinstance(centres, str) else centres[0]
    factor = 10.0 if first == "points" else 2.0
    net = {"hidden": [9, 2, 9], "activation": ["rbf", "linear", "rbf"], "centres": centres}
    if codebook:
        net = {"hidden": [9, 9, 2, 9], "activation": ["quantise", "rbf", "linear", "rbf"], "centres": centres}
    if codebook and not isinstance(centres, str):
        net["centres"] = ["kmeans" if first == "points" else "points", *centres]
    found, decisions = decide(config.validate(FULL | {"model": net}, "this test"), 9, autoencoder)
    assert {key: getattr(found.penalty, key) for key in PAPER_DEFAULTS} == PAPER_DEFAULTS | {"factor": factor}
    (why,) = [d.why for d in decisions if d.key == "penalty.factor"]
    assert ("fewer centres" in why) == (factor < 10.0)


@pytest.mark.parametrize(
    ("start", "method"),
    [({}, "itq"), ({"seed": 3}, "itq"), ({"range": 2.0}, "uniform"), ({"method": "greedy"}, "greedy")],
)
def test_bits_begin_as_those_of_principal_components_unless_a_start_is_given(start: Any, method: str) -> None:
    given = config.validate({"model": {"hidden": [3, 4], "activation": "binary"}, "start": start}, "this test")
    found, decisions = decide(given, 9)
    assert found.start.method == method
    assert found.model.sites == ["after", "none"]
    assert {d.why for d in decisions if d.key.startswith("penalty.")} == {"for bits"}


@pytest.mark.parametrize(
    ("start", "method"), [({}, "stochastic"), ({"seed": 3}, "stochastic"), ({"range": 2.0}, "uniform")]
)
def test_stochastic_mac_has_a_start_of_its_own_unless_a_range_is_given(start: Any, method: str) -> None:
    found, decisions = decide(config.validate({"model": {"hidden": [3]}, "start": start}, "this test"), 9)
    assert (found.method.name, found.start.method) == ("stochastic", method)
    assert in_short(decisions).count("method ") == 1  # its name alone
    gave_way = resolve(configured({"method.name": "mac", "run.finish": True}), Sizes(4, 3, 37, 11, False)).decisions
    assert in_short(gave_way).count("penalty ") == 1  # for numbers
    assert "mu_every 0," in in_short(gave_way)


def test_a_config_of_one_line_trains(table: Path) -> None:
    outcome = run_here("points.toml", "--iterations", 2, "--output", "run", cwd=table, code=0)
    assert '  chosen: loss "squared", hidden [100], method "stochastic", activation "relu"' in outcome.out
    kept = config.flat(config.read(table / "run" / "config.toml", []))
    assert "auto" not in [kept[key] for key in ALWAYS]


def test_a_config_without_data_is_refused(table: Path) -> None:
    (table / "none.toml").write_text("model.hidden = [3]\n")
    outcome = run_here("none.toml", cwd=table, code=2)
    assert 'no data are named; write data = "points.npz"' in outcome.err


# --- numbers or classes -----------------------------------------------------------------------------------------------


def loss_of(folder: Path, Y: np.ndarray, suffix: str) -> str:
    path, X = folder / f"t{suffix}", np.zeros((len(Y), 2))
    if suffix == ".npz":
        np.savez(path, X=X, Y=Y)
    else:
        with h5py.File(path, "w") as file:
            file["X"], file["Y"] = X, Y
    return with_loss(config.Config(data=config.Data(str(path))))[0].model.loss


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize(
    ("Y", "loss"),
    [
        (np.linspace(0, 1, 60), "squared"),
        (np.arange(60) % 2 == 0, "cross_entropy"),
        (np.arange(FEW + 1), "squared"),
        (np.arange(60).reshape(30, 2), "squared"),
        (np.arange(60.0) % 3 * 100, "squared"),
    ],
    ids=["real numbers", "truth values", "many whole numbers", "two columns", "numbers too far apart"],
)
def test_targets_tell_the_loss(Y: np.ndarray, loss: str, suffix: str, tmp_path: Path) -> None:
    assert loss_of(tmp_path, Y, suffix) == loss


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize(
    "Y", [np.arange(60) % 3, np.arange(60.0) % 3, (np.arange(120) % FEW)[:, None].astype(np.uint8)]
)
def test_a_few_whole_numbers_may_be_classes_so_the_user_is_asked(Y: np.ndarray, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='"cross_entropy" if classes, "squared" if amounts'):
        loss_of(tmp_path, Y, suffix)


def test_without_targets_of_its_own_a_net_is_an_autoencoder_of_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.arange(20).reshape(10, 2))
    for source in (str(tmp_path / "x.npz"), "digits", "usps"):
        assert with_loss(config.Config(data=config.Data(source)))[0].model.loss == "squared"


@pytest.mark.parametrize("kind", LAYERS)
def test_a_net_that_begins_with_any_layer_is_planned_as_it_is_decided(kind: str) -> None:
    """An autoencoder of one code, of which nothing else is said: no default is refused."""
    model = {"hidden": [6, 2, 6], "activation": [kind, "linear", "rbf" if kind == "rbf" else "tanh"]}
    words = {"words": {"quantise": 4, "argmax": 3}.get(kind, 64)}
    resolve(config.validate({"model": model | words}, "this test"), Sizes(5, 5, 40, 9, True))


# --- what "auto" chooses is accepted ----------------------------------------------------------------------------------

STARTS = ("uniform", "stochastic", "pca", "itq", "neighbours", "greedy", "staged")
"""Starts that need no file and no pairs of points."""

NETS: list[Keys] = [{}, BITS, WORDS, CODES, BASIS, FOREST, IMAGES, SPARSE, TIED, SKIPS, {"model.sites": "none"}]
MORE: list[Keys] = [
    *({}, {"weighted": 1}, {"weighted": 3}, {"penalty.gradients": True}, {"w_step.sums": "running"}),
    *({"model.skips": [[1, 3]], "model.hidden": [5, 5, 5]}, {"model.tied": True}, {"penalty.metric": "variance"}),
    *({"penalty.stop": "gradient"}, {"model.words": 37}, {"penalty.l1": 0.1}, {"w_step.schedule": "ring"}),
]


def is_accepted(keys: Keys) -> bool:
    keys = {"method.name": "mac"} | keys
    weights = keys.pop("weighted", 0)
    try:
        resolve(configured(keys), Sizes(4, 3, 37, 11, False, weights=weights))
    except UsageError:
        return False
    return True


@pytest.mark.parametrize("net", NETS, ids=str)
@pytest.mark.parametrize(
    ("key", "values"), [("start.method", STARTS), ("method.acceleration", ("none", "feasible", "joint"))]
)
def test_auto_is_refused_only_where_each_value_is(net: Keys, key: str, values: tuple[str, ...]) -> None:
    """The start of bits, of words and of radial basis functions, and acceleration, give way to the other keys."""
    for more in MORE:
        keys = net | more
        keys.pop(key, None)
        good = [value for value in values if is_accepted(keys | {key: value})]
        assert is_accepted(keys) or not good, (more, good)


def test_it_says_what_it_gave_way_to() -> None:
    """And that value, pinned, gives the same run."""
    sizes, keys = Sizes(4, 3, 37, 11, False), {"penalty.gradients": True}
    found = resolve(configured(keys), sizes)
    (choice,) = (one for one in found.decisions if one.key == "method.acceleration")
    assert (choice.value, found.method.acceleration) == ("none", "none")
    assert choice.why.startswith('penalty.gradients = true does not go with method.acceleration = "momentum"')
    assert resolve(configured(keys | {choice.key: choice.value}), sizes).settings == found.settings


@pytest.mark.parametrize("net", [net for net in NETS if net != TIED], ids=str)
def test_what_explain_pins_is_read_and_gives_the_same_run(net: Keys) -> None:
    sizes, keys = Sizes(4, 4, 37, 11, True), {"method.name": "mac"} | net
    found = resolve(configured(keys), sizes)
    pinned = resolve(configured(keys | {one.key: one.value for one in found.decisions}), sizes)
    assert (pinned.settings, pinned.unread) == (found.settings, found.unread)


@pytest.mark.parametrize(
    "keys",
    [
        WORDS | {"penalty.stop": "gradient", "run.refit": True},
        FOREST | {"penalty.stop": "gradient", "penalty.metric": "variance"},
    ],
    ids=str,
)
def test_keys_that_were_given_are_blamed_before_those_that_auto_chose(keys: Keys) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(configured(keys), Sizes(4, 3, 37, 11, False))
    blamed = re.findall(r"[a-z_]+\.[a-z_]+ =", str(refused.value).partition("; use ")[0])
    assert {key.removesuffix(" =") for key in blamed} <= {*keys}
