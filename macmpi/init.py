"""`python -m macmpi.init DATA`: looks at a data set and writes a commented config for it.  Needs no MPI.

--list, --config NAME and --batch NAME print documented configs and batch scripts that macmpi brings along instead.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from macmpi import UsageError, __version__, many
from macmpi.config import Config, validate
from macmpi.config.reading import documented, explanations, listed, scripts, text_of
from macmpi.config.whole import given, toml
from macmpi.console import printable, program
from macmpi.data.dataset import Dataset, Points
from macmpi.data.gathered import points_of, with_loss
from macmpi.data.loading import Source
from macmpi.files import check_output, write_output
from macmpi.parallel.command import Namespace, by_one_process
from macmpi.plan.estimate import check_memory
from macmpi.plan.plan import Plan
from macmpi.plan.resolve import resolve_in_span
from macmpi.plan.resolved import Resolved

SHOWN = (
    *("data.validation", "data.points", "data.seed", "data.scale"),
    *("model.hidden", "model.activation", "model.loss", "model.precision", "start.seed", "method.name"),
    *("stochastic.batch", "stochastic.damping", "stochastic.ridge", "stochastic.patience"),
    *("parallel.data", "run.max_iterations", "run.refit", "run.threads"),
)
"""The keys that users often change: a config shows them all, and besides them each key that is "auto"."""

DRAWN = ("data.validation", "data.seed")
"""Keys that have no effect where the data bring their own validation points."""

PLACE = "a path is seen from the folder in which the program is started"

LISTED, INDENT, WIDTH = 10, 28, 118
"""The number of classes that a comment lists; the columns in which comments begin and end."""


@dataclass(frozen=True)
class Found:
    """A data set, and the config that suits it.

    config: the keys that the file will give.
    resolved: the same keys with a value for each "auto".
    data: the outline of the data set, without its points.
    doubt: a description of the targets where they may be classes or amounts; "" if that is clear.
    """

    config: Config
    resolved: Resolved
    data: Dataset
    doubt: str = ""

    def in_words(self) -> str:
        """Describes points, columns and targets in a line."""
        n_in, n_out, n, n_val = self.data.sizes.counts
        classes, targets = self.data.classes, f"targets: {many(n_out, 'number')} a point"
        if self.data.autoencoder:
            targets = "no targets: an autoencoder"
        elif classes is not None:
            names = ", ".join(str(name) for name in classes[:LISTED].tolist())
            targets = f"targets: {many(len(classes), 'class')} ({names}{', ...' if len(classes) > LISTED else ''})"
        return f"{n:,} training and {n_val:,} validation points, {many(n_in, 'column')}; {targets}"

    @property
    def alternatives(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Two losses, beginning with the config's, each with a word for its targets, "classes" or "amounts"."""
        both = ("cross_entropy", "classes"), ("squared", "amounts")
        return both if self.config.model.loss == "cross_entropy" else both[::-1]


def brought_along(args: Namespace) -> str:
    """Returns the list, the config or the batch script that an option asks for.  Raises UsageError."""
    asked = "--list" if args.list else f"--config {args.config}" if args.config else f"--batch {args.batch}"
    for option, value in (("--output", args.output), ("--set", args.set), ("--overwrite", args.overwrite)):
        if value:
            keep = f"{program('init')} {asked} > FILE"
            raise UsageError(f"{option} is for the config that is written for DATA; {asked} prints: {keep} keeps that")
    if not documented():
        raise UsageError("the documented configs are not where macmpi was installed: install it again")
    if args.list:
        return listed()
    return text_of(args.config, documented()) if args.batch is None else text_of(args.batch, scripts())


def look(source: str, settings: list[str]) -> Found:
    """Reads a data set and settles its config as a run would.  Raises UsageError if a run on it is refused.

    source: the name of the data; settings: "table.key=value", as --set gives them.
    """
    config = validate({}, f"{source} and --set", [f"data.source={toml(source)}", *settings])
    points = points_of(config)
    try:
        with_loss(config, points)
    except UsageError:
        return _either(config, points)
    return _found(config, points)


def _either(config: Config, points: Points) -> Found:
    """Decides whether targets that are a few different whole numbers are classes or amounts.

    They are taken for classes where they are numbered without a gap from 0 or 1.  Raises UsageError.
    """
    amounts, labels = (replace(config, model=replace(config.model, loss=loss)) for loss in ("squared", "cross_entropy"))
    numbers = _found(amounts, points, "a few different whole numbers")
    try:
        classes = _found(labels, points)
    except UsageError:  # for instance where a label occurs only once
        return numbers
    values = np.asarray(classes.data.classes)
    first, count = values[0], len(values)
    numbered = first in (0, 1) and values[-1] - first == count - 1
    doubt = f"{count} different whole numbers from {first} to {values[-1]}"
    return replace(classes if numbered else numbers, doubt=doubt)


