"""Pictures of what a net makes of held-out points: predicted against true numbers, or the confusion of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from macmpi.results.figures import GREY, RUN_COLOURS, WIDTH
from macmpi.typing import Array

NUMBERED = 20
"""The most classes of a confusion matrix whose cells hold their numbers."""


MOST_TICKS = 40
"""Classes that are named at the axes of a confusion matrix; of more, every second or third."""


def against(panels: Mapping[str, tuple[Array, Array]]) -> Figure:
    """Predicted against true numbers (n,), a panel an output; on the grey line both agree."""
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
    """Counts (C, C), a row a true class, shaded by their share of it; numbers in the cells of a few classes."""
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
            ax.text(j, i, f"{int(counts[i, j])}", ha="center", va="center", fontsize=8, color=_ink(share[i, j]))
    return figure


def _ink(share: float) -> str:
    return "white" if share > 0.5 else "black"
