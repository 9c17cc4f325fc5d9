"""Cost of an iteration: seconds, dgemm-equivalents, 2 ranks against 1, exchange and waiting, memory.

    python run/bench/cost.py run/usps_mac.toml --ranks 1 2 --iterations 12 --repeats 3
    python run/bench/cost.py run/usps_pre.toml --ranks 1 --variants "" 'model.precision="float32" penalty.mu_max=1e4'

A variant is a list of --set options; "" is the config as it is.  Launches are interleaved (1, 2, 1, 2, ...; one variant
after the other), one BLAS thread a rank.  The machine's own dgemm rate (700 x 700, one
thread) is measured with each launch, so that seconds times rate can be compared between machines.  The first
iteration of a launch is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from programs import mpiexec, output_of  # noqa: E402

from macmpi.plan.estimate import dgemm_rate  # noqa: E402


def launch(config: Path, ranks: int, variant: str, iterations: int, folder: str) -> tuple[list[dict], float]:
    """The iterations' records of one launch, and the largest resident memory of a rank in MB."""
    output = Path(folder) / f"run-{ranks}"
    shutil.rmtree(output, ignore_errors=True)
    words = ["-m", "macmpi.run", config, "--iterations", iterations, "--output", output]
    words += [word for setting in variant.split() for word in ("--set", setting)]
    said = output_of(mpiexec(ranks, *words))
    memory = float(re.search(r"peak memory of a rank +([0-9.]+) MB", said).group(1))
    records = [json.loads(line) for line in (output / "curve.jsonl").read_text().splitlines()]
    return [r for r in records if r["phase"] == "iteration"], memory


def main() -> None:
    p = argparse.ArgumentParser(description="Cost of an iteration at some numbers of ranks.")
    p.add_argument("config", type=Path)
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    p.add_argument("--variants", nargs="+", default=[""], metavar="SETTINGS")
    p.add_argument("--iterations", type=int, default=12)
    p.add_argument("--repeats", type=int, default=3)
    args = p.parse_args()
    if min(args.ranks) < 1 or args.iterations < 2 or args.repeats < 1:
        p.error("--ranks from 1 on, --iterations from 2 on (the first is left out), --repeats from 1 on")
    if not args.config.is_file():
        p.error(f"{args.config}: there is no such config")
    kinds = [(ranks, variant) for ranks in args.ranks for variant in args.variants]
    found: dict[tuple[int, str], list[tuple[float, ...]]] = {kind: [] for kind in kinds}
    peak = dict.fromkeys(kinds, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.repeats):
            for kind in kinds:
                rate = dgemm_rate(repeats=20) / 1e9
                records, memory = launch(args.config, *kind, args.iterations, folder)
                peak[kind] = max(peak[kind], memory)
                for before, now in pairwise(records):
                    seconds = now["seconds"] - before["seconds"]
                    idle = now["seconds_comm"] + now["seconds_wait"]
                    halves = now["seconds_z"], now["seconds_w"]
                    found[kind].append((seconds, seconds * rate, idle / seconds, rate, *halves))
    first = statistics.median(s for s, *_ in found[kinds[0]])
    print("ranks  s/iteration   (min-max)      Z s    W s  GFLOP-eq  exch+wait  speedup  MB/rank  dgemm GFLOP/s")
    for (ranks, variant), rows in found.items():
        seconds, flops, idle, rate, z, w = (list(column) for column in zip(*rows, strict=True))
        middle, spread = statistics.median(seconds), f"({min(seconds):.3f}-{max(seconds):.3f})"
        print(
            f"{ranks:5d}  {middle:11.3f}   {spread}  {statistics.median(z):.3f}  {statistics.median(w):.3f}  "
            f"{ranks * statistics.median(flops):8.1f}  {statistics.median(idle):9.1%}  {first / middle:7.2f}  "
            f"{peak[ranks, variant]:7.0f}  {statistics.median(rate):.1f}  {variant}"
        )


if __name__ == "__main__":
    main()
