"""docs/results.md and its pictures, from docs/results/*.json alone: python run/pages/results_page.py.

`make results` measures and then writes the page; a test writes it again and compares.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paper_pictures
from matplotlib.figure import Figure
from pages_of_evidence import Found, at, commands, end, read, save, source, swept, table, wrapped

from macmpi.results import figures

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
FOLDER = ROOT / "docs" / "results"

HEAD = """# Results

How good and how fast macmpi is. `make results` measures all of it and writes this page, `make results ONLY="usps
speedup"` parts of it; every number comes from the files in docs/results/, which hold every repeat. E1 is per point,
with the 1/2; "training / validation" is the end of a run, after postprocessing. Medians are given, with least and
most in brackets. What a model predicts is marked, and no measurement. [Studies](studies/index.md) answer single
questions, each by a command of its own; older figures, from other machines and commits, are in the
folder log/.
"""

MISSING = "Not measured yet: `make results ONLY={name}`."


def spread(values: Sequence[float], digits: str = ".3g") -> str:
    """Median, least and most."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{digits}} ({least:{digits}}-{most:{digits}})"


def ends(found: Found) -> str:
    """Ends and first iterations of the runs of each config, over its seeds."""
    groups: dict[str, list[Found]] = {}
    for name, step in found["steps"].items():
        groups.setdefault(name.rpartition("-")[0], []).append(step)
    rows = []
    for name, steps in groups.items():
        first = [spread([at(s, i) for s in steps], ".2f") for i in (1, 2, 3)]
        pairs = ", ".join(f"{end(s)['E1_train']:.3f} / {end(s)['E1_val']:.3f}" for s in steps)
        counts = sorted({swept(s)[-1]["iteration"] for s in steps})
        rows.append(
            [
                f"`{name}`",
                *first,
                pairs,
                "-".join(map(str, counts[:: max(len(counts) - 1, 1)])),
                spread([end(s)["seconds"] for s in steps]),
                spread([s["processor_seconds"] for s in steps]),
            ]
        )
    header = ("config", "E1 after 1", "2", "3", "E1 at the end, seed by seed", "iterations", "seconds of training")
    levels_of = paper_pictures.constant(next(iter(found["steps"].values()))).items()
    levels = ", ".join(f"{name} {value:.3f}" for name, value in levels_of)
    return f"To compare with: {levels}.\n\n" + table((*header, "processor seconds"), rows)


def curves(found: Found) -> str:
    levels = (8.0, 6.0, 5.0, 4.0, 3.0, 2.0)
    rows = []
    for name, step in found["steps"].items():
        cells = []
        for level in levels:
            there = next((r for r in swept(step) if r["E1_train"] <= level), None)
            cells.append(f"{there['seconds']:.2f}, {there['E1_val']:.2f}" if there else "never")
        rows.append([f"`{name}`", *cells, f"{end(step)['E1_train']:.3f} / {end(step)['E1_val']:.3f}"])
    header = ("config, one rank", *(f"E1 <= {level:g}" for level in levels), "end")
    return (
        table(header, rows)
        + "\n\nCells: seconds of training, validation error there. Adam and L-BFGS are macmpi's own."
    )


def cost(found: Found) -> str:
    rows = []
    for name, step in found["steps"].items():
        for ranks, own in of_ranks(step["rows"]).items():
            column = {key: [r[key] for r in own] for key in ("seconds", "gflop", "seconds_z", "seconds_w", "idle")}
            memory = max(r["memory_mb"] for r in own)
            rows.append(
                [
                    f"`{name.removeprefix('cost-')}`",
                    ranks,
                    spread(column["seconds"]),
                    *(f"{statistics.median(column[key]):.3f}" for key in ("seconds_z", "seconds_w")),
                    f"{statistics.median(column['idle']):.1%}",
                    f"{ranks * statistics.median(column['gflop']):.1f}",
                    f"{memory:.0f}",
                ]
            )
    header = ("config", "ranks", "seconds an iteration", "Z-step", "W-step", "exchange and waiting")
    return table((*header, "GFLOP-equivalents", "MB a rank"), rows) + (
        "\n\nGFLOP-equivalents: seconds times the machine's own dgemm rate with each launch, over all ranks."
    )


def of_ranks(rows: Sequence[Found]) -> dict[int, list[Found]]:
    """Rows by their number of ranks."""
    found: dict[int, list[Found]] = {}
    for row in rows:
        found.setdefault(row["ranks"], []).append(row)
    return found


def start(found: Found) -> str:
    (step,) = found["steps"].values()
    rows = [[ranks, spread([r["start"] for r in own])] for ranks, own in of_ranks(step["rows"]).items()]
    return table(("ranks", "seconds from the launch to the first line of the table"), rows)


