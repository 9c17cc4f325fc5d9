"""`python -m macmpi.init`: what it writes is a config that runs, and that says what is in the data."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.here import run_here

from macmpi import config, init
from macmpi.config import reading
from macmpi.config.reading import explanations
from macmpi.config.whole import given
from macmpi.data.gathered import with_loss
from macmpi.plan import estimate
from macmpi.plan.resolve import resolve

N = 80
CLASSES = np.arange(N) % 4
TARGETS: dict[str, Any] = {
    "numbers": np.linspace(0.0, 1.0, 2 * N).reshape(N, 2),
    "text": np.array(["oak", "ash", "elm\nand \x7f", "fir"])[CLASSES],
    "truth": CLASSES > 1,
    "classes": CLASSES,
    "amounts": np.array([1990, 1991, 1992, 1993])[CLASSES],
    "once": np.append(1990 + CLASSES[1:], 2050),
    "many": np.arange(60, 60 + N) ** 2,
}
KINDS = [*TARGETS, "autoencoder", "held"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file of each kind of targets; --check measures nothing."""
    monkeypatch.setattr(estimate, "steady_rate", lambda: 1e9)
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(N, 5))
    for name, Y in TARGETS.items():
        np.savez(tmp_path / f"{name}.npz", X=X, Y=Y)
    np.savez(tmp_path / "autoencoder.npz", X=X)
    np.savez(tmp_path / "held.npz", X=X, X_val=X[:7])
    return tmp_path


def main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["init", *words])
    try:
        init.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("settings", [[], ["method.name=mac"], ["penalty.tolerance=0.1", "model.hidden=[3]"]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_checked_as_it_is(
    kind: str, settings: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, f"{kind}.npz", *(word for setting in settings for word in ("--set", setting))) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith(f"{kind}.toml: ")
    text = (folder / f"{kind}.toml").read_text()
    assert max(len(line) for line in text.splitlines()) <= 120
    checked = run_here(f"{kind}.toml", "--check", cwd=folder, code=0)
    found = re.search(r"(\d+) training and (\d+) validation points, 5 columns", text)
    assert found is not None
    assert f"points       {found[1]} training, {found[2]} validation" in checked.out


@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_that_are_commented_out_are_what_holds_without_them(kind: str, folder: Path) -> None:
    """With all of them the config decides as it does with none."""
    found = init.look(f"{kind}.npz", ["run.max_iterations=7"])
    text = init.config_of(found, f"{kind}.npz", folder / "c.toml")
    with_all = re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE)
    assert tomllib.loads(text)["run"] == {"max_iterations": 7}
    assert with_all.count("\n#hidden") == 0
    assert text.count("\n#hidden = ") == 1
    for lines in (text, with_all):
        read, _ = with_loss(config.validate(tomllib.loads(lines), "text"))
        assert resolve(read, found.data.sizes).settings == found.resolved.settings
    assert ("#validation" in text) is (kind != "held")


@pytest.mark.parametrize(
    ("kind", "loss"), [("classes", "cross_entropy"), ("amounts", "squared"), ("text", None), ("many", None)]
)
def test_targets_that_may_be_either_are_said_to_be(
    kind: str, loss: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, f"{kind}.npz") == 0
    out, text = capsys.readouterr().out, (folder / f"{kind}.toml").read_text()
    assert given(config.read(folder / f"{kind}.toml", [])) == ["data.source"] + ["model.loss"] * bool(loss)
    other = {"cross_entropy": "squared", "squared": "cross_entropy"}.get(loss or "")
    assert (f'\n# loss = "{other}"' in text) is (loss is not None)
    assert (f'model.loss = "{other}"' in out) is (loss is not None)
    if loss:
        assert f'\nloss = "{loss}"' in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.npz"], "nowhere.npz does not exist"),
        (["numbers.npz", "--output", "there.toml"], "there.toml is there already: replace it with --overwrite"),
        (["numbers.npz", "--output", "config.txt"], "--output config.txt: a name that ends with .toml is needed"),
        (["numbers.npz", "--output", "no/c.toml"], "there is no folder no"),
        (["numbers.npz", "--output", "folder.toml", "--overwrite"], "folder.toml is a folder"),
        (["numbers.npz", "--set", "model.hiden=[3]"], "did you mean model.hidden?"),
        (["numbers.npz", "--set", "z_step.solver=binary"], "binary"),
        (["text.npz", "--set", "model.loss=squared"], "text"),
    ],
)
def test_refusals_leave_everything_as_it_was(
    words: list[str], says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "there.toml").write_text("mine")
    (folder / "folder.toml").mkdir()
    before = sorted(folder.rglob("*"))
    assert main(monkeypatch, *words) == 2
    assert says in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before
    assert (folder / "there.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "prints"),
    [
        (["--list"], "\nusps_cg "),
        (["--config", "usps_cg"], '\ndata = "usps"'),
        (["--config", "defaults.toml"], "\n[model]"),
        (["--batch", "slurm"], "\n#SBATCH --requeue"),
    ],
)
def test_what_macmpi_brings_along_is_printed(
    words: list[str], prints: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    assert main(monkeypatch, *words) == 0
    assert prints in capsys.readouterr().out
    assert sorted(folder.iterdir()) == before


def test_what_is_printed_is_the_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for option, known in (("--config", reading.documented()), ("--batch", reading.scripts())):
        assert len(known) >= 5
        for name, path in known.items():
            assert main(monkeypatch, option, name) == 0
            assert capsys.readouterr().out == path.read_text()
    assert main(monkeypatch, "--list") == 0
    assert "python -m" not in capsys.readouterr().out  # a line says what a config is: the command below it is no part


def test_every_key_is_explained_in_a_sentence() -> None:
    """The comments of run/defaults.toml leave no key out, and name none that does not exist."""
    found = explanations()
    assert found.keys() == config.flat(config.Config()).keys()
    assert all(found.values())
    assert found["model.hidden"].endswith('"auto": 32-8-32 for an autoencoder, else 100')
    assert found["data.seed"] == "draws the split"
