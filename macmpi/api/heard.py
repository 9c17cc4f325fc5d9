"""Texts of a fit go where Python's users look for them: warnings to `warnings`, lines to nobody or to the screen."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from macmpi import MacmpiWarning, UsageError
from macmpi.console import heard_by, put

ARGUMENTS = {
    "model.hidden": "hidden",
    'use model.sites = "none" at that layer': 'use config={"model.sites": "none"}, or a list of words, one a layer',
    "model.activation": "layers",
    "model.loss": "loss",
    "data.validation": "validation",
    "data.target": "Y",
    "data.weights": "weights",
    "--max-time": "max_time",
    "--output": "output",
    "--overwrite": "overwrite=True",
    "continue it with --resume auto, replace it": "replace it",
    'data.source = ""': "the arguments of fit",
    "this config": "this fit",
    "[model] must agree": "inputs, outputs, hidden and layers must agree",
}
"""Keys of a config and options of the command line, and the arguments of `macmpi.fit` in their place."""


@contextmanager
def listening(verbose: bool) -> Iterator[None]:
    """Within this, errors and warnings are Python's warnings, raised at the end; lines are printed if verbose.

    Texts, and those of UsageErrors, speak of arguments instead of keys.  Collective: no.
    """
    said: list[str] = []

    def listen(text: str, error: bool) -> None:
        if error:
            said.append(in_python(text.removeprefix("macmpi: ")))
        elif verbose:
            put(text)

    with heard_by(listen):
        try:
            yield
        except UsageError as error:
            error.args = (in_python(str(error)),)
            raise
    for text in said:
        warnings.warn(text, MacmpiWarning, stacklevel=4)


def in_python(text: str) -> str:
    """A message in which arguments stand in the place of keys and options, where there are such arguments."""
    keys = "|".join(re.escape(key) for key in ARGUMENTS)
    return re.sub(rf"(?<![\w.])({keys})(?![\w-])", lambda found: ARGUMENTS[found[0]], text)
