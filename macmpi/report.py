"""`python -m macmpi.report RUN [RUN ...] [--output DIR]`: draws runs, as PNG files and one page.  Needs no MPI."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from macmpi import StorageError, UsageError, __version__
from macmpi.config.whole import flat
from macmpi.console import decimals, warn
from macmpi.files import readable, replace_file
from macmpi.parallel.command import Namespace, by_one_process
from macmpi.results.reading import Result, read, scores_at

if TYPE_CHECKING:
    from macmpi.results.pictures import Picture


OURS = re.compile(rb"Software\0macmpi|Drawn by macmpi")
"""Each file of a report holds one of these texts; a file without them is never replaced."""

STYLE = """
:root { color-scheme: light dark; --faint: #767676; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: right; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child { text-align: left; }
figure { margin: 2.5rem 0; break-inside: avoid; }
figure img { display: block; width: 100%; height: auto; background: white; border-radius: 4px; }
figcaption, footer, .missing { color: var(--faint); font-size: 0.9rem; }
.run { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 50%; margin-right: 0.5em; }
.table + .table { margin-top: 1.5rem; }
h2 { font-size: 1.15rem; margin: 0 0 0.5rem; }
.table { overflow-x: auto; }
@media print { :root { color-scheme: light; } body { max-width: none; margin: 0; font-size: 10pt; } }
"""
"""The style of the page, for light and dark screens and for paper."""


def named(paths: Iterable[Path]) -> dict[Path, str]:
    """Names each run, once: by its folder's name, or by the path as given where two folders have the same name."""
    once = list({path.resolve(): path for path in paths}.values())
    names = [readable(path.resolve().name) for path in once]
    return {p: name if names.count(name) == 1 else readable(p) for p, name in zip(once, names, strict=True)}


def read_all(paths: Iterable[Path]) -> tuple[list[Result], list[str]]:
    """Reads the runs; returns those that can be drawn, and why others cannot.  Raises UsageError if none can."""
    results, lost = [], []
    for path, name in named(paths).items():
        try:
            results.append(read(path, name))
        except UsageError as error:
            lost.append(str(error))
    if not results:
        raise UsageError("; ".join(lost))
    return results, lost


def page(
    results: Sequence[Result],
    pictures: Sequence[tuple[Picture, bytes]],
    missing: Sequence[str],
    colours: Sequence[str] = (),
) -> str:
    """Writes the report as HTML, with the pictures (PNG) inside.

    missing: lines on runs and pictures that could not be drawn.
    colours: the colour of each run in the pictures that compare them.
    """
    title = escape("macmpi: " + ", ".join(result.name for result in results))
    of_run = ("run", "net", "ranks", "iterations", "seconds", "best at")
    heads = (*of_run, "E1 training", "E1 validation", "validation points", "ended")
    body = [f"<h1>{title}</h1>", table(heads, [row(result) for result in results], colours)]
    if other := differences(results):
        body.append(table(("setting that differs", *(result.name for result in results)), other))
    if missing:
        lines = "".join(f"<li>{escape(line)}</li>" for line in missing)
        body.append(f'<div class="missing"><p>Missing:</p><ul>{lines}</ul></div>')
    for picture, png in pictures:
        name, head, caption = map(escape, (picture.name, picture.title, picture.caption))
        image = f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" alt="{head}">'
        body.append(f'<figure id="{name}"><h2>{head}</h2>{image}<figcaption>{caption}</figcaption></figure>')
    start = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style>"
    )
    end = f"<footer>Drawn by macmpi {__version__}</footer></body></html>\n"
    return "\n".join([f'<!DOCTYPE html>\n<html lang="en"><head>{start}</head><body>', *body, end])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], colours: Sequence[str] = ()) -> str:
    """Writes a table of text as HTML.  colours: for each row the colour of a dot before its first cell; () for none."""
    marks = [f'<span class="run" style="background: {c}"></span>' for c in colours] or [""] * len(rows)
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    for mark, cells in zip(marks, rows, strict=True):
        lines.append(f"<td>{mark}" + "<td>".join(f"{escape(cell)}</td>" for cell in cells))
    return '<div class="table"><table>\n' + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table></div>"


def differences(results: Sequence[Result]) -> list[list[str]]:
    """Lists the keys of the configs whose values differ between the runs, each with its values."""
    configs = [{} if result.config is None else flat(result.config) for result in results]
    values = {key: [str(config.get(key, "-")) for config in configs] for config in configs for key in config}
    return [[key, *found] for key, found in values.items() if len(set(found)) > 1]


def row(result: Result) -> list[str]:
    """Writes the cells of a run for the table; the errors are from the iteration with the lowest validation error."""
    last, best = result.records[-1], min(reversed(result.records), key=lambda record: record["E1_val"])
    net = "-" if result.config is None else "-".join(map(str, result.config.model.units))
    net = net if result.end is None else result.end.model.sizes
    return [
        *(result.name, net, str(last.get("ranks", "-")), f"{last['iteration']:,}", f"{last['seconds']:.1f}"),
        *(f"{best['iteration']:,}", decimals(best["E1_train"]), decimals(best["E1_val"])),
        "" if result.end is None else scores_at(result.end).lines()[0],
        "yes" if result.finished else "no",
    ]


def write(results: Sequence[Result], folder: Path, missing: Sequence[str]) -> list[Path]:
    """Draws the pictures and writes them and the page; returns their paths.  Raises UsageError and StorageError."""
    try:
        from macmpi.results.pictures import colours_of, draw
    except ImportError as error:
        raise UsageError(f"pictures are drawn by matplotlib ({error}): pip install matplotlib") from None

    drawn = [(picture, picture.png) for picture in draw(results)]
    written = {folder / f"{picture.name}.png": png for picture, png in drawn}
    written[folder / "report.html"] = page(results, drawn, missing, colours_of(results)).encode()
    for path in written:
        if os.path.lexists(path) and not (os.path.isfile(path) and OURS.search(path.read_bytes())):
            raise UsageError(f"{path} is of no report: move it away, or name another folder with --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in written.items():
            replace_file(path, content)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written to: {error.strerror}; name another folder, --output") from None
    return list(written)


def reported(args: Namespace) -> str:
    """Draws the runs, and returns the paths of the report as lines to print.  Raises UsageError and StorageError."""
    if args.output and os.path.lexists(args.output) and not os.path.isdir(args.output):
        raise UsageError(f"--output {args.output} is a file; name a folder")
    results, lost = read_all(args.runs)
    missing = [*lost, *(f"{result.name}: {line}" for result in results for line in result.missing)]
    for line in missing:
        warn(f"missing: {line}")
    return "\n".join(map(str, write(results, args.output or results[0].path / "report", missing)))


main = by_one_process("report", reported)


if __name__ == "__main__":
    main()
