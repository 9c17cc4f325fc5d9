"""Cost of an iteration: seconds, dgemm-equivalents, 2 ranks against 1, exchange and waiting, memory; of a start.

    python run/bench/cost.py run/usps_mac.toml --ranks 1 2 --iterations 12 --repeats 3
    python run/bench/cost.py run/usps_pre.toml --ranks 1 --variants "" 'model.precision="float32" penalty.mu_max=1e4'
    python run/bench/cost.py run/usps_fast.toml --ranks 1 --against 0705b85

A variant is a list of --set options; "" is the config as it is.  Launches are interleaved (1, 2, 1, 2, ...; one variant
after the other), one BLAS thread a rank.  The machine's own dgemm rate (700 x 700, one
thread) is measured next to each launch, so that seconds times rate can be compared between machines.  The first
iteration of a launch is left out.  Start: seconds from the launch to the first line of the table.  --against: each
launch is made with the sources of that commit too, in turn; the last column is the ratio of the present ones to those.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from programs import ROOT, checked_out, environment, give_up, mpiexec  # noqa: E402

from macmpi.plan.estimate import dgemm_rate  # noqa: E402

Kind = tuple[int, str, Path]
"""Ranks, settings, sources."""

COLUMNS = ("seconds", "gflop", "idle", "rate", "seconds_z", "seconds_w", "memory_mb", "start")
"""An iteration: its seconds, these times the dgemm rate of one core in GFLOP/s, the share of exchange and waiting, that
rate, seconds of both half steps, memory of a rank, seconds of the launch until its table begins."""


def launch(
    tree: Path, config: Path, ranks: int, variant: str, iterations: int, folder: str
) -> tuple[list[dict], float, float]:
    """The iterations' records of one launch, the largest resident memory of a rank in MB, the seconds of the start."""
    output = Path(folder) / f"run-{ranks}"
    shutil.rmtree(output, ignore_errors=True)
    words = ["-m", "macmpi.run", config, "--iterations", iterations, "--output", output]
    words += [word for setting in variant.split() for word in ("--set", setting)]
    command, began, start, said = mpiexec(ranks, *words), time.monotonic(), 0.0, ""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tree, "env": environment(tree)}
    with subprocess.Popen(command, **given) as running:
        for line in running.stdout:
            said += line
            if not start and re.match(r" +0 ", line):
                start = time.monotonic() - began
        errors = running.stderr.read()
    if running.returncode:
        give_up(command, running.returncode, errors)
    (memory,) = map(float, re.findall(r"peak memory of a rank +([0-9.]+) MB", said))
    records = [json.loads(line) for line in (output / "curve.jsonl").read_text().splitlines()]
    return [r for r in records if r["phase"] == "iteration"], memory, start


def main() -> None:
    p = argparse.ArgumentParser(description="Cost of an iteration at some numbers of ranks.")
    p.add_argument("config", type=Path)
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    p.add_argument("--variants", nargs="+", default=[""], metavar="SETTINGS")
    p.add_argument("--iterations", type=int, default=12)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--against", metavar="COMMIT")
    p.add_argument("--json", type=Path, metavar="FILE", help="every iteration of every launch, too")
    args = p.parse_args()
    if min(args.ranks) < 1 or args.iterations < 2 or args.repeats < 1:
        p.error("--ranks from 1 on, --iterations from 2 on (the first is left out), --repeats from 1 on")
    if not args.config.is_file():
        p.error(f"{args.config}: there is no such config")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        trees = [stack.enter_context(checked_out(args.against, Path(folder)))] if args.against else []
        found = measured(args, [*trees, ROOT], folder)
        report(found)
    if args.json:
        rows = [
            {"ranks": ranks, "settings": variant, "older": tree != ROOT, **dict(zip(COLUMNS, row, strict=True))}
            for (ranks, variant, tree), own in found.items()
            for row in own
        ]
        args.json.write_text(json.dumps(rows))


def measured(args: argparse.Namespace, trees: list[Path], folder: str) -> dict[Kind, list[tuple[float, ...]]]:
    """A row of figures for each iteration of each kind of launch, the kinds in turn."""
    kinds = [(ranks, variant, tree) for ranks in args.ranks for variant in args.variants for tree in trees]
    found: dict[Kind, list[tuple[float, ...]]] = {kind: [] for kind in kinds}
    for _ in range(args.repeats):
        for ranks, variant, tree in kinds:
            rate = dgemm_rate(repeats=20) / 1e9
            records, memory, start = launch(tree, args.config.resolve(), ranks, variant, args.iterations, folder)
            for before, now in pairwise(records):
                seconds = now["seconds"] - before["seconds"]
                idle = (now["seconds_comm"] + now["seconds_wait"]) / seconds
                halves = now["seconds_z"], now["seconds_w"]
                found[ranks, variant, tree].append((seconds, seconds * rate, idle, rate, *halves, memory, start))
    return found


def report(found: dict[Kind, list[tuple[float, ...]]]) -> None:
    medians = {kind: [statistics.median(column) for column in zip(*rows, strict=True)] for kind, rows in found.items()}
    first = next(iter(medians.values()))[0]
    print(
        "ranks  s/iteration   (min-max)      Z s    W s  GFLOP-eq  exch+wait  speedup  MB/rank  start s  dgemm GFLOP/s"
    )
    for (ranks, variant, tree), rows in found.items():
        seconds, flops, idle, rate, z, w, _, start = medians[ranks, variant, tree]
        spread = f"({min(row[0] for row in rows):.3f}-{max(row[0] for row in rows):.3f})"
        older = next((medians[k] for k in medians if k[:2] == (ranks, variant) and k[2] != tree), None)
        ratio = f"  of the older: iteration {seconds / older[0]:.3f}, start {start / older[-1]:.3f}" if older else ""
        print(
            f"{ranks:5d}  {seconds:11.3f}   {spread}  {z:.3f}  {w:.3f}  {ranks * flops:8.1f}  {idle:9.1%}  "
            f"{first / seconds:7.2f}  {max(row[-2] for row in rows):7.0f}  {start:7.2f}  {rate:.1f}  {variant}"
            + (ratio if tree == ROOT else "  (older)")
        )


if __name__ == "__main__":
    main()
