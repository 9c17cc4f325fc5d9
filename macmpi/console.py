"""Prints everything that macmpi prints: no run ends because standard output or standard error is full or closed."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from macmpi import MacmpiWarning

LOST = (OSError, ValueError)
"""A stream raises these errors where nobody reads it any more, where its disk is full, and where it is closed."""

Listener = Callable[[str, bool], None]

listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
"""A function that receives each text instead of the screen, and True with those that are errors or warnings."""


@contextmanager
def heard_by(hear: Listener) -> Iterator[None]:
    """Sends what this thread prints inside the `with` to a listener instead: hear(text, whether it is an error)."""
    token = listener.set(hear)
    try:
        yield
    finally:
        listener.reset(token)


def say(text: str, error: bool = False) -> None:
    """Prints one or more lines on standard output or standard error at once; a text that cannot be written is lost."""
    if hear := listener.get():
        hear(text, error)
    else:
        put(text, error)


def put(text: str, error: bool = False) -> None:
    """Prints as `say` does, also where a listener is set.  Characters that the stream cannot encode become "?"."""
    stream = sys.stderr if error else sys.stdout
    if stream is not None:
        with suppress(*LOST):
            try:
                print(text, file=stream, flush=True)
            except UnicodeEncodeError as lacking:
                print(text.encode(lacking.encoding, "replace").decode(lacking.encoding), file=stream, flush=True)


def warn(text: str) -> None:
    """Prints one line on standard error, with the name of the program before it."""
    say(f"macmpi: {text}", error=True)


def flush() -> None:
    """Flushes standard output and standard error, where they are still open."""
    for stream in _streams():
        with suppress(*LOST):
            stream.flush()


def guard() -> None:
    """Lets a program end with its own exit code, even if its output was lost.  Each `main` calls it first.

    Without it Python exits with code 120 where the rest of the output cannot be written.  It also makes each
    MacmpiWarning a line of `warn`.
    """
    atexit.register(_drop_unwritten)
    usual = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        warn(str(message)) if category is MacmpiWarning else usual(message, category, *where, **more)

    warnings.showwarning = show


def _drop_unwritten() -> None:
    for stream in _streams():
        try:
            stream.flush()
        except LOST:
            with suppress(*LOST):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def _streams() -> list[Any]:
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]


def printable(text: str) -> str:
    """Replaces characters that could control a terminal by "?", in a text or a name that others have written."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def decimals(value: float) -> str:
    """Writes an error with four decimals, and from a million on with four significant digits."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Writes seconds as 0:07, 12:30 or 3:05:00."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


def program(command: str) -> str:
    """Returns how to call a command, for usage and hints: "macmpi run" or "python -m macmpi.run", as the user did."""
    by_name = sys.argv[:1] and sys.argv[0].startswith("macmpi ")
    return f"macmpi {command}" if by_name else f"python -m macmpi.{command}"
