"""The runs of a sweep compared: the errors of each, their mean over the seeds, the best combination; sweep.csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from macmpi import UsageError
from macmpi.config.writing import toml
from macmpi.results.reading import read_curve
from macmpi.sweep.checked import Run
from macmpi.sweep.grid import Axis, short, shown

NUMBERS = ("E1_val", "error_val", "E1_train", "best_iteration", "iterations", "seconds")
"""The errors of a run's weights of the lowest validation error, and how long it took to train."""

UNLIKE = (
    *("data.source", "data.scale", "data.validation", "data.target"),
    *("model.loss", "loss.threshold", "loss.missing"),
)
"""Keys with which the errors of different values do not compare."""


@dataclass(frozen=True)
class Scored:
    """A run, how it has ended, and its `NUMBERS`; {} where it has none."""

    run: Run
    state: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class Group:
    """The runs of one combination, which differ in their seeds, of which some may have failed."""

    runs: Sequence[Scored]

    @property
    def settings(self) -> dict[str, Any]:
        return self.runs[0].run.combination.settings

    @property
    def finished(self) -> list[Scored]:
        return [one for one in self.runs if one.state == "finished" and one.numbers]

    def mean(self, name: str) -> float:
        """The mean over the runs that have finished; NaN where there are none."""
        found = [one.numbers[name] for one in self.finished if name in one.numbers]
        return fmean(found) if found else math.nan

    def deviation(self, name: str) -> float:
        """The standard deviation over the seeds; NaN of fewer than two."""
        found = [one.numbers[name] for one in self.finished if name in one.numbers]
        return stdev(found) if len(found) > 1 and all(map(math.isfinite, found)) else math.nan


def scored(run: Run, state: str) -> Scored:
    """The errors that a run has left, the best by validation."""
    try:
        records, _ = read_curve(run.folder / "curve.jsonl")
    except UsageError:
        return Scored(run, state, {})
    finite = [record for record in records if math.isfinite(record["E1_val"])]
    if not finite:
        return Scored(run, state, {})
    best, last = min(reversed(finite), key=lambda record: record["E1_val"]), records[-1]
    found = {name: float(best[name]) for name in ("E1_val", "error_val", "E1_train") if name in best}
    length = {"iterations": float(last["iteration"]), "seconds": float(last["seconds"])}
    return Scored(run, state, found | {"best_iteration": float(best["iteration"])} | length)


def groups(runs: Sequence[Scored]) -> list[Group]:
    """The combinations, the lowest mean validation error first, those without one last."""
    found: dict[str, list[Scored]] = {}
    for one in runs:
        found.setdefault(toml(one.run.combination.settings), []).append(one)
    return sorted((Group(own) for own in found.values()), key=_rank)


def _rank(group: Group) -> float:
    mean = group.mean("E1_val")
    return math.inf if math.isnan(mean) else mean


def best_of(found: Sequence[Group]) -> Group | None:
    """The first that has finished with all its seeds: a mean over fewer does not compare with one over all."""
    return next((group for group in found if group.finished and len(group.finished) == len(group.runs)), None)


def table(found: Sequence[Group], axes: Sequence[Axis]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of text."""
    names = short([axis.key for axis in axes])
    varied = [axis.key for axis in axes if len(axis.values) > 1] or [axis.key for axis in axes]
    several = any(len(group.runs) > 1 for group in found)
    classes = any("error_val" in one.numbers for group in found for one in group.runs)
    titles = [*(names[key] for key in varied), "E1 val", *(["+-"] * several), *(["wrong val"] * classes)]
    titles += ["E1 train", "iterations", "seconds", "finished"]
    rows = []
    for group in found:
        row = [*(shown(group.settings[key]) for key in varied), _number(group.mean("E1_val"))]
        row += [_number(group.deviation("E1_val"))] if several else []
        row += [_share(group.mean("error_val"))] if classes else []
        row += [_number(group.mean("E1_train")), _whole(group.mean("iterations")), _tenths(group.mean("seconds"))]
        rows.append([*row, f"{len(group.finished)} of {len(group.runs)}"])
    return titles, rows


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"


def _share(value: float) -> str:
    return f"{value:.2%}" if math.isfinite(value) else "-"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "-"


def _tenths(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "-"


def aligned(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table as lines of text."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    return ["  " + "  ".join(f"{cell:>{n}}" for cell, n in zip(row, widths, strict=True)) for row in (titles, *rows)]


def as_csv(runs: Sequence[Scored], axes: Sequence[Axis]) -> str:
    """A line for each run: its folder, its values and seeds, how it has ended, its numbers."""
    seeds = list(dict.fromkeys(key for one in runs for key in one.run.combination.seeds))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *(axis.key for axis in axes), *seeds, "state", *NUMBERS])
    for one in runs:
        combination = one.run.combination
        values = [shown(combination.settings[axis.key]) for axis in axes]
        numbers = ["" if name not in one.numbers else f"{one.numbers[name]:.17g}" for name in NUMBERS]
        writer.writerow([one.run.name, *values, *(combination.seeds[key] for key in seeds), one.state, *numbers])
    return text.getvalue()


def doubts(axes: Sequence[Axis]) -> list[str]:
    """Says which keys make errors that do not compare."""
    found = [axis.key for axis in axes if axis.key in UNLIKE and len(axis.values) > 1]
    return [f"errors at different values of {key} are of different things: they do not compare" for key in found]
