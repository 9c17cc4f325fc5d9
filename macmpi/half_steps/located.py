"""An error of a library carries the place in the half step where it was raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def located(half: str, *where: Any) -> Iterator[None]:
    """An error raised inside is `located`: ("Z", rows) or ("W", segment, tile of units).  Collective: no."""
    try:
        yield
    except Exception as error:
        error.__dict__.setdefault("located", (half, *where))
        raise
