"""The pictures of docs/gallery.md, each made by a command of its own.

    python run/pages/gallery.py digits          # trains, and writes docs/gallery/digits.png
    python run/pages/gallery.py --output DIR    # all of them, to another folder: some minutes on one core

The data: python -m macmpi.fetch usps, and coil, or MACMPI_DATA names their folder.  Seconds are the processor's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from pages_of_evidence import read
from PIL import Image

import macmpi
from macmpi.config import Data
from macmpi.data.named_sets import read_coil, read_usps
from macmpi.results.figures import RUN_COLOURS, plain_log
from macmpi.results.figures import total as cost_of
from macmpi.typing import Array

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "gallery"

LARGEST = 60_000
"""Bytes of a picture, at most."""

WIDTH = 4.5
"""Inches: letters of 9 points are 11 pixels high on a screen of 390."""

SIZES = (2, 4, 8, 16, 32)
"""Numbers of a code of digits."""

LAYERS, UNITS, EPOCHS = 128, 32, 10
"""Of the deep net, by stochastic MAC."""

RATE, ADAMS = 1e-3, 4
"""Of Adam on the deep net, and its epochs, which take longer."""

QUERIES, NEAREST = 8, 6
"""Images that are looked for, and how many are found."""


def fit(config: str | Mapping[str, Any], **keys: Any) -> macmpi.Model:
    """A model of the data that the config names, without lines on the screen."""
    return macmpi.fit(config=config, verbose=False, **keys)


def panel(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def coil() -> Figure:
    """The codes of 20 objects that turn, a loop each, with an image of each at its loop."""
    data = read_coil(Data("coil"), False).arrays
    X, objects, poses = data["X"], data["groups"], data["order"]
    codes = fit("coil_mac").encode(X)
    figure, ax = panel(WIDTH)
    middle = codes.mean(axis=0)
    for i, name in enumerate(np.unique(objects)):
        own = np.flatnonzero(objects == name)
        own = own[np.argsort(poses[own])]
        colour = colormaps["tab20"](i)
        ax.plot(*codes[np.append(own, own[:1])].T, ".-", color=colour, lw=0.7, ms=2.5)
        outer = own[np.square(codes[own] - middle).sum(axis=1).argmax()]
        image = OffsetImage(X[outer], zoom=0.6, cmap="gray")
        look = {"edgecolor": colour, "linewidth": 1.2}
        ax.add_artist(AnnotationBbox(image, codes[outer], pad=0.05, bboxprops=look))
    ax.set(xticks=[], yticks=[], xlabel="first number of the code", ylabel="second number")
    ax.margins(0.08)
    return figure


def grid(rows: Sequence[Sequence[Array]], names: Sequence[str], titles: Mapping[int, str]) -> Figure:
    """Images (h, w) in rows with names; titles: above some columns."""
    columns, left, above = max(map(len, rows)), 0.95, 0.22 if titles else 0.03
    side = (WIDTH - left) / columns
    figure = Figure(figsize=(WIDTH, above + 1.05 * side * len(rows)))
    axes = figure.subplots(len(rows), columns, squeeze=False)
    figure.subplots_adjust(left / WIDTH, 0.01, 0.995, 1.0 - above / figure.get_figheight(), 0.05, 0.05)
    for i, (line, own) in enumerate(zip(axes, rows, strict=True)):
        for j, ax in enumerate(line):
            ax.set_axis_off()
            if j < len(own):
                ax.imshow(1.0 - own[j], cmap="gray", vmin=0.0, vmax=1.0)
            if i == 0 and j in titles:
                ax.set_title(titles[j], fontsize=9, loc="left", pad=3)
        line[0].text(-0.25, 0.5, names[i], transform=line[0].transAxes, fontsize=9, ha="right", va="center")
    return figure


def digits() -> Figure:
    """Ten digits that no net has seen, and what codes of few numbers keep of them."""
    held = read_usps(Data("usps"), False).arrays
    X, digit = held["X_val"], held["groups_val"]
    shown = [int(np.flatnonzero(digit == d)[0]) for d in range(10)]
    flat = X.reshape(len(X), -1)
    rows, names = [list(X[shown])], ["digits"]
    for size in SIZES:
        net = {"model.hidden": [300, 100, size, 100, 300], "model.activation": "sigmoid", "model.precision": "float32"}
        again = fit({"data.source": "usps", "run.max_iterations": 20, **net}).predict(X).reshape(flat.shape)
        rest = np.square(flat - again).sum() / np.square(flat - flat.mean(axis=0)).sum()
        rows.append(list(again[shown].reshape(-1, *X.shape[1:])))
        names.append(f"{size} numbers\nR² {1.0 - rest:.2f}")
    return grid(rows, names, {})


def bits() -> Figure:
    """Digits, what 32 bits keep of each, and the training images with the nearest bits."""
    held = read_usps(Data("usps"), False).arrays
    X, X_val, digit = held["X"], held["X_val"], held["groups_val"]
    model = fit("usps_binary")
    asked = [int(np.flatnonzero(digit == d)[1]) for d in range(QUERIES)]
    again = model.decode(model.encode(X_val[asked])).reshape(-1, *X.shape[1:])
    found, codes = model.bits(X), model.bits(X_val[asked])
    rows, names = [], []
    for query, decoded, code in zip(asked, again, codes, strict=True):
        distance = np.bitwise_count(found ^ code).sum(axis=1, dtype=int)
        near = np.argsort(distance, kind="stable")[:NEAREST]
        rows.append([X_val[query], np.clip(decoded, 0.0, 1.0), *X[near]])
        names.append(" to ".join(dict.fromkeys(str(distance[i]) for i in (near[0], near[-1]))) + " differ")
    return grid(rows, names, {0: "asked", 1: "bits", 2: "nearest by bits"})


def architecture() -> Figure:
    """The units of each layer at the start and as they were selected, on either side of the middle."""
    start = [300, 100, 20, 100, 300]
    model = fit("usps_sizes")
    chosen = [int(size) for size in model.sizes.split("-")[1:-1]]
    costs = cost_of([record for record in model.history if "cost" in record])
    figure, ax = panel(3.0)
    for x, (before, after) in enumerate(zip(start, chosen, strict=True)):
        ax.bar(x, before, 0.6, -before / 2, color="none", edgecolor="0.6", ls="--", label="at the start" * (x == 0))
        ax.bar(x, after, 0.6, -after / 2, color=RUN_COLOURS[0], label="selected" * (x == 0))
        ax.annotate(f"{before} → {after}", (x, -before / 2), (0, -12), textcoords="offset points", ha="center", size=9)
    ax.set(xticks=[], yticks=[], ylim=(-200, 190))
    ax.set_xlabel(f"hidden layers; E1 + C from {costs[0]:.1f} to {costs[-1]:.2f}")
    ax.spines[:].set_visible(False)
    ax.legend(fontsize=9, frameon=False, loc="upper center")
    return figure


def deep() -> Figure:
    """Wrong labels of a net of many sigmoids without skips, against processor seconds."""
    net = {
        "data.source": "usps",
        "model.hidden": [UNITS] * LAYERS,
        "model.activation": "sigmoid",
        "model.loss": "cross_entropy",
        "run.refit": False,
    }
    figure, ax = panel(3.4)
    with TemporaryDirectory() as folder:
        fit({**net, "run.max_iterations": 0}, output=folder, overwrite=True)
        same = {"start.method": "model", "start.model": f"{folder}/start.h5"}
        adam = {"method.name": "adam", "baseline.rate": RATE, "run.max_iterations": ADAMS}
        ways: dict[str, Mapping[str, Any]] = {
            "stochastic MAC": {"run.max_iterations": EPOCHS},
            "Adam, from MAC's start": adam | same,
            "Adam, from random weights": adam,
        }
        for way, colour, style in zip(ways, RUN_COLOURS, (".-", "s-", "^:"), strict=False):
            x, y = timed({**net, **ways[way]})
            ax.plot(x, y, style, color=colour, lw=1.2, ms=4, label=way)
    ax.set(xscale="log", yscale="log", xlabel="processor seconds", ylabel="wrong labels of validation, %")
    plain_log(ax.yaxis, 2.0)
    plain_log(ax.xaxis, 2.0)
    ax.grid(color="0.9", lw=0.6)
    ax.legend(fontsize=9, frameon=False, loc="center left")
    return figure


def timed(config: Mapping[str, Any]) -> tuple[Array, Array]:
    """Processor seconds and per cent of wrong labels after each iteration."""
    seen: list[tuple[float, float]] = []
    begin = time.process_time()

    def noted(record: Mapping[str, Any]) -> None:
        if record["phase"] == "iteration":
            seen.append((time.process_time() - begin, 100.0 * record["error_val"]))

    fit(config, callback=noted)
    x, y = np.array(seen).T
    return x, y


def speedup() -> Figure:
    """How many times faster some ranks are than one: dots are measured (make results), lines the cost model's."""
    steps = read(ROOT / "docs" / "results")["speedup"]["steps"].values()
    figure, ax = panel(3.6)
    ranks = np.array([1, 4096])
    ax.plot(ranks, ranks, "-", color="0.6", lw=0.8, label="ideal")
    for result, colour in zip((r for step in steps for r in step["scaling"]), RUN_COLOURS, strict=False):
        measured = {int(r): m["seconds"] for r, m in result["measured"].items()}
        ax.plot(list(measured), [measured[1] / s for s in measured.values()], "o", color=colour, ms=5)
        totals = {int(r): sum(terms.values()) for r, terms in result["predicted"].items()}
        ax.plot(
            list(totals), [totals[1] / t for t in totals.values()], "--", color=colour, lw=1.3, label=result["name"]
        )
    ax.set(xscale="log", yscale="log", xlim=(0.9, 300), ylim=(0.9, 100), xlabel="ranks", ylabel="times faster")
    for axis in (ax.xaxis, ax.yaxis):
        plain_log(axis, 2.0)
    ax.grid(color="0.9", lw=0.6)
    ax.legend(fontsize=9, frameon=False)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    picture.__name__: picture for picture in (coil, digits, bits, architecture, deep, speedup)
}


def written(name: str, folder: Path) -> Path:
    """Draws a picture and writes it as a PNG file of at most LARGEST bytes.  Raises ValueError."""
    figure, path = PICTURES[name](), folder / f"{name}.png"
    for dpi, colours in candidates():
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white")
        Image.open(buffer).convert("RGB").quantize(colours).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            return path
    raise ValueError(f"{path} has {path.stat().st_size:,} bytes: draw less")


def candidates() -> Iterator[tuple[int, int]]:
    """Dots an inch and colours, the best first."""
    yield from ((dpi, colours) for dpi in (175, 150, 120, 100) for colours in (256, 64))


def main(words: Sequence[str]) -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    p.add_argument("--output", type=Path, default=FOLDER)
    args = p.parse_args(words)
    if unknown := set(args.names) - PICTURES.keys():
        p.error(f"there is no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}")
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.names or PICTURES:
        print(written(name, args.output))


if __name__ == "__main__":
    main(sys.argv[1:])
