"""docs/results.md and its pictures, from docs/results/*.json alone: python run/pages/results_page.py.

`make results` measures and then writes the page; a test writes it again and compares.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import contests
import numpy as np
import paper_pictures
from matplotlib.figure import Figure
from pages_of_evidence import Found, at, end, fold, read, save, swept, table, wrapped

from macmpi.results import figures

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
FOLDER = ROOT / "docs" / "results"

HEAD = """# Results

{answer}

E1 is per point, with the factor 1/2; "training / validation" are the errors at the end of a run, after postprocessing.
Figures are medians, with the range in brackets. docs/results/ holds every repeat, the command of each step, and the
versions.
"""

LEVELS = {
    "predict the mean": "if every prediction is the mean of the targets",
    "predict the shares": "if every prediction is the frequency of each class",
}

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
        first = ", ".join(f"{statistics.median(at(s, i) for s in steps):.2f}" for i in (1, 2, 3))
        errors = [spread([end(s)[key] for s in steps], ".3f") for key in ("E1_train", "E1_val")]
        counts = sorted({swept(s)[-1]["iteration"] for s in steps})
        iterations = "-".join(map(str, counts[:: max(len(counts) - 1, 1)]))
        rows.append([f"`{name}`", first, *errors, iterations, spread([end(s)["seconds"] for s in steps])])
    levels_of = paper_pictures.constant(next(iter(found["steps"].values()))).items()
    levels = " and ".join(f"{value:.3f} {LEVELS.get(name, f'for {name}')}" for name, value in levels_of)
    header = ("config", "E1 after 1, 2, 3", "end: training", "validation", "iterations", "seconds of training")
    return f"For comparison, E1 is {levels}.\n\n" + table(header, rows)


def curves(found: Found) -> str:
    levels = (6.0, 5.0, 4.0, 3.0, 2.0)
    rows = []
    for name, step in found["steps"].items():
        cells = []
        for level in levels:
            there = next((r for r in step["curve"] if r["E1_train"] <= level and r["phase"] != "postprocess"), None)
            cells.append(f"{there['seconds']:.2f}, {there['E1_val']:.2f}" if there else "never")
        rows.append([f"`{name}`", *cells, f"{end(step)['E1_train']:.3f} / {end(step)['E1_val']:.3f}"])
    header = ("config, one rank", *(f"E1 <= {level:g}" for level in levels), "end")
    return (
        table(header, rows)
        + "\n\nA cell shows the seconds of training, including the start, and the validation error at that level.\n"
        "Adam and L-BFGS are macmpi's own, with the settings of their configs; tuned rivals are in the first tables."
    )


def cost(found: Found) -> str:
    rows = []
    for name, step in found["steps"].items():
        by_ranks = of_ranks(step["rows"])
        one = by_ranks[min(by_ranks)]
        shares = [
            f"{statistics.median(r[key] for r in one) / statistics.median(r['seconds'] for r in one):.0%}"
            for key in ("seconds_z", "seconds_w")
        ]
        for ranks, own in by_ranks.items():
            cells = shares if own is one else ["", ""]
            rows.append(
                [
                    f"`{name.removeprefix('cost-')}`" if own is one else "",
                    ranks,
                    *cells,
                    f"{statistics.median(r['idle'] for r in own):.1%}",
                    f"{ranks * statistics.median(r['gflop'] for r in own):.1f}",
                    f"{max(r['memory_mb'] for r in own):.0f}",
                ]
            )
    header = ("config", "ranks", "Z-step", "W-step", "exchange and waiting", "GFLOP-equivalents", "MB a rank")
    return table(header, rows) + (
        "\n\nA share is relative to a whole iteration; evaluation takes the rest. [Speedup](#speedup) has the "
        "seconds.\n"
        "GFLOP-equivalents are seconds of all ranks times the dgemm rate that each launch measures."
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


BITS = 32
"""Codes of this length are shown; the file has others."""


def hashing(found: Found) -> str:
    """Codes of bits, by method and data: precision at 100 by Hamming distance and by the decoded code, E1, seconds."""
    cells: dict[str, dict[str, str]] = {}
    rows = [r for step in found["steps"].values() for r in step["rows"] if r["bits"] == BITS and r["data"] != "coil"]
    for row in rows:
        near = f"{row['precision']['100']:.3f}, {row['decoded']['precision']['100']:.3f}" if "decoded" in row else ""
        whole = f"{near}, {row['E1']:.2f}" if near else f"-, {row['precision']['100']:.3f}, -"
        cells.setdefault(row["method"], {})[f"{row['data']}, {row['points']:,}"] = f"{whole}, {row['seconds']:.1f}"
    data = list(dict.fromkeys(name for own in cells.values() for name in own))
    made = [[method, *(own.get(name, "") for name in data)] for method, own in cells.items()]
    said = (
        f"Codes have {BITS} bits. A cell shows the precision at 100 by Hamming distance and by decoded codes (or "
        "estimates), E1 of the best linear decoder, and processor seconds over all ranks. Precision at 100 is the "
        "share of true neighbours (the 100 nearest by Euclidean distance) among the 100 points that a search finds. "
        "docs/results/hashing.json has other lengths, and COIL."
    )
    return f"{wrapped(said)}\n\n{table(('method', *data), made)}"


def deep(found: Found) -> str:
    """A row a way, a column a net: the lowest validation error, seconds until then, and how much sooner MAC has it."""
    measured: dict[str, dict[str, list[Found]]] = {}
    for row in (r for step in found["steps"].values() for r in step["rows"]):
        way = row.get("way", "logistic regression")
        measured.setdefault(way, {}).setdefault(row["net"], []).append(row)
    nets = [net for net in dict.fromkeys(n for each in measured.values() for n in each) if net != "linear"]

    def cell(own: list[Found]) -> str:
        errors = [100.0 * r["best"] for r in own]
        best = spread(errors, ".2f") if len(set(errors)) > 1 else f"{errors[0]:.2f}"
        if "seconds" not in own[0]:
            return best
        seconds = statistics.median(r["seconds"] for r in own)
        times = [math.inf if r["ours"] is None else r["seconds"] / r["ours"] for r in own if r["ours"] != 0.0]
        sooner = f"{statistics.median(times or [math.inf]):.1f}".replace("inf", "never")
        return f"{best}, {seconds:.0f}" + ("" if own[0]["way"] == "stochastic MAC" or not seconds else f" ({sooner})")

    rows = [[way, *(cell(each.get(net) or each["linear"]) for net in nets)] for way, each in measured.items()]
    return table(("way", *nets), rows)


def speedup(found: Found) -> str:
    rows = []
    for result in paper_pictures.scaling(found):
        one = result["measured"]["1"]
        for count, m in result["measured"].items():
            if m is one:
                continue
            held = result.get("held_out", {}).get(count)
            error = f"{held / m['seconds'] - 1.0:+.1%}" if held else "-"
            times = one["seconds"] / m["seconds"]
            each = [f"{t['seconds']:.3f} ({t['least']:.3f}-{t['most']:.3f})" for t in (one, m)]
            rows.append([f"`{result['name']}`", count, *each, f"{times:.2f}", f"{times / int(count):.3f}", error])
    header = ("experiment", "ranks", "seconds an iteration, one rank", "on these ranks", "speedup", "efficiency")
    return table((*header, "model's error"), rows)


def weak(found: Found) -> str:
    rows = []
    for result in paper_pictures.scaling(found):
        one = result["measured"]["1"]["seconds"]
        for count, m in result["measured"].items():
            if count != "1":
                points = f"{result['points'][count]:,}"
                seconds = f"{one:.3f}, {m['seconds']:.3f}"
                rows.append([f"`{result['name']}`", count, points, seconds, f"{one / m['seconds']:.2f}"])
    return table(("experiment", "ranks", "points", "seconds an iteration, one rank and these", "efficiency"), rows)


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
    by: dict[str, list[str]] = {}
    counts = dict.fromkeys(points for points, _, _ in grown(found))
    for _, method, each in grown(found):
        by.setdefault(method, []).append(spread(each))
    return table(("seconds for 10,000 points", *(f"of {n:,}" for n in counts)), [[m, *own] for m, own in by.items()])


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
    return table(*last_table(step["rows"]))


class Rival(NamedTuple):
    """A rival at a level of the table of rivals: seconds, validation error, and how many times stochastic MAC's."""

    name: str
    seconds: str
    validation: str
    times: float

    def __str__(self) -> str:
        return f"{self.name}: {self.seconds}, {self.validation} ({self.times:.1f})"


