"""The model card: what training writes into model.h5, and `python -m macmpi.show`."""

from __future__ import annotations

import io
import json
import math
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import macmpi
from macmpi import UsageError, run, show
from macmpi.parallel.team import Team
from macmpi.results import card
from macmpi.results.card import thinned


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run: a classifier of words by stochastic MAC."""
    folder, random = tmp_path_factory.mktemp("trained"), np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    np.savez(folder / "words.npz", X=X, Y=np.where(X[:, 0] > 0, "right", "left"))
    (folder / "words.toml").write_text('data = "words.npz"\n[model]\nhidden = [5]\n[run]\nrefit = true\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run.run(Team(), ["words.toml", "--output", "run", "--iterations", "4"]) == 0
    return folder / "run"


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """A copy of its model.h5."""
    path = tmp_path / "model.h5"
    path.write_bytes((trained / "model.h5").read_bytes())
    return path


def shown(*arguments: object) -> tuple[str, str, int]:
    """Standard output, standard error and exit code of the command."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.argv", ["macmpi.show", *map(str, arguments)])
        try:
            show.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return out.getvalue(), err.getvalue(), code


def spoilt(path: Path, value: Any) -> None:
    with h5py.File(path, "a") as file:
        del file.attrs[card.NAME]
        if value is not None:
            file.attrs[card.NAME] = value


# --- what training writes ---------------------------------------------------------------------------------------------


def test_the_card_is_what_the_run_directory_says(trained: Path) -> None:
    found = macmpi.load(str(trained / "model.h5")).card
    assert found is not None
    facts = json.loads((trained / "provenance.json").read_text())["launches"][-1]
    assert found.data.sha256 == facts["data_sha256"]
    assert (found.data.source, found.data.inputs, found.data.outputs) == ("words.npz", 3, 2)
    assert found.data.training_points + found.data.validation_points == 60
    assert found.config == (trained / "config.toml").read_text().partition("\n")[2]
    assert found.machine == {k: v for k, v in facts.items() if k in found.machine and v is not None}
    assert {"versions", "host", "kernels", "command"} <= found.machine.keys()
    assert (found.training.ranks, found.training.threads) == (facts["ranks"], facts["threads"])
    assert found.training.started == facts["started"]
    records = [json.loads(line) for line in (trained / "curve.jsonl").read_text().splitlines()]
    assert [(r.iteration, r.phase, r.E1_val) for r in found.curve] == [
        (r["iteration"], r["phase"], r["E1_val"]) for r in records
    ]
    assert found.training.iterations == records[-1]["iteration"]
    assert found.training.seconds == pytest.approx(records[-1]["seconds"])


def test_errors_are_those_of_the_attributes(trained: Path) -> None:
    found = macmpi.load(str(trained / "model.h5")).card
    assert found is not None
    with h5py.File(trained / "model.h5") as file:
        attributes = dict(file.attrs)
        names = set(file["weights"])
    assert found.errors.keys() == names
    assert found.training.best_iteration == attributes["best_iteration"]
    assert found.errors["best"].validation == attributes["best_E1_val"]
    assert found.errors["last"].training == attributes["E1_train"]


def test_scores_are_of_the_validation_points(trained: Path) -> None:
    found = macmpi.load(str(trained / "model.h5")).card
    assert found is not None
    scores = found.scores
    assert scores["classes"] == ["left", "right"]
    assert sum(scores["points"]) == found.data.validation_points
    assert scores["accuracy"] == sum(scores["right"]) / sum(scores["points"])
    assert np.trace(scores["confusion"]) == sum(scores["right"])


def test_a_card_says_whether_the_best_weights_are_of_the_start_or_a_constant(trained: Path) -> None:
    found = macmpi.load(str(trained / "model.h5")).card
    assert found is not None
    assert not found.training.constant
    for iteration, constant, said in ((3, False, "iteration 3;"), (0, False, "the start;"), (0, True, "a constant;")):
        training = replace(found.training, best_iteration=iteration, constant=constant)
        text = "\n".join(line for _, line in show.card_lines(replace(found, training=training)))
        assert f"best weights: {said}" in text


@given(st.integers(1, 3 * card.MOST_RECORDS), st.data())
def test_a_long_curve_is_thinned(n: int, data: st.DataObject) -> None:
    """First, last and best record stay, in order, and no gap is longer than twice the even one."""
    best = data.draw(st.integers(0, n - 1))
    records = [{"iteration": i, "phase": "iteration", "seconds": 0.1 * i, "seconds_z": 1.0} for i in range(n)]
    kept = [record.iteration for record in thinned(records, best)]
    assert kept == sorted(set(kept))
    assert len(kept) <= card.MOST_RECORDS + 1
    assert {0, n - 1, best} <= set(kept)
    assert len(kept) == n or max(np.diff(kept)) <= 2 * math.ceil(n / (card.MOST_RECORDS - 1))


def test_ranks_of_several_kernels_are_named_with_them(trained: Path) -> None:
    found = macmpi.load(str(trained / "model.h5")).card
    assert found is not None
    (kernel,) = found.machine["kernels"]
    mixed = [kernel | {"ranks": [0]}, kernel | {"ranks": [1], "arithmetic": "another"}]
    lines = dict(show.machine_lines(found.machine | {"kernels": mixed}))
    assert "rank 0 on" in lines["arithmetic"] and "rank 1 on" in lines["arithmetic"]


