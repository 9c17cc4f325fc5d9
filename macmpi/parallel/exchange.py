"""Arrays are exchanged by messages among ranks, and by memory that the ranks of a node share.

In an exchange of columns each rank gets its own columns of the rows of all ranks.  That takes P - 1 messages at once,
or for many ranks two levels: rank r = g G + i is member i of group g, and

    1. the members of each group exchange: member i gets the columns of all members i, of its group's rows;
    2. the members i of all groups exchange: each gets its own columns, of all rows.

These are G + P / G - 2 messages, and twice the bytes.  Those of the first level stay in the group, which is on one node
if launchers fill one node after the other and a node has more than G ranks.

Shared memory (MPI-3 windows) has on each node one copy of the arrays that `Team.array` makes.  These rules say who may
touch the rows of such an array, and when:

    team.fence(array)              every rank has come here: nobody reads the old rows any more
    array[own rows] = ...              meanwhile a rank reads no rows of it but its own
    team.gather_rows(array, counts)    every rank has come here: all rows are new

Between a rank's write of a row and another's read of it, whichever is first, all ranks meet, with MPI_Win_sync before
and after.  A new `array` holds zeros, which nobody reads yet, and may be written at once.  `share_array` meets as
`gather_rows` does.  Rank 0 reads all rows for checkpoints and files inside `from_root`, while the others wait for it.

With several nodes the first rank of each exchanges the rows of its node with the first ranks of the others.

No window in use is ever freed: MPI_Win_free would wait for all ranks, of which one may be dead.  The end of the process
frees it.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, groupby, zip_longest
from typing import Any, NamedTuple

from macmpi.console import warn

FROM = 256
"""With fewer ranks than this there is one level: messages cost less there than bytes that are sent twice."""

FEWER = 4
"""There are two levels only if they need at most 1 / FEWER of the messages."""


def lengths(parts: Sequence[slice]) -> list[int]:
    """Returns the length of each part."""
    return [part.stop - part.start for part in parts]


def starts_of(counts: Sequence[int]) -> list[int]:
    """Returns the start of each of several ranges that lie end to end."""
    return list(accumulate(counts, initial=0))[:-1]


def end_to_end(counts: Sequence[int]) -> list[slice]:
    """Returns ranges of these lengths, one after the other."""
    return [slice(start, start + count) for start, count in zip(starts_of(counts), counts, strict=True)]


def unpack(flat: Any, packed: Any, parts: Sequence[slice]) -> None:
    """Copies numbers that lie end to end into the parts of a flat array."""
    for place, part in zip(end_to_end(lengths(parts)), parts, strict=True):
        flat[part] = packed[place]


def runs_by_turn(nodes: Sequence[int]) -> list[list[range]]:
    """Groups ranks into runs of consecutive ranks of one node, and these into rounds with a run of each node.

    There is one round if ranks fill one node after the other.  A node without a further run has an empty one.

    nodes: the node of each rank.  Collective: no.
    """
    runs: list[list[range]] = [[] for _ in range(max(nodes) + 1)]
    for node, same in groupby(range(len(nodes)), key=nodes.__getitem__):
        first, *others = same
        runs[node].append(range(first, first + 1 + len(others)))
    return [list(turn) for turn in zip_longest(*runs, fillvalue=range(0))]


def placed(runs: Sequence[range], counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns how many rows the ranks of each run have, and where these start.  counts: the rows of each rank.

    Collective: no.
    """
    starts = starts_of(counts)
    return [sum(counts[r] for r in run) for run in runs], [starts[run.start] if run else 0 for run in runs]


def group_size(ranks: int) -> int:
    """Returns G, the largest divisor of P up to its root.

    It is 1, for one level, if there are few ranks, or if P has no divisor near its root.  Collective: no.
    """
    if ranks < FROM:
        return 1
    found = max(size for size in range(1, int(ranks**0.5) + 1) if ranks % size == 0)
    return found if FEWER * messages(ranks, found) <= ranks - 1 else 1


def messages(ranks: int, group: int) -> int:
    """Counts the messages that a rank sends in an exchange of columns, one after the other.  Collective: no."""
    return ranks - 1 if group == 1 else group + ranks // group - 2