def at_levels(found: Found) -> Iterator[tuple[str, str, list[Rival]]]:
    """Levels of the table of rivals, with stochastic MAC's cell and the rivals that come to it."""
    (step,) = found["steps"].values()
    header, rows = last_table(step["rows"])
    for row in rows:
        cells = {
            head.partition(":")[0]: re.fullmatch(r"([\d.]+), ([\d.]+) \(([\d.]+)\)", c)
            for head, c in zip(header, row, strict=True)
        }
        yield row[0], row[1], [Rival(name, m[1], m[2], float(m[3])) for name, m in cells.items() if m]


OF_START = ", from MAC's start"


def rivals(found: Found) -> str:
    """The best rival at each level, from random weights and from stochastic MAC's start."""
    levels = []
    for level, ours, known in at_levels(found):
        best = [
            min((r for r in known if (OF_START in r.name) == given), key=lambda r: r.times, default="-")
            for given in (False, True)
        ]
        levels.append([level, ours, *(str(rival).replace(OF_START, "") for rival in best)])
    header = ("E1 train <=", "stochastic MAC: s, validation", "best from random weights (times)", "from MAC's start")
    return table(header, levels)


def shapes(found: Found) -> str:
    """The lowest training errors of rivals; a star: of one that began at MAC's start."""
    rows = [
        [shape, f"{level.error}{'*' * level.given}", *(cell.replace(" s", "") for cell in cells)]
        for shape, level, cells in at_lowest(found)
        if level.of and not level.validation
    ]
    header = ("shape", "E1 train", "stochastic MAC, s", "best rival from random weights (times)", "from MAC's start")
    return table(header, rows)