# --- what the command shows -------------------------------------------------------------------------------------------


def test_the_card_is_shown_to_people(trained: Path) -> None:
    out, err, code = shown(trained / "model.h5")
    assert (err, code) == ("", 0)
    lines = {line[: show.LABEL].strip(): line[show.LABEL :] for line in out.splitlines()}
    assert lines["net"].startswith("3-5-2 classifier, 32 weights")
    assert lines["layers"] == "affine 5 > relu > affine 2"
    assert lines["classes"] == "left, right"
    assert "refit (used)" in lines["weights"]
    assert lines["data"] == "words.npz: 48 training, 12 validation points"
    assert lines["training"].startswith("stochastic, 4 iterations")
    assert "wrong" in lines["E1 of best"]
    assert lines["scores"].startswith("accuracy")
    assert "E1 validation" in lines["curve"]
    assert {"machine", "versions", "arithmetic"} <= lines.keys()


def test_the_config_trains_the_net_again(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights, from the card alone."""
    out, _, code = shown(trained / "model.h5", "--config")
    assert code == 0
    assert tomllib.loads(out) == tomllib.loads((trained / "config.toml").read_text())
    (tmp_path / "again.toml").write_text(out)
    monkeypatch.chdir(trained.parent)
    assert run.run(Team(), [str(tmp_path / "again.toml"), "--output", str(tmp_path / "again")]) == 0
    ours, theirs = (macmpi.load(str(path / "model.h5")).weights for path in (trained, tmp_path / "again"))
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_scripts_read_json(trained: Path) -> None:
    out, _, code = shown(trained / "model.h5", "--json")
    assert code == 0
    found, model = json.loads(out), macmpi.load(str(trained / "model.h5"))
    assert found["net"]["sizes"] == [3, 5, 2]
    assert found["classes"] == ["left", "right"]
    assert found["numbers"]["best_E1_val"] == found["card"]["errors"]["best"]["validation"]
    assert model.card is not None
    assert found["card"] == card.plain(asdict(model.card))


# --- what others wrote ------------------------------------------------------------------------------------------------

WHOLE = (
    '{"data": {"source": "x", "sha256": "0", "training_points": 1, "validation_points": 1, "inputs": 1, "outputs": 1}, '
    '"training": {"method": "m", "iterations": 1, "best_iteration": 1, "ended": "", "seconds": 1.0, "ranks": 1, '
    '"threads": 1, "started": "", "written": ""}, "errors": {}, "config": "c"%s}'
)

DAMAGED = {
    "no JSON": "{",
    "a list": "[1, 2]",
    "an empty table": "{}",
    "text as a number": WHOLE.replace('"seconds": 1.0', '"seconds": "long"') % "",
    "seconds without end": WHOLE.replace('"seconds": 1.0', '"seconds": 1e999') % "",
    "fewer points than none": WHOLE.replace('"training_points": 1', '"training_points": -1') % "",
    "very large counts": WHOLE.replace('"iterations": 1', '"iterations": 1' + "0" * 5000) % "",
    "a curve of words": WHOLE % ', "curve": ["a"]',
    "a host of 5,000 digits": WHOLE % (', "machine": {"host": 1' + "0" * 5000 + "}"),
    "brackets": WHOLE % (', "machine": {"host": ' + "[" * 100_000 + "]" * 100_000 + "}"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_card_is_refused_in_a_line_and_the_net_still_predicts(name: str, copied: Path) -> None:
    spoilt(copied, DAMAGED[name])
    for arguments in ((), ("--json",)):
        out, err, code = shown(copied, *arguments)
        assert (out, code) == ("", 2), err
        assert err.startswith(f"macmpi: {copied}: the model card is damaged")
        assert err.count("\n") == 1
        assert len(err) < 1000
    assert macmpi.load(str(copied)).predict(np.zeros((1, 3))).shape == (1,)


@pytest.mark.parametrize("value", [3, np.zeros(4), np.bytes_(b"{}")])
def test_a_card_that_is_no_text_is_refused(value: Any, copied: Path) -> None:
    spoilt(copied, value)
    with pytest.raises(UsageError, match="its card is no text"):
        macmpi.load(str(copied))
    assert shown(copied)[2] == 2


def test_a_card_commands_no_terminal(copied: Path) -> None:
    odd = ', "machine": {"host": "\\u001b[2J\\u202e", "kernels": 5, "versions": [1]}, "scores": {"lines": 7}'
    spoilt(copied, WHOLE.replace('"config": "c"', '"config": "a\\u001b[2Jb"') % odd)
    for arguments in ((), ("--config",)):
        out, _, code = shown(copied, *arguments)
        assert code == 0
        assert "\x1b" not in out
        assert "\u202e" not in out


@pytest.mark.parametrize("spoil", ["missing", "folder", "text"])
def test_files_that_are_no_models_are_refused(spoil: str, tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    if spoil == "folder":
        path.mkdir()
    elif spoil == "text":
        path.write_text("not a model")
    out, err, code = shown(path)
    assert (out, code) == ("", 2)
    assert f"{path} is not a model" in err
