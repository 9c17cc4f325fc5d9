"""What a process asks of its system: stop signals, memory that stays, objects out of the collector's way, a peak."""

from __future__ import annotations

import gc
import mmap
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from macmpi.training.process import STOP_SIGNALS, StopRequest, peak_memory, spare_living

MB = 1 << 20


@pytest.fixture
def request_() -> Iterator[StopRequest]:
    """Handlers for the time of a test."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield StopRequest()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_signal_asks_for_an_end_and_does_not_interrupt(number: signal.Signals, request_: StopRequest) -> None:
    signal.raise_signal(number)
    assert request_.asked


@pytest.mark.parametrize("first", STOP_SIGNALS)
def test_what_was_asked_for_stays_and_only_a_further_sigint_interrupts(
    first: signal.Signals, request_: StopRequest
) -> None:
    signal.raise_signal(first)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.raise_signal(number)
        assert request_.asked
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert request_.asked


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
