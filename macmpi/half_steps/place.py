"""Where a half step was when a library gave up: attached to the error as it is raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def place(half: str, *where: Any) -> Iterator[None]:
    """An error that is raised inside has a `place`: ("Z", rows) or ("W", segment, tile of units).  Collective: no."""
    try:
        yield
    except Exception as error:
        error.__dict__.setdefault("place", (half, *where))
        raise
