"""macmpi trains deeply nested systems by the method of auxiliary coordinates (MAC) on many MPI ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from macmpi.api.fit import fit
    from macmpi.results.model import Model
    from macmpi.results.model_file import load, save

__version__ = "0.2.0"

__all__ = ["MacmpiError", "MacmpiWarning", "Model", "NumericalError", "StorageError", "UsageError"]
__all__ += ["fit", "load", "save"]

LAZY = {
    "fit": "macmpi.api.fit",
    "Model": "macmpi.results.model",
    "load": "macmpi.results.model_file",
    "save": "macmpi.results.model_file",
}
"""Each public name that is imported when it is first asked for, and its module: importing macmpi alone is fast."""


class MacmpiError(Exception):
    """An error that macmpi itself raises: it becomes one message and the same exit code on all ranks.

    exit_code: the exit code of the program.
    agreed: True where every rank has raised this error; one that a single rank raises ends all ranks at once.
    """

    exit_code = 70
    agreed = False


class MacmpiWarning(UserWarning):
    """A warning of a fit, for instance that a key is not read or that the run was stopped."""


def caution(text: str) -> None:
    """Warns with a MacmpiWarning that names the line of the caller, the nearest one outside of this package.

    Within a fit, the listener of macmpi.console collects the text, and the fit warns of it at its end.  Collective: no.
    """
    import sys
    import warnings

    from macmpi.console import listener

    if hear := listener.get():
        return hear(text, True)
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in (__name__, "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, MacmpiWarning, stacklevel=level)


def shown(value: object) -> str:
    """Returns repr(value) for a message: one line of at most 80 characters.  Collective: no."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - numbers of too many digits, deep nesting, or a class whose repr fails
        text = f"a value of type {type(value).__name__}"
    return f"{' '.join(text.split()):.80}"


def many(n: int, word: str, verb: str = "") -> str:
    """Counts in words: "1 row", "2,000 rows", "3 classes", "2 entries".  Collective: no.

    verb: any text but "" puts "is" or "are" before the number.
    """
    plural = f"{word[:-1]}ies" if word.endswith("ry") else f"{word}es" if word.endswith("ss") else f"{word}s"
    return f"{verb and ('is ' if n == 1 else 'are ')}{n:,} {word if n == 1 else plural}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Joins the first `most` names by commas for a message, and adds "..." where there are more.  Collective: no."""
    return ", ".join([*names[:most], *["..."] * (len(names) > most)])


class Done(MacmpiError):
    """Ends the program early because nothing is left to do: its message is printed, and the exit code is 0."""

    exit_code = 0


class UsageError(MacmpiError):
    """The command line, the config, the data or the run directory is not usable as it is."""

    exit_code = 2


class StorageError(MacmpiError):
    """A file that the program had to write could not be written: a checkpoint, a model, a report."""

    exit_code = 74


class NumericalError(MacmpiError):
    """Numbers are wrong: one is not finite, training ended far above a constant's error, or ranks disagree."""

    exit_code = 70


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = getattr(import_module(LAZY[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
