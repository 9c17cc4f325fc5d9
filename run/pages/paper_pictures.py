"""The pictures of docs/paper.md, each from the numbers in docs/paper/*.json."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pages_of_evidence import Found, swept

from macmpi.results import figures
from macmpi.results.figures import Codes

BENCH = Path(__file__).resolve().parents[1] / "bench"

FILES: dict[str, dict[str, str]] = {
    "fig2": {
        "fig2.png": "E1 against seconds, method by method",
        "fig2-images.png": "Digits, and what each method makes of them",
    },
    "fig3": {
        "fig3.png": "E1 against seconds: MAC on one and several ranks, alternating optimisation",
        "fig3-images.png": "Objects, and what both methods make of them",
    },
    "fig4": {"fig4.png": "The codes of 20 objects before and after training"},
    "fig5": {"fig5.png": "E1 + C against iterations, with the sizes that are selected"},
    "fig6": {"fig6.png": "Speedup against ranks, measured and predicted"},
    "theory": {"theory.png": "Gradients of E_Q and E1 and what the multipliers lack, against iterations and mu"},
}

TITLES = {
    "usps_paper": "MAC, the paper's settings",
    "usps_paper-ranks": "the same, {ranks} ranks",
    "usps_mac": "MAC, macmpi's settings",
    "usps_cg": "CG",
    "usps_sgd": "SGD",
    "usps_fast": "stochastic MAC",
    "coil_mac": "MAC",
    "coil_mac-ranks": "MAC, {ranks} ranks",
    "coil_altopt": "alternating",
}


def title_of(name: str, step: Found) -> str:
    return TITLES.get(name, name).format(ranks=step["ranks"])


def drawn(name: str, found: Found) -> Iterator[tuple[str, Figure]]:
    """The pictures of a benchmark, by their files."""
    steps: dict[str, Found] = found["steps"]
    match name:
        case "fig2" | "fig3":
            yield f"{name}.png", learning(steps)
            yield f"{name}-images.png", images(steps)
        case "fig4":
            (step,) = steps.values()
            panels = {"elastic embedding": "start", "after MAC": "end"}
            yield "fig4.png", figures.plane({title: codes_of(step, key) for title, key in panels.items()})
        case "fig5":
            (step,) = steps.values()
            yield "fig5.png", figures.selection(step["curve"])
        case "fig6":
            sys.path.append(str(BENCH))
            from speedup_figure import figure

            yield "fig6.png", figure(scaling(found))
        case "theory":
            yield "theory.png", path(steps)


def constant(step: Found) -> dict[str, float]:
    """The errors to compare with; a run by averaged weights also ends in lines that look like these."""
    return {name: value for name, value in step["levels"].items() if "validation" not in name}


def learning(steps: dict[str, Found]) -> Figure:
    """E1 of the training points against seconds, on logarithmic axes; red where mu grows; diamonds: postprocessing."""
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    ax = figure.subplots()
    for i, (name, step) in enumerate(steps.items()):
        curve, colour = step["curve"], figures.run_colour(i)
        seconds = figures.column(curve, "seconds")
        seconds = np.maximum(seconds, np.min(seconds[seconds > 0.0], initial=1.0) / 1.6)
        errors, swept_ = figures.column(curve, "E1_train"), [r["phase"] != "postprocess" for r in curve]
        few = len(curve) <= 120
        ax.plot(
            seconds[swept_], errors[swept_], "-", marker="." if few else None, color=colour, label=title_of(name, step)
        )
        rest = ~np.array(swept_)
        ax.plot(seconds[rest], errors[rest], "D", color=colour, ms=5.0)
        changes = [j for j in figures.mu_changes(curve) if swept_[j + 1]]
        ax.plot(seconds[changes], errors[changes], "o", color=figures.RED, mec=colour, ms=5.5)
    for level, value in constant(next(iter(steps.values()))).items():
        ax.axhline(value, color="0.45", ls=":", lw=1.0)
        ax.annotate(level, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    ax.set(xscale="log", yscale="log", xlabel="seconds of training", ylabel="E1 per training point")
    figures.plain_log(ax.yaxis, 1.0)
    ax.grid(color="0.92", lw=0.6, which="both")
    ax.legend(fontsize=8, frameon=False)
    return figure


def images(steps: dict[str, Found]) -> Figure:
    """Sample images, by the net at the start, and by each run's net."""
    apart = {name: step for name, step in steps.items() if not name.endswith("-ranks")}
    first = next(iter(apart.values()))["images"]
    rows = {"ground truth": first["truth"], "at the start": first["start"]}
    rows |= {title_of(name, step): step["images"]["end"] for name, step in apart.items()}
    side = round(len(first["truth"][0]) ** 0.5)
    arrays = {name: np.array(row, float).reshape(-1, side, side) for name, row in rows.items()}
    count = len(first["truth"])
    return figures.reconstructions(arrays, [""] * count, [False] * count)


