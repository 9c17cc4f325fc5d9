"""The benchmarks of docs/results.md from one command: `make results`, or `make results ONLY="usps speedup"`.

    MACMPI_DATA=... python run/bench/results.py [--only NAME ...] [--list]

Each benchmark is made of launches of the scripts in this folder and of macmpi itself; outcomes of single steps are kept
in runs/evidence, so that a call that was stopped goes on (run/bench/evidence.py).  Numbers go to
docs/results/NAME.json, with every repeat; pictures and docs/results.md are made of these alone
(run/pages/results_page.py).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from evidence import OUTCOMES, THREADS, Benchmark, Folders, Found, Step, carry_out, only, training
from paper import (
    CORES,
    FIG5,
    FIG6,
    USPS_FAST,
    USPS_MAC,
    curve_of,
    rows_of,
    scaling_of,
    sizes_of,
    speedup,
)
from programs import ROOT

sys.path.append(str(ROOT / "run" / "pages"))
os.environ.update(THREADS)

SEEDS = (0, 1, 2, 3)
PAIR = ("1", "2") if CORES > 1 else ("1",)
FAMILY = ".venv-family/bin/python"
POINTS = (10_000, 100_000, 400_000)


def tables_of(_output: Path, printed: str) -> Found:
    """The tables of run/bench/compare.py, row by row, its winners with the seconds of every turn, and its budget."""
    lines = printed.splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    finals = [line.strip() for line in lines if line.startswith("  final, ")]
    said = [line for line in lines if re.match(r"Budget|.* cores; macmpi ", line)]
    return {"rows": rows, "finals": finals, "said": said}


def comparison(study: str, about: float, name: str = "", *more: str) -> Step:
    """One of the comparisons of run/bench/compare.py, which needs torch (extra: compare)."""
    command = ("run/bench/compare.py", study, *more, "--repeats", "1", "--clock", "cpu", "--output", "{OUTPUT}")
    return Step(f"compare-{name or study}", command, tables_of, about)


def compared(study: str, about: float, *more: str) -> Benchmark:
    return Benchmark(study, [comparison(study, about, "", *more)])


def of_shape(shape: str, about: float, *more: str) -> Step:
    return comparison("shapes", about, f"shapes-{shape}", "--only", shape, *more)


def of_family(net: str, about: float, *more: str) -> Step:
    """Needs the packages of the extra family in an environment of their own, which the Makefile makes."""
    return comparison("family", about, f"family-{net}", "--only", net, "--torch-python", FAMILY, *more)


def of_machine(net: str, about: float) -> Step:
    """By the wall clock; what no load changes is kept between commits."""
    where = ("--curves", "runs/machine-curves", "--output", "{OUTPUT}")
    return Step(f"machine-{net}", ("run/bench/compare.py", "machine", "--only", net, *where), tables_of, about, 1)


def cost(config: str, about: float, *more: str) -> Step:
    """Iterations of a config on one and two ranks, in turns."""
    command = ("run/bench/cost.py", f"run/{config}.toml", "--ranks", *PAIR, *more, "--json", "{OUTPUT}/rows.json")
    return Step(f"cost-{config}", command, rows_of, about)


def seeds(config: str, about: float, name: str = "", *settings: str) -> list[Step]:
    """A run for each seed."""
    return [
        Step(
            f"{name or config}-{seed}",
            training(f"run/{config}.toml", f"start.seed={seed}", *settings, ranks=len(PAIR)),
            curve_of,
            about,
            len(PAIR),
        )
        for seed in SEEDS
    ]


def deep_net(net: str, about: float) -> Step:
    """Ways of MAC, Adam and predictive coding on a deep net of labels, which needs torch, jax and pcx."""
    limits = ("--tasks", "labels", "--seconds", "30", "--output", "{OUTPUT}", "--json", "{OUTPUT}/rows.json")
    return Step(f"deep-{net}", ("run/bench/deep.py", "--nets", net, *limits), rows_of, about)


def codes(data: str, about: float, *more: str) -> Step:
    """Codes of bits for retrieval, which needs torch, faiss-cpu and rabitqlib for all of its rivals."""
    command = ("run/bench/hashing.py", data, *more, "--json", "{OUTPUT}/rows.json")
    return Step(f"hashing-{data}", command, rows_of, about)


GROWTH = (
    "run/bench/growth.py",
    *map(str, POINTS),
    "--ranks",
    PAIR[-1],
    "--repeats",
    "2",
    "--json",
    "{OUTPUT}/rows.json",
)
BENCHMARKS = [
    Benchmark("usps", [*seeds("usps_mac", 10.0), *seeds("usps_fast", 10.0), *seeds("usps_pre", 20.0)]),
    Benchmark("classify", seeds("usps_classify", 40.0)),
    Benchmark(
        "curves",
        [
            USPS_FAST,
            USPS_MAC,
            Step("usps_adam", training("run/usps_adam.toml"), curve_of, 30.0),
            Step("usps_lbfgs", training("run/usps_lbfgs.toml"), curve_of, 280.0),
        ],
        without=("images",),
    ),
    Benchmark("start", [cost("digits_mac", 30.0, "--iterations", "2", "--repeats", "5")]),
    Benchmark(
        "cost",
        [
            cost("usps_mac", 60.0, "--iterations", "8"),
            cost("usps_pre", 60.0),
            cost("coil_mac", 90.0, "--iterations", "10"),
        ],
    ),
    Benchmark(
        "speedup",
        [*FIG6, Step("speedup-synthetic", speedup("synthetic"), scaling_of, 200.0)],
    ),
    Benchmark("weak", [Step("weak", speedup("run/usps_mac.toml", "synthetic", "--weak"), scaling_of, 200.0)]),
    Benchmark(
        "selection",
        [
            *FIG5,
            Step("coil_select-2", training("run/coil_select.toml", "start.seed=2"), sizes_of, 60.0),
            Step("usps_sizes", training("run/usps_sizes.toml"), sizes_of, 40.0),
        ],
    ),
    Benchmark("growth", [Step("growth", GROWTH, rows_of, 400.0)]),
    compared("rivals", 2400.0, "--slices", "30"),
    compared("tasks", 600.0),
    Benchmark("deep", [deep_net("residual-128", 900.0), deep_net("plain-128", 900.0), deep_net("narrow-12", 200.0)]),
    Benchmark("hashing", [codes("usps", 150.0), codes("coil", 300.0), codes("descriptors", 2400.0, "--bits", "32")]),
    Benchmark(
        "shapes",
        [
            of_shape("large", 6400.0, "--slices", "60"),
            of_shape("wide", 700.0, "--against", "Adam", "--slices", "30"),
            *(of_shape(name, 2000.0, "--slices", "30") for name in ("narrow-deep", "regression", "classification")),
            of_shape("digits", 500.0, "--slices", "10"),
        ],
    ),
    Benchmark("family", [of_family("usps", 500.0, "--slices", "30")]),
    Benchmark("family-large", [of_family("large", 3600.0, "--slices", "60")]),
    Benchmark("machine", [of_machine("usps", 600.0), of_machine("classification", 1200.0)]),
    Benchmark("machine-large", [of_machine("large", 4500.0)]),
    Benchmark("startup", [Step("startup", ("run/bench/startup.py", "--json", "{OUTPUT}/rows.json"), rows_of, 150.0)]),
]


def main() -> None:
    import results_page

    carry_out(only(BENCHMARKS, __doc__), Folders(OUTCOMES, results_page.FOLDER))
    print(f"docs/{results_page.write().name}")


if __name__ == "__main__":
    main()
