"""Sections of docs/paper.md and docs/results.md are written and drawn from made-up outcomes of their steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paper
import paper_page
import paper_pictures
import pytest
import results
import results_page
from evidence import Benchmark, Step
from pages_of_evidence import LARGEST, save

Found = dict[str, Any]
PAGES = {paper: paper_page, results: results_page}
SECTIONS = [(module, b) for module in PAGES for b in module.BENCHMARKS[::4]]
WHERE = {
    "machine": {"processor": "A", "cores": 2, "memory_gb": 3},
    "blas": "openblas 0 (Haswell)",
    "versions": {"numpy": "9"},
}


AT = {"precision": {"10": 0.5, "100": 0.25}, "recall": {"10": 0.05, "100": 0.25}}
HASHES = [
    {"data": "usps", "points": 5000, "bits": 32, "method": "ITQ", "seconds": 0.1, "E1": 6.2, "decoded": AT, **AT},
    {"data": "usps", "points": 5000, "bits": 32, "method": "product quantisation", "seconds": 2.0, **AT},
]
"""A hash function, and a search by estimates."""

DEEP: list[Found] = [
    {"net": "linear", "task": "labels", "best": 0.1},
    {"net": "n", "task": "labels", "way": "stochastic MAC", "best": 0.05, "seconds": 2.0, "near": None, "ours": 2.0},
    {"net": "n", "task": "labels", "way": "Adam", "best": 0.04, "seconds": 9.0, "near": 3.0, "ours": None},
]
"""A linear model, and two ways of training a deep net."""

GRID = [
    {"batch": batch, "rate": rate, "E1_train": e, "E1_val": e, "epochs": 3}
    for batch, rate, e in ((1, 0.1, 9.0), (1, 1.0, None), (20, 0.1, 7.0), (20, 1.0, 8.0))
]
"""As run/bench/sgd_grid.py writes them."""

PATH_KEYS = ("gradient_E_Q", "gradient_E1", "multipliers_lack", "constraint")


def curve(random: np.random.Generator) -> list[Found]:
    """A start, 12 iterations in which mu grows twice and sizes are selected once, and a postprocessing."""
    keys = {"E_Q": 1.0, "constraint": 0.1, "cost": 2.0, "centres": [9, 7]}
    records = []
    for i in range(14):
        phase = "start" if i == 0 else "postprocess" if i == 13 else "selection" if i == 11 else "iteration"
        error = 10.0 / (1.0 + i) + 0.01 * random.random()
        own = {
            "iteration": min(i, 12),
            "phase": phase,
            "mu": 10.0 ** (i // 5),
            "E1_train": error,
            "E1_val": 1.1 * error,
        }
        slopes = {"gradient_E_Q": error, "gradient_E1": error, "multipliers_lack": error}
        known = {k: v for k, v in keys.items() if phase != "start" or k not in ("cost", "centres")}
        records.append({**own, **known, **slopes, "seconds": 0.5 * i, "changed": phase == "selection"})
    return records


def scaled(weak: bool) -> Found:
    """As run/bench/speedup.py writes it: 1 and 2 ranks measured, 12 predicted."""
    each = {"least": 0.9, "most": 1.1, "undisturbed": 0.9, "others": 0.0}
    found = {"name": "n", "measured": {str(r): {"seconds": 1.0 / r, **each} for r in (1, 2)}}
    if weak:
        return found | {"points": {"1": 10, "2": 20}}
    predicted = {r: {"ideal": 1.0 / int(r)} for r in ("1", "12")}
    return found | {"predicted": predicted, "held_out": {"2": 0.51}, "parmac": {"1": 1.0, "12": 9.0}}


RIVALS = [
    ["4", "printed before"],
    [
        "E1 train <=",
        "stochastic MAC: s, validation",
        "A: s, validation (times)",
        "A, from MAC's start: s, validation (times)",
    ],
    ["---"] * 4,
    ["4", "0.10, 4.10", "3.00, 4.20 (30.0)", "0.00, 4.10 (0.0)"],
    ["3", "1.00, 3.30", "8.40, 3.10 (8.4)", "1.20, 3.20 (1.2)"],
    ["2", "2.00, 2.90", "> 32 (> 16.0)", "7.00, 2.80 (3.5)"],
]
SHAPES = [
    ["shape", "level", "stochastic MAC", "best rival from random weights (times)", "best from stochastic MAC's start"],
    ["---"] * 5,
    ["wide", "E1 train 5", "1.00 s", "A 9.00 s (9.0)", "A 0.00 s (0.0)"],
    ["wide", "E1 train 0.5 (the lowest of A)", "2.00 s", "A 8.00 s (4.0)", "A 3.00 s (1.5)"],
    ["wide", "E1 train 0.4 (the lowest of B, from MAC's start)", "3.00 s", "> 9 s (> 3.0)", "B 6.00 s (2.0)"],
    ["wide", "E1 validation 0.7 (the lowest of A)", "4.00 s", "A 9.00 s (2.2)", "> 9 s (> 2.2)"],
    ["wide", "E1 validation 0.8 (the lowest of B, from MAC's start)", "3.00 s", "A 8.00 s (2.7)", "B 7.00 s (2.3)"],
]
BESIDE = [
    ["net, error", "stochastic MAC", "A", "B"],
    ["---"] * 4,
    ["printed before", "1.00 s", "2.00 s", "-"],
    ["net, error", "stochastic MAC", "A", "B"],
    ["---"] * 4,
    ["n, train 5", "2.00 s on 2, 1.00 s on 4", "9.00 s (threads, 100, 9.0)", "> 8.00 s (> 8.0)"],
    ["n, validation 4 (the lowest of A)", "2.00 s", "1.50 s (one core, 100, 0.8)", "never"],
    ["n, validation 3 (the lowest of B)", "never: 3.1 at best", "-", "7.00 s"],
]
"""As run/bench/compare.py family and machine print them."""


def outcome(step: Step, random: np.random.Generator) -> Found:
    """All that any of the functions that read a step's folder gives."""
    side = 4
    images = {name: random.integers(0, 256, size=(3, side * side)).tolist() for name in ("truth", "start", "end")}
    codes = {n: {"points": random.normal(size=(8, 2)).tolist(), "held": [[0.0, 1.0]]} for n in ("start", "end")}
    groups = {"groups": [1, 1, 1, 1, 2, 2, 2, 2], "held_groups": [2], "order": [0, 1, 2, 3, 0, 1, 2, 3]}
    timed = {"seconds": 1.0, "gflop": 50.0, "idle": 0.01, "seconds_z": 0.6, "seconds_w": 0.3, "memory_mb": 99.0}
    timed |= {"processor_seconds": 8.0, "each": 4.0, "head": 5.0, "cores": 2}
    timings = [{"ranks": r, **timed, "start": 0.4} for r in (1, 2, 2)]
    sizes = [{"points": n, "method": m, "seconds": [3.0, 0.5], "memory": "1 MB"} for m in "ab" for n in (10, 1000)]
    rows = sizes if "growth.py" in step.command[0] else HASHES if "hashing.py" in step.command[0] else timings
    rows = DEEP if "deep.py" in step.command[0] else rows
    rows = GRID if "sgd_grid.py" in step.command[0] else rows
    if "compare.py" in step.command[0]:
        own = {"shapes": SHAPES, "family": BESIDE, "machine": BESIDE}
        rows = next((found for study, found in own.items() if study in step.command), RIVALS)
    return {
        **{
            "command": " ".join(("python", *step.command)),
            "date": "2026-11-24",
            "ranks": step.ranks,
            "load_before": 0.0,
        },
        **{"seconds": 9.0, "processor_seconds": 8.0, "curve": curve(random), "levels": {"predict the mean": 11.0}},
        "path": [{"mu": mu, **dict.fromkeys(PATH_KEYS, 1.0 / mu)} for mu in (1.0, 10.0)],
        **{"images": images, "codes": codes, **groups, "scaling": [scaled("--weak" in step.command)]},
        **{"rows": rows, "finals": [], "said": ["Budget: 1 s"], "sizes": [{"iteration": 11, "units": [5, 3]}]},
    }


