"""Runs of the baselines: the bits of one process on any number of ranks, and after a stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from launch.cases import assert_same_run, curve, write_case
from launch.launching import run_program

pytestmark = pytest.mark.launch

NAMES = ("sgd", "adam", "cg", "lbfgs")
KEYS = ("baseline.batch=7", "baseline.rate=0.05", "baseline.momentum=0.9", "baseline.parts=3", "baseline.restart=4")
Runs = Callable[[str, int], Path]


def launch(folder: Path, name: str, *arguments: object, ranks: int = 0) -> Path:
    settings = [word for key in (f'method.name="{name}"', *KEYS) for word in ("--set", key)]
    run_program("regression.toml", *settings, "--output", "run", *arguments, ranks=ranks, cwd=folder, code=0)
    return folder / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Seven iterations on a number of ranks (0: without mpiexec), each launched once."""
    done: dict[tuple[str, int], Path] = {}

    def run(name: str, ranks: int) -> Path:
        if (name, ranks) not in done:
            folder = tmp_path_factory.mktemp(f"{name}-{ranks}")
            write_case(folder, "regression")
            done[name, ranks] = launch(folder, name, "--iterations", 7, ranks=ranks)
        return done[name, ranks]

    return run


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_ranks_has_the_bits_of_one_process(name: str, ranks: int, runs: Runs) -> None:
    assert_same_run(runs(name, 0), runs(name, ranks))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_cut_has_the_bits_of_one_that_was_not(name: str, runs: Runs, tmp_path: Path) -> None:
    write_case(tmp_path, "regression")
    launch(tmp_path, name, "--iterations", 3, ranks=2)
    launch(tmp_path, name, "--iterations", 7, "--resume", "auto", ranks=3)
    assert_same_run(tmp_path / "run", runs(name, 0), every_checkpoint=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_compared_runs_train(name: str, runs: Runs) -> None:
    records = curve(runs(name, 0))
    assert records[-1]["E1_train"] < 0.8 * records[0]["E1_train"]
