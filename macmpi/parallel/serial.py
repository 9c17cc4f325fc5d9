"""One process as a team: nothing to exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from macmpi import MacmpiError
from macmpi.parallel.team import Team

T = TypeVar("T")


class Serial(Team):
    """The reference for every verb of a Team.  Collective: no."""

    rank, size, library = 0, 1, "none"

    def set_clock(self, clock: Callable[[str], Any] | None, deadline: float) -> None: ...

    def from_root(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except MacmpiError as error:
            error.agreed = True
            raise

    def all_or_raise(self, function: Callable[[], T]) -> T:
        return self.from_root(function)

    def share_memory(self, needed: float) -> None: ...

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        import numpy as np

        return np.zeros(shape, dtype)

    def common(self, array: Any) -> bool:
        return False

    def fence(self, array: Any) -> None: ...

    def share_array(self, array: Any) -> None: ...

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None: ...

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None: ...

    def gather_columns(self, own: Any, counts: Sequence[int], columns: Sequence[slice]) -> Any:
        return own[:, columns[0]]

    def shift_to_next(self, flat: Any, parts: Mapping[int, Sequence[slice]] | Sequence[Sequence[slice]]) -> None: ...

    def max_over_ranks(self, values: dict[str, float]) -> dict[str, float]:
        return values

    def barrier(self, phase: str) -> None: ...

    def depart(self) -> None: ...
