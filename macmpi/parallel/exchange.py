"""The ranks of a communicator exchange arrays: whole, by runs of rows, by parts laid end to end, and by columns.

Each rank gets columns of its own of what all have, at once with P - 1 messages, or, of many ranks, in two levels: rank
r = g G + i is member i of group g, and

    1. the members of each group exchange: member i gets the columns of all members i, of its group's rows;
    2. the members i of all groups exchange: each gets its own columns, of all rows.

That are G + P / G - 2 messages, and twice the bytes, of which the first half stay in the group: on one node, where
launchers fill one node after the other and it has more than G ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, groupby, zip_longest
from typing import Any

FROM = 256
"""The ranks from which on there are two levels: below, messages cost less than bytes that are sent twice."""

FEWER = 4
"""Two levels take at most a FEWER-th of the messages, or there is one."""


def lengths(parts: Sequence[slice]) -> list[int]:
    """Counts the numbers that each of some parts holds."""
    return [part.stop - part.start for part in parts]


def starts_of(counts: Sequence[int]) -> list[int]:
    """Gives the start of each of some runs that lie end to end."""
    return list(accumulate(counts, initial=0))[:-1]


def end_to_end(counts: Sequence[int]) -> list[slice]:
    """Gives runs of these lengths, one behind the other."""
    return [slice(start, start + count) for start, count in zip(starts_of(counts), counts, strict=True)]


def pack(flat: Any, packed: Any, parts: Sequence[slice]) -> None:
    """The parts of `flat` into `packed`, which is as long as all of them."""
    for place, part in zip(end_to_end(lengths(parts)), parts, strict=True):
        packed[place] = flat[part]


def unpack(flat: Any, packed: Any, parts: Sequence[slice]) -> None:
    """Copy what `pack` has packed into the parts of another flat array."""
    for place, part in zip(end_to_end(lengths(parts)), parts, strict=True):
        flat[part] = packed[place]


def runs_by_turn(nodes: Sequence[int]) -> list[list[range]]:
    """Runs of consecutive ranks of each node, the i-th of every node in round i: one round if ranks go node by node.

    nodes: the node of each rank.  A node without an i-th run has an empty one.  Collective: no.
    """
    runs: list[list[range]] = [[] for _ in range(max(nodes) + 1)]
    for node, same in groupby(range(len(nodes)), key=nodes.__getitem__):
        first, *others = same
        runs[node].append(range(first, first + 1 + len(others)))
    return [list(turn) for turn in zip_longest(*runs, fillvalue=range(0))]


def placed(runs: Sequence[range], counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Counts the rows that the ranks of each run have, and gives their starts.  Collective: no."""
    starts = starts_of(counts)
    return [sum(counts[r] for r in run) for run in runs], [starts[run.start] if run else 0 for run in runs]


def group_size(ranks: int) -> int:
    """G, the divisor of P next to its root from below; 1, one level, for few ranks, or where groups would be uneven.

    Collective: no.
    """
    if ranks < FROM:
        return 1
    found = max(size for size in range(1, int(ranks**0.5) + 1) if ranks % size == 0)
    return found if FEWER * messages(ranks, found) <= ranks - 1 else 1


def messages(ranks: int, group: int) -> int:
    """A rank's messages in an exchange of columns, one behind the other.  Collective: no."""
    return ranks - 1 if group == 1 else group + ranks // group - 2


class Exchange:
    """The ranks of a communicator, each of which exchanges what some ranks of the launch have: itself, or its node.

    nodes: of each rank of the launch, which rank of the communicator exchanges for it; finish: waits for a request, in
    a phase; exchange: takes what starts a request, and its phase, and returns when it is done, at once by `finish`.
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
        """A row of `size` bytes as an MPI type.  Counts in rows rather than numbers stay far below 2^31."""
        if size not in self._row_types:
            self._row_types[size] = self._mpi.BYTE.Create_contiguous(size).Commit()
        return self._row_types[size]

    def share_array(self, array: Any) -> None:
        """The values of the first, for all."""
        row_type = self.row_type(array.nbytes // len(array) if len(array) else 1)
        self._exchange(lambda: self.comm.Ibcast([array, len(array), row_type], root=0), "rank 0's data")

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None:
        """All rows for all, of which rank r of the launch has counts[r]."""
        for own in self._turns:
            where = [array, placed(own, counts), self.row_type(array.nbytes // len(array))]
            self._exchange(lambda: self.comm.Iallgatherv(self._mpi.IN_PLACE, where), "coordinates")  # noqa: B023

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None:
        """All parts for all, of which rank r of the launch has parts[r]."""
        import numpy as np

        of_node: list[list[slice]] = [[] for _ in range(max(self._nodes) + 1)]
        for node, own in zip(self._nodes, parts, strict=True):
            of_node[node] += own
        counts, here = [sum(lengths(own)) for own in of_node], self.comm.Get_rank()
        packed, starts = np.empty(sum(counts), flat.dtype), starts_of(counts)
        pack(flat, packed[starts[here] :], of_node[here])
        where = [packed, (counts, starts), self.row_type(flat.itemsize)]
        self._exchange(lambda: self.comm.Iallgatherv(self._mpi.IN_PLACE, where), "weights")
        for node, own in enumerate(of_node):
            if node != here:
                unpack(flat, packed[starts[node] :], own)

    def gather_columns(self, own: Any, counts: Sequence[int], columns: Sequence[slice]) -> Any:
        """The columns[r] of all rows for rank r, of which it has counts[r].  Cost: messages as of `messages`."""
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
        """G, and the communicators of both levels where it is not 1.  Collective: yes, the first time."""
        rank, group = self.comm.Get_rank(), group_size(self.comm.Get_size())
        if group == 1:
            return 1, None, None
        return group, self.comm.Split(rank // group, rank), self.comm.Split(rank % group, rank)

    def _all_to_all(
        self, comm: Any, own: Any, counts: Sequence[int], columns: Sequence[Sequence[slice]], exchange: Any
    ) -> Any:
        """This rank's columns of the rows of all, of a communicator whose ranks are counted from 0."""
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
