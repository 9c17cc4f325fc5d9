"""Figures 2 to 6 of the paper, and theorem B.3, from one command: `make paper`, or `make paper ONLY="fig5 theory"`.

    MACMPI_DATA=... python run/bench/paper.py [--only fig2 fig3 fig4 fig5 fig6 theory letter sgd] [--list]

Outcomes of single steps are kept in runs/evidence, so that a call that was stopped goes on, and what `make results`
has measured is not measured twice (run/bench/evidence.py).
Numbers go to docs/paper/NAME.json; pictures and docs/paper.md are made of these alone (run/pages/paper_page.py).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from evidence import OUTCOMES, THREADS, Benchmark, Folders, Found, Step, carry_out, only, training
from programs import ROOT

sys.path.append(str(ROOT / "run" / "pages"))
os.environ.update(THREADS)

KEPT = ("iteration", "phase", "mu", "E1_train", "E1_val", "E_Q", "constraint", "seconds", "cost", "centres", "changed")
GRADIENTS = ("gradient_E_Q", "gradient_E1", "multipliers_lack")
DIGITS, OBJECTS = 10, 8
"""Sample images of a figure."""

GROUPS = ("groups", "held_groups", "order")
"""Keys of an outcome: the objects of the images, and the place of each in its rotation."""

CORES = len(os.sched_getaffinity(0))
MOST = min(CORES, 12)
"""The paper used 12 processors."""


def curve_of(output: Path, printed: str) -> Found:
    """The curve, numbers rounded to six digits; the levels to compare with."""
    records = [json.loads(line) for line in (output / "run" / "curve.jsonl").read_text().splitlines()]
    kept = [{k: rounded(r[k]) for k in (*KEPT, *GRADIENTS) if k in r} for r in records]
    return {"curve": kept, "levels": levels(printed)}


def rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def levels(printed: str) -> dict[str, float]:
    """The errors to compare with, as the program prints them before its table."""
    found: dict[str, float] = {}
    for line in printed.splitlines():
        if line.split()[:2] == ["iter", "mu"]:
            break
        words = line.rsplit(None, 1)
        if line.startswith("  ") and " E1 train " in line and words[-1].replace(".", "").isdigit():
            found.setdefault(words[0].replace("E1 train", "").strip(), float(words[-1]))
    return found


def images_of(count: int) -> Any:
    """Reads the curve, and what the nets at start and end make of sample training images, as bytes 0 to 255."""

    def read(output: Path, printed: str) -> Found:
        from macmpi.results import reading
        from macmpi.results.pictures import spread

        result = reading.read(output / "run", "run")
        assert result.data is not None
        assert result.end is not None
        groups = None if result.data.groups is None else result.data.groups[0]
        rows = spread(groups, len(result.data.X), count)
        X = reading.points(result.data, result.data.X[rows])
        nets = {"start": result.start, "end": result.end}
        found = {name: as_bytes(net.model.reconstruct(X)) for name, net in nets.items() if net is not None}
        return {**curve_of(output, printed), "images": {"truth": as_bytes(X), **found}}

    return read


def as_bytes(X: np.ndarray) -> list[list[int]]:
    """Rows of pixels in [0, 1] as whole numbers."""
    found: list[list[int]] = np.clip(np.round(255.0 * X), 0, 255).astype(int).tolist()
    return found


def codes_of(output: Path, printed: str) -> Found:
    """Curve and images, and the coordinates of the code at the start and at the end, with their objects."""
    from macmpi.results import reading

    result = reading.read(output / "run", "run")
    assert result.data is not None
    assert result.data.groups is not None
    assert result.data.order is not None
    codes = {
        name: {"points": net.codes.round(3).tolist(), "held": net.held.round(3).tolist()}
        for name, net in (("start", result.start), ("end", result.end))
        if net is not None
    }
    groups = {"groups": result.data.groups[0].tolist(), "held_groups": result.data.groups[1].tolist()}
    return {**images_of(OBJECTS)(output, printed), "codes": codes, **groups, "order": result.data.order[0].tolist()}


def sizes_of(output: Path, printed: str) -> Found:
    """A curve, and the sizes of the layers where a selection changes them."""
    records = [json.loads(line) for line in (output / "run" / "curve.jsonl").read_text().splitlines()]
    sizes = [{"iteration": r["iteration"], "units": r["units"]} for r in records if r.get("units")]
    return {**curve_of(output, printed), "sizes": sizes[-1:]}


def rows_of(output: Path, _printed: str) -> Found:
    """What a script has written with --json."""
    return {"rows": json.loads((output / "rows.json").read_text())}


def scaling_of(output: Path, printed: str) -> Found:
    """The JSON files of run/bench/speedup.py."""
    return {"scaling": [json.loads(path.read_text()) for path in sorted(output.glob("*.json"))]}


SOLVED = ("w_step.cg_iterations=100", "w_step.cg_tolerance=1e-6")
CUT = {count: (f"z_step.cg_iterations={count}", "z_step.cg_tolerance=0.01") for count in (10, 20, 40)}
LETTER = [
    *(
        Step(f"letter-{count}", training("run/usps_paper.toml", *keys, iterations=4), curve_of, 10.0 + count / 2)
        for count, keys in CUT.items()
    ),
    Step("letter", training("run/usps_paper.toml", iterations=4), curve_of, 60.0),
    Step("letter-w", training("run/usps_paper.toml", *SOLVED, iterations=4), curve_of, 75.0),
]
USPS, COIL = images_of(DIGITS), "run/coil_mac.toml"
USPS_MAC = Step("usps_mac", training("run/usps_mac.toml"), USPS, 18.0)
USPS_FAST = Step("usps_fast", training("run/usps_fast.toml"), USPS, 15.0)
FIG2 = [
    Step("usps_paper", training("run/usps_paper.toml"), USPS, 300.0),
    Step("usps_paper-ranks", training("run/usps_paper.toml"), USPS, 160.0, MOST),
    USPS_MAC,
    Step("usps_cg", training("run/usps_cg.toml"), USPS, 250.0),
    Step("usps_sgd", training("run/usps_sgd.toml"), USPS, 500.0),
    USPS_FAST,
]
COIL_MAC = Step("coil_mac", training(COIL), codes_of, 160.0)
COIL_ALTOPT = Step("coil_altopt", training("run/coil_altopt.toml"), images_of(OBJECTS), 120.0)
FIG3 = [COIL_MAC, Step("coil_mac-ranks", training(COIL), images_of(OBJECTS), 90.0, MOST), COIL_ALTOPT]
FIG5 = [Step("coil_select", training("run/coil_select.toml"), sizes_of, 60.0)]
MEASURED = sorted({1, *(2**k for k in range(1, 8) if 2**k <= CORES), *([CORES] if CORES > 1 else [])})


def speedup(*words: str) -> tuple[str, ...]:
    """The words of a launch of run/bench/speedup.py: experiments and its options."""
    return ("run/bench/speedup.py", *words, "--output", "{OUTPUT}", "--ranks", *map(str, MEASURED))


FIG6 = [
    Step("speedup", speedup("run/usps_mac.toml", COIL), scaling_of, 500.0),
    Step("speedup-select", speedup("run/coil_select.toml", "--iterations", "24"), scaling_of, 300.0),
]


def path_of(output: Path, printed: str) -> Found:
    """The rows of run/bench/path.py, numbers rounded to six digits."""
    rows = json.loads((output / "path.json").read_text())
    return {"path": [{key: rounded(value) for key, value in row.items()} for row in rows]}


GRID = ("run/bench/sgd_grid.py", "--json", "{OUTPUT}/rows.json", "--output", "{OUTPUT}")
SGD = Step("sgd-grid", GRID, rows_of, 450.0)
VALIDATION = ('penalty.stop="validation"', "penalty.gradients=true")
THEORY = [
    Step("theory", training("run/usps_theory.toml"), curve_of, 30.0),
    Step("theory-validation", training("run/usps_theory.toml", *VALIDATION), curve_of, 10.0),
    Step("theory-path", ("run/bench/path.py", "run/usps_theory.toml", "--output", "{OUTPUT}"), path_of, 120.0),
]
BENCHMARKS = [
    Benchmark("theory", THEORY),
    Benchmark("letter", LETTER),
    Benchmark("fig5", FIG5),
    Benchmark("fig3", FIG3, without=("codes", *GROUPS)),
    Benchmark("fig4", [COIL_MAC], without=("images",)),
    Benchmark("fig6", FIG6),
    Benchmark("fig2", FIG2),
    Benchmark("sgd", [SGD]),
]


def main() -> None:
    import paper_page

    carry_out(only(BENCHMARKS, __doc__), Folders(OUTCOMES, paper_page.FOLDER))
    print(f"docs/{paper_page.write().name}")


if __name__ == "__main__":
    main()
