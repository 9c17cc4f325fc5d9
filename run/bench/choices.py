"""What each choice reaches: E1 and cost of variants of a config, one after the other, on one rank.

    python run/bench/choices.py run/usps_mac.toml --iterations 5 "" 'w_step.solver="lbfgs"' 'penalty.metric="variance"'

A variant is a list of --set options; "" is the config as it is.  Seconds are medians of the iterations after the first;
GFLOP-eq are seconds times this machine's own dgemm rate, measured with each launch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

from cost import launch
from programs import ROOT

from macmpi.plan.estimate import dgemm_rate

SHOWN = (1, 2, 5, 10)


def main() -> None:
    p = argparse.ArgumentParser(description="E1 and cost of variants of a config.")
    p.add_argument("config", type=Path)
    p.add_argument("variants", nargs="+", metavar="SETTINGS")
    p.add_argument("--iterations", type=int, default=5)
    args = p.parse_args()
    if args.iterations < 2:
        p.error(f"--iterations {args.iterations}: at least 2, as the first is left out")
    if not args.config.is_file():
        p.error(f"{args.config}: there is no such config")
    shown = [i for i in SHOWN if i <= args.iterations]
    print(f"| variant | E1 train after {', '.join(map(str, shown))} | end, train / validation | Z s | W s | GFLOP-eq |")
    print("|---|---|---|---|---|---|", flush=True)
    for variant in args.variants:
        with tempfile.TemporaryDirectory() as folder:
            rate = dgemm_rate(repeats=20) / 1e9
            records, _, _ = launch(ROOT, args.config.resolve(), 1, variant, args.iterations, folder)
            curve = (Path(folder) / "run-1" / "curve.jsonl").read_text().splitlines()
        end = json.loads(curve[-1])
        errors = ", ".join(f"{r['E1_train']:.2f}" for r in records if r["iteration"] in shown)
        z, w = (statistics.median(r[f"seconds_{half}"] for r in records[1:]) for half in "zw")
        seconds = statistics.median(b["seconds"] - a["seconds"] for a, b in pairwise(records))
        wrong = f" ({end['error_val']:.2%} wrong)" if "error_val" in end else ""
        print(
            f"| `{variant or args.config.name}` | {errors} | {end['E1_train']:.2f} / {end['E1_val']:.2f}{wrong} "
            f"| {z:.2f} | {w:.2f} | {seconds * rate:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
