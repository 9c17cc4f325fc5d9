"""A config is validated whole: every mistake is named with its key, and what is valid is read as it is meant."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import examples

from macmpi import UsageError, config, many
from macmpi.config import Config
from macmpi.config.reading import known_keys
from macmpi.config.whole import GONE, changes, differences

often = examples(80)

NAN, INF, HUGE = float("nan"), float("inf"), 10**400
NOT_POSITIVE = [0.0, -1.0, True, "1", NAN, INF, -INF, HUGE, [1.0]]
NOT_A_FRACTION = [1.0, -0.1, True, "0.5", NAN, INF, [0.5]]
NOT_A_COUNT = [0, -3, 1.0, True, "3", NAN, [3]]
NOT_OWN = [-3, 1.0, True, "3", NAN, [3]]
NOT_A_WIDTH = [1e-10, 1e10, *NOT_POSITIVE[:-1]]
NOT_A_SIZE = [-1e-9, 1e10, True, "1", NAN, INF, [1.0]]
NOT_A_STRENGTH = [-1e-3, True, "none", NAN, INF]
NOT_A_BOUND = [1e13, -1e13, True, "none", NAN, INF]
NOT_A_SEED = [-1, 2**63, 0.0, True, "0", NAN]
NOT_A_TRUTH = [0, 1, "true", 1.0, []]

ALIKE: list[tuple[list[Any], str]] = [
    (
        NOT_A_COUNT,
        "model.words model.trees model.examples z_step.minibatches z_step.cg_iterations w_step.batch selection.every "
        "stochastic.batch_max stochastic.grow_every stochastic.patience stochastic.records stochastic.parts "
        "baseline.batch baseline.patience run.keep_checkpoints",
    ),
    (
        NOT_OWN,
        "penalty.mu_every penalty.patience z_step.iterations w_step.iterations w_step.cg_iterations "
        "stochastic.cg_iterations",
    ),
    (
        NOT_POSITIVE,
        "penalty.mu_max penalty.gradient_tolerance w_step.rate baseline.rate run.checkpoint_minutes run.deadline",
    ),
    (
        NOT_A_FRACTION,
        "penalty.tolerance z_step.cg_tolerance w_step.cg_tolerance w_step.tolerance w_step.momentum baseline.momentum",
    ),
    (NOT_A_TRUTH, "model.tied loss.missing start.gradient_step penalty.gradients stochastic.stream"),
    (NOT_A_SEED, "data.seed start.seed"),
    (NOT_A_STRENGTH, "penalty.l1 penalty.group_lasso"),
    (NOT_A_BOUND, "penalty.weights_min penalty.weights_max"),
    ([2.0, *NOT_POSITIVE], "z_step.relaxation w_step.relaxation"),
    (["float32", "", 1, ["single"]], "z_step.cg_precision w_step.cg_precision"),
    (["yes", 1, 0.5, []], "run.finish run.refit"),
]
"""Values that keys of one kind must refuse, and these keys."""

MISTAKES: dict[str, list[Any]] = {key: values for values, keys in ALIKE for key in keys.split()} | {
    "data.source": [3, True, ["digits"], 1.5],
    "data.target": [3, True, 1.5],
    "data.weights": [["w"], 3, True],
    "data.ignore": ["id", 3, True],
    "data.categories": ["code", 3, True],
    "data.empty": ["?", 3, True],
    "data.missing": ["drop", "", 0, ["impute"]],
    "data.image_size": [28, "28", True],
    "data.classes": ["a", 1, {}],
    "data.validation": [0.0, *NOT_A_FRACTION],
    "data.points": [-1, 2.0, True, "7"],
    "data.scale": ["Auto", "", 0, False],
    "parallel.data": ["Sharded", "", 1, True],
    "parallel.rows": ["disk", "", 1, True],
    "model.hidden": [[], 5, "5", True, 2.0],
    "model.image": [16, "16", True, 2.0],
    "model.skips": ["all", 1, True, 2.0],
    "model.joining": ["Add", "", 1, ["add"]],
    "model.readout": ["Dense", "", 1, True, [1]],
    "model.activation": ["sigmoidal", "", 1, False],
    "model.output": ["sigmoidal", "", 1, False, ["tanh"]],
    "model.sites": ["After", "", 1, True],
    "model.width": NOT_A_WIDTH,
    "model.centres": ["k-means", "", 1, True],
    "model.loss": ["cross-entropy", "", 1, ["squared"]],
    "model.precision": ["float16", "", 32, ["float64"]],
    "loss.threshold": NOT_A_SIZE,
    "start.method": ["PCA", "", 1, ["pca"]],
    "start.range": [-1.0, -1e-9, 1e7, "2"],
    "start.width": [1e-10, 1e10, *NOT_POSITIVE],
    "start.neighbours": [0, -1, 2**31, 1.5, "all"],
    "start.coordinates": [1, True, ["codes.h5"]],
    "start.model": [1, True, ["model.h5"]],
    "start.weights": ["first", "", 1],
    "penalty.method": ["lagrangian", "", 1],
    "penalty.mu0": [*NOT_POSITIVE, 1e-300, 1e17],
    "penalty.factor": [1.0, *NOT_POSITIVE],
    "model.fitters": ["svm", "", 1, False],
    "model.depth": [15, *NOT_A_COUNT],
    "penalty.tolerance_decay": [1.1, *NOT_POSITIVE],
    "penalty.stop": ["Gradient", "", 1, True],
    "penalty.metric": ["Identity", "", 1, [1.0]],
    "penalty.ridge": [-1e-3, True, "0", NAN, INF],
    "penalty.ridge_scale": ["units", "", 1],
    "penalty.ridge_until_mu": [-1.0, True, "0", NAN, INF],
    "z_step.solver": ["Newton", "", 1, ["binary"]],
    "z_step.enumerated": [-1, 21, 1.5, "10"],
    "w_step.solver": ["closed_form", "", 1, ["lbfgs"]],
    "w_step.linear_solver": ["lbfgs", "", 1],
    "w_step.sums": ["Running", "", 1, ["running"]],
    "w_step.schedule": ["sharded", "", 1, ["ring"]],
    "method.name": ["MAC", "", 1, ["mac"]],
    "method.acceleration": ["Momentum", "", True, ["momentum"]],
    "stochastic.batch": ["All", "", *(value for value in NOT_A_COUNT if not isinstance(value, str))],
    "stochastic.averaging": [value for value in NOT_A_FRACTION if not isinstance(value, str)] + ["Auto", ""],
    "stochastic.damping": NOT_POSITIVE[1:],
    "selection.criterion": ["AIC", "", 1, ["aic"]],
    "stochastic.ridge": ["Auto", -1.0, True, []],
    "selection.epsilon2": NOT_POSITIVE[:-1],
    "selection.sizes": [5, "50", True],
    "selection.widths": [5.0, "2", True],
    "selection.ridges": [0.1, "2", True],
    "run.max_iterations": [-1, 3.0, True, "3", NAN],
    "run.threads": [1025, *NOT_A_COUNT],
}
"""Values that each key must refuse."""

DEFAULTS = config.flat(Config())


def toml(value: Any) -> str:
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def document(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in values.items())


def read(text: str, folder: Path, *settings_: str) -> Config:
    path = folder / "case.toml"
    path.write_text(text, encoding="utf-8")
    return config.read(path, list(settings_))


def refusal(text: str, folder: Path, *settings_: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(text, folder, *settings_)
    return str(caught.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configs")


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_every_key_has_mistakes_here() -> None:
    missing = DEFAULTS.keys() - MISTAKES.keys()
    assert not missing, f"add values that {', '.join(sorted(missing))} must refuse to MISTAKES"
    assert MISTAKES.keys() <= DEFAULTS.keys()


@pytest.mark.parametrize("key", MISTAKES)
def test_each_mistake_alone(key: str, folder: Path) -> None:
    for value in MISTAKES[key]:
        lines = refusal(document({key: value}), folder).splitlines()
        assert lines[0] == f"1 mistake in {folder / 'case.toml'}:", value
        assert lines[1].startswith(f"  {key}: "), value
        assert len(lines) == 2


@st.composite
def several(draw: st.DrawFn) -> dict[str, Any]:
    keys = draw(st.lists(st.sampled_from(sorted(MISTAKES)), min_size=2, max_size=8, unique=True))
    return {key: draw(st.sampled_from(MISTAKES[key])) for key in keys}


@often
@given(mistakes=several(), unknown=st.lists(st.sampled_from(["zzz", "run.zzz", "model.zzz"]), unique=True))
def test_all_mistakes_in_one_message(folder: Path, mistakes: dict[str, Any], unknown: list[str]) -> None:
    text = refusal(document({**mistakes, **dict.fromkeys(unknown, 1)}), folder)
    lines = text.splitlines()
    assert lines[0].startswith(f"{len(mistakes) + len(unknown)} mistakes in ")
    assert sorted(line.strip().split(":")[0] for line in lines[1:]) == sorted([*mistakes, *unknown])


@pytest.mark.parametrize(("key", "word"), [("model.activation", "tanh"), ("model.sites", "none")])
def test_a_word_for_all_layers_or_a_list_with_one_for_each(key: str, word: str, folder: Path) -> None:
    layers = "model.hidden = [3, 4]\n"
    assert config.flat(read(f'{layers}{key} = "{word}"', folder))[key] == word
    assert config.flat(read(f"{layers}{key} = {toml([word, word])}", folder))[key] == [word, word]
    for count in (0, 1, 3):
        text = refusal(f"{layers}{key} = {toml([word] * count)}", folder)
        assert text.startswith("1 mistake")
        assert f"{key.split('.')[1]} has {many(count, 'entry')} but there are 2 hidden layers" in text
    text = refusal(f'{layers}{key} = ["{word}", "{word}s"]', folder)
    assert text.startswith("1 mistake")
    assert f"{key}.1: " in text


@pytest.mark.parametrize(
    ("key", "near", "words"),
    [
        ("model.activation", {"sigmoidal": "sigmoid", "quantize": "quantise", "rfb": "rbf"}, config.LAYERS),
        ("model.centres", {"k-means": "kmeans", "subsets": "subset"}, config.TRAINERS),
        ("model.fitters", {"linear-svm": "linear_svm", "logistics": "logistic"}, ("auto", *config.FITTERS)),
    ],
)
def test_a_word_unlike_any_other_gets_them_all(
    key: str, near: dict[str, str], words: tuple[str, ...], folder: Path
) -> None:
    for word, meant in near.items():
        assert f"{key}: unknown word; did you mean '{meant}'?" in refusal(f'{key} = "{word}"', folder)
        assert f"{key}.1: unknown word; did you mean '{meant}'?" in refusal(f'{key} = ["{meant}", "{word}"]', folder)
    assert f"{key}: unknown word; use {', '.join(repr(w) for w in words)} (given: 'zzzzzz')" in refusal(
        f'{key} = "zzzzzz"', folder
    )


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fitters_are_one_for_each_layer_and_one_for_the_output(count: int, folder: Path) -> None:
    layers = "model.hidden = [3, 4]\nmodel.fitters = "
    text = refusal(layers + toml(["auto"] * count), folder)
    assert f"fitters has {many(count, 'entry')} but there are 3 layers with the output layer" in text
    assert read(layers + toml(["auto"] * 3), folder).model.fitters == ["auto"] * 3


@pytest.mark.parametrize(("key", "value"), [("model.width", 2.0), ("model.centres", "subset")])
def test_one_value_for_all_basis_layers_or_a_list_with_one_for_each(key: str, value: Any, folder: Path) -> None:
    """Codewords have centres, and no width."""
    layers = 'model.hidden = [3, 4, 5, 6]\nmodel.activation = ["rbf", "quantise", "tanh", "rbf"]\n'
    count = 2 if key == "model.width" else 3
    assert config.flat(read(f"{layers}{key} = {toml(value)}", folder))[key] == value
    assert config.flat(read(f"{layers}{key} = {toml([value] * count)}", folder))[key] == [value] * count
    name = key.split(".")[1]
    for entries in {0, 1, 2, 3, 4} - {count}:
        text = refusal(f"{layers}{key} = {toml([value] * entries)}", folder)
        assert text.startswith("1 mistake")
        assert (
            f"{name} has {many(entries, 'entry')} but {count} of the hidden layers have {name}: give one for all"
            in text
        )


@pytest.mark.parametrize("text", ['method = "file"', 'coordinates = "z.h5"', 'method = "pca"\ncoordinates = "z.h5"'])
def test_a_start_from_a_file_names_it(text: str, folder: Path) -> None:
    assert "go together" in refusal(f"[start]\n{text}", folder)
    assert read('[start]\nmethod = "file"\ncoordinates = "z.h5"', folder).start.coordinates == "z.h5"


def test_mean_squared_errors_are_positive_numbers(folder: Path) -> None:
    text = refusal("selection.sizes = [5, [], ['a', 2, 0, 1.5]]", folder)
    assert "3 mistakes" not in text
    assert all(f"selection.sizes.{place}: " in text for place in ("0", "2.0", "2.2", "2.3"))
    assert "should be a list, as in selection.sizes = [[50, 100], []] (given: 5)" in text
    text = refusal("selection.epsilon2 = [0.1, 0.0, -1, 'a', inf]", folder)
    assert text.startswith("4 mistakes")
    assert all(f"selection.epsilon2.{i}: " in text for i in (1, 2, 3, 4))


def test_targets_are_one_column_or_several(folder: Path) -> None:
    assert read("", folder).data.targets is None
    for text, names in (('"y"', ["y"]), ('["y", "z"]', ["y", "z"]), ("[]", [])):
        assert read(f"data.target = {text}", folder).data.targets == names
    assert "data.target.1: should be text, in quotes" in refusal('data.target = ["y", 3]', folder)


WORDS_OF_TYPES = ["int", "float", "bool", "str", "list[int]", "literal['auto']", "Sparse", "Convolution", "Recurrent"]


@often
@given(name=st.sampled_from(WORDS_OF_TYPES) | st.text(min_size=1), layer=st.booleans())
def test_an_unknown_key_is_named_whatever_its_name_is(name: str, layer: bool) -> None:
    where, keys = ("model.hidden.0", {"channels": 3, name: 1}) if layer else ("penalty", {name: 1})
    with pytest.raises(UsageError) as caught:
        config.validate({"model": {"hidden": [keys]}} if layer else {where: keys}, "f")
    assert str(caught.value).startswith(
        f"1 mistake in f:\n  {where}.{name if name.isprintable() else repr(name)}: unknown"
    )


def test_bounds_the_wrong_way_round(folder: Path) -> None:
    assert "batch_max = 1000 is below batch = 1200" in refusal("[stochastic]\nbatch = 1200", folder)


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_key_in_another_table_is_found_by_its_name(key: str, folder: Path) -> None:
    name = key.partition(".")[2]
    table = next(table for table in ("parallel", "method", "loss") if name not in known_keys([table]))
    said = refusal(f"{table}.{name} = 1", folder)
    assert re.search(rf"did you mean .*\b\w+\.{name}\b", said), said


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_slip_of_the_pen_gets_a_suggestion(key: str, folder: Path) -> None:
    table, name = key.split(".")
    slip = name[:-2] + name[-1] if len(name) > 3 else name + "x"
    assert f"{table}.{slip}: unknown key; did you mean {key}?" in refusal(f"{table}.{slip} = 1", folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('loss = "squared"', "loss: should be a table, [loss]; did you mean model.loss?"),
        ("[penalty]\nhidden = [3]", "penalty.hidden: unknown key; did you mean model.hidden?"),
        ("rate = 0.1", "rate: unknown key; did you mean baseline.rate or w_step.rate?"),
        ("[method]\nmax_iterations = 9", "did you mean run.max_iterations?"),
        (
            "[method]\niterations = 9",
            "did you mean run.max_iterations or stochastic.cg_iterations or w_step.iterations?",
        ),
        ("[run]\nmax_iter = 9", "did you mean run.max_iterations?"),
        ("[stochastic]\nbatch_size = 9", "did you mean stochastic.batch?"),
        ("[model]\nunits = 9", "known here: hidden, activation"),
    ],
)
def test_a_key_in_the_wrong_table_is_told_where_it_belongs(text: str, said: str, folder: Path) -> None:
    assert said in refusal(text, folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model.hidden = []", "model.hidden: is an empty list; give one value or more, as in model.hidden = [5]"),
        ("model.hidden = 7", "model.hidden: should be a list, as in model.hidden = [5]"),
        ('data.classes = "a"', 'data.classes: should be a list, as in data.classes = ["no", "yes"]'),
        ("z_step.iterations = 1.5", "z_step.iterations: should be a whole number"),
        ('penalty.mu0 = "ten"', "penalty.mu0: should be a number"),
        ("start.gradient_step = 3", "start.gradient_step: should be true or false"),
        ("penalty.factor = 0.5", "penalty.factor: should be greater than 1"),
    ],
)
def test_a_mistake_is_said_without_the_words_of_a_library(text: str, said: str, folder: Path) -> None:
    assert said in refusal(text, folder)


@pytest.mark.parametrize("table", [f.name for f in fields(Config)])
def test_a_table_must_be_a_table(table: str, folder: Path) -> None:
    for value in (5, True, [1]):
        assert f"{table}: should be a table, [{table}]" in refusal(f"{table} = {toml(value)}", folder)


OTHERS = {float: 0.123, int: 7}
"""A value of each type that no key had for its last default."""


@pytest.mark.parametrize("key", GONE)
def test_a_key_that_has_gone_is_dropped_at_its_last_default_and_explained_at_another(key: str, folder: Path) -> None:
    default, why = GONE[key]
    assert read(f"{key} = {toml(default)}", folder) == Config()
    text = refusal(f"{key} = {toml(OTHERS[type(default)])}\npenalty.mu0 = -1.0", folder)
    assert text.startswith("2 mistakes")
    assert f"{key} has gone ({why}): leave it out, or use an earlier macmpi, which reads {key} = " in text
    assert key not in DEFAULTS


def test_a_key_that_has_gone_may_hold_what_cannot_be_printed(folder: Path) -> None:
    assert "selection.step has gone" in refusal(f"selection.step = {hex(10**5000)}", folder)


@pytest.mark.parametrize("text", ["a b", "penalty.mu0 =", "[penalty", "penalty.mu0 = 3\npenalty.mu0 = 4", "\x00"])
def test_what_is_not_toml(text: str, folder: Path) -> None:
    assert f"{folder / 'case.toml'} is not TOML" in refusal(text, folder)


def test_files_that_cannot_be_read(folder: Path) -> None:
    for path, says in ((folder, "is a folder; name a config"), (folder / "nowhere.toml", "cannot read the config")):
        with pytest.raises(UsageError, match=says):
            config.read(path, [])
    (folder / "latin1.toml").write_bytes('data = "Ö.h5"'.encode("latin1"))
    with pytest.raises(UsageError, match="is not TOML"):
        config.read(folder / "latin1.toml", [])


# --- what is valid ----------------------------------------------------------------------------------------------------


def test_an_empty_file_is_the_defaults(folder: Path) -> None:
    assert read("", folder) == Config()
    assert all(is_dataclass(getattr(Config(), f.name)) for f in fields(Config))


POSITIVE = st.floats(1e-300, 1e300)
FRACTION = st.floats(0.0, 1.0, exclude_max=True)


@st.composite
def configs(draw: st.DrawFn, text: st.SearchStrategy[str]) -> dict[str, Any]:
    mu0 = draw(st.floats(1e-10, 1e10))
    valid: dict[str, st.SearchStrategy[Any]] = {
        "data.source": text,
        "data.target": st.one_of(text, st.lists(text, max_size=3)),
        "data.weights": text,
        "data.ignore": st.lists(text, max_size=3),
        "data.missing": st.sampled_from(["impute", "refuse"]),
        "data.validation": st.floats(1e-6, 0.999),
        "data.seed": st.integers(0, 2**63 - 1),
        "model.hidden": st.lists(st.integers(1, 10**6), min_size=1, max_size=5),
        "model.activation": st.sampled_from(config.LAYERS),
        "model.width": st.one_of(st.floats(1e-9, 1e9), st.just(2.5)),
        "model.centres": st.sampled_from(config.TRAINERS),
        "model.words": st.integers(1, 10**6),
        "model.fitters": st.sampled_from(["auto", *config.FITTERS]),
        "model.trees": st.integers(1, 10**6),
        "model.depth": st.integers(1, 14),
        "model.examples": st.integers(1, 10**6),
        "selection.epsilon2": st.lists(st.floats(1e-300, 1e300), max_size=3),
        "selection.widths": st.lists(st.one_of(st.floats(1e-9, 1e9), st.lists(st.floats(1e-9, 1e9))), max_size=3),
        "selection.ridges": st.lists(st.floats(0.0, 1e12), max_size=3),
        "model.sites": st.sampled_from(["after", "before", "both", "none"]),
        "start.range": st.floats(1e-6, 1e6),
        "start.gradient_step": st.booleans(),
        "penalty.mu0": st.just(mu0),
        "penalty.mu_max": st.floats(mu0, 1e16),
        "penalty.tolerance": FRACTION,
        "penalty.ridge": st.one_of(st.floats(0.0, 1e12), st.lists(st.floats(0.0, 1e12), min_size=1)),
        "penalty.l1": st.one_of(st.floats(0.0, 1e12), st.lists(st.floats(0.0, 1e12), min_size=1)),
        "penalty.weights_min": st.one_of(st.floats(-1e12, 1e12), st.lists(st.floats(-1e12, 1e12), min_size=1)),
        "penalty.ridge_scale": st.sampled_from(["unit", "objective"]),
        "run.max_iterations": st.integers(0, 2**62),
        "run.deadline": POSITIVE,
    }
    return {key: draw(strategy) for key, strategy in valid.items()}


@often
@given(values=configs(st.sampled_from(["digits", "a b.h5", 'q"uo\\te.npz', "é/日本.h5", "tab\tand\nline", "#=[]"])))
def test_what_is_dumped_reads_back(folder: Path, values: dict[str, Any]) -> None:
    whole = read(document(values), folder)
    found = config.flat(whole)
    assert {key: found[key] for key in values} == values
    assert read(config.dump(whole), folder) == whole


def test_a_dump_names_every_key() -> None:
    lines = config.dump(Config()).splitlines()
    tables = [line.strip("[]") for line in lines if line.startswith("[")]
    assert tables == [f.name for f in fields(Config)]
    assert sum(" = " in line for line in lines) == len(DEFAULTS)


def test_a_run_that_goes_on_is_held_to_every_key_of_its_result_and_to_no_other() -> None:
    """Each key has its class where it is declared, and another value of it is named, or is not, by that alone."""
    freely = {f"run.{key}" for key in ("checkpoint_minutes", "keep_checkpoints", "deadline")}
    freely |= {"data.source", "parallel.rows"}
    for key, value in DEFAULTS.items():
        kind = "end" if key in ("run.max_iterations", "run.refit") else "nothing" if key in freely else "result"
        assert changes(key) == kind
        for changing in ("result", "end"):
            named = differences(DEFAULTS | {key: "another"}, DEFAULTS, changing)
            assert named == ([f"{key} (was 'another', is {value!r})"] if kind == changing else [])
    place, gone = {"parallel.data": "node"}, {"model.gone": 1}
    assert differences(DEFAULTS | place, DEFAULTS) == []
    assert differences(DEFAULTS | gone, DEFAULTS) == ["model.gone (was 1, has gone)"]


# --- settings on top --------------------------------------------------------------------------------------------------


def test_settings_override_the_file_in_their_order(folder: Path) -> None:
    found = read(
        "penalty.mu0 = 1.0\npenalty.factor = 3.0", folder, "penalty.mu0=2", "penalty.mu0=5", "model.hidden=[4, 2]"
    )
    assert (found.penalty.mu0, found.penalty.factor, found.model.hidden) == (5.0, 3.0, [4, 2])


def test_a_short_data_setting_keeps_the_other_keys_of_the_table(folder: Path) -> None:
    """`data = "path"` is short for `data.source = "path"`, on the command line too."""
    assert read("data.seed = 3", folder, "data='b.h5'").data == config.Data(source="b.h5", seed=3)


def test_settings_are_checked_like_the_file(folder: Path) -> None:
    text = refusal("run.threads = 0", folder, "penalty.mu0=-1", "modle.hidden=[3]")
    assert text.startswith("3 mistakes")
    assert "run.threads: " in text
    assert "penalty.mu0: " in text
    assert "did you mean model?" in text


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("data.source=x.h5", "data.source", "x.h5"),
        ("data=../runs/a-b/x.npz", "data.source", "../runs/a-b/x.npz"),
        ("model.activation = tanh", "model.activation", "tanh"),
        ("method.name=stochastic", "method.name", "stochastic"),
        ("start.gradient_step=false", "start.gradient_step", False),
        ("penalty.mu0=1e-3", "penalty.mu0", 1e-3),
    ],
)
def test_a_word_that_can_only_be_text_needs_no_quotes(setting: str, key: str, value: Any, folder: Path) -> None:
    assert config.flat(read("", folder, setting))[key] == value


@pytest.mark.parametrize(
    "setting", ["data.source=my x.h5", "penalty.mu0", "penalty.mu0=", "model.activation=[tanh]", "=3"]
)
def test_what_is_not_toml_is_refused_with_the_way_to_quote(setting: str, folder: Path) -> None:
    text = refusal("", folder, setting)
    assert f"--set {setting} is not TOML" in text
    assert "'\"" in text


def test_a_number_too_long_to_be_one_is_refused(folder: Path) -> None:
    assert "case.toml" in refusal("start.seed = " + "9" * 5000, folder)
    assert "--set" in refusal("", folder, "start.seed=" + "9" * 5000)