def startup(found: Found) -> str:
    """Many ranks on few cores: what each costs before it does anything."""
    (step,) = found["steps"].values()
    rows = [
        [f"{r['ranks']} on {r['cores']} cores", f"{r['processor_seconds']:.0f}", f"{r['each']:.2f}", f"{r['head']:.1f}"]
        for r in step["rows"]
    ]
    return table(("ranks", "processor seconds", "a rank", "seconds to the table"), rows)


def speedup(found: Found) -> str:
    rows = []
    for result in paper_pictures.scaling(found):
        one = result["measured"]["1"]["seconds"]
        for count, m in result["measured"].items():
            held = result.get("held_out", {}).get(count)
            error = f"{held / m['seconds'] - 1.0:+.1%}" if held else "-"
            rows.append(
                [
                    result["name"],
                    count,
                    f"{m['seconds']:.3f} ({m['least']:.3f}-{m['most']:.3f})",
                    f"{one / m['seconds']:.2f}",
                    f"{one / m['seconds'] / int(count):.3f}",
                    error,
                    f"{m['others']:.2f}",
                ]
            )
    header = ("experiment", "ranks", "seconds an iteration", "speedup", "efficiency", "model against measurement")
    return table((*header, "cores that others kept busy"), rows)


def weak(found: Found) -> str:
    rows = []
    for result in paper_pictures.scaling(found):
        one = result["measured"]["1"]["seconds"]
        for count, m in result["measured"].items():
            points = f"{result['points'][count]:,}"
            rows.append([result["name"], count, points, f"{m['seconds']:.3f}", f"{one / m['seconds']:.2f}"])
    return table(("experiment", "ranks", "points", "seconds an iteration", "efficiency"), rows)


def coil(found: Found) -> str:
    rows = []
    for name, step in found["steps"].items():
        first = [f"{at(step, i):.2f}" for i in (0, 1, 2, 3)]
        rows.append(
            [
                f"`{name}`",
                *first,
                swept(step)[-1]["iteration"],
                f"{end(step)['E1_train']:.2f}",
                f"{end(step)['seconds']:.0f}",
                f"{step['processor_seconds']:.0f}",
            ]
        )
    header = ("config", "E1 at the start", "1", "2", "3", "iterations", "E1 at the end", "seconds", "processor seconds")
    return table(header, rows) + "\n\nE1 of the training images, with the ridge, as in eq. (6)."


def selection(found: Found) -> str:
    rows = []
    for name, step in found["steps"].items():
        last = swept(step)[-1]
        sizes = step["sizes"][0]["units"] if step["sizes"] else last.get("centres", [])
        first = swept(step)[0]
        cells = [first["E1_train"] + first.get("cost", 0.0), last["E1_train"] + last.get("cost", 0.0)]
        rows.append(
            [
                f"`{name}`",
                *(f"{cell:.3f}" for cell in cells),
                ", ".join(map(str, sizes)),
                f"{end(step)['E1_train']:.3f}",
                f"{end(step)['seconds']:.0f}",
            ]
        )
    return table(
        ("run", "E1 + C after one iteration", "at the end", "sizes at the end", "E1 after postprocessing", "seconds"),
        rows,
    )


def growth(found: Found) -> str:
    rows = []
    for points, method, each in grown(found):
        rows.append([method, f"{points:,}", spread(each)])
    return table(("method", "points", "seconds for 10,000 points"), rows)


def grown(found: Found) -> Iterator[tuple[int, str, list[float]]]:
    """Points, method, and of each launch the seconds that its last iteration takes for 10,000 points."""
    (step,) = found["steps"].values()
    for method in dict.fromkeys(r["method"] for r in step["rows"]):
        for points in dict.fromkeys(r["points"] for r in step["rows"]):
            own = [r for r in step["rows"] if (r["method"], r["points"]) == (method, points)]
            yield points, method, [1e4 * r["seconds"][-1] / points for r in own]


def compared(found: Found) -> str:
    """The last table that was printed: its rows may have been printed one by one before."""
    (step,) = found["steps"].values()
    rows = step["rows"]
    said = [wrapped(line) for line in step["said"]]
    return "\n\n".join([table(*last_table(rows)), *said, *noted(found)])


def noted(found: Found) -> list[str]:
    """The paragraph on how something was measured, if there is one."""
    return [wrapped(found["note"])] if "note" in found else []


