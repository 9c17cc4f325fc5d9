"""Each picture of a report has a function here, which draws a matplotlib Figure from plain arrays and records.

A record is a line of curve.jsonl, a curve all records of a run; a value that a record lacks is NaN.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator

from macmpi.typing import Array

Curve = Sequence[Mapping[str, Any]]

WIDTH = 9.0
ALIKE = 8.0
"""Seconds of several runs are drawn on the same axis if they differ by less than this factor."""

NUMBERED = 20
"""The most classes of a confusion matrix whose cells show their numbers."""

MOST_TICKS = 40
"""The most classes that are named at the axes of a confusion matrix; of more classes, every second or third is."""

NUMBERED_RECALL = 0.97
"""Above this recall the points of a curve of retrieval lie too close together for their numbers."""

GREY, RED, GREEN = "0.45", "#d62728", "#2ca02c"
LEVEL_STYLES: tuple[Any, ...] = (":", "-.", (0, (1, 4)))
PHASES = {"seconds_z": "Z-step", "seconds_w": "W-step", "seconds_comm": "exchange", "seconds_wait": "waiting"}
PHASE_COLOURS = ("#2f4858", "#86bbd8", GREEN, "0.8")
RUN_COLOURS = ("#1f77b4", "#ff7f0e", "#9467bd", "#17becf", "#8c564b", "#e377c2", "#bcbd22", "#7f7f7f")
MOST_GROUPS = 20
"""Up to this number of groups have distinct colours, more have shades; more than twice as many have no names."""


def run_colour(number: int) -> str:
    """Returns the colour of a report's n-th run in every picture and table."""
    return RUN_COLOURS[number % len(RUN_COLOURS)]


def column(curve: Curve, key: str) -> Array:
    """Returns the values of a key in the records, (n,); NaN where a record lacks it."""
    return np.array([record.get(key, np.nan) for record in curve], float)


def mu_changes(curve: Curve) -> list[int]:
    """Returns the places of the records after which mu changes."""
    mu = column(curve, "mu")
    return [i for i in range(len(mu) - 1) if mu[i + 1] != mu[i]]


def curves(runs: Mapping[str, Curve], levels: Mapping[str, float]) -> Figure:
    """Draws E1 of each run against seconds and iterations: training points solid, validation points dashed.

    levels: errors to compare with, by name; errors with the same name up to a comma are drawn in the same style.
    """
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    trained = [s for curve in runs.values() for s in column(curve, "seconds") if s > 0.0]
    edge = min(trained, default=1.0) / 1.6
    for i, (name, curve) in enumerate(runs.items()):
        colour, seconds, train = run_colour(i), column(curve, "seconds"), column(curve, "E1_train")
        after = [j for j, record in enumerate(curve) if record.get("phase") == "postprocess"]
        for ax, x in ((left, np.where(seconds > 0.0, seconds, edge)), (right, column(curve, "iteration"))):
            ax.plot(x, train, "-o", color=colour, lw=1.3, ms=3.0, label=f"training, {name}")
            ax.plot(x, column(curve, "E1_val"), "--", color=colour, lw=1.0, alpha=0.8, label=f"validation, {name}")
            ax.plot(x[after], train[after], "D", color=colour, ms=5.0)
            _mark_mu(ax, curve, x, train, named=ax is right and len(runs) == 1)
            for j in [j for j, record in enumerate(curve) if record.get("finish")][:1]:
                ax.axvline(x[j], color=colour, lw=0.8, alpha=0.6, label="steps of all points from here on", zorder=0)
    kinds = list(dict.fromkeys(name.split(",")[0] for name in levels))
    for name, value in levels.items():
        style = LEVEL_STYLES[kinds.index(name.split(",")[0]) % len(LEVEL_STYLES)]
        for ax in (left, right):
            ax.axhline(value, color=GREY, ls=style, lw=1.0, label=f"{name} (training)")
    left.set_xscale("log")
    left.axvline(edge, color="0.85", lw=0.8, zorder=0)
    left.text(
        edge, 1.0, "start", transform=left.get_xaxis_transform(), fontsize=8, color=GREY, ha="center", va="bottom"
    )
    plain_log(left.xaxis, np.log10(max(trained, default=1.0) / edge))
    errors = [column(curve, key) for curve in runs.values() for key in ("E1_train", "E1_val")]
    _log_if_wide(left, np.concatenate([*errors, [*levels.values()]]))
    left.set(xlabel="seconds of training", ylabel="E1 per point")
    right.set(xlabel="iterations")
    right.locator_params("x", integer=True)
    _legend(figure, left)
    return figure