def codes_of(step: Found, name: str) -> Codes:
    found = step["codes"][name]
    groups, held = np.array(step["groups"]), np.array(step["held_groups"])
    return Codes(np.array(found["points"]), np.array(found["held"]), groups, held, np.array(step["order"]))


def spread_of(step: Found, name: str) -> float:
    """Root mean square deviation of a coordinate of the codes."""
    return float(codes_of(step, name).points.std(axis=0).mean())


def neighbours_of(step: Found, name: str) -> float:
    """The share of training images whose nearest code is one of the same object."""
    codes = codes_of(step, name)
    assert codes.groups is not None
    Z = codes.points
    squares = np.square(Z[:, None] - Z).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    return float(np.mean(codes.groups[squares.argmin(axis=1)] == codes.groups))


def scaling(found: Found) -> list[dict[str, Any]]:
    """The measurements of all experiments."""
    return [result for step in found["steps"].values() for result in step["scaling"]]


def ends_of_mu(step: Found) -> list[Found]:
    """The last iteration of each mu that has ended."""
    rows = swept(step)
    return [a for a, b in zip(rows, [*rows[1:], None], strict=True) if b is None or b["mu"] != a["mu"]]


def path(steps: dict[str, Found]) -> Figure:
    """The norms of both gradients and what the multipliers lack, dots where a mu ends.

    Above against iterations, below against mu, with the path as it is.
    """
    figure = Figure(figsize=(9.0, 6.4), layout="constrained")
    keys = {"gradient_E_Q": "‖grad E_Q‖", "gradient_E1": "‖grad E1‖", "multipliers_lack": "multipliers lack"}
    above, below = figure.subplots(2, 3)
    for ax, under, (key, title) in zip(above, below, keys.items(), strict=True):
        for style, colour, step, name in (
            ("-", "#1f77b4", steps["theory"], 'stop = "gradient"'),
            ("--", "#ff7f0e", steps["theory-validation"], 'stop = "validation"'),
        ):
            rows = swept(step)
            ax.plot(
                figures.column(rows, "iteration"), figures.column(rows, key), style, color=colour, lw=1.2, label=name
            )
            last = ends_of_mu(step)
            ax.plot(figures.column(last, "iteration"), figures.column(last, key), "o", color=colour, ms=3.5)
            if style == "-":
                ends = figures.column(last, "mu"), figures.column(last, key)
                under.plot(*ends, "o-", color=colour, ms=3.5, label=name)
        exact = steps["theory-path"]["path"]
        under.plot(figures.column(exact, "mu"), figures.column(exact, key), "o:", color="#2ca02c", label="minimised")
        ax.set(xscale="log", yscale="log", xlabel="iterations")
        under.set(xscale="log", yscale="log", xlabel="mu")
        under.grid(color="0.92", lw=0.6)
        ax.set_title(title, fontsize=10)
        ax.grid(color="0.92", lw=0.6)
    for ax in (above[0], below[0]):
        ax.legend(fontsize=8, frameon=False)
    return figure