def made_up(benchmark: Benchmark) -> Found:
    random = np.random.default_rng(0)
    whole = {step.name: outcome(step, random) for step in benchmark.steps}
    steps = {name: {k: v for k, v in step.items() if k not in benchmark.without} for name, step in whole.items()}
    return {"benchmark": benchmark.name, "commit": "c0ffee00", "date": "2026-11-24", **WHERE, "steps": steps}


@pytest.mark.parametrize(("module", "benchmark"), SECTIONS, ids=lambda part: getattr(part, "name", "") or part.__name__)
def test_a_section_is_written_and_drawn(module: Any, benchmark: Benchmark, tmp_path: Path) -> None:
    page = PAGES[module]
    found = made_up(benchmark)
    text = page.page({benchmark.name: found})
    title = page.SECTIONS[benchmark.name][0]
    own = text.split(f"## {title}\n")[1].split("\n## ")[0]
    assert "A, 2 cores, kernel Haswell, commit c0ffee00, 2026-11-24" in own
    assert page.MISSING.format(name=benchmark.name) not in text
    assert max(len(line) for line in own.splitlines() if not line.startswith(("|", "python", "mpiexec", "!"))) <= 120
    shown = (paper_pictures if module is paper else results_page).FILES.get(benchmark.name, {})
    pictures = dict((paper_pictures if module is paper else results_page).drawn(benchmark.name, found))
    assert pictures.keys() == shown.keys()
    for file, figure in pictures.items():
        save(figure, tmp_path / file)
        assert 1000 < (tmp_path / file).stat().st_size <= LARGEST