def _mark_mu(ax: Axes, curve: Curve, x: Array, y: Array, named: bool, offset: float = 9.0) -> None:
    """Marks, on a curve drawn at (x, y), the records after which mu changes.

    named: whether to write the new mu, with many changes only at the first and the last.
    offset: the offset of this text, in points.
    """
    changes = mu_changes(curve)
    if changes:
        ax.plot(x[changes], y[changes], "o", color=RED, ms=5.5, zorder=4, label="mu changes after it")
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": RED, "ha": "left"}
    for i in (changes if len(changes) <= 3 else (changes[0], changes[-1])) if named else ():
        ax.annotate(f"mu = {curve[i + 1]['mu']:g}", (x[i], y[i]), (4.0, offset), **style)


def plain_log(axis: Any, decades: float = 2.0) -> None:
    """Gives a logarithmic axis plain numbers."""
    few = (1.0, 2.0, 5.0) if decades < 2.7 else (1.0,)
    axis.set_major_locator(LogLocator(subs=few if decades > 1.2 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _log_if_wide(ax: Axes, values: Array) -> None:
    """Makes an axis logarithmic if its values differ by more than a factor of 3."""
    values = values[np.isfinite(values) & (values > 0.0)]
    if len(values) and values.max() > 3.0 * values.min():
        ax.set_yscale("log")
        plain_log(ax.yaxis, np.log10(values.max() / values.min()))


def _legend(figure: Figure, ax: Axes) -> None:
    handles, names = ax.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    look: dict[str, Any] = {"loc": "outside lower center", "fontsize": 8, "frameon": False}
    figure.legend(list(once.values()), list(once), ncols=min(len(once), 2 if len(once) > 4 else 4), **look)


@dataclass(frozen=True)
class Codes:
    """Holds codes of points (N, H) and of held-out points (M, H), and their groups.

    order: the places of points on closed loops, one for each group.
    """

    points: Array
    held: Array
    groups: Array | None = None
    held_groups: Array | None = None
    order: Array | None = None


def loops(codes: Codes) -> dict[int, Array]:
    """Returns {group: its points in their order, then the first again}; {} if there is no order or no groups."""
    if codes.groups is None or codes.order is None:
        return {}
    found = {}
    for group in np.unique(codes.groups):
        own = np.flatnonzero(codes.groups == group)
        own = own[np.argsort(codes.order[own], kind="stable")]
        found[int(group)] = codes.points[np.append(own, own[:1])]
    return found


def group_colours(groups: Array) -> Callable[[Any], Any]:
    """Returns a function that gives the colours of points by their groups, or one colour if it is given None."""
    names = np.unique(groups)
    palette = colormaps["tab20"] if len(names) <= MOST_GROUPS else colormaps["turbo"].resampled(len(names))
    return lambda own: RUN_COLOURS[0] if own is None else palette(np.searchsorted(names, own))


def plane(panels: Mapping[str, Codes]) -> Figure:
    """Draws codes of 2 dimensions side by side, for instance before and after training.

    Held-out points have a black edge.
    """
    figure = Figure(figsize=(WIDTH, 0.35 + WIDTH / max(len(panels), 2)), layout="constrained")
    known = [g for c in panels.values() for g in (c.groups, c.held_groups) if g is not None]
    colours = group_colours(np.concatenate(known) if known else np.empty(0))
    for ax, (title, codes) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for group, loop in loops(codes).items():
            ax.plot(*loop.T, "-", color=colours(group), lw=0.6, alpha=0.7, zorder=1)
        size = float(np.clip(9000.0 / max(len(codes.points), 1), 4.0, 14.0))
        ax.scatter(*codes.points.T, s=size, c=colours(codes.groups), linewidths=0, zorder=2)
        ax.scatter(*codes.held.T, s=16, c=colours(codes.held_groups), edgecolors="k", linewidths=0.7, zorder=3)
        names = np.unique([] if codes.groups is None else codes.groups)
        for group in names if len(names) <= 2 * MOST_GROUPS else ():
            own = codes.points[codes.groups == group]
            at = own[np.square(own - own.mean(axis=0)).sum(axis=1).argmin()]
            text = ax.text(*at, str(group), color=colours(group), ha="center", va="center", zorder=4)
            text.set(fontsize=9, weight="bold", path_effects=[withStroke(linewidth=2.5, foreground="white")])
        ax.set_title(title, fontsize=10)
        ax.set_aspect("equal", adjustable="datalim")
        ax.tick_params(labelsize=7)
    return figure


def reconstructions(rows: Mapping[str, Array], titles: Sequence[str], framed: Array | Sequence[bool]) -> Figure:
    """Draws rows of images; the first row has the true images.

    rows: by name, each (n, h, w), or in colour (n, h, w, 3).
    titles: the titles of the columns.
    framed: whether each column (n,), or each image (rows, n), has a red frame.
    """
    images = np.stack(list(rows.values()))
    r, n, h, w = images.shape[:4]
    red = np.broadcast_to(framed, (r, n))
    cell = (WIDTH - 1.2) / max(n, 6)
    close = ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.01, wspace=0.02, hspace=0.02)
    figure = Figure(figsize=(1.2 + n * cell, 0.3 + r * cell * h / w), layout=close)
    low, high = images[0].min(), images[0].max()
    if images.ndim == 5:
        images = np.clip((images - low) / max(high - low, np.finfo(float).tiny), 0.0, 1.0)
    for i, (name, line) in enumerate(zip(rows, figure.subplots(r, n, squeeze=False), strict=True)):
        for j, ax in enumerate(line):
            ax.imshow(images[i, j], cmap="gray", vmin=low, vmax=high, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set(color=RED if red[i, j] else "0.8", linewidth=2.0 if red[i, j] else 0.5)
            if i == 0:
                ax.set_title(titles[j], fontsize=8, color=RED if red[i, j] else "black")
        line[0].set_ylabel(textwrap.fill(name, 14), rotation=0, ha="right", va="center", fontsize=9)
    return figure


def retrieval(nets: Mapping[str, tuple[Array, Array]], k: int, n: int) -> Figure:
    """Draws precision against recall, and recall against the number of points found, for some nets' codes.

    Numbers at the curve of the last net are the bits that differ; chance is grey.

    nets: by name, how many points are within 0, 1, ... bits of a query, and how many of these are among its k
        neighbours, (H + 1,) each.
    n: the number of points that are searched.
    """
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.axhline(k / n, color=GREY, ls="--", lw=1.0, label="chance")
    right.plot(np.geomspace(1.0, n), np.geomspace(1.0, n) / n, "--", color=GREY, lw=1.0, label="chance")
    for i, (name, (found, hits)) in enumerate(nets.items()):
        some = np.flatnonzero(found > 0.0)
        for ax, x, y in ((left, hits[some] / k, hits[some] / found[some]), (right, found[some], hits[some] / k)):
            ax.plot(x, y, "-o", color=run_colour(i), lw=1.3, ms=3.0, label=name)
            for j in np.flatnonzero(hits[some] < NUMBERED_RECALL * k) if i == len(nets) - 1 else ():
                ax.annotate(str(some[j]), (x[j], y[j]), (4, 4), textcoords="offset points", fontsize=7)
    left.set(xlabel="recall", ylabel="precision", ylim=(0.0, 1.05))
    right.set(xlabel="points found", ylabel="recall", xscale="log")
    plain_log(right.xaxis, 3.0)
    _legend(figure, left)
    return figure


def total(curve: Curve) -> Array:
    """Returns E1 + C per point, the error plus the cost of the architecture; NaN where a record has no cost."""
    return column(curve, "E1_train") + column(curve, "cost")


def selection(curve: Curve) -> Figure:
    """Draws E1 + C against iterations; green where an architecture was chosen, solid where it changed."""
    curve = [record for record in curve if "cost" in record]
    x, y = column(curve, "iteration"), total(curve)
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    ax = figure.subplots()
    ax.plot(x, y, "-", color=RUN_COLOURS[0], lw=1.3, marker=".", ms=4.0, label="E1 + C")
    _mark_mu(ax, curve, x, y, named=True, offset=-16.0)
    for changed, face, name in ((True, GREEN, "another architecture"), (False, "white", "the same architecture")):
        at = [i for i, r in enumerate(curve) if r.get("phase") == "selection" and bool(r.get("changed")) is changed]
        if at:
            ax.plot(x[at], y[at], "s", ms=7.0, mec=GREEN, mfc=face, ls="none", zorder=3, label=f"selection: {name}")
    named = [r.get("centres", r.get("units")) for r in curve]
    shown = [i for i, r in enumerate(curve) if r.get("changed") and named[i]]
    for i in sorted({*shown, 0} if named[0] else shown):
        text = "(" + ", ".join(f"{n}" for n in named[i] or []) + ")"
        ax.annotate(text, (x[i], y[i]), (6, 9), textcoords="offset points", fontsize=8)
    _log_if_wide(ax, y)
    ax.set(xlabel="iterations", ylabel="E1 + C per point")
    ax.margins(x=0.06, y=0.1)
    ax.locator_params("x", integer=True)
    ax.legend(fontsize=8, frameon=False)
    return figure


def seconds(runs: Mapping[str, Curve]) -> Figure:
    """Draws the seconds of each phase of each iteration, stacked, in a panel for each run.

    All panels have the same axis if all can be read there.
    """
    figure = Figure(figsize=(WIDTH, 0.6 + 2.1 * len(runs)), layout="constrained")
    most = [np.nanmax(sum(column(curve, key) for key in PHASES), initial=0.0) for curve in runs.values()]
    alike = max(most) < ALIKE * min(most)
    panels = figure.subplots(len(runs), 1, squeeze=False, sharex=True, sharey=alike)[:, 0]
    for i, (ax, (name, curve)) in enumerate(zip(panels, runs.items(), strict=True)):
        swept = [record for record in curve if record["iteration"] and record["phase"] != "postprocess"]
        x, below = column(swept, "iteration"), np.zeros(len(swept))
        for (key, phase), colour in zip(PHASES.items(), PHASE_COLOURS, strict=True):
            height = np.nan_to_num(column(swept, key))
            ax.bar(x, height, 0.85, below, color=colour, label=phase)
            below += height
        ax.set(ylabel="seconds")
        ax.set_title(name, fontsize=9, color="black" if len(runs) == 1 else run_colour(i))
        ax.locator_params("x", integer=True)
    panels[-1].set(xlabel="iterations")
    _legend(figure, panels[0])
    return figure


def against(panels: Mapping[str, tuple[Array, Array]]) -> Figure:
    """Draws predicted against true numbers (n,), in a panel for each output; on the grey line both agree."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    side = min(WIDTH / columns, 4.5)
    figure = Figure(figsize=(side * columns, side * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, (title, (true, predicted)) in zip(axes, panels.items(), strict=False):
        both = np.concatenate([true, predicted])
        low, high = both.min(), both.max()
        ax.plot([low, high], [low, high], "-", color=GREY, lw=1.0, zorder=1)
        size = float(np.clip(6000.0 / max(len(true), 1), 3.0, 20.0))
        ax.scatter(true, predicted, s=size, color=RUN_COLOURS[0], alpha=0.5, linewidths=0, zorder=2)
        ax.set(xlabel="true", ylabel="predicted")
        ax.set_title(title, fontsize=10)
        ax.set_aspect("equal", adjustable="datalim")
        ax.tick_params(labelsize=8)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure


def confusion(counts: Array, names: Sequence[str]) -> Figure:
    """Draws a confusion matrix (C, C), a row for each true class, shaded by the shares of its points.

    With few classes the cells show their numbers.
    """
    C = len(names)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    side = float(np.clip(1.6 + 0.45 * C, 3.5, WIDTH))
    figure = Figure(figsize=(side, side), layout="constrained")
    ax = figure.subplots()
    ax.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    ax.set(xlabel="named", ylabel="true")
    shown = range(0, C, -(-C // MOST_TICKS))
    words = [names[i] for i in shown]
    ax.set_xticks(shown, words, rotation=90 if max(map(len, words)) > 3 else 0, fontsize=8)
    ax.set_yticks(shown, words, fontsize=8)
    if C <= NUMBERED:
        for i, j in np.argwhere(counts > 0).tolist():
            ink = "white" if share[i, j] > 0.5 else "black"
            ax.text(j, i, f"{int(counts[i, j])}", ha="center", va="center", fontsize=8, color=ink)
    return figure
