"""Predictions for many ranks on a cluster that a file describes: the tables of docs/predictions.md.

    python run/bench/predictions.py --cluster run/bench/cluster_100g.toml --points 10000000 --rate 20e9
    python run/bench/predictions.py --net bits --points 100000000 --ranks 1 64 128 --measured 15.5e-6 15.5e-6

With --measured Z W, seconds of the half steps a point on one core, ParMAC's own model of a net's units is printed, too.

Plans and the cost model alone: nothing is trained.  RATE is a core's, in flop/s of large products of float64.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost_model import parmac
from speedup import check_cluster

from macmpi import config as configs
from macmpi.config.auto import Sizes
from macmpi.data.parts import split_sizes
from macmpi.plan.cost import Machine, predicted
from macmpi.plan.estimate import estimate
from macmpi.plan.plan import make_plan
from macmpi.plan.resolve import resolve

RANKS = (1, 64, 256, 1024, 4096, 16_384)
NETS: dict[str, tuple[int, dict[str, Any]]] = {
    "deep": (256, {"model": {"hidden": [300, 100, 20, 100, 300], "activation": "sigmoid", "sites": "after"}}),
    "bits": (
        128,
        {
            "model": {"hidden": [32], "activation": "binary", "precision": "float32"},
            "penalty": {"mu0": 0.01, "factor": 2.0, "mu_max": 10.0, "ridge": 1.0},
        },
    ),
}
"""Columns of the points, which are bytes for the bits, and the net's own tables."""

OF_NUMBERS = ("stochastic MAC, sharded", "ring (ParMAC)", "full MAC, one copy a node")
"""Methods that are not compared where the code is of bits: stochastic MAC needs derivatives."""
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
    p.add_argument("--net", choices=NETS, default="deep")
    p.add_argument("--measured", type=float, nargs=2, metavar=("Z", "W"), help="seconds of a point on one core")
    args = p.parse_args()
    if min(args.ranks) < 1 or args.points < 2 or args.rate <= 0.0 or args.batch < 1:
        p.error("--ranks, --batch from 1 on, --points from 2 on, --rate above 0")
    check_cluster(args.cluster)
    machine = Machine(**tomllib.loads(args.cluster.read_text()))
    columns, net = NETS[args.net]
    for name, tables in METHODS.items():
        if args.net == "bits" and name in OF_NUMBERS:
            continue
        print(f"\n{name}\n")
        print("| ranks | seconds | efficiency | even share | uneven | on every rank | crowding | exchange | GB a rank "
              "| plan s |\n|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
        for ranks in args.ranks:
            parts = {"parts": max(args.ranks), "batch": args.batch * ranks, "batch_max": args.batch * ranks}
            own = {"stochastic": parts} if name == "stochastic MAC, sharded" else {}
            config = configs.validate({**net, **tables, **own}, "predictions")
            train, held = split_sizes(args.points, config.data)
            began = time.perf_counter()
            whole = Sizes(columns, columns, train, held, autoencoder=True, raw=(columns,) * (args.net == "bits"))
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
    if args.measured:
        print("\nParMAC's model: units of both layers go round a ring\n\n| ranks | speedup |\n|---|---|")
        units = sum(n for n in (*net["model"]["hidden"], columns))
        z, w = (args.points * seconds for seconds in args.measured)
        for ranks in args.ranks:
            print(f"| {ranks:,} | {parmac(ranks, units, z, w, machine, 8.0 * (columns + 1)):.1f} |")


if __name__ == "__main__":
    main()
