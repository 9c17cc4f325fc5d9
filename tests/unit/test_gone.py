"""Run folders of versions that had other keys: they report, and go on where these hold their defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.here import run_here

from macmpi.config.whole import GONE, Config, flat, toml
from macmpi.files import run_of
from macmpi.results.reading import read
from macmpi.training import checkpoint
from macmpi.training.run_directory import sealed

RUN = """
data = "points.npz"
[model]
hidden = [3]
[method]
name = "stochastic"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two iterations, and one of three, whose files have none of the keys."""
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "points.npz", X=np.random.default_rng(0).normal(size=(40, 4)))
    (tmp_path / "run.toml").write_text(RUN)
    for iterations, name in ((2, "old"), (3, "whole")):
        run_here("run.toml", "--iterations", iterations, "--output", name, cwd=tmp_path, code=0)
    return tmp_path


def as_it_was(run: Path, keys: dict[str, Any]) -> None:
    """Writes keys to all places of a run folder that hold its config."""
    path = run / "config.toml"
    text = path.read_text().partition("\n")[2]
    for key, value in keys.items():
        table, name = key.split(".")
        assert f"[{table}]\n" in text
        text = text.replace(f"[{table}]\n", f"[{table}]\n{name} = {toml(value)}\n")
    path.write_bytes(sealed(text, run_of(path)))
    newest = checkpoint.newest(run / "checkpoints")
    assert newest is not None
    _, state, labels = newest
    saved = json.loads(labels["config"]) | keys
    checkpoint.save(run / "checkpoints", state, {**labels, "config": json.dumps(saved)}, keep=1)


def weights(run: Path) -> Any:
    newest = checkpoint.newest(run / "checkpoints")
    assert newest is not None
    return newest[1].weights


def test_a_run_with_keys_that_have_gone_at_their_last_defaults_reports_and_goes_on(folder: Path) -> None:
    """With the bits of a run that never had them; then none of its files has them."""
    old = folder / "old"
    as_it_was(old, {key: default for key, (default, _) in GONE.items()})
    found = read(old, "old")
    assert found.config is not None
    assert found.missing == []
    run_here("run.toml", "--iterations", 3, "--output", "old", "--resume", "auto", cwd=folder, code=0)
    assert weights(old).tobytes() == weights(folder / "whole").tobytes()
    ours, theirs = ((run / "config.toml").read_text().partition("\n")[2] for run in (old, folder / "whole"))
    assert ours == theirs


def test_a_run_with_such_a_key_at_another_value_does_not_go_on(folder: Path) -> None:
    old = folder / "old"
    as_it_was(old, {"baseline.beta2": 0.5})
    assert any("baseline.beta2 has gone" in line for line in read(old, "old").missing)
    outcome = run_here("run.toml", "--iterations", 3, "--output", "old", "--resume", "auto", cwd=folder, code=2)
    assert "with another config: baseline.beta2 (was 0.5, has gone)" in outcome.err


def without(run: Path, keys: set[str]) -> None:
    """Takes keys out of the newest checkpoint, as of a version that did not have them yet."""
    newest = checkpoint.newest(run / "checkpoints")
    assert newest is not None
    _, state, labels = newest
    saved = {key: value for key, value in json.loads(labels["config"]).items() if key not in keys}
    checkpoint.save(run / "checkpoints", state, {**labels, "config": json.dumps(saved)}, keep=1)


def test_a_run_from_before_keys_that_have_come_goes_on_with_their_defaults(folder: Path) -> None:
    """With the bits of a run that had them, but not with another value of one."""
    usual, old = flat(Config()), folder / "old"
    newest = checkpoint.newest(old / "checkpoints")
    assert newest is not None
    same = {key for key, value in json.loads(newest[2]["config"]).items() if value == usual[key]}
    assert {"run.finish", "stochastic.cg_iterations"} <= same
    without(old, same)
    other = ("--set", "stochastic.damping=0.5")
    outcome = run_here("run.toml", "--iterations", 3, "--output", "old", "--resume", "auto", *other, cwd=folder, code=2)
    assert "stochastic.damping (was 0.0, is 0.5)" in outcome.err
    run_here("run.toml", "--iterations", 3, "--output", "old", "--resume", "auto", cwd=folder, code=0)
    assert weights(old).tobytes() == weights(folder / "whole").tobytes()
