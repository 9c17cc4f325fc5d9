"""A team of threads: what ranks exchange, without MPI."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

import numpy as np

from macmpi import MacmpiError
from macmpi.parallel.team import Team

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds after which a rank that waits for the others fails: they have left the collective."""


class Member(Team):
    """One thread of a crew.  `slots` are shared: what each rank shows to the others."""

    def __init__(self, rank: int, barrier: Barrier, slots: list[Any]) -> None:
        self.rank, self.size = rank, len(slots)
        self._barrier, self._slots = barrier, slots

    def _shown(self, value: Any) -> list[Any]:
        """What all ranks have shown, copied; nobody goes on before all have seen it."""
        self._slots[self.rank] = value
        self._barrier.wait(PATIENCE)
        found = copy.deepcopy(self._slots)
        self._barrier.wait(PATIENCE)
        return found

    def _agree(self, function: Callable[[], T], takes_part: bool) -> tuple[Any, list[Any]]:
        value: Any = None
        error: MacmpiError | None = None
        if takes_part:
            try:
                value = function()
            except MacmpiError as failed:
                error = failed
        return value, [e for e in self._shown(error) if e is not None]

    def from_root(self, function: Callable[[], T]) -> T:
        value, errors = self._agree(function, self.rank == 0)
        if errors:
            errors[0].agreed = True
            raise errors[0]
        return self._shown(value)[0]

    def all_or_raise(self, function: Callable[[], T]) -> T:
        value, errors = self._agree(function, True)
        if errors:
            errors[0].agreed = True
            raise errors[0]
        return value

    def share_array(self, array: Any) -> None:
        array[...] = self._shown(array)[0]

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None:
        for rank, theirs in enumerate(self._shown(array)):
            rows = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
            array[rows] = theirs[rows]

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None:
        for theirs, slices in zip(self._shown(flat), parts, strict=True):
            for part in slices:
                flat[part] = theirs[part]

    def gather_columns(self, own: Any, counts: Sequence[int], columns: Sequence[slice]) -> Any:
        theirs = self._shown(own)
        assert [len(rows) for rows in theirs] == list(counts)
        return np.concatenate([rows[:, columns[self.rank]] for rows in theirs])

    def max_over_ranks(self, values: dict[str, float]) -> dict[str, float]:
        shown = self._shown(values)
        return {name: max(theirs[name] for theirs in shown) for name in values}

    def shift_to_next(self, flat: Any, parts: Mapping[int, Sequence[slice]] | Sequence[Sequence[slice]]) -> None:
        before = (self.rank - 1) % self.size
        theirs = self._shown(flat)[before]
        for part in parts[before]:
            flat[part] = theirs[part]


def crew(size: int, work: Callable[[Team], T]) -> list[T | MacmpiError]:
    """What `work` gives, or the MacmpiError that it raises, on each of `size` ranks."""
    barrier, slots = Barrier(size), [None] * size
    broken: list[BaseException] = []

    def rank(number: int) -> Any:
        try:
            return work(Member(number, barrier, slots))
        except MacmpiError as error:
            return error
        except BaseException as error:  # noqa: BLE001 - the others wait for this rank: they must end too
            broken.append(error)
            barrier.abort()
            return None

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(rank, range(size)))
    if broken:
        raise broken[0]
    return found
