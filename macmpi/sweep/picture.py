"""The picture of a sweep: the validation error against each key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullFormatter

from macmpi.results.figures import GREY, RED, RUN_COLOURS, WIDTH
from macmpi.sweep.grid import Axis, shown
from macmpi.sweep.outcome import Group

COLUMNS = 3
"""Panels in a row, at most."""

WIDE = 8.0
"""Values of a key, or errors, whose largest is this multiple of the smallest are drawn on a logarithmic axis."""


def drawn(groups: Sequence[Group], axes: Sequence[Axis], best: Group | None) -> Figure:
    """A panel for each key of several values: a point for each combination, and in blue the best at each value."""
    shown_axes = [axis for axis in axes if len(axis.values) > 1] or list(axes)
    across = min(len(shown_axes), COLUMNS)
    down = math.ceil(len(shown_axes) / across)
    figure = Figure(figsize=(WIDTH, 0.4 + 3.4 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for ax in panels[len(shown_axes) :]:
        ax.set_axis_off()
    for i, (ax, axis) in enumerate(zip(panels, shown_axes, strict=False)):
        panel(ax, axis, groups, best)
        if i % across == 0:
            ax.set_ylabel("E1 per validation point")
    return figure


def panel(ax: Axes, axis: Axis, groups: Sequence[Group], best: Group | None) -> None:
    """The error against one key; combinations without an error are left out."""
    places = positions(axis.values)
    known = [group for group in groups if math.isfinite(group.mean("E1_val"))]
    at = np.array([places[axis.values.index(group.settings[axis.key])] for group in known])
    error = np.array([group.mean("E1_val") for group in known])
    deviation = np.nan_to_num([group.deviation("E1_val") for group in known])
    ax.errorbar(at, error, deviation, fmt="o", color=GREY, ms=4.0, lw=0.8, alpha=0.7)
    lowest = {x: float(error[at == x].min()) for x in sorted(set(at.tolist()))}
    style: dict[str, Any] = {"ls": "-", "lw": 1.4} if numbers(axis.values) else {"ls": "", "marker": "_", "ms": 24.0}
    ax.plot(list(lowest), list(lowest.values()), color=RUN_COLOURS[0], **style)
    if best is not None:
        x = places[axis.values.index(best.settings[axis.key])]
        ax.plot([x], [best.mean("E1_val")], "D", color=RED, ms=7.0, zorder=4)
    if numbers(axis.values) and min(axis.values) > 0 and max(axis.values) > WIDE * min(axis.values):
        ax.set_xscale("log")
    ax.set_xticks(places, [shown(value) for value in axis.values], rotation=0 if len(places) < 5 else 30)
    ax.xaxis.set_minor_formatter(NullFormatter())
    if len(error) and error.max() > WIDE * error.min() > 0.0:
        ax.set_yscale("log")
        ax.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2.0, 0.8)))
    ax.margins(x=0.12)
    ax.set_xlabel(axis.key)


def numbers(values: Sequence[Any]) -> bool:
    """They have places of their own on an axis."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def positions(values: Sequence[Any]) -> list[float]:
    """The places of the values: numbers at themselves, others one after another."""
    return [float(value) for value in values] if numbers(values) else [float(i) for i in range(len(values))]
