"""Texts of a fit go where Python's users look for them: warnings to `warnings`, lines to nobody or to the screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from macmpi import UsageError, caution, many
from macmpi.console import heard_by, put

ARGUMENTS = {
    "model.hidden": "hidden",
    'use model.sites = "none" at that layer': 'use config={"model.sites": "none"}, or a list of words, one a layer',
    "model.activation": "layers",
    "model: activation": "layers",
    "model.loss": "loss",
    "data.validation": "validation",
    "data.target": "Y",
    "data.weights": "weights",
    "data.seed": "seed",
    "start.seed": "seed",
    "start.model": "start",
    "--max-time": "max_time",
    "--output": "output",
    "--overwrite": "overwrite=True",
    "continue it with --resume auto, replace it": "replace it",
    'data.source = ""': "the arguments of fit",
    "this config": "this fit",
    "[model] must agree": "inputs, outputs, hidden and layers must agree",
}
"""Keys of a config and options of the command line, and the arguments of `macmpi.fit` in their place."""

OTHERS: ContextVar[dict[str, str]] = ContextVar("others", default={})  # noqa: B039 - nobody changes it
"""Keys, and the arguments in their place, of a function that calls `macmpi.fit`."""


@contextmanager
def listening(verbose: bool, given: Callable[[], Collection[str]]) -> Iterator[None]:
    """Within this, errors and warnings are Python's warnings, raised at the end; lines are printed if verbose.

    Texts, and those of UsageErrors, speak of arguments instead of keys, but for the keys that the config has given.
    Collective: no.
    """
    said: list[str] = []

    def listen(text: str, error: bool) -> None:
        if error:
            said.append(text.removeprefix("macmpi: "))
        elif verbose:
            put(text)

    with heard_by(listen):
        try:
            yield
        except UsageError as error:
            error.args = (in_python(str(error), given()),)
            raise
    for text in said:
        caution(in_python(text, given()))


def in_python(text: str, given: Collection[str] = ()) -> str:
    """A message in which arguments stand in the place of keys and options, where there are such arguments.

    given: keys that stay as they are, for the user has written them so.
    """
    arguments = {key: name for key, name in ARGUMENTS.items() if key not in given} | OTHERS.get()
    keys = "|".join(re.escape(key) for key in sorted(arguments, key=len, reverse=True))
    text = re.sub(r"^: ", "the arguments of fit: ", text)  # of points without a source
    said = re.sub(rf"(?<![\w.])({keys})(?![\w-])", lambda found: arguments[found[0]], text)
    said = re.sub(r"\b(\w+) or \1\b", r"\1", said)
    said = re.sub(
        rf"did you mean ({'|'.join(map(re.escape, arguments.values()))})\?", r"did you mean the argument \1?", said
    )
    lines = list(dict.fromkeys(said.replace("the arguments of fit: dataset ", "").splitlines()))
    if len(lines) < said.count("\n") + 1:  # two keys are one argument
        lines[0] = re.sub(r"^\d+ mistakes?", f"{many(len(lines) - 1, 'mistake')}", lines[0])
    return "\n".join(lines)
