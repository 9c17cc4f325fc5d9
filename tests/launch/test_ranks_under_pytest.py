"""Pytest on several ranks ends, whatever a rank does: with a verdict of all ranks and a code that is not 0."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from launch.launching import ROOT, Outcome, run_program

pytestmark = pytest.mark.launch

TESTS = """
import time
import pytest
from macmpi.parallel.mpi import MPITeam

pytestmark = pytest.mark.mpi
whole = pytest.mark.parametrize("team", ["apart"], indirect=True)

@whole
def test_before(team):
    team.barrier("a test")

@whole
@pytest.mark.parametrize("rank", RANKS)
def test_fault(team, rank):
    FAULT
    team.barrier("a test")

@whole
def test_after(team):
    team.barrier("a test")
"""


def under_pytest(fault: str, ranks: list[int], folder: Path, grace: float = 60.0) -> Outcome:
    """A session of three ranks, each of `ranks` at fault in turn; it gives up the others after `grace` seconds."""
    shutil.copy(ROOT / "tests" / "mpi" / "conftest.py", folder)
    (folder / "test_ranks.py").write_text(TESTS.replace("FAULT", fault).replace("RANKS", str(ranks)))
    options = ("--with-mpi", "--timeout", 20, "--timeout-method", "thread", "-p", "no:cacheprovider", "-c", "/dev/null")
    path = f"{ROOT}:{ROOT / 'tests'}"
    program = ("-m", "pytest", "-v", *options, "--rootdir", folder, folder)
    return run_program(program=program, ranks=3, cwd=folder, env={"PYTHONPATH": path, "MACMPI_TEST_GRACE": str(grace)})


def test_a_rank_that_fails_as_the_others_pass_fails_the_test(tmp_path: Path) -> None:
    """After the last exchange: all come to the verdict, the next test runs, and rank 0 alone prints."""
    outcome = under_pytest("team.barrier('a test'); assert team.rank != rank, 'deliberate'; return", [0, 2], tmp_path)
    assert outcome.code != 0
    assert outcome.left == []
    assert "2 passed" in outcome.out and "2 failed" in outcome.out
    assert outcome.out.count("test session starts") == 1
    for rank in (0, 2):
        assert re.search(rf"^--- rank {rank} ---\n(?:(?!^---).)*deliberate", outcome.out, re.MULTILINE | re.DOTALL)


def test_a_rank_that_fails_while_the_others_wait_for_it_ends_them(tmp_path: Path) -> None:
    outcome = under_pytest("assert team.rank != rank, 'deliberate'", [2], tmp_path, grace=0.5)
    assert outcome.code != 0
    assert outcome.left == []
    assert "rank 2 has failed" in outcome.err and "deliberate" in outcome.err


def test_a_rank_that_never_comes_is_given_up(tmp_path: Path) -> None:
    outcome = under_pytest("team.set_deadline(1.0); time.sleep(300.0 * (team.rank == rank))", [1], tmp_path)
    assert outcome.code != 0
    assert outcome.left == []
    assert "rank 0/3: no answer from the other ranks" in outcome.err
