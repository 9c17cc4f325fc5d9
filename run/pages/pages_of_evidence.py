"""Parts of pages made of the files that run/bench/evidence.py writes: where numbers come from, tables, pictures."""

from __future__ import annotations

import json
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


def source(found: Found) -> str:
    """Machine, BLAS kernel, commit, date and versions, in a paragraph of lines that are not long."""
    machine, versions = found["machine"], found["versions"]
    cores = f"{machine['cores']} core{'s' * (machine['cores'] != 1)}"
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    text = (
        f"Machine: {machine['processor']}, {cores}, {machine['memory_gb']} GB; BLAS kernel: "
        f"{found['blas']}; commit {found['commit']}, {found['date']}; {named}."
    )
    busy = max((step.get("load_before", 0.0) for step in found["steps"].values()), default=0.0)
    if busy > machine["cores"] + CROWDED:
        text += f" Other programs ran on this machine (load {busy:.1f}): its seconds are too long."
    elif busy > CROWDED:
        text += f" Load average before a step at most {busy:.1f}, the step before it included."
    return wrapped(text)


def commands(found: Found) -> str:
    """The command of each step, in a block."""
    lines = dict.fromkeys(typed(step["command"]) for step in found["steps"].values())
    return "\n".join(["```", *lines, "```"])


def typed(command: str) -> str:
    """A command without the folder that a benchmark gave it."""
    return command.replace(" --output '{OUTPUT}/run' --resume auto", "").replace("'{OUTPUT}", "'OUTPUT")


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
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


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
