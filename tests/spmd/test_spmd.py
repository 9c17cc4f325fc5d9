"""Every registered choice and every verb of a team, on communicators of 1, 2, 3 and 5 ranks, in one launch."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from launch.launching import run_program

from macmpi.layers.activation import FUNCTIONS
from macmpi.solvers import W_SOLVERS, Z_SOLVERS

pytestmark = pytest.mark.launch

Verdicts = dict[str, str]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """{"5 ranks: what was checked": "" or what is wrong}."""
    script = Path(__file__).with_name("split_world.py")
    folder = tmp_path_factory.mktemp("spmd")
    outcome = run_program(program=(script,), ranks=5, cwd=folder, timeout=120.0, code=0)
    assert outcome.err == ""
    found: Verdicts = json.loads(outcome.out)
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_verbs_and_method_are_those_of_one_process(ranks: int, verdicts: Verdicts) -> None:
    mine = {name: verdict for name, verdict in verdicts.items() if name.startswith(f"{ranks} ranks: ")}
    assert len(mine) > 20
    assert {name: verdict for name, verdict in mine.items() if verdict} == {}


def test_every_registered_choice_was_among_them(verdicts: Verdicts) -> None:
    names = [name.split(": ", 1)[1] for name in verdicts]
    for site, activation in product(("after", "before"), FUNCTIONS):
        assert any(name.startswith(f"{site} {activation}, ") for name in names)
    for solver in Z_SOLVERS:
        assert any(f"Z by {solver}" in name for name in names)
    for solver in W_SOLVERS:
        assert any(f"W by {solver} and" in name for name in names)
        assert any(name.endswith(f" and {solver}") for name in names)
