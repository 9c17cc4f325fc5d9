"""The ranks of a communicator exchange whole arrays, runs of rows, and parts that travel laid end to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def size(parts: Sequence[slice]) -> int:
    """Counts the numbers that some parts hold."""
    return sum(part.stop - part.start for part in parts)


def starts_of(counts: Sequence[int]) -> list[int]:
    """Gives the start of each of some runs that lie end to end."""
    return [sum(counts[:i]) for i in range(len(counts))]


def pack(flat: Any, packed: Any, parts: Sequence[slice]) -> None:
    """The parts of `flat` into `packed`, which is as long as all of them."""
    at = 0
    for part in parts:
        packed[at : at + part.stop - part.start] = flat[part]
        at += part.stop - part.start


def unpack(flat: Any, packed: Any, parts: Sequence[slice]) -> None:
    """Copy what `pack` has packed into the parts of another flat array."""
    at = 0
    for part in parts:
        flat[part] = packed[at : at + part.stop - part.start]
        at += part.stop - part.start


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
        counts, here = [size(own) for own in of_node], self.comm.Get_rank()
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
    for rank, node in enumerate(nodes):
        if rank and nodes[rank - 1] == node:
            runs[node][-1] = range(runs[node][-1].start, rank + 1)
        else:
            runs[node].append(range(rank, rank + 1))
    longest = max(map(len, runs))
    return [[own[i] if i < len(own) else range(0) for own in runs] for i in range(longest)]


def placed(runs: Sequence[range], counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Counts the rows that the ranks of each run have, and gives their starts.  Collective: no."""
    starts = starts_of(counts)
    return [sum(counts[r] for r in run) for run in runs], [starts[run.start] if run else 0 for run in runs]
