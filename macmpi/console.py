"""All output goes this way: standard output and standard error may be full, closed or gone, and no run ends by that."""

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
"""A stream raises these that nobody reads any more, whose disk is full, or that is closed."""

Listener = Callable[[str, bool], None]

listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
"""Texts go there, where it is set, with whether they are errors or warnings."""


@contextmanager
def heard_by(hear: Listener) -> Iterator[None]:
    """Gives texts that are printed inside, in this thread, to a listener instead, and tells it which are errors."""
    token = listener.set(hear)
    try:
        yield
    finally:
        listener.reset(token)


def say(text: str, error: bool = False) -> None:
    """Prints one line (or several) on standard output or standard error, at once; what cannot go out is left out."""
    if hear := listener.get():
        hear(text, error)
    else:
        put(text, error)


def put(text: str, error: bool = False) -> None:
    """Prints the text as `say` does, whoever listens.  Signs that the stream's encoding lacks become "?"."""
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
    """Sends out what was printed, where anybody still reads it."""
    for stream in _streams():
        with suppress(*LOST):
            stream.flush()


def guard() -> None:
    """Lets a program end with its own exit code, whatever became of its output.  For the first line of a main.

    Python itself ends with exit code 120 where what is left of the output cannot be written.  What is a MacmpiWarning
    in Python is a line of `warn`.
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
    """Text that others wrote, of a file or a name, without signs that command a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def decimals(value: float) -> str:
    """An error as text, with four decimals, and from a million on with four digits."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Seconds as text: 0:07, 12:30 or 3:05:00."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


def program(command: str) -> str:
    """The name of a command as it was started here, by `macmpi` or as a module: for usage messages, and for hints."""
    by_name = sys.argv[:1] and sys.argv[0].startswith("macmpi ")
    return f"macmpi {command}" if by_name else f"python -m macmpi.{command}"
