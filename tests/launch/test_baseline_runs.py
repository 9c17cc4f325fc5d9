"""Runs of the baselines: the bits of one process on several ranks, and after a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch.cases import assert_same_run, curve, write_case
from launch.here import run_here
from launch.launching import run_program

from macmpi.config import NESTED
from macmpi.half_steps.method import COORDINATES
from macmpi.training.record import COLUMNS

pytestmark = pytest.mark.launch

KEYS = ("baseline.batch=7", "baseline.rate=0.05", "baseline.momentum=0.9")


@pytest.mark.parametrize(("name", "ranks"), [("adam", 2), ("cg", 0)])
def test_three_iterations_and_then_four_have_the_bits_of_seven(name: str, ranks: int, tmp_path: Path) -> None:
    """ranks = 0: in this process.  The run trains, so that something is compared."""
    write_case(tmp_path, "regression")
    settings = [word for key in (f'method.name="{name}"', *KEYS) for word in ("--set", key)]
    words = ("regression.toml", *settings, "--output", "run", "--resume", "auto", "--iterations")
    run_here(*words, 3, cwd=tmp_path, code=0)
    run = run_program if ranks else run_here
    run(*words, 7, cwd=tmp_path, code=0, **({"ranks": ranks} if ranks else {}))
    run_here("regression.toml", *settings, "--output", "straight", "--iterations", 7, cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "run", tmp_path / "straight", every_checkpoint=False)
    records = curve(tmp_path / "run")
    assert [record["ranks"] for record in records[1:]] == [1] * 3 + [max(ranks, 1)] * 5
    assert records[-1]["E1_train"] < 0.8 * records[0]["E1_train"]


@pytest.mark.parametrize("name", NESTED)
def test_a_method_without_coordinates_speaks_of_itself_and_not_of_mac(name: str, tmp_path: Path) -> None:
    """The console alone: records have the same keys whatever the method."""
    write_case(tmp_path, "regression")
    words = ("--set", f'method.name="{name}"', "--output", "run", "--iterations", 1)
    said = run_here("regression.toml", *words, cwd=tmp_path, code=0).out.splitlines()
    how, table = said[1], next(line for line in said if line.lstrip().startswith("iter"))
    assert {"cg": "conjugate gradients", "lbfgs": "l-bfgs"}.get(name, name) in how.lower()
    titles = {key: title for key, title, _ in COLUMNS}
    assert [key for key in COORDINATES if titles[key] in table.split()] == []
    assert titles["E1_val"] in table
    assert not any("W-step" in line or "postprocessing" in line or "largest mu" in line for line in said)
    assert curve(tmp_path / "run")[-1].keys() >= titles.keys() - {"error_val", "zeros"}
