"""A fit gives its warnings to Python's `warnings`, and prints lines only if it is asked to.

In a notebook it shows its progress: a line, and the learning curve, drawn again after each iteration.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import Any

from macmpi import UsageError, caution, many
from macmpi.console import decimals, duration, heard_by, put
from macmpi.parallel.clock import now
from macmpi.training.request import Callback

ARGUMENTS = {
    "model.hidden": "hidden",
    'use model.sites = "none" at that layer': 'use config={"model.sites": "none"}, or a list of words, one a layer',
    "model.activation": "layers",
    "model: activation": "layers",
    "model.loss": "loss",
    "data.validation": "validation",
    "data.target": "Y",
    "data.weights": "weights",
    "data.classes": "classes",
    "data.seed": "seed",
    "start.seed": "seed",
    "start.model": "start",
    "all points (stochastic.stream = false)": "all points in one fit",
    "--max-time": "max_time",
    "--output": "output",
    "--overwrite": "overwrite=True",
    "continue it with --resume auto, replace it": "replace it",
    'data.source = ""': "the arguments of fit",
    "this config": "this fit",
    "[model] must agree": "inputs, outputs, hidden and layers must agree",
}
"""Key of a config or option of the command line -> the argument of `macmpi.fit` that replaces it in messages."""

OTHERS: ContextVar[dict[str, str]] = ContextVar("others", default={})  # noqa: B039 - nobody changes it
"""Key or option -> the argument that replaces it, of a function that calls `macmpi.fit`."""


@contextmanager
def listening(verbose: bool, given: Callable[[], Collection[str]]) -> Iterator[None]:
    """Turns warnings and errors that its block prints into Python's warnings, which are issued at the end.

    Their texts, and the texts of UsageErrors, name arguments instead of keys.

    verbose: whether other lines are printed.
    given: given() returns the keys in the user's own config, which messages name as keys.  Collective: no.
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
    """Replaces keys and options in a message by the arguments that stand for them.

    given: keys that are not replaced, since the user has written them.
    """
    arguments = {key: name for key, name in ARGUMENTS.items() if key not in given} | OTHERS.get()
    keys = "|".join(re.escape(key) for key in sorted(arguments, key=len, reverse=True))
    text = re.sub(r"^: ", "the arguments of fit: ", text)  # a message about points without a source
    said = re.sub(rf"(?<![\w.])({keys})(?![\w-])", lambda found: arguments[found[0]], text)
    said = re.sub(r"\b(\w+) or \1\b", r"\1", said)
    said = re.sub(
        rf"did you mean ({'|'.join(map(re.escape, arguments.values()))})\?", r"did you mean the argument \1?", said
    )
    lines = list(dict.fromkeys(said.replace("the arguments of fit: dataset ", "").splitlines()))
    if len(lines) < said.count("\n") + 1:  # two keys have become one argument
        lines[0] = re.sub(r"^\d+ mistakes?", f"{many(len(lines) - 1, 'mistake')}", lines[0])
    return "\n".join(lines)


# --- in a notebook ----------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 480, 140
"""The size of the curve in pixels."""

EVERY = 0.2
"""Seconds between two pictures, so that short iterations do not wait for the browser."""

LINES = (("E1_train", "training", "#1f77b4"), ("E1_val", "validation", "#d62728"))
"""The keys of a record that are drawn, with names and colours."""


def in_notebook() -> bool:
    """Tells whether this process is the kernel of a notebook.  Collective: no."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def drawing(callback: Callback | None, shown: Any = None) -> Callback:
    """Makes a callback that draws the records so far, and then passes the last one to another callback.

    shown: a display of IPython, which has `update`; None: one is made at the first record.  Collective: no.
    """
    records: list[dict[str, Any]] = []
    drawn_at = -math.inf

    def draw(record: dict[str, Any]) -> Any:
        nonlocal shown, drawn_at
        records.append(record)
        if record["phase"] != "iteration" or now() - drawn_at > EVERY:
            from IPython.display import HTML, display

            drawn_at, page = now(), HTML(picture(records))
            if shown is None:
                shown = display(page, display_id=True)
            else:
                shown.update(page)
        return callback(record) if callback else None

    return draw


def picture(records: Sequence[dict[str, Any]]) -> str:
    """Writes as HTML a line about the last record and, from the second record on, the curves of the errors."""
    last = records[-1]
    said = f"iteration {last['iteration']:,}, {duration(last['seconds'])} of training"
    errors = ", ".join(f"{name} {decimals(last[key])}" for key, name, _ in LINES)
    end = " (finished)" if last["phase"] == "postprocess" else ""
    text = f"<div>{escape(said)}{end}: error {escape(errors)}</div>"
    return text + curves(records) if len(records) > 1 else text


def curves(records: Sequence[dict[str, Any]]) -> str:
    """Draws the errors on a logarithmic scale against iterations, as SVG, without errors that are 0 or not finite."""
    rows = {key: [(r["iteration"], r[key]) for r in records if 0.0 < r[key] < math.inf] for key, _, _ in LINES}
    values = [math.log(value) for row in rows.values() for _, value in row]
    if not values:
        return ""
    low, high, longest = min(values), max(values), max(records[-1]["iteration"], 1)
    span = (high - low) or 1.0

    def place(iteration: int, value: float) -> str:
        return f"{WIDTH * iteration / longest:.1f},{HEIGHT * (high - math.log(value)) / span:.1f}"

    lines = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(place(*p) for p in rows[key])}">'
        f"<title>{name}</title></polyline>"
        for key, name, colour in LINES
    ]
    names = " ".join(f'<tspan fill="{colour}">{name}</tspan>' for _, name, colour in LINES)
    legend = f'<text x="{WIDTH - 4}" y="14" text-anchor="end" font-size="12">{names}</text>'
    box = f'viewBox="-2 -4 {WIDTH + 4} {HEIGHT + 8}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">{"".join(lines)}{legend}</svg>'
