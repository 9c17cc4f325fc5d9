"""Predictions for many ranks on a cluster that a file describes: the tables of docs/predictions.md.

    python run/bench/predictions.py --cluster run/bench/cluster_100g.toml --points 10000000 --rate 20e9

Plans and the cost model alone: nothing is trained.  RATE is a core's, in flop/s of large products of float64.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from dataclasses import replace
from pathlib import Path

from speedup import check_cluster

from macmpi import config as configs
from macmpi.config.auto import Sizes
from macmpi.data.parts import split_sizes
from macmpi.plan.cost import Machine, predicted
from macmpi.plan.estimate import estimate
from macmpi.plan.plan import make_plan
from macmpi.plan.resolve import resolve

RANKS = (1, 64, 256, 1024, 4096, 16_384)
NET = {"hidden": [300, 100, 20, 100, 300], "activation": "sigmoid", "sites": "after"}
COLUMNS = 256
METHODS = {
    "full MAC, sharded": {"method": {"name": "mac"}, "parallel": {"data": "sharded"}},
    "full MAC, one copy a node": {"method": {"name": "mac"}, "parallel": {"data": "node"}},
    "ring (ParMAC)": {"method": {"name": "mac"}, "parallel": {"data": "sharded"}, "w_step": {"schedule": "ring"}},
    "stochastic MAC, sharded": {"method": {"name": "stochastic"}, "parallel": {"data": "sharded"}},
    "stochastic MAC on all points, sharded": {
        "method": {"name": "stochastic"},
        "parallel": {"data": "sharded"},
        "stochastic": {"batch": "all"},
    },
}


def main() -> None:
    p = argparse.ArgumentParser(description="Predicted seconds and efficiency on many ranks.")
    p.add_argument("--cluster", type=Path, default=Path(__file__).with_name("cluster_100g.toml"))
    p.add_argument("--points", type=int, default=10**7)
    p.add_argument("--rate", type=float, default=20e9)
    p.add_argument(
        "--batch", type=int, default=64, help="points of a minibatch for each rank, of the stochastic method"
    )
    p.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    args = p.parse_args()
    if min(args.ranks) < 1 or args.points < 2 or args.rate <= 0.0 or args.batch < 1:
        p.error("--ranks, --batch from 1 on, --points from 2 on, --rate above 0")
    check_cluster(args.cluster)
    machine = Machine(**tomllib.loads(args.cluster.read_text()))
    for name, tables in METHODS.items():
        print(f"\n{name}\n")
        print("| ranks | seconds | efficiency | even share | uneven | on every rank | crowding | exchange | GB a rank "
              "| plan s |\n|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
        for ranks in args.ranks:
            parts = {"parts": max(args.ranks), "batch": args.batch * ranks, "batch_max": args.batch * ranks}
            own = {"stochastic": parts} if name == "stochastic MAC, sharded" else {}
            config = configs.validate({"model": NET, **tables, **own}, "predictions")
            train, held = split_sizes(args.points, config.data)
            began = time.perf_counter()
            whole = Sizes(COLUMNS, COLUMNS, train, held, autoencoder=True)
            plan = make_plan(resolve(config, whole), train, held, ranks)
            found = predicted(plan, args.rate, machine)
            took = time.perf_counter() - began
            alone = predicted(replace(plan, ranks=1), args.rate, machine).total
            total = found.total
            uneven = found.uneven_points + found.uneven_weights
            shares = [s / total for s in (found.ideal, uneven, found.shared, found.crowding, found.exchange)]
            print(
                f"| {ranks:,} | {total:.3g} | {alone / ranks / total:.2f} | "
                + " | ".join(f"{share:.1%}" for share in shares)
                + f" | {estimate(plan)[1] / 1e9:.2f} | {took:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
