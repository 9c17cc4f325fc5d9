"""`macmpi supervise`: ranks and hosts die, and the run goes on with those that are left, with the same bits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from launch.cases import assert_same_run, checkpoints, write_case
from launch.here import run_here
from launch.launching import MPIEXEC, OPEN_MPI, Running, launched, run_program

from macmpi import UsageError, supervise
from macmpi.training.faults import VARIABLE

pytestmark = pytest.mark.launch

PROGRAM = ("-m", "macmpi.supervise")
AHEAD = 3
"""Iterations that a run goes on for after the death."""


def newest(folder: Path) -> int:
    found = checkpoints(folder / "run")
    return int(found[0].stem.split("-")[1]) if found else 0


def ranks_of(running: Running) -> list[int]:
    """The processes of the launch that are ranks."""
    found = []
    for pid in running.pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:3] == [b"-m", b"macmpi.run"]:
            found.append(pid)
    return found


def set_length(config: Path, length: int) -> None:
    """The next start reads the config again."""
    text = re.sub("max_iterations = .*\n", "", config.read_text())
    config.write_text(text.replace("[run]", f"[run]\nmax_iterations = {length}"))


def test_a_rank_that_dies_is_followed_by_a_start_on_the_others_and_no_more_than_an_iteration_is_lost(
    tmp_path: Path,
) -> None:
    """A checkpoint each iteration, so the one under way is all that may be lost."""
    config = write_case(tmp_path, "long")
    set_length(config, 1_000_000)
    with launched(("-n", 3, "long.toml", "--output", "run"), 0, tmp_path, program=PROGRAM) as running:
        running.until(lambda: newest(tmp_path) > 2, "checkpoints")
        first = ranks_of(running)
        os.kill(first[-1], signal.SIGSTOP)  # it computes nothing more; the others wait for it
        length = newest(tmp_path) + AHEAD
        set_length(config, length)
        reached = newest(tmp_path)
        os.kill(first[-1], signal.SIGKILL)
        outcome = running.outcome()
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("start 1 of 3 again, on 2 ranks, from the newest checkpoint") == 1, outcome.err
    assert "activation" in outcome.out
    again = [int(n) for n in re.findall(r"^ +(\d+)   1e", outcome.out, re.MULTILINE)]
    assert again[again.index(reached) + 1 :][0] in (reached, reached + 1, reached + 2), (
        "no iteration is made twice but one"
    )
    assert outcome.left == []
    run_here("long.toml", "--output", "straight", cwd=tmp_path, code=0)
    assert newest(tmp_path) == length
    assert_same_run(tmp_path / "run", tmp_path / "straight")


def test_a_run_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    """Rank 0 dies in each start, on 3, 2 and 1 ranks."""
    write_case(tmp_path, "long")
    words = ("-n", 3, "--retries", 2, "long.toml", "--output", "run", "--iterations", 9)
    outcome = run_program(*words, cwd=tmp_path, program=PROGRAM, env={VARIABLE: "0:z:2:kill"})
    assert outcome.code not in (0, *supervise.OWN_ENDS)
    assert outcome.err.count("fault: kill at rank 0") == 3
    assert "as often as --retries 2 allows" in outcome.err
    run_here("long.toml", "--output", "run", "--iterations", 9, "--resume", "auto", cwd=tmp_path, code=0)
    run_here("long.toml", "--output", "straight", "--iterations", 9, cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "run", tmp_path / "straight")


@pytest.mark.parametrize(("fault", "code"), [("1:z:2:exception", 70), ("0:read:0:known", 70), ("0:model:1:full", 74)])
def test_what_the_program_itself_ends_with_is_not_tried_again(fault: str, code: int, tmp_path: Path) -> None:
    write_case(tmp_path, "few")
    words = ("-n", 2, "few.toml", "--iterations", 3)
    outcome = run_program(*words, cwd=tmp_path, program=PROGRAM, env={VARIABLE: fault}, code=code)
    assert outcome.err.count("fault: ") == 1
    assert " again, on " not in outcome.err


def test_a_stop_reaches_the_ranks_and_the_same_command_goes_on(tmp_path: Path) -> None:
    config = write_case(tmp_path, "long")
    set_length(config, 1_000_000)
    words = ("-n", 2, "long.toml", "--output", "run")
    with launched(words, 0, tmp_path, program=PROGRAM) as running:
        running.until(lambda: newest(tmp_path) > 1, "checkpoints")
        running.process.send_signal(signal.SIGTERM)
        assert running.outcome().code == 75
    length = newest(tmp_path) + AHEAD
    set_length(config, length)
    run_program(*words, cwd=tmp_path, program=PROGRAM, code=0)
    run_here("long.toml", "--output", "straight", cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "run", tmp_path / "straight")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("few.toml",), "-n P"),
        (("-n", "0", "few.toml"), "-n P"),
        (("-n", "2", "--retries", "-1", "few.toml"), "--retries -1"),
        (("--hosts", "a:0", "few.toml"), "names of hosts"),
        (("-n", "2"), "CONFIG.toml"),
    ],
)
def test_mistakes_start_nothing(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    outcome = run_program(*words, cwd=tmp_path, program=PROGRAM, code=2)
    assert named in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_the_config_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('data = "digits"\nmodel.hiddn = [3]\n')
    outcome = run_program("-n", 2, "bad.toml", cwd=tmp_path, program=PROGRAM, code=2)
    assert outcome.err.count("model.hiddn") == 1
    assert " again, on " not in outcome.err


@pytest.mark.parametrize(
    ("ranks", "hosts", "dead", "next_start"),
    [
        (4, {}, (), (3, {})),
        (1, {}, (), (1, {})),
        (4, {"a": 2, "b": 2}, (), (3, {"a": 2, "b": 2})),
        (4, {"a": 2, "b": 2}, ("a",), (2, {"b": 2})),
        (3, {"a": 2, "b": 4}, ("a",), (3, {"b": 4})),
        (4, {"a": 2, "b": 2}, ("a", "b"), (0, {})),
    ],
)
def test_what_is_left(
    ranks: int, hosts: dict[str, int], dead: tuple[str, ...], next_start: tuple[int, dict[str, int]]
) -> None:
    assert supervise.left(ranks, hosts, lambda host: host not in dead) == next_start


def test_a_host_answers_where_a_process_can_be_started_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    if "Intel" in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("Intel MPI's mpiexec takes no ranks a host")
    assert supervise.answers(str(MPIEXEC), "localhost")
    assert not supervise.answers("/nowhere/mpiexec", "localhost")


def test_ranks_are_those_of_the_hosts_and_resume_is_asked_for() -> None:
    args = supervise.settled(["--hosts", "a:2,b", "my.toml", "--iterations", "3"])
    assert (args.ranks, args.hosts, args.options) == (3, {"a": 2, "b": 1}, ["--iterations", "3", "--resume", "auto"])
    assert supervise.settled(["-n", "2", "my.toml", "--resume=no"]).options == ["--resume=no"]
    with pytest.raises(UsageError, match="--hosts"):
        supervise.settled(["my.toml"])