class Level(NamedTuple):
    """An error of a shape's table: of which points, whose lowest it is ("" if none's), whether from MAC's start."""

    validation: bool
    error: str
    of: str
    given: bool


def at_lowest(found: Found) -> Iterator[tuple[str, Level, list[str]]]:
    """Shape, level, and the cells of stochastic MAC and of the best rivals."""
    for step in found["steps"].values():
        for shape, level, *cells in last_table(step["rows"])[1]:
            said = re.fullmatch(
                r"E1 (train|validation) ([\d.e-]+)(?: \(the lowest of (.+?)(, from MAC's start)?\))?", level
            )
            assert said is not None, level
            yield shape, Level(said[1] == "validation", said[2], said[3] or "", bool(said[4])), cells


def last_table(rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the last table that was printed."""
    ruled = max(i for i, row in enumerate(rows) if set("".join(row)) <= set("-"))
    return rows[ruled - 1], rows[ruled + 1 :]


PROBLEMS = {
    "large": "a large autoencoder, 2.8 million weights",
    "wide": "an autoencoder with two layers of 2,000",
    "narrow-deep": "an autoencoder with twelve layers of 100",
    "regression": "a regression, 100,000 points",
    "classification": "labels of 60,000 images",
    "digits": "a small autoencoder of digits",
}
"""What the shapes are."""


def in_short(found: dict[str, Found]) -> tuple[str, str]:
    """The answer of the page, and the table of how many times faster stochastic MAC is."""
    levels = list(at_levels(found["rivals"]))
    random, given = (
        [min((r.times for r in known if (OF_START in r.name) == start), default=math.inf) for _, _, known in levels]
        for start in (False, True)
    )
    last, ours, known = levels[-1]
    best = min(known, key=lambda rival: float(rival.validation))
    rows = [
        [
            f"the autoencoder of USPS, at {last}",
            *(f"{times[-1]:.1f}" if times[-1] < math.inf else "never" for times in (random, given)),
            f"{best.name} there {best.validation}; MAC there {ours.partition(', ')[2]}",
        ]
    ]
    behind = []
    for shape, problem in PROBLEMS.items():
        own = [(level, cells) for name, level, cells in at_lowest(found["shapes"]) if name == shape and level.of]
        times = []
        for level, cells in own:
            said = re.fullmatch(r"(\S+) .*\(([\d.]+)\)", cells[1 + level.given])
            if not level.validation:
                times.append(f"{said[2]} ({said[1]})" if said and float(said[2]) else "a rival's start is its lowest")
        level, cells = min((pair for pair in own if pair[0].validation), key=lambda pair: float(pair[0].error))
        missed = re.search(r"[\d.]+(?= at best)", cells[0])
        behind += [f"the {shape}"] if missed else []
        there = missed[0] if missed else f"there {cells[1 + level.given].rpartition('(')[2].rstrip(')')} times faster"
        rows.append([problem, *times, f"{level.of}{OF_START * level.given} {level.error}; MAC {there}"])
    header = ("times faster at the best rival's lowest E1 train", "from random weights", "from MAC's start")
    return answer(levels, random, given, behind), table((*header, "lowest validation error of a rival"), rows)


def answer(
    levels: list[tuple[str, str, list[Rival]]], random: list[float], given: list[float], behind: list[str]
) -> str:
    """Three sentences.

    random, given: how many times slower the best rival is at each level, from random weights and from MAC's start.
    behind: where a rival's validation error is lower.
    """
    at_once = [level for (level, _, _), times in zip(levels, given, strict=True) if times == 0.0]
    slower = [times for times in given if 0.0 < times < math.inf]
    ours = [times for times in random if times < math.inf]
    where = " and ".join(", ".join(behind).rsplit(", ", 1))
    return wrapped(
        f"On the autoencoder of USPS digits stochastic MAC is {min(random):.2g} to {max(ours):.2g} times faster than "
        "the best of tuned Adam, Muon and SOAP from random weights. From stochastic MAC's start the best rival "
        f"{f'has an error of {at_once[-1]} at once, but ' if at_once else ''}takes {min(slower):.2g} to "
        f"{max(slower):.2g} times as long to lower errors. On {where or 'no problem'} a rival's validation error is "
        "lower in the end, as the table shows."
    )


SHORT = (
    "Each method has one final run on one core, in single precision; seconds are processor seconds of training. "
    "Rivals are tuned over 2 to 24 settings, and get MAC's start for free. 'Averaged' rivals are judged by an "
    "exponential average of the weights (0.99 per step), as stochastic MAC is. 'Decaying' rivals also have rates that "
    "fall linearly to 0. On the wide and the large net the only rival here is Adam; [another "
    "table](#on-all-cores-the-large-net) has Muon and SOAP on the large net."
)
"""How the comparisons with rivals are to be read."""

SHAPES = (
    "`run/bench/shapes.py` defines data, nets and rivals: `run/usps_fast.toml` with other data or another net. A "
    "level is the lowest E1 of a rival within its seconds; a star marks rivals that began at MAC's start. The numbers "
    "in brackets say how many times slower the rival is."
)
"""How the table of shapes is to be read."""

DEEP = (
    "With skips stochastic MAC ends lower than Adam. Without skips only stochastic MAC and batch normalisation train "
    "128 layers; with twelve layers batch normalisation ends lowest, and stochastic MAC is fastest. A cell shows the "
    "lowest validation error on labels of USPS in per cent, the seconds until then and, in brackets, how many times "
    "sooner stochastic MAC reaches this error. `residual-128` has 128 layers of 32 rectifiers with x + g(x) from the "
    "second layer on. `plain-128` has 128 layers of 32 sigmoids without skips, and `narrow-12` has twelve of these "
    "layers. There are five seeds; full MAC and predictive coding (pcx, scaled by depth as in muPC) have one. Rivals "
    "have the best settings of a small grid, which includes macmpi's start. Runs end with the iteration that passes "
    "30 processor seconds, which is too soon for full MAC and predictive coding."
)
"""How the deep nets are to be read."""

TASKS = (
    "All tasks except the digits are on USPS. Adam has the best of 16 settings and is judged by its present weights; "
    "the tables above judge averaged weights, so Adam's errors on the digits are lower there."
)
"""How the other tasks are to be read."""

WEAK = "These are separate launches, so their seconds differ a little from those of [speedup](#speedup)."
"""How the seconds of as many points on each rank are to be read."""

SECTIONS: dict[str, tuple[str, Callable[[Found], str], str]] = {
    "rivals": ("Against Adam and the optimisers of today, tuned", rivals, ""),
    "shapes": ("Nets and data of other shapes", shapes, SHAPES),
    "family": ("Against its own family", contests.shown, contests.FAMILY),
    "family-large": ("Against its own family: the large net", contests.shown, ""),
    "machine": ("On all cores", contests.shown, contests.MACHINE),
    "machine-large": ("On all cores: the large net", contests.shown, ""),
    "deep": ("Deep nets", deep, DEEP),
    "hashing": ("Codes of bits for retrieval", hashing, ""),
    "tasks": ("Other tasks: defaults against a tuned Adam", compared, TASKS),
    "usps": ("Errors: autoencoders of USPS digits, four seeds", ends, ""),
    "classify": ("Errors: labels of USPS digits, four seeds", ends, ""),
    "curves": ("Learning curves against seconds", curves, ""),
    "speedup": ("Speedup", speedup, "Dots were measured; lines are predictions of the cost model."),
    "weak": ("As many points on each rank", weak, WEAK),
    "cost": ("An iteration of full MAC", cost, ""),
    "start": ("From the launch to the first iteration", start, ""),
    "startup": ("Many ranks on few cores: a run of no iterations", startup, ""),
    "growth": ("Sharded points: cost against their number", growth, ""),
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
    said, short = in_short(found) if {"rivals", "shapes"} <= found.keys() else ("", "")
    parts = [HEAD.format(answer=said)]
    if short:
        parts += [f"## In short\n\n{short}\n", f"{wrapped(SHORT)}\n"]
    for name, (title, text, more) in SECTIONS.items():
        parts.append(f"## {title}\n")
        if name not in found:
            parts.append(MISSING.format(name=name) + "\n")
            continue
        own = found[name]
        parts += [f"{text(own)}\n", *([f"{wrapped(more)}\n"] if more else [])]
        parts += [f"![{alt}](results/{file})\n" for file, alt in FILES.get(name, {}).items()]
        how = f"`make results ONLY={name}`"
        parts.append(f"{fold(own, [own['note']] if 'note' in own else [], how)}\n")
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
