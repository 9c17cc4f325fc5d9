"""A team of ranks has verbs by which they exchange; here is what each verb does for a team of one process."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from macmpi import MacmpiError
from macmpi.console import flush
from macmpi.parallel.clock import Clock

T = TypeVar("T")

EXIT_CODES = "MACMPI_EXIT_CODES"
"""The environment variable by which a batch script names a folder for the exit codes of ranks that end all others."""


class Team:
    """Is the team of a launch, as one of its ranks sees it.  Collective: methods that say so.

    This class is for a single process.  `MPITeam`, for many ranks, has the same verbs, which are explained here.

    rank, size: the number of this rank, and of all ranks.
    library: the name of the MPI in use.
    shares: whether the ranks of a node have one copy of each `array`.
    """

    rank: int = 0
    size: int = 1
    library: str = "none"
    shares: bool = False

    @cached_property
    def clock(self) -> Clock:
        """The clock of this rank's phases: its half steps, exchanges and waiting.  Collective: no."""
        return Clock()

    def set_deadline(self, seconds: float) -> None:
        """Sets after how many seconds of waiting a rank gives up on the others.  Collective: no.

        Seconds in which this rank is suspended do not count.  Until this is called a rank waits for `PATIENCE` seconds.
        """

    def from_root(self, function: Callable[[], T]) -> T:
        """Calls `function` on rank 0; all ranks return its result or raise its MacmpiError.  Collective: yes."""
        try:
            return function()
        except MacmpiError as error:
            error.agreed = True
            raise

    def all_or_raise(self, function: Callable[[], T]) -> T:
        """Calls `function` on each rank; if some raise a MacmpiError, all raise the error of the first of these ranks.

        If an OSError caused it and some ranks have not failed, the error names that rank and its host.
        Collective: yes.
        """
        return self.from_root(function)

    def share_memory(self, needed: float) -> None:
        """Shares each `array` among the ranks of a node from now on, if `needed` bytes are free.  Collective: yes."""

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        """Makes zeros for rows of points, one copy on each node if its ranks share memory.  Collective: yes."""
        import numpy as np

        return np.zeros(shape, dtype)

    def common(self, array: Any) -> bool:
        """Tells whether all ranks of the launch have this `array` in one piece of memory.  Collective: no."""
        return False

    def fence(self, array: Any) -> None:
        """Returns when no rank reads `array` any more, so that each may write its own rows.  Collective: yes."""

    def share_array(self, array: Any) -> None:
        """Gives every rank rank 0's values of `array`, in place.  Collective: yes."""

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None:
        """Gathers `array` (n, H) in place: each rank has computed its own rows, and on return every rank has all rows.

        counts: the number of rows of each rank, which lie in the order of the ranks.  Collective: yes.
        """

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None:
        """Gathers a flat array in place: rank r has computed parts[r], and on return every rank has all parts.

        Collective: yes.
        """

    def gather_columns(self, own: Any, counts: Sequence[int], columns: Sequence[slice]) -> Any:
        """Returns, on rank r, columns[r] of the rows of all ranks, in their order; rank r has `own` (counts[r], H).

        No rank gets whole rows of others: if counts and columns are even, it sends and receives counts[r] x H numbers,
        minus its own part.  Collective: yes.
        """
        return own[:, columns[0]]

    def shift_to_next(self, flat: Any, parts: Mapping[int, Sequence[slice]] | Sequence[Sequence[slice]]) -> None:
        """Sends parts[rank] of a flat array to the next rank, and puts what the previous rank sends into the array.

        The last rank sends to the first.

        parts: the parts by rank; a rank needs only its own part and the previous rank's.
        Cost: size(parts[rank]) numbers are sent.  Collective: yes.
        """

    def max_over_ranks(self, values: dict[str, float]) -> dict[str, float]:
        """Returns the largest value over the ranks, by name.  Collective: yes."""
        return values

    def barrier(self, phase: str) -> None:
        """Returns when every rank has come here.  phase: words for what is waited for.  Collective: yes."""

    def depart(self) -> None:
        """Returns when every rank is about to end, or after some seconds.  Collective: yes.

        A launcher may kill all others when the first one ends with another exit code than 0.
        """

    def abort(self, code: int) -> NoReturn:
        """Ends every rank at once with this exit code.  Collective: no."""
        flush()
        if folder := os.environ.get(EXIT_CODES):
            with suppress(OSError):
                Path(folder, str(code)).touch()
        self._end_others(code)
        os._exit(code)

    def _end_others(self, code: int) -> None:
        """Ends the other ranks with this exit code.  Collective: no."""


def on_root(team: Team, step: Callable[[], Any]) -> Any:
    """Calls `step` on rank 0 and returns its answer there, None elsewhere; raises its MacmpiError on all.

    Collective: yes.
    """
    kept: list[Any] = []
    team.from_root(lambda: kept.append(step()))
    return kept[0] if kept else None


def texts(team: Team, text: str) -> list[str]:
    """Returns the texts of all ranks on every rank.  Collective: yes."""
    import numpy as np

    own = text.encode()
    width = int(team.max_over_ranks({"bytes": float(len(own))})["bytes"])
    rows = np.zeros((team.size, width), np.uint8)
    rows[team.rank, : len(own)] = np.frombuffer(own, np.uint8)
    team.gather_rows(rows, [1] * team.size)
    return [bytes(row).rstrip(b"\0").decode() for row in rows]


def check_alike(team: Team, text: str, error: Callable[[str, str], MacmpiError]) -> None:
    """Raises error(who, said) on all ranks if some have another text than rank 0.  Collective: yes.

    who: names those ranks and their hosts, "ranks 2-3 on node7".
    said: holds the text of the first of them, and the text of rank 0.
    """
    if team.size == 1:
        return
    said = [json.loads(both) for both in texts(team, json.dumps([text, platform.node()]))]
    others: dict[str, list[int]] = {}
    for rank, (found, host) in enumerate(said):
        if found != said[0][0]:
            others.setdefault(host, []).append(rank)
    if others:
        who = ", ".join(f"{named(numbers)} on {host}" for host, numbers in others.items())
        theirs = next(found for found, _ in said if found != said[0][0])
        raised = error(who, f"{theirs}; on rank 0: {said[0][0]}")
        raised.agreed = True
        raise raised


def named(numbers: list[int]) -> str:
    """Writes the numbers of ranks as ranges: "ranks 0-3, 6".  Collective: no."""
    by_run = groupby(enumerate(numbers), lambda place: place[1] - place[0])
    runs = [[n for _, n in run] for _, run in by_run]
    listed = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"rank{'s' if len(numbers) > 1 else ''} {listed}"
