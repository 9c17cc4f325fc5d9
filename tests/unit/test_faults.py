"""The fault hook: what it understands, and that a run comes to every phase of its table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import striking
from launch.cases import write_case
from launch.here import run_here

from macmpi import UsageError
from macmpi.parallel.mpi import MPITeam
from macmpi.parallel.team import Team

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "rank:phase:iteration:kind"),
        ("1:z:3", "rank:phase:iteration:kind"),
        ("1:z:3:kill:5", "rank:phase:iteration:kind"),
        ("-1:z:3:kill", "numbers from 0 on"),
        ("1:z:second:kill", "numbers from 0 on"),
        ("1:zz:3:kill", "'zz' is none of the phases"),
        ("1:z:3:nan", "'nan' strikes arrays"),
        ("1:z:3:explode", "'explode' is none of the kinds"),
    ],
)
def test_a_malformed_fault_is_refused(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        striking.parse(text)


def test_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no rank 1 among 1"):
        striking.parse("1:z:0:kill").arm(Team(), light=True)


def test_a_malformed_fault_ends_the_program_with_2(tmp_path: Path) -> None:
    env = os.environ | {striking.VARIABLE: "nonsense", "PYTHONPATH": f"{ROOT / 'tests' / 'hook'}:{ROOT}"}
    command = [sys.executable, "-m", "macmpi.run", "none.toml"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("macmpi: MACMPI_FAULT=nonsense") == 1


def test_a_run_comes_to_every_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that no run calls any more would never be struck, and its faults would prove nothing."""
    met = set()

    def noting(place: str) -> None:
        owner, name = striking.resolve(place)
        whole = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            met.add(place)
            return whole(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    for place in set(striking.PLACES.values()):
        noting(place)
    write_case(tmp_path, "regression")
    run_here("regression.toml", "--output", "run", cwd=tmp_path, code=0)
    assert met == set(striking.PLACES.values())


def test_every_verb_of_the_team_is_a_phase() -> None:
    verbs = {name for name in vars(Team) if not name.startswith("_") and callable(getattr(Team, name))}
    assert verbs - {"set_deadline", "abort", "common", "depart"} == striking.VERBS.keys() - {"exchange"}
    assert verbs - {"abort"} | {"_end_others"} <= vars(MPITeam).keys(), (
        "a verb of many ranks is not that of one process"
    )


def test_the_page_for_developers_names_all() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert [word for word in (*striking.PLACES, *striking.VERBS, *striking.KINDS) if f"`{word}`" not in page] == []


def test_the_package_knows_nothing_of_faults(tmp_path: Path) -> None:
    """Without the folder of the hook in PYTHONPATH the variable means nothing."""
    env = os.environ | {striking.VARIABLE: "nonsense", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "macmpi.run", "none.toml"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "none.toml" in done.stderr and "MACMPI_FAULT" not in done.stderr
