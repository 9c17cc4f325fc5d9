"""Stop signals at moments that no run can choose: while the program is loaded, and while Python ends."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest
from launch.cases import write_case
from launch.here import run_here
from launch.launching import run_program

from macmpi.training import process
from macmpi.training.process import STOP_SIGNALS
from macmpi.training.record import Curve

pytestmark = pytest.mark.launch

STOPPED = 75
ALL = [int(number) for number in STOP_SIGNALS]
START = 'runpy.run_module("macmpi.run", run_name="__main__", alter_sys=True)'

AT_THE_END = f"""
import os, runpy, sys
class Last:
    def __del__(self, kill=os.kill, own=os.getpid()):
        for number in {ALL}:
            kill(own, number)
sys.last = Last()
{START}
"""
"""Python gives signals back to the system, and then lets go of what modules hold."""

UNDER_NOHUP = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from macmpi.parallel.mpi import launch
launch()
ignored = int(next(line for line in open("/proc/self/status") if line.startswith("SigIgn")).split()[1], 16)
os.write(1, b"%d\\n" % (ignored >> signal.SIGHUP - 1 & 1))
"""

WHILE_LOADING = f"""
import os, runpy, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "macmpi.parallel.mpi":
            for number in {ALL}:
                os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
{START}
"""


def words(folder: Path, program: str) -> tuple[tuple[object, ...], list[str]]:
    write_case(folder, "hasty")
    (folder / "program.py").write_text(program)
    return ("hasty.toml", "--output", "run", "--iterations", 2), ["program.py"]


def test_signals_change_nothing_once_a_run_is_complete(tmp_path: Path) -> None:
    """As with one that does not need to begin: it was complete before."""
    line, program = words(tmp_path, AT_THE_END)
    outcome = run_program(*line, cwd=tmp_path, program=program, code=0)
    assert "model: run/model.h5" in outcome.out
    assert outcome.err == ""
    run_here(*line, "--resume", "auto", cwd=tmp_path, code=0)


def test_libraries_of_mpi_leave_a_signal_ignored_that_was(tmp_path: Path) -> None:
    """UCX would take SIGHUP to be debugged, and give it back to the system as the process ends."""
    (tmp_path / "program.py").write_text(UNDER_NOHUP)
    assert run_program(ranks=2, cwd=tmp_path, program=["program.py"], code=0).out.split() == ["1", "1"]


def test_two_ctrl_c_after_the_model_is_written_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far enough from each other to end a run that is not complete."""
    line, _ = words(tmp_path, "")
    moments, close = itertools.count(0.0, 10.0), Curve.close

    def interrupted(curve: Curve) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        close(curve)

    monkeypatch.setattr(process, "now", lambda: next(moments))
    monkeypatch.setattr(Curve, "close", interrupted)
    run_here(*line, cwd=tmp_path, code=0)


def test_signals_wait_while_the_program_is_loaded(tmp_path: Path) -> None:
    line, program = words(tmp_path, WHILE_LOADING)
    run_program(*line, cwd=tmp_path, program=program, code=STOPPED)
    assert not (tmp_path / "run").exists()
