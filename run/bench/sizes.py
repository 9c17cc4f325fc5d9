"""The sizes that a selection takes, against a grid of trained nets: the figures of docs/studies.md.

    MACMPI_DATA=... python run/bench/sizes.py [--output runs/sizes.jsonl]

2,000 images of USPS, an autoencoder with two hidden layers.  The largest net of the grid gives eps^2; E1 + C of each
net of the grid by several prices of a parameter is compared with the end of one run that begins with the largest net
and selects.  One process, one after the other.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import macmpi
from macmpi.parallel.clock import now

POINTS, INPUTS = 2000, 256
CODES, DECODERS = [10, 20, 40, 60, 80], [40, 80, 120, 200, 300]
KEYS = {
    "data.source": "usps",
    "data.points": POINTS,
    "method.name": "mac",
    "model.activation": "sigmoid",
    "start.range": 2.0,
    "penalty.mu0": 10.0,
    "penalty.mu_max": 1e5,
    "penalty.ridge": 0.01,
    "run.max_iterations": 100,
}
PRICES = [("aic", 2.0), ("bic", 2.0), ("bic", 4.0), ("bic", 8.0), ("bic", 16.0)]
"""A criterion, and how many times the eps^2 of the largest net is taken: larger, it asks for smaller nets."""

EVERY = 3


def trained(hidden: list[int], keys: dict[str, Any]) -> dict[str, Any]:
    """The end of a run: E1 after the postprocessing, sizes, iterations, and those of nets that were tried."""
    began = now()
    history = macmpi.fit(hidden=hidden, config={**KEYS, **keys}, verbose=False).history
    swept = [r for r in history if r["phase"] in ("iteration", "selection")]
    return {
        "hidden": swept[-1].get("units", hidden),
        "E1": history[-1]["E1_train"],
        "E1_val": history[-1]["E1_val"],
        "iterations": swept[-1]["iteration"],
        "tried": sum(r.get("trained", 0) for r in swept),
        "seconds": now() - began,
    }


def cost(hidden: list[int], criterion: str, epsilon2: float) -> float:
    """C per point, by its definition."""
    sizes = [INPUTS, *hidden, INPUTS]
    weights = sum(b * (a + 1) for a, b in pairwise(sizes))
    return {"aic": 1.0, "bic": 0.5 * math.log(POINTS)}[criterion] * epsilon2 * weights / POINTS


def runs(acceleration: str) -> Iterator[dict[str, Any]]:
    """The grid from its largest net on, then the selections."""
    keys = {"method.acceleration": acceleration}
    grid = []
    for hidden in product(CODES[::-1], DECODERS[::-1]):
        grid.append({"what": "grid", **keys, **trained([*hidden], keys)})
        yield grid[-1]
    noise = 2.0 * grid[0]["E1"] / INPUTS
    for criterion, times in PRICES:
        epsilon2 = times * noise
        values = {tuple(g["hidden"]): g["E1"] + cost(g["hidden"], criterion, epsilon2) for g in grid}
        best = min(values, key=values.__getitem__)
        chosen = {
            "selection.criterion": criterion,
            "selection.epsilon2": epsilon2,
            "selection.every": EVERY,
            "selection.sizes": [CODES, DECODERS],
        }
        found = trained([CODES[-1], DECODERS[-1]], {**keys, **chosen})
        value = found["E1"] + cost(found["hidden"], criterion, epsilon2)
        yield {
            **{"what": "selection", **keys, "criterion": criterion, "times": times, "epsilon2": epsilon2, **found},
            **{"E1 + C": value, "best": best, "best E1 + C": values[best], "excess": value / values[best] - 1.0},
            "runs": found["seconds"] / grid[0]["seconds"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/sizes.jsonl"))
    parser.add_argument("--acceleration", choices=("momentum", "feasible", "none"), default="momentum")
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("w") as file:
        for found in runs(args.acceleration):
            file.write(json.dumps(found) + "\n")
            file.flush()
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
