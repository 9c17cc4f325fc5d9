"""The verbs of a team, and what they are for one process: the reference for every team of more."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from macmpi import MacmpiError
from macmpi.console import flush

T = TypeVar("T")

EXIT_CODES = "MACMPI_EXIT_CODES"
"""The variable that names a folder for the exit codes of ranks that end all others, from a batch script."""


class Serial:
    """One process: nothing to exchange.  The reference for every verb of Team.  Collective: no."""

    rank = 0
    size = 1
    library = "none"
    shares = False  # whether the ranks of a node have one copy of each `array`

    def set_clock(self, clock: Callable[[str], Any] | None, deadline: float) -> None:
        """Account exchange and waiting to `clock`; give up on the others after `deadline` seconds.  Collective: no.

        Until this is called a rank waits for `PATIENCE` seconds.
        """

    def from_root(self, function: Callable[[], T]) -> T:
        """Call `function` on rank 0 and give its answer to all, or raise its MacmpiError on all.  Collective: yes."""
        try:
            return function()
        except MacmpiError as error:
            error.agreed = True
            raise

    def all_or_raise(self, function: Callable[[], T]) -> T:
        """Call `function` on each rank for its own answer, or raise the first rank's MacmpiError on all.

        Collective: yes.
        """
        return self.from_root(function)

    def share_memory(self, needed: float) -> None:
        """From now on the ranks of a node share each `array`, if there is room for `needed` bytes.  Collective: yes."""

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        """Zeros for rows of points, of which a node has one copy if its ranks share memory.  Collective: yes."""
        import numpy as np

        return np.zeros(shape, dtype)

    def common(self, array: Any) -> bool:
        """Whether all ranks of the launch have this `array` in one piece of memory.  Collective: no."""
        return False

    def fence(self, array: Any) -> None:
        """Before own rows of an `array` are written: return when no rank reads it any more.  Collective: yes."""

    def share_array(self, array: Any) -> None:
        """Rank 0's values of `array`, in place, on every rank.  Collective: yes."""

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None:
        """Each rank has computed its own rows of `array` (n, H): `counts[r]` rows of rank r, in the order of the ranks.

        On return every rank has all rows.  In place.  Collective: yes.
        """

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None:
        """Each rank has computed `parts[rank]` of the flat array; on return every rank has all.  Collective: yes."""

    def shift_to_next(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None:
        """Each rank hands its `parts[rank]` of the flat array to the next rank, the last one to the first.

        On return every rank has its predecessor's.  Moves size(parts[rank]) numbers.  Collective: yes.
        """

    def max_over_ranks(self, values: dict[str, float]) -> dict[str, float]:
        """The largest value over the ranks, by name.  Collective: yes."""
        return values

    def barrier(self, phase: str) -> None:
        """Return when every rank has come to `phase`.  Collective: yes."""

    def abort(self, code: int) -> NoReturn:
        """End every rank at once with this exit code.  Collective: no."""
        flush()
        leave_code(code)
        os._exit(code)


Team = Serial
"""Team is a Serial with more ranks: every caller treats them alike."""


def leave_code(code: int) -> None:
    """An exit code as an empty file, where a batch script asks for it: the launcher may report another.

    Collective: no.
    """
    if folder := os.environ.get(EXIT_CODES):
        with suppress(OSError):
            Path(folder, str(code)).touch()
