"""The fault hook: what it understands, and that every phase of its table is a function that exists."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from macmpi import UsageError, run
from macmpi.parallel.mpi import MPITeam
from macmpi.parallel.team import Team
from macmpi.training import faults

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
        faults.parse(text)


def test_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no rank 1 among 1"):
        faults.parse("1:z:0:kill").arm(Team(), light=True)


def test_a_malformed_fault_ends_the_program_with_2(tmp_path: Path) -> None:
    env = os.environ | {faults.VARIABLE: "nonsense", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "macmpi.run", "none.toml"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("macmpi: MACMPI_FAULT=nonsense") == 1


def test_the_variable_has_one_name() -> None:
    assert run.FAULT == faults.VARIABLE


@pytest.mark.parametrize("phase", faults.PLACES)
def test_every_phase_is_a_function(phase: str) -> None:
    owner, name = faults.resolve(faults.PLACES[phase])
    assert callable(getattr(owner, name))


def test_every_verb_of_the_team_is_a_phase() -> None:
    verbs = {name for name in vars(Team) if not name.startswith("_") and callable(getattr(Team, name))}
    assert verbs - {"set_clock", "abort", "common", "depart"} == faults.VERBS.keys() - {"exchange"}
    assert verbs <= vars(MPITeam).keys(), "a verb of many ranks is not that of one process"


def test_the_page_for_developers_names_all() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert [word for word in (*faults.PLACES, *faults.VERBS, *faults.KINDS) if f"`{word}`" not in page] == []


def test_without_the_variable_the_module_is_not_loaded() -> None:
    unloaded = "assert 'macmpi.training.faults' not in sys.modules"
    code = f"import sys; from macmpi import run; assert run._fault() is None; {unloaded}"
    env = {k: v for k, v in os.environ.items() if k != faults.VARIABLE} | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
