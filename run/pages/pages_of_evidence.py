"""Parts of pages made of the files that run/bench/evidence.py writes: where numbers come from, tables, pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

LARGEST = 150_000
"""Bytes of a picture in the repository, at most."""

Found = dict[str, Any]


def read(folder: Path) -> dict[str, Found]:
    """The files of a folder, by the names of their benchmarks."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


CROWDED = 0.5
"""A load average above the number of cores by this says that processes waited for a core."""


def place(found: Found) -> str:
    """Machine, BLAS kernel, commit and date, in a few words."""
    cores, kernel = found["machine"]["cores"], found["blas"].rpartition("(")[2].rstrip(")")
    many = f"{cores} core{'s' * (cores != 1)}"
    return f"{found['machine']['processor']}, {many}, kernel {kernel}, commit {found['commit']}, {found['date']}"


def fold(found: Found, said: Sequence[str] = (), how: str = "") -> str:
    """Where a section comes from, in a line that opens what else is said of it, the load and the commands.

    how: stands for the commands, and in the line itself where nothing else is said.
    """
    busy = max((step.get("load_before", 0.0) for step in found["steps"].values()), default=0.0)
    waited = busy > found["machine"]["cores"] + CROWDED
    load = f", slowed by a load of {busy:.1f}" * waited
    if how and not said:
        return wrapped(f"Measured by {how} on {place(found)}{load}.")
    paragraphs = [wrapped(text) for text in said]
    start = f'<details markdown="1">\n<summary>{place(found)}{load}</summary>'
    return "\n\n".join([start, *paragraphs, how or commands(found), "</details>"])


def commands(found: Found) -> str:
    """The command of each step, in a block; those that differ in a seed as one."""
    seeds: dict[str, list[str]] = {}
    for step in found["steps"].values():
        line = typed(step["command"])
        seed = re.search(r"start\.seed=(\d+)", line)
        own = seeds.setdefault(line.replace(seed[0], "start.seed=S") if seed else line, [])
        own += [seed[1]] if seed else []
    lines = [
        f"{line}   # S = {', '.join(own)}" if len(own) > 1 else line.replace("seed=S", f"seed={''.join(own)}")
        for line, own in seeds.items()
    ]
    return "\n".join(["```", *lines, "```"])


def typed(command: str) -> str:
    """A command without the folder that a benchmark gave it, but where it asks for one."""
    command = command.replace(" --output '{OUTPUT}/run' --resume auto", "")
    if "run/bench/path.py" not in command:
        command = re.sub(r" --(?:output|json) '\{OUTPUT\}[^']*'", "", command)
    return command.replace("'{OUTPUT}", "'OUTPUT")


def wrapped(text: str, width: int = 118) -> str:
    """A paragraph in lines of at most `width` characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""
    first, *others = ["| " + " | ".join(str(cell) for cell in line) + " |" for line in (header, *rows)]
    return "\n".join([first, "|---" * len(header) + "|", *others])


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of at most LARGEST bytes, in 256 colours, as sharp as that allows.  Raises ValueError."""
    for dpi in (150, 120, 100, 80, 64):
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", bbox_inches="tight", pad_inches=0.08)
        Image.open(buffer).convert("RGB").quantize(256).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            return
    raise ValueError(f"{path} has {path.stat().st_size:,} bytes at 64 dots an inch: draw less")


def swept(step: Found) -> list[Found]:
    """The records of a curve's iterations."""
    return [r for r in step["curve"] if r["phase"] in ("iteration", "selection")]


def at(step: Found, iteration: int, key: str = "E1_train") -> float:
    """A number of the record of an iteration."""
    return float(next(r[key] for r in step["curve"] if r["iteration"] == iteration and r["phase"] != "postprocess"))


def end(step: Found) -> Found:
    """The last record: that of the postprocessing, where the run has come to it."""
    last: Found = step["curve"][-1]
    return last


def named(step: Mapping[str, Any]) -> str:
    """The config of a step, with what is set in addition, from its command."""
    words = str(step["command"]).split()
    return next((word for word in words if word.endswith(".toml")), words[1])
