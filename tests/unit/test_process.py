"""What a process asks of its system: stop signals, the end with its launcher, its peak of memory, less collecting."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path

import pytest

from macmpi.training import process
from macmpi.training.process import STOP_SIGNALS, StopRequest, peak_memory, spare_living

MB = 1 << 20


@pytest.fixture
def request_() -> Iterator[StopRequest]:
    """Handlers for the time of a test."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield StopRequest()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.every_case
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_signal_asks_for_an_end_and_does_not_interrupt(number: signal.Signals, request_: StopRequest) -> None:
    signal.raise_signal(number)
    assert request_.why


AT_ONCE, LATER = 0.01, 30.0
"""Seconds between two signals: a launcher passes one on twice, and somebody, or a batch system, has waited."""


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("gap", [AT_ONCE, LATER])
def test_any_sequence_of_signals_asks_for_an_end_and_only_a_person_s_second_ctrl_c_interrupts(
    gap: float, complete: bool, monkeypatch: pytest.MonkeyPatch, request_: StopRequest
) -> None:
    """All sequences of three.  A batch system goes through a list: SIGUSR1, SIGINT, SIGTERM (LSF), in any order."""
    moments = count(0.0, gap)
    monkeypatch.setattr(process, "now", lambda: next(moments))
    for sequence in product(STOP_SIGNALS, repeat=3):
        wish = StopRequest()
        wish.complete = complete
        interrupted_at = 0
        for place, number in enumerate(sequence, 1):
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt:
                interrupted_at = interrupted_at or place
            assert wish.why
        only = next((i for i, number in enumerate(sequence) if number != signal.SIGINT), 3)
        assert interrupted_at == (2 if only >= 2 and gap > process.APART and not complete else 0), sequence


def test_ctrl_c_after_an_answer_of_a_callback_is_the_first_one(request_: StopRequest) -> None:
    request_.why = process.ANSWERED
    signal.raise_signal(signal.SIGINT)
    assert request_.why == process.INTERRUPTED


def test_signals_that_come_while_they_are_held_are_delivered_and_later_ones_ignored(request_: StopRequest) -> None:
    process.hold_stop_signals()
    signal.raise_signal(signal.SIGUSR1)
    assert not request_.why
    process.on_stop_signals(request_._note)
    assert request_.why
    process.ignore_stop_signals()
    for number in STOP_SIGNALS:
        signal.raise_signal(number)
    assert {signal.getsignal(number) for number in STOP_SIGNALS} == {signal.SIG_IGN}


HOLDS = """
import os, signal, time
from macmpi.training import process
process.HELD = process.LOOK = 0.05
process.hold_stop_signals()
{}
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30.0)
"""


@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [("", os.EX_TEMPFAIL), ("process.on_stop_signals(signal.SIG_DFL); time.sleep(0.2)", -signal.SIGTERM)],
    ids=["in vain", "until somebody has it"],
)
def test_a_held_signal_waits_for_other_ranks_for_seconds(meanwhile: str, code: int) -> None:
    """MPI_Init waits without an end for a rank that the same signal has ended."""
    assert subprocess.run([sys.executable, "-c", HOLDS.format(meanwhile)], check=False, timeout=20).returncode == code


ORPHAN = """
import os, signal, sys
from macmpi.training import process
process.GRACE = 0.1
process.on_stop_signals(lambda number, frame: os.write(2, b"asked"))
process.end_with_launcher()
print(os.getpid(), flush=True)
while True:
    sys.stdout.write("x" * 1_000_000)
"""


def test_a_process_ends_with_the_one_that_has_started_it_even_in_the_middle_of_a_line_that_nobody_reads() -> None:
    """It is asked first."""
    line = ["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", ORPHAN]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None and launcher.stderr is not None
        own = Path(f"/proc/{int(launcher.stdout.readline())}/stat")
        assert alive(own)
        launcher.kill()
        assert launcher.stderr.read(5) == b"asked"
        end = time.monotonic() + 30.0
        while alive(own) and time.monotonic() < end:
            time.sleep(0.02)
        assert not alive(own)


def alive(stat: Path) -> bool:
    """Nobody may have taken note of the end of a process."""
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def resident() -> float:
    """MB of pages that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE / MB


def test_the_peak_grows_by_memory_that_is_touched_and_stays_when_it_is_freed() -> None:
    """Half of the bytes in question are left for what the system counts late."""
    before, more = peak_memory(), 64
    with mmap.mmap(-1, 4 * more * MB):  # asked for, not touched
        assert peak_memory() < before + 0.5 * more
    size = int(before - resident()) + more
    with mmap.mmap(-1, size * MB) as memory:
        for at in range(0, size * MB, mmap.PAGESIZE):
            memory[at] = 1
        touched = peak_memory()
        assert before + 0.5 * more < touched < before + 1.5 * more
    assert peak_memory() >= touched


class Node:
    """Something that refers to itself: only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def freed(node: weakref.ref[Node]) -> bool:
    gc.collect()
    return node() is None


def test_what_lives_is_left_out_of_collections_and_later_garbage_is_not() -> None:
    enabled, living, dying = gc.isenabled(), Node(), Node()
    early = weakref.ref(dying)
    try:
        spare_living()
        assert gc.isenabled() == enabled
        assert not any(found is living for found in gc.get_objects())
        later = weakref.ref(Node())
        del dying
        assert freed(later)
        assert not freed(early)
    finally:
        gc.unfreeze()
    assert freed(early)
    assert any(found is living for found in gc.get_objects())
