"""Columns of what all ranks have, each rank its own: at once, or by many ranks in two levels.

At once a rank has P - 1 messages to send.  In two levels rank r = g G + i is member i of group g, and

    1. the members of each group exchange: member i gets the columns of all members i, of its group's rows;
    2. the members i of all groups exchange: each gets its own columns, of all rows.

That are G + P / G - 2 messages, and twice the bytes, of which the first half stay in the group: on one node, where
launchers fill one node after the other and it has more than G ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from macmpi.parallel.packing import starts_of
from macmpi.typing import Array

FROM = 256
"""The ranks from which on there are two levels: below, messages cost less than bytes that are sent twice."""

FEWER = 4
"""Two levels take at most a FEWER-th of the messages, or there is one."""


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

    def gather(self, own: Array, counts: Sequence[int], columns: Sequence[slice]) -> Array:
        """Collective: yes.  Cost: messages as of `messages`."""
        group, rank = self._group, self._comm.Get_rank()
        if group == 1:
            return self._all_to_all(self._comm, own, counts, columns, self._exchange)
        if self._levels is None:
            self._levels = self._comm.Split(rank // group, rank), self._comm.Split(rank % group, rank)
        within, across = self._levels
        of_members = [columns[i::group] for i in range(group)]
        sorted_ = np.concatenate([own[:, some] for member in of_members for some in member], axis=1)
        first = rank - rank % group
        widths = [sum(some.stop - some.start for some in member) for member in of_members]
        rows = self._all_to_all(within, sorted_, counts[first : first + group], _runs(widths), self._exchange)
        of_groups = [sum(counts[g : g + group]) for g in range(0, len(counts), group)]
        pieces = _runs([some.stop - some.start for some in of_members[rank % group]])
        return self._all_to_all(across, rows, of_groups, pieces, lambda start, phase: self._finish(start(), phase))

    def _all_to_all(
        self, comm: Any, own: Array, counts: Sequence[int], columns: Sequence[slice], exchange: Callable[..., None]
    ) -> Array:
        """This rank's columns of the rows of all, of a communicator whose ranks are counted from 0."""
        rank = comm.Get_rank()
        widths = [run.stop - run.start for run in columns]
        sent = [len(own) * width for width in widths]
        received = [count * widths[rank] for count in counts]
        packed = np.empty(sum(sent), own.dtype)
        for start, count, run in zip(starts_of(sent), sent, columns, strict=True):
            if count:
                packed[start : start + count].reshape(len(own), -1)[:] = own[:, run]
        found = np.empty((sum(counts), widths[rank]), own.dtype)
        number = self._number(own.itemsize)
        out, into = ([array, (sizes, starts_of(sizes)), number] for array, sizes in ((packed, sent), (found, received)))
        exchange(lambda: comm.Ialltoallv(out, into), "sums")
        return found


def _runs(widths: Sequence[int]) -> list[slice]:
    """Slices of these widths, one behind the other."""
    starts = starts_of(widths)
    return [slice(start, start + width) for start, width in zip(starts, widths, strict=True)]