def _found(config: Config, points: Points, doubt: str = "") -> Found:
    """Gives each "auto" of a config its value, for a run on one rank.  Raises UsageError if no plan can be made."""
    known, decisions = with_loss(config, points)
    source = Source(known, points)
    sizes = source.sizes()
    resolved = resolve_in_span(known, sizes, decisions)
    check_memory(Plan(resolved, sizes.n_train, sizes.n_val, 1))
    return Found(config, resolved, source.outline(), doubt)


def config_of(found: Found, source: str, path: Path) -> str:
    """Writes the config as TOML, with comments.

    source: the name of the data; path: the path of the config, for the commands in the comment at its head.
    """
    run = f"{program('run')} {shlex.quote(str(path))}"
    head = [
        f"{source}: {found.in_words()}.",
        f"{program('init')} of macmpi {__version__} has written this.  A line that begins with #key shows what holds "
        "without it: to change it, remove the first #.",
    ]
    lines = [f"# {line}" for text in head for line in textwrap.wrap(printable(text), WIDTH - 2)]
    lines += [
        *(f"#   {printable(line)}" for line in (f"{run} --check", run, f"mpiexec -n 4 {run}")),
        f"# Every key: {program('init')} --config defaults",
    ]
    stochastic = found.resolved.method.name == "stochastic"
    said, active = explanations() | {"data.source": PLACE}, given(found.config)
    why = {decision.key: decision.why for decision in found.resolved.decisions}
    idle = () if found.data.drawn else DRAWN
    shown = [key for key in SHOWN if key not in idle and (stochastic or not key.startswith("stochastic."))]
    values, used = found.resolved.settings, [*active, *shown, *why]
    for table in dict.fromkeys(key.partition(".")[0] for key in values):
        own = [key for key in values if key.startswith(f"{table}.") and key in used]
        lines += ["", f"[{table}]"] if own else []
        for key in own:
            chosen = f'"auto" gives this ({why[key]})' if key in why else ""
            comment = "; ".join(filter(None, [chosen, said.get(key, "")]))
            if key == "model.loss" and found.doubt:
                (loss, kind), (other, otherwise) = found.alternatives
                lines += _line(f'loss = "{loss}"', f"the targets are {found.doubt}: this takes them for {kind}")
                lines += _line(f'# loss = "{other}"', f"in its place, if they are {otherwise}")
            else:
                mark = "" if key in active else "#"
                lines += _line(f"{mark}{key.partition('.')[2]} = {toml(values[key])}", comment)
    return "\n".join(lines) + "\n"


def _line(setting: str, comment: str) -> list[str]:
    """Writes a setting with its comment to the right, which continues in further lines where it is long."""
    column = max(INDENT, len(setting) + 2)
    first, more = (f"{text:{column}s}# " for text in (setting, ""))
    wrapper = textwrap.TextWrapper(max(WIDTH, column + 32), first, more, break_on_hyphens=False)
    return wrapper.wrap(comment) or [setting]


def begun(args: Namespace) -> str:
    """Writes a config and returns the lines to print, or returns what --list, --config or --batch ask for.

    Raises UsageError and StorageError.
    """
    if args.data is None:
        return brought_along(args).rstrip("\n")
    if not args.data:
        raise UsageError("DATA: the name of a file or of a data set is needed")
    path: Path = args.output or Path(re.sub(r"[^\w.+-]+", "_", Path(args.data).stem) + ".toml")
    check_output(path, (".toml",), overwrite=args.overwrite)
    try:
        found = look(args.data, args.set)
    except UsageError as error:
        raise UsageError(str(error).replace(f'data.source = "{args.data}"', str(args.data))) from None
    write_output(path, config_of(found, args.data, path).encode())
    lines = [f"{path}: {found.in_words()}"]
    if found.doubt:
        (_, kind), (other, otherwise) = found.alternatives
        lines.append(
            f'the targets, {found.doubt}, are taken for {kind}; if they are {otherwise}: model.loss = "{other}"'
        )
    return "\n".join([*lines, f"next: {program('run')} {path} --check"])


main = by_one_process("init", begun)


if __name__ == "__main__":
    main()
