"""Where a half step was when a library gave up: attached to the error as it is raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def located(half: str, *where: Any) -> Iterator[None]:
    """An error raised inside says where, as `located`: ("Z", rows) or ("W", segment, tile of units).  Collective: no."""
    try:
        yield
    except Exception as error:
        error.__dict__.setdefault("located", (half, *where))
        raise