def shapes(found: Found) -> str:
    """The tables of all shapes as one, and what is to be said of how they were measured."""
    steps = [last_table(step["rows"]) for step in found["steps"].values()]
    rows = [row for _, some in steps for row in some]
    return "\n\n".join([table(steps[0][0], rows), *noted(found)])


def last_table(rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the last table that was printed."""
    ruled = max(i for i, row in enumerate(rows) if set("".join(row)) <= set("-"))
    return rows[ruled - 1], rows[ruled + 1 :]


KFAC = (
    "Stochastic MAC is of the family of K-FAC (Martens and Grosse, 2015); its map-by-map curvature is that of KFRA "
    "(Botev, Ritter and Barber, 2017)."
)
"""The family of the method that is compared."""

SHAPES = (
    "Data and nets of the shapes, and the rivals, are in `run/bench/shapes.py`. Levels are errors that are given, and "
    "the lowest that any rival from random weights, or from stochastic MAC's start, has within its seconds. The large "
    "and the wide net have Adam alone, for the cost of the steps of Muon and SOAP."
)
"""How the table of shapes is to be read."""

SECONDS = " One core each, single precision, one final run; seconds are the processor's, of training alone."

SECTIONS: dict[str, tuple[str, Callable[[Found], str], str]] = {
    "usps": ("Errors: autoencoders of USPS digits, four seeds", ends, ""),
    "classify": ("Errors: labels of USPS digits, four seeds", ends, ""),
    "curves": ("Learning curves against seconds", curves, KFAC),
    "rivals": ("Against Adam and the optimisers of today, tuned", compared, KFAC + SECONDS),
    "tasks": ("Other tasks: defaults against a tuned Adam", compared, KFAC + SECONDS),
    "shapes": ("Nets and data of other shapes: defaults against tuned optimisers", shapes, SHAPES + SECONDS),
    "cost": ("An iteration of full MAC", cost, ""),
    "start": ("From the launch to the first iteration", start, ""),
    "startup": ("Many ranks on few cores: a run of no iterations", startup, ""),
    "speedup": ("Speedup", speedup, "Dots are measured; lines are predictions of the cost model, and no measurements."),
    "weak": ("As many points on each rank", weak, ""),
    "growth": ("Sharded points: cost against their number", growth, ""),
    "coil": ("Radial basis functions: COIL-20", coil, ""),
    "selection": ("Architectures that are selected", selection, ""),
}

FILES = {
    "curves": {"curves.png": "E1 against seconds of training, one rank"},
    "speedup": {"speedup.png": "Speedup against ranks, measured and predicted"},
    "growth": {"growth.png": "Seconds for 10,000 points against the number of points"},
}


def drawn(name: str, found: Found) -> Iterator[tuple[str, Figure]]:
    """The pictures of a benchmark, by their files."""
    if name == "curves":
        yield "curves.png", paper_pictures.learning(found["steps"])
    if name == "speedup":
        sys.path.append(str(ROOT / "run" / "bench"))
        from speedup_figure import figure

        yield "speedup.png", figure(paper_pictures.scaling(found))
    if name == "growth":
        yield "growth.png", of_growth(found)


def of_growth(found: Found) -> Figure:
    """Seconds for 10,000 points against the number of points: flat where cost grows like it."""
    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    ax = figure.subplots()
    by: dict[str, list[tuple[int, float]]] = {}
    for points, method, each in grown(found):
        by.setdefault(method, []).append((points, statistics.median(each)))
    for i, (method, pairs) in enumerate(by.items()):
        x, y = np.array(pairs).T
        ax.plot(x, y, "o-", color=figures.run_colour(i), label=method)
    ax.set(xscale="log", xlabel="points", ylabel="seconds for 10,000 points", ylim=(0.0, None))
    ax.legend(frameon=False)
    return figure


def page(found: dict[str, Found]) -> str:
    """The whole page."""
    parts: list[Any] = [HEAD]
    for name, (title, text, more) in SECTIONS.items():
        parts.append(f"## {title}\n")
        if name not in found:
            parts.append(MISSING.format(name=name) + "\n")
            continue
        parts += [f"{text(found[name])}\n", *([f"{wrapped(more)}\n"] if more else [])]
        parts += [f"![{alt}](results/{file})\n" for file, alt in FILES.get(name, {}).items()]
        parts += [f"{source(found[name])}\n", f"{commands(found[name])}\n"]
    return "\n".join(parts)


def write() -> Path:
    """The page and the pictures of what there is."""
    found = read(FOLDER)
    for name, own in found.items():
        for file, figure in drawn(name, own):
            save(figure, FOLDER / file)
    PAGE.write_text(page(found), encoding="utf-8")
    return PAGE


if __name__ == "__main__":
    print(write())