class Exchange:
    """Exchanges arrays among the ranks of a communicator, each for itself or for all ranks of its node.

    nodes: for each rank of the launch the rank of the communicator that exchanges for it.
    finish: finish(request, phase) waits for a request of MPI.
    exchange: exchange(start, phase) calls start() for a request, and waits for it; None: by `finish`, at once.
    Collective: yes, of the communicator.
    """

    def __init__(
        self, comm: Any, mpi: Any, nodes: Sequence[int], finish: Callable[..., None], exchange: Any = None
    ) -> None:
        self.comm, self._mpi, self._nodes, self._finish = comm, mpi, nodes, finish
        self._exchange = exchange or self._at_once
        self._turns = runs_by_turn(nodes)
        self._row_types: dict[int, Any] = {}

    def _at_once(self, start: Callable[[], Any], phase: str) -> None:
        self._finish(start(), phase)

    def row_type(self, size: int) -> Any:
        """Makes an MPI type for a row of `size` bytes; counts of rows stay far below 2^31, unlike counts of numbers."""
        if size not in self._row_types:
            self._row_types[size] = self._mpi.BYTE.Create_contiguous(size).Commit()
        return self._row_types[size]

    def share_array(self, array: Any) -> None:
        """Gives all ranks the first rank's values, in place."""
        row_type = self.row_type(array.nbytes // len(array) if len(array) else 1)
        self._exchange(lambda: self.comm.Ibcast([array, len(array), row_type], root=0), "rank 0's data")

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None:
        """Gives all ranks all rows, in place; rank r of the launch has counts[r] of them."""
        for own in self._turns:
            where = [array, placed(own, counts), self.row_type(array.nbytes // len(array))]
            self._exchange(lambda: self.comm.Iallgatherv(self._mpi.IN_PLACE, where), "coordinates")  # noqa: B023

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None:
        """Gives all ranks all parts of a flat array, in place; rank r of the launch has parts[r]."""
        import numpy as np

        of_node: list[list[slice]] = [[] for _ in range(max(self._nodes) + 1)]
        for node, own in zip(self._nodes, parts, strict=True):
            of_node[node] += own
        counts, here = [sum(lengths(own)) for own in of_node], self.comm.Get_rank()
        packed, places = np.empty(sum(counts), flat.dtype), end_to_end(counts)
        np.concatenate([flat[:0], *(flat[part] for part in of_node[here])], out=packed[places[here]])
        where = [packed, (counts, starts_of(counts)), self.row_type(flat.itemsize)]
        self._exchange(lambda: self.comm.Iallgatherv(self._mpi.IN_PLACE, where), "weights")
        for node, own in enumerate(of_node):
            if node != here:
                unpack(flat, packed[places[node]], own)

    def gather_columns(self, own: Any, counts: Sequence[int], columns: Sequence[slice]) -> Any:
        """Returns, on rank r, columns[r] of the rows of all ranks; rank r has counts[r] rows, `own`.

        Cost: the number of messages that `messages` gives.
        """
        rank, (group, within, across) = self.comm.Get_rank(), self._levels
        if group == 1:
            return self._all_to_all(self.comm, own, counts, [[some] for some in columns], self._exchange)
        of_members, first = [columns[i::group] for i in range(group)], rank - rank % group
        rows = self._all_to_all(within, own, counts[first : first + group], of_members, self._exchange)
        of_groups = [sum(counts[g : g + group]) for g in range(0, len(counts), group)]
        pieces = [[piece] for piece in end_to_end(lengths(of_members[rank % group]))]
        return self._all_to_all(across, rows, of_groups, pieces, self._at_once)

    @cached_property
    def _levels(self) -> tuple[int, Any, Any]:
        """G, and the communicators of both levels if G is not 1.  Collective: yes, the first time."""
        rank, group = self.comm.Get_rank(), group_size(self.comm.Get_size())
        if group == 1:
            return 1, None, None
        return group, self.comm.Split(rank // group, rank), self.comm.Split(rank % group, rank)

    def _all_to_all(
        self, comm: Any, own: Any, counts: Sequence[int], columns: Sequence[Sequence[slice]], exchange: Any
    ) -> Any:
        """Exchanges columns among the ranks of a communicator; returns this rank's columns of all rows.

        own: this rank's rows.
        counts: the number of rows of each rank.
        columns: the columns that each rank gets.
        exchange: starts a request and waits for it.
        """
        import numpy as np

        rank, widths = comm.Get_rank(), [sum(lengths(runs)) for runs in columns]
        sent = [len(own) * width for width in widths]
        received = [count * widths[rank] for count in counts]
        packed = np.empty(sum(sent), own.dtype)
        for place, width, runs in zip(end_to_end(sent), widths, columns, strict=True):
            np.concatenate([own[:, run] for run in runs], axis=1, out=packed[place].reshape(len(own), width))
        found = np.empty((sum(counts), widths[rank]), own.dtype)
        number = self.row_type(own.itemsize)
        out, into = ([array, (sizes, starts_of(sizes)), number] for array, sizes in ((packed, sent), (found, received)))
        exchange(lambda: comm.Ialltoallv(out, into), "sums")
        return found


# --- memory that ranks of a node share --------------------------------------------------------------------------------


PLACE = "/dev/shm"

RESERVE = 5.4e6
"""Bytes per rank for MPICH's usual transport between the ranks of a node; the one that mpi.py chooses takes a fifth."""

POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE gives memory its pages now, and is an error where touching them would end the process."""


def free_bytes() -> float:
    """Returns the bytes that are free for shared memory on this node.  Collective: no."""
    try:
        disk = os.statvfs(PLACE)
    except OSError:
        return 0.0
    return float(disk.f_bavail * disk.f_frsize)


def ranks_of_node(mpi: Any, comm: Any) -> Any:
    """Makes a communicator of the ranks of this node.  Collective: yes, and blocking."""
    return comm.Split_type(mpi.COMM_TYPE_SHARED, comm.Get_rank())


class Window(NamedTuple):
    """Is shared memory as this rank sees it.

    user: user() is the array that lies in the window, or None if nobody has this array any more.
    """

    handle: Any
    memory: Any
    user: Callable[[], Any]


class Node:
    """Lets the ranks of one node share arrays.  Collective: methods that say so.

    The memory of an array that no rank has any more is used again.
    """

    def __init__(self, team: Any, mpi: Any, comm: Any) -> None:
        import numpy as np

        self._team, self._mpi, self._finish = team, mpi, team._finish
        team.barrier("the ranks of its node")
        self._here = ranks_of_node(mpi, comm)
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
        """Returns when all ranks have come here, and the ranks of a node see what the others wrote before.

        Collective: yes.
        """
        self._sync()
        with self._team.clock("wait"):
            self._team.barrier(phase)
        self._sync()

    def _sync(self) -> None:
        """Orders this rank's writes and reads; in the unified memory model one window's barrier does that for all."""
        for sync in self._syncs:
            sync()

    def holds(self, array: Any) -> bool:
        """Tells whether an array lies in shared memory.  Collective: no."""
        at = array.__array_interface__["data"][0]
        return any(0 <= at - window.memory.address < window.memory.nbytes for window in self._windows)

    def reserve(self, needed: float, least: float = -math.inf) -> None:
        """Shares no more memory, and warns, if some node has fewer than `needed` bytes free.  Collective: yes.

        least: how many bytes are missing at least, whatever seems to be free.
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
        """Makes zeros that the ranks of a node share or, if memory is short, zeros for each rank.  Collective: yes."""
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
        """Finds the smallest window of at least `size` bytes that no rank uses; -1: none.  Collective: yes."""
        large = [i for i, window in enumerate(self._windows) if window.memory.nbytes >= size]
        if not large:
            return -1
        used = self._team.max_over_ranks({str(i): float(self._windows[i].user() is not None) for i in large})
        idle = [i for i in large if not used[str(i)]]
        return min(idle, key=lambda i: self._windows[i].memory.nbytes, default=-1)

    def _share(self, size: int) -> slice:
        """Returns this rank's share of shared memory: it touches these bytes first, so that they lie near it."""
        rank, ranks = self._here.Get_rank(), self._here.Get_size()
        return slice(size * rank // ranks, size * (rank + 1) // ranks)

    def _allocate(self, size: int) -> bool:
        """Appends one more window to the list; returns False if memory is short.  Collective: yes."""
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
        """Waits for all ranks of the nodes; then the first ranks of several nodes call `exchange`.  Collective: yes."""
        self.barrier(phase)
        if len(self.nodes) > 1:
            with self._team.clock("comm"):
                if self._here.Get_rank() == 0:
                    exchange(self._leaders)
                self._sync()
                self._finish(self._here.Ibarrier(), "the first rank of its node")
                self._sync()  # the others of a node see what its first rank has received


def populated(address: int, part: slice) -> bool:
    """Gives some bytes of shared memory their pages; tells whether there was memory for them.  Collective: no.

    An older Linux cannot do this; there it returns True, and the check of `free_bytes` has to be enough.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    start, stop = ((address + at) // page * page for at in (part.start, part.stop + page - 1))
    if part.start == part.stop:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), POPULATE_WRITE)
    return done == 0 or ctypes.get_errno() == errno.EINVAL
