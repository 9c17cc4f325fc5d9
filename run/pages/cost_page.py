"""docs/cost.md: points, weights and ranks, and the seconds and the memory of a run, measured and predicted.

    python run/pages/cost_page.py              # writes the page from docs/results/ and docs/cost.json
    python run/pages/cost_page.py --predict    # asks the cost model and writes docs/cost.json first

Predictions are those of the plan and the cost model, as of --check, on the cluster of run/bench/cluster_100g.toml.
"""

from __future__ import annotations

import json
import statistics
import sys
import tomllib
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from pages_of_evidence import place, read, table, wrapped

ROOT = Path(__file__).resolve().parents[2]
PAGE, FILE, RESULTS = ROOT / "docs" / "cost.md", ROOT / "docs" / "cost.json", ROOT / "docs" / "results"
CLUSTER = ROOT / "run" / "bench" / "cluster_100g.toml"

HEAD = """# What does it cost?

For 5,000 points and 219,000 weights on one core an iteration takes {least} s with full MAC, and less with stochastic
MAC. The time grows with points times weights, and falls with the ranks that have work. Most runs on USPS take 9 to 30
iterations. `macmpi run CONFIG --check --ranks R --points N --columns D` predicts seconds and memory of your run,
without data or MPI.

"Measured" rows were run. "Predicted" rows come from the cost model ([its accuracy](predictions.md)).
"""

RATE = 20e9
"""Flop/s of a core, of large products of float64, that predictions take."""

LARGER = [784, 1000, 500, 250, 30, 250, 500, 1000, 784]
USPS = [256, 300, 100, 20, 100, 300, 256]
MAC, STOCHASTIC = "full MAC", "stochastic MAC"
ASKED = [
    (USPS, STOCHASTIC, 10**6, 16),
    (USPS, STOCHASTIC, 10**7, 64),
    (USPS, STOCHASTIC, 10**7, 256),
    (LARGER, STOCHASTIC, 10**6, 64),
    (USPS, MAC, 10**6, 16),
    (USPS, MAC, 10**7, 64),
    (USPS, MAC, 10**7, 1024),
    (LARGER, MAC, 10**6, 64),
    (LARGER, MAC, 10**7, 1024),
]
"""Net, method, training points and ranks of each prediction; points are sharded."""


def weights_of(net: list[int]) -> int:
    """Weights and biases of a dense net."""
    return sum((a + 1) * b for a, b in pairwise(net))


def asked(net: list[int], method: str, points: int, ranks: int) -> dict[str, Any]:
    """Seconds of an iteration and bytes of a rank, as the plan and the cost model have them."""
    from macmpi import config as configs
    from macmpi.config.auto import Sizes
    from macmpi.plan.cost import Machine, predicted
    from macmpi.plan.estimate import estimate
    from macmpi.plan.plan import make_plan
    from macmpi.plan.resolve import resolve

    keys: dict[str, Any] = {"model": {"hidden": net[1:-1], "activation": "sigmoid"}, "parallel": {"data": "sharded"}}
    if method == MAC:
        keys["method"] = {"name": "mac"}
    else:
        keys |= {"method": {"name": "stochastic"}, "stochastic": {"parts": ranks}}
    held = points // 4
    sizes = Sizes(net[0], net[0], points, held, autoencoder=True)
    plan = make_plan(resolve(configs.validate(keys, "this page"), sizes), points, held, ranks)
    seconds = predicted(plan, RATE, Machine(**tomllib.loads(CLUSTER.read_text(encoding="utf-8")))).total
    return {"points": points, "weights": weights_of(net), "method": method, "ranks": ranks} | {
        "seconds": float(f"{seconds:.3g}"),
        "memory": float(f"{estimate(plan)[1]:.3g}"),
    }


def predict() -> None:
    """Ask for every row and write the file, a row a line."""
    sys.path.append(str(ROOT / "run" / "bench"))
    from evidence import commit, where

    head = {"commit": commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}", **where(), "rate": RATE}
    lines = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(asked(*row))}" for row in ASKED)
    FILE.write_text("{\n" + ",\n".join([*lines, f' "rows": [\n{rows}\n ]']) + "\n}\n", encoding="utf-8")


def measured(found: dict[str, Any]) -> list[list[str]]:
    """Rows of docs/results/: an iteration of full MAC on USPS, and epochs of stochastic MAC on ever more points."""
    rows = []
    growth = found["growth"]["steps"]["growth"]["rows"]
    for points in sorted({row["points"] for row in growth}):
        own = [row for row in growth if row["points"] == points and row["method"] == "stochastic"]
        seconds = statistics.median(row["seconds"][-1] for row in own)
        memory = max(float(row["memory"].split()[0]) for row in own) * 1e6
        rows.append(line(points, weights_of(USPS), STOCHASTIC, 2, seconds, memory, "measured"))
    memory_of = found["cost"]["steps"]["cost-usps_mac"]["rows"]
    (mac,) = (each for each in found["speedup"]["steps"]["speedup"]["scaling"] if each["name"] == "usps_mac")
    for ranks, timed in mac["measured"].items():
        memory = max(row["memory_mb"] for row in memory_of if row["ranks"] == int(ranks)) * 1e6
        rows.append(line(5000, weights_of(USPS), MAC, int(ranks), timed["seconds"], memory, "measured"))
    return rows


def line(points: int, weights: int, method: str, ranks: int, seconds: float, memory: float, kind: str) -> list[str]:
    """A row of the table."""
    size = f"{memory / 1e9:.2f} GB" if memory >= 1e9 else f"{memory / 1e6:.0f} MB"
    time = f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.2g}"
    return [method, f"{points:,}", f"{weights:,}", f"{ranks:,}", time, size, kind]


def page() -> str:
    """The whole page."""
    found, model = read(RESULTS), json.loads(FILE.read_text(encoding="utf-8"))
    rows = measured(found) + [line(**row, kind="predicted") for row in model["rows"]]
    rows.sort(key=lambda row: row[0] == MAC)
    header = ("method", "training points", "weights", "ranks", "seconds an iteration", "memory of a rank", "")
    least = next(row[4] for row in rows if row[0] == MAC)
    said = (
        f"The measured rows are from {place(found['growth'])} (docs/results/: growth, speedup, cost). The predictions "
        f"(commit {model['commit']}, {model['date']}; `python run/pages/cost_page.py --predict`) assume sharded "
        f"points, a fifth of them for validation, {model['rate'] / 1e9:g} GFLOP/s per core, and the cluster of "
        "[predictions](predictions.md). The start costs as much as some iterations. Stochastic MAC has its default "
        "minibatches; many ranks gain more with a larger `stochastic.batch`."
    )
    return "\n".join([HEAD.format(least=least), table(header, rows), "", wrapped(said), ""])


if __name__ == "__main__":
    if "--predict" in sys.argv[1:]:
        predict()
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