def short(monkeypatch: pytest.MonkeyPatch, shapes: list[list[str]]) -> str:
    """The page of made-up rivals and of one shape, up to the first section."""
    monkeypatch.setattr(results_page, "PROBLEMS", {"wide": "a wide net"})
    steps = {"rivals": RIVALS, "shapes": shapes}
    found = {
        name: {"commit": "c", "date": "d", **WHERE, "steps": {"s": {"command": "c", "rows": rows}}}
        for name, rows in steps.items()
    }
    return " ".join(results_page.page(found).split("\n## Against")[0].split())


def test_the_page_begins_with_how_many_times_faster_in_three_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    text = short(monkeypatch, SHAPES)
    assert (
        "stochastic MAC is 8.4 to 30 times faster than the best of tuned Adam, Muon and SOAP from random weights. "
        in text
    )
    slower = "the best rival has an error of 4 at once, but takes 1.2 to 3.5 times as long to lower errors. "
    assert f"From stochastic MAC's start {slower}" in text
    assert "On no problem a rival's validation error is lower" in text
    assert "| the autoencoder of USPS, at 2 | never | 3.5 | A, from MAC's start there 2.80; MAC there 2.90 |" in text
    assert "| a wide net | 4.0 (A) | 2.0 (B) | A 0.7; MAC there 2.2 times faster |" in text
    missed = [
        [*row[:2], "never: 0.75 at best", *row[3:]] if row[1].startswith("E1 validation 0.7") else row for row in SHAPES
    ]
    text = short(monkeypatch, missed)
    assert "On the wide a rival's validation error is lower" in text
    assert "A 0.7; MAC 0.75 |" in text


def test_the_best_of_a_grid_is_said() -> None:
    made = next(b for b in paper.BENCHMARKS if b.name == "sgd")
    text = " ".join(paper_page.page({"sgd": made_up(made)}).split())
    assert "E1 is lowest for minibatches of 20 and a rate of 0.1." in text
    assert "| 1 | 9.00 | diverged |" in text


@pytest.mark.parametrize("name", ["family", "family-large", "machine", "machine-large"])
def test_where_a_rival_is_sooner_is_said(name: str) -> None:
    made = next(b for b in results.BENCHMARKS if b.name == name)
    text = " ".join(results_page.page({name: made_up(made)}).split())
    assert "printed before" not in text
    assert f"A rival is faster than stochastic MAC at {2 * len(made.steps)} of the" in text
    assert "| **n, validation 4** |" in text
    assert "| **n, validation 3** |" in text
    assert "| n, train 5 |" in text


@pytest.mark.parametrize("module", PAGES, ids=lambda module: module.__name__)
def test_what_is_not_measured_is_said(module: Any) -> None:
    page = PAGES[module]
    text = page.page({})
    for name in page.SECTIONS:
        assert page.MISSING.format(name=name) in text
