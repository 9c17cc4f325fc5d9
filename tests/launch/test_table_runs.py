"""A launched run on a table: rank 0 alone reads it, and the bits are those of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from launch.cases import assert_same_run
from launch.here import run_here
from launch.launching import run_program

import macmpi
from macmpi.data.frames import Columns

pytestmark = pytest.mark.launch

pytest.importorskip("pyarrow")
CONFIG = """
[data]
source = "people.csv"
target = "verdict"
ignore = ["name"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(5)
    rows = ["name,age,city,verdict"]
    for i in range(80):
        age, city = random.integers(20, 70), random.choice(["Oslo", "Rome"])
        verdict = "high" if age + 20 * (city == "Rome") > 50 else "low"
        rows.append(f"n{i},{'' if i % 7 == 0 else age},{'' if i % 9 == 0 else city},{verdict}")
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "people.toml").write_text(CONFIG)
    return tmp_path


def test_two_ranks_train_on_a_table_with_the_bits_of_one_process(folder: Path) -> None:
    words = ("people.toml", "--iterations", 3, "--output")
    outcome = run_program(*words, "two", ranks=2, cwd=folder, code=0)
    assert outcome.out.count("missing values filled: age 12, city 9; ") == 1
    run_here(*words, "one", cwd=folder, code=0)
    assert_same_run(folder / "two", folder / "one")
    columns = macmpi.load(str(folder / "two" / "model.h5")).columns
    assert isinstance(columns, Columns)
    assert columns.names == ["age", "missingindicator_age", "city_Oslo", "city_Rome", "missingindicator_city"]


def test_a_column_that_is_no_input_ends_two_ranks_before_anything_is_created(folder: Path) -> None:
    words = ("people.toml", "--output", "run", "--set", "data.ignore=['elsewhere']")
    outcome = run_program(*words, ranks=2, cwd=folder, code=2)
    assert outcome.err.count("has no column 'elsewhere'") == 1
    assert not (folder / "run").exists()
