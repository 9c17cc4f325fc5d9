"""One copy a node: arrays in memory that the ranks of a node share (MPI-3 windows), made by `Team.array`.

Who may touch the rows of such an array, and when:

    team.fence(array)              every rank has come here: nobody reads the old rows any more
    array[own rows] = ...              meanwhile a rank reads no rows of it but its own
    team.gather_rows(array, counts)    every rank has come here: all rows are new

Between a rank's write of a row and another's read of it, whichever is first, lies a meeting of all ranks with
MPI_Win_sync on both sides of it.  What `array` gives is open: zeros that nobody reads yet.  `share_array` meets as
`gather_rows` does.  Rank 0 reads all rows for checkpoints and files inside `from_root`, whose answer the others await.

With several nodes the first rank of each exchanges the rows of its node with the first ranks of the others.

Nothing frees a window in use: MPI_Win_free waits for all ranks, and one may be dead; the end of the process frees it.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from macmpi.console import warn
from macmpi.parallel.exchange import Exchange

PLACE = "/dev/shm"

RESERVE = 5.4e6
"""Bytes a rank that MPICH's usual transport between the ranks of a node takes; that of mpi.py takes a fifth."""

POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE: give memory its pages now; an error where touching them would end the process."""


def free_bytes() -> float:
    """The bytes that are free for shared memory on this node.  Collective: no."""
    try:
        disk = os.statvfs(PLACE)
    except OSError:
        return 0.0
    return float(disk.f_bavail * disk.f_frsize)


def ranks_here(mpi: Any, comm: Any) -> Any:
    """The ranks of this node, as a communicator.  Collective: yes, and blocking."""
    return comm.Split_type(mpi.COMM_TYPE_SHARED, comm.Get_rank())


class Window(NamedTuple):
    """Shared memory as this rank sees it; user: the array that lies in it, dead or alive."""

    handle: Any
    memory: Any
    user: Callable[[], Any]


class Node:
    """The ranks of one node and the arrays that they share.  Collective: where a method says so.

    Memory of arrays that no rank has any more is used again.
    """

    def __init__(self, team: Any, mpi: Any, comm: Any) -> None:
        import numpy as np

        self._team, self._mpi, self._finish = team, mpi, team._finish
        team.barrier("the ranks of its node")
        self._here = ranks_here(mpi, comm)
        first = self._here.Get_rank() == 0
        leading = comm.Split(0 if first else mpi.UNDEFINED, comm.Get_rank())
        (leader,) = self._here.Get_group().Translate_ranks([0], comm.Get_group())
        leaders = np.full(team.size, leader, np.int64)
        self._finish(comm.Iallgather(mpi.IN_PLACE, [leaders, 1, mpi.INT64_T]), "the nodes")
        self.nodes = sorted(set(leaders.tolist()))
        nodes = [self.nodes.index(leader) for leader in leaders.tolist()]
        self._leaders = Exchange(leading, mpi, nodes, self._finish)
        self._windows: list[Window] = []
        self._syncs: list[Callable[[], None]] = []
        self.full = False

    def barrier(self, phase: str) -> None:
        """Return when the ranks of a node see all that each of them has written before.  Collective: yes."""
        self._sync()
        with self._team._clock("wait"):
            self._team.barrier(phase)
        self._sync()

    def _sync(self) -> None:
        """Orders what this rank writes and reads: in the unified memory model one window's barrier does for all."""
        for sync in self._syncs:
            sync()

    def holds(self, array: Any) -> bool:
        """Tells whether an array lies in shared memory.  Collective: no."""
        at = array.__array_interface__["data"][0]
        return any(0 <= at - window.memory.address < window.memory.nbytes for window in self._windows)

    def reserve(self, needed: float, least: float = -math.inf) -> None:
        """Share nothing more, with a warning, if a node has not `needed` bytes.  Collective: yes.

        least: how many are missing at least, whatever seems to be free.
        """
        needed += RESERVE * self._here.Get_size()
        missing = max(needed - free_bytes(), least)
        lacks = self._team.max_over_ranks({"missing": missing})["missing"]
        if lacks > 0.0 and not self.full:
            self.full = True
            if self._team.rank == 0:
                what = "what comes from now on for itself" if self._windows else "its own copy"
                warn(
                    f"{PLACE} lacks {math.ceil(lacks / 1e6):,} MB for the {math.ceil(needed / 1e6):,} MB that "
                    f"the ranks of a node would share, MPI's own memory included "
                    f'(parallel.data = "node"): every rank keeps {what}; '
                    f"a larger {PLACE} (containers: --shm-size) has them"
                )

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        """Zeros that the ranks of a node share; a rank's own where memory is short.  Collective: yes."""
        import numpy as np

        size = 0 if self.full else math.prod(shape) * np.dtype(dtype).itemsize
        number = self._idle(size) if size else -1
        if number < 0 and (not size or not self._allocate(size)):
            return np.zeros(shape, dtype)
        window = self._windows[number]
        flat = np.frombuffer(window.memory, np.uint8)
        self._windows[number] = window._replace(user=weakref.ref(flat))
        flat[self._share(window.memory.nbytes)] = 0
        self.barrier("shared memory")
        return flat[:size].view(dtype).reshape(shape)

    def _idle(self, size: int) -> int:
        """The smallest window of at least `size` bytes that no rank uses; -1 if there is none.  Collective: yes."""
        large = [i for i, window in enumerate(self._windows) if window.memory.nbytes >= size]
        if not large:
            return -1
        used = self._team.max_over_ranks({str(i): float(self._windows[i].user() is not None) for i in large})
        idle = [i for i in large if not used[str(i)]]
        return min(idle, key=lambda i: self._windows[i].memory.nbytes, default=-1)

    def _share(self, size: int) -> slice:
        """This rank's bytes of shared memory, those which it gives their pages: they then lie near it."""
        rank, ranks = self._here.Get_rank(), self._here.Get_size()
        return slice(size * rank // ranks, size * (rank + 1) // ranks)

    def _allocate(self, size: int) -> bool:
        """One more window, the last of the list; False where memory is short.  Collective: yes."""
        self.reserve(size)
        if self.full:
            return False
        self._team.barrier("shared memory")
        window, failed = None, 2.0
        with suppress(self._mpi.Exception):
            handle = self._mpi.Win.Allocate_shared(size if self._here.Get_rank() == 0 else 0, 1, comm=self._here)
            memory = handle.Shared_query(0)[0]
            window = Window(handle, memory, lambda: None)
            failed = float(not populated(memory.address, self._share(size)))
        if (worst := self._team.max_over_ranks({"failed": failed})["failed"]) > 0.0:
            if worst < 2.0 and window is not None:
                window.handle.Free()  # all ranks are alive: they have just agreed
            self.reserve(size, least=size)
            return False
        assert window is not None
        window.handle.Lock_all(self._mpi.MODE_NOCHECK)
        self._windows.append(window)
        if not self._syncs or handle.model != self._mpi.WIN_UNIFIED:
            self._syncs.append(handle.Sync)
        return True

    def meet(self, phase: str, exchange: Callable[[Exchange], None]) -> None:
        """All ranks of the nodes meet; then the first ranks of several nodes exchange.  Collective: yes."""
        self.barrier(phase)
        if len(self.nodes) > 1:
            with self._team._clock("comm"):
                if self._here.Get_rank() == 0:
                    exchange(self._leaders)
                self._sync()
                self._finish(self._here.Ibarrier(), "the first rank of its node")
                self._sync()  # the others of a node see what its first rank has received


def populated(address: int, part: slice) -> bool:
    """Give some bytes of shared memory their pages; False if memory is short.  Collective: no.

    An older Linux does not know how: there `free_bytes` has to do.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    start, stop = ((address + at) // page * page for at in (part.start, part.stop + page - 1))
    if part.start == part.stop:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), POPULATE_WRITE)
    return done == 0 or ctypes.get_errno() == errno.EINVAL
