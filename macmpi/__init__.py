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
"""Names that are imported when they are first asked for: the package itself is light."""


class MacmpiError(Exception):
    """A known error: one message, the same exit code on all ranks.

    agreed: it was raised on every rank; one that is raised on a single rank ends all of them like an unknown error.
    """

    exit_code = 70
    agreed = False


class MacmpiWarning(UserWarning):
    """Something that a fit has to say: a key that is not read, a run that was stopped."""


def caution(text: str) -> None:
    """Warns, by a MacmpiWarning of the line outside of this package that has led here; within a fit at its end.

    Collective: no.
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
    """A value in a message: one line of at most 80 signs.  Collective: no."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - of more digits than Python prints, nested too deeply, or of a class of others
        text = f"a value of type {type(value).__name__}"
    return f"{' '.join(text.split()):.80}"


def many(n: int, word: str, verb: str = "") -> str:
    """1 row, 2,000 rows, 3 classes, 2 entries; verb: "is" or "are" goes before it.  Collective: no."""
    plural = f"{word[:-1]}ies" if word.endswith("ry") else f"{word}es" if word.endswith("ss") else f"{word}s"
    return f"{verb and ('is ' if n == 1 else 'are ')}{n:,} {word if n == 1 else plural}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first of some names, as many as a message can have, and a sign where there are more.  Collective: no."""
    return ", ".join([*names[:most], *["..."] * (len(names) > most)])


class Done(MacmpiError):
    """Nothing is left to do: the message, exit code 0."""

    exit_code = 0


class UsageError(MacmpiError):
    """The command line, the config, the data or the run directory is not usable as it is."""

    exit_code = 2


class StorageError(MacmpiError):
    """The last save failed."""

    exit_code = 74


class NumericalError(MacmpiError):
    """A value that training depends on is not finite, or the error at the end is far above that of a constant."""

    exit_code = 70


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = getattr(import_module(LAZY[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
