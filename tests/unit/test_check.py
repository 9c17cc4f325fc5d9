"""--check answers every combination of words: with sizes and costs, or with one line that refuses it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from launch.here import run_here
from refused.words import WORDS

from macmpi.config.whole import toml
from macmpi.plan import estimate

CASES = 150


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With points that are classes too; nothing is measured."""
    monkeypatch.setattr(estimate, "steady_rate", lambda: 1e9)
    random = np.random.default_rng(0)
    np.savez(tmp_path / "points.npz", X=random.normal(size=(40, 4)), Y=np.arange(40) % 3)
    (tmp_path / "points.toml").write_text(
        'data = "points.npz"\nmodel = { hidden = [4, 2], words = 5, loss = "squared", image = [2, 2] }\n'
        'method.name = "mac"\nselection.sizes = [[2], []]\n'
    )
    return tmp_path


def words(settings: dict[str, Any]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--set", f"{key}={toml(value)}")]


@pytest.mark.long
def test_every_combination_is_answered_or_refused_in_one_line(folder: Path) -> None:
    """Any other error than a refusal is raised by `run_here`."""
    random, ended = Random(1), []
    for _ in range(CASES):
        settings = {key: random.choice(WORDS[key]) for key in random.sample(sorted(WORDS), 4)}
        outcome = run_here("points.toml", "--check", *words(settings), cwd=folder)
        ended.append(outcome.code)
        if outcome.code == 0:
            assert outcome.out.count("\nmemory ") == 1, settings
        else:
            assert outcome.code == 2, settings
            assert len(outcome.err.splitlines()) == 1 or " 1 mistake in " in outcome.err, settings
    assert {0, 2} == set(ended)


@pytest.mark.parametrize("data", ["replicated", "sharded"])
def test_a_site_before_the_first_layer_of_radial_basis_functions(data: str, folder: Path) -> None:
    settings = {"model.hidden": [2], "model.activation": "rbf", "model.sites": "before", "parallel.data": data}
    outcome = run_here("points.toml", "--check", *words(settings), cwd=folder, code=2)
    assert 'use model.sites = "none" at that layer' in outcome.err


@pytest.mark.parametrize(
    "net",
    [
        'hidden = [2, 4]\nsites = ["after", "none"]\nskips = [[0, 2]]\njoining = "append"',
        'hidden = [{ channels = 2, kernel = 1 }, 2]\nimage = [1, 4]\nsites = ["none", "after"]',
        'hidden = [4, 2, 4]\nactivation = ["rbf", "linear", "rbf"]\nsites = ["none", "after", "none"]',
    ],
    ids=["skips", "convolutions", "rbf"],
)
def test_a_start_that_takes_long_is_replaced_whatever_the_layers_are(net: str, folder: Path) -> None:
    """And the run itself begins with it."""
    keys = f'data = "points.npz"\nmethod.name = "mac"\nstart.method = "elastic_embedding"\n[model]\n{net}\n'
    (folder / "long.toml").write_text(f'{keys}loss = "squared"\n')
    assert "measured here" in run_here("long.toml", "--check", cwd=folder, code=0).out
    run_here("long.toml", "--iterations", 1, cwd=folder, code=0)


@pytest.mark.parametrize("rows", [3, 4, 7])
def test_of_a_few_points(rows: int, folder: Path) -> None:
    """A minibatch is then larger than all of them; and a run may have no iteration at all."""
    random = np.random.default_rng(1)
    np.savez(folder / "few.npz", X=random.normal(size=(rows, 3)), Y=random.normal(size=rows))
    (folder / "few.toml").write_text('data = "few.npz"\n')
    for words in ([], ["--iterations", "0"]):
        assert "iteration" in run_here("few.toml", "--check", *words, cwd=folder, code=0).out
