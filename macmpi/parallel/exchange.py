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


class Exchange:
    """The ranks of a communicator, each of which exchanges what some ranks of the launch have: itself, or its node.

    nodes: of each rank of the launch, which rank of the communicator exchanges for it; finish: takes what starts a
    request, and its phase, and returns when it is done.  Collective: yes, of the communicator.
    """

    def __init__(self, comm: Any, in_place: Any, nodes: Sequence[int], finish: Callable[..., None]) -> None:
        self.comm, self._in_place, self._nodes, self._finish = comm, in_place, nodes, finish
        self._turns = runs_by_turn(nodes)

    def share_array(self, array: Any, row_type: Any) -> None:
        """The values of the first, for all."""
        self._finish(lambda: self.comm.Ibcast([array, len(array), row_type], root=0), "rank 0's data")

    def gather_rows(self, array: Any, counts: Sequence[int], row_type: Any) -> None:
        """All rows for all, of which rank r of the launch has counts[r]."""
        for own in self._turns:
            where = [array, placed(own, counts), row_type]
            self._finish(lambda: self.comm.Iallgatherv(self._in_place, where), "coordinates")  # noqa: B023

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]], number_type: Any) -> None:
        """All parts for all, of which rank r of the launch has parts[r]."""
        import numpy as np

        of_node: list[list[slice]] = [[] for _ in range(max(self._nodes) + 1)]
        for node, own in zip(self._nodes, parts, strict=True):
            of_node[node] += own
        counts, here = [sum(lengths(own)) for own in of_node], self.comm.Get_rank()
        packed, starts = np.empty(sum(counts), flat.dtype), starts_of(counts)
        pack(flat, packed[starts[here] :], of_node[here])
        where = [packed, (counts, starts), number_type]
        self._finish(lambda: self.comm.Iallgatherv(self._in_place, where), "weights")
        for node, own in enumerate(of_node):
            if node != here:
                unpack(flat, packed[starts[node] :], own)


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


class Columns:
    """`Team.gather_columns` of the ranks of a communicator.

    number: the MPI type of a number of some bytes; exchange: waits for all ranks, then for the request that it starts;
    finish: waits for a request.
    """

    def __init__(self, comm: Any, number: Callable[[int], Any], exchange: Callable[..., None], finish: Any) -> None:
        self._comm, self._number, self._exchange, self._finish = comm, number, exchange, finish
        self._group = group_size(comm.Get_size())
        self._levels: tuple[Any, Any] | None = None

    def gather(self, own: Any, counts: Sequence[int], columns: Sequence[slice]) -> Any:
        """Collective: yes.  Cost: messages as of `messages`."""
        import numpy as np

        group, rank = self._group, self._comm.Get_rank()
        if group == 1:
            return self._all_to_all(self._comm, own, counts, columns, self._exchange)
        if self._levels is None:
            self._levels = self._comm.Split(rank // group, rank), self._comm.Split(rank % group, rank)
        within, across = self._levels
        of_members, first = [columns[i::group] for i in range(group)], rank - rank % group
        sorted_ = np.concatenate([own[:, some] for member in of_members for some in member], axis=1)
        runs = end_to_end([sum(lengths(member)) for member in of_members])
        rows = self._all_to_all(within, sorted_, counts[first : first + group], runs, self._exchange)
        of_groups = [sum(counts[g : g + group]) for g in range(0, len(counts), group)]
        pieces = end_to_end(lengths(of_members[rank % group]))
        return self._all_to_all(across, rows, of_groups, pieces, lambda start, phase: self._finish(start(), phase))

    def _all_to_all(
        self, comm: Any, own: Any, counts: Sequence[int], columns: Sequence[slice], exchange: Callable[..., None]
    ) -> Any:
        """This rank's columns of the rows of all, of a communicator whose ranks are counted from 0."""
        import numpy as np

        rank, widths = comm.Get_rank(), lengths(columns)
        sent = [len(own) * width for width in widths]
        received = [count * widths[rank] for count in counts]
        packed = np.empty(sum(sent), own.dtype)
        for place, run in zip(end_to_end(sent), columns, strict=True):
            packed[place].reshape(own[:, run].shape)[:] = own[:, run]
        found = np.empty((sum(counts), widths[rank]), own.dtype)
        number = self._number(own.itemsize)
        out, into = ([array, (sizes, starts_of(sizes)), number] for array, sizes in ((packed, sent), (found, received)))
        exchange(lambda: comm.Ialltoallv(out, into), "sums")
        return found
