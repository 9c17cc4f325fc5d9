"""The figure of run/bench/speedup.py, after figure 6 of the paper: speedup against ranks, measured and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
PAPER = (12, 6.0)


def draw(results: Sequence[dict[str, Any]], path: Path) -> Path:
    """Write the figure as a PNG file."""
    figure(results).savefig(path, dpi=150)
    return path


def figure(results: Sequence[dict[str, Any]]) -> Figure:
    """Left up to 16 ranks on linear axes, right all of them on logarithmic ones; dots are measured, lines predicted."""
    whole = Figure(figsize=(10.0, 4.8), layout="constrained")
    for ax, most in zip(whole.subplots(1, 2), (16, 4096), strict=True):
        for result, colour in zip(results, COLOURS * len(results), strict=False):
            _problem(ax, result, colour, most)
        ideal = np.array([1, most])
        ax.plot(ideal, ideal, "-", color="0.6", lw=0.8, label="ideal")
        ax.plot(*PAPER, "*", color="black", ms=11, label="the paper, about 6 with 12", zorder=4)
        ax.set(xlabel="ranks", ylabel="speedup")
        ax.grid(color="0.92", lw=0.6)
        if most > 16:
            ax.set(xscale="log", yscale="log", xlim=(1, most), ylim=(1, 200))
            ax.set_title("prediction to 4,096 ranks", fontsize=10)
        else:
            ax.set(xlim=(0, most + 0.5), ylim=(0, most + 0.5))
            ax.set_title("measured (dots) and predicted (lines)", fontsize=10)
    styles = {"predicted by the cost model": "--", "ParMAC's model": ":"}
    handles, names = whole.axes[0].get_legend_handles_labels()
    handles += [Line2D([], [], color="0.3", ls=style) for style in styles.values()]
    whole.legend(handles, [*names, *styles], loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return whole


def _problem(ax: Any, result: dict[str, Any], colour: str, most: int) -> None:
    measured = {int(r): m for r, m in result["measured"].items()}
    first = measured[1]["seconds"]
    ranks = sorted(measured)
    speedup = np.array([first / measured[r]["seconds"] for r in ranks])
    low, high = (np.array([first / measured[r][end] for r in ranks]) for end in ("most", "least"))
    bars = np.abs([speedup - low, high - speedup])
    ax.errorbar(ranks, speedup, bars, fmt="o", color=colour, ms=5, capsize=2, lw=1, label=f"{result['name']}, measured")
    if "predicted" not in result:
        return
    totals = {int(r): sum(terms.values()) for r, terms in result["predicted"].items() if int(r) <= most}
    ax.plot(list(totals), [totals[1] / t for t in totals.values()], "--", color=colour, lw=1.3)
    ring = {int(r): s for r, s in result["parmac"].items() if int(r) <= most}
    ax.plot(list(ring), list(ring.values()), ":", color=colour, lw=1.0, alpha=0.8)
