"""Deep nets, where backpropagation has trouble: ways of MAC, Adam, and predictive coding, on the digits of USPS.

    python run/bench/deep.py --peers P [--nets residual-128 ...] [--ways ...] [--seconds S] [--seeds N] --json FILE

P: an interpreter with NumPy, torch, jax and pcx.  Each rival is tuned over the grid of `grid_of` on seed 0, in a
quarter of the seconds, by its validation error; the best one then runs on every seed, from macmpi's start or random
weights, as is better.  Ways that take long have seed 0 alone (ONCE).  macmpi has its defaults, and ends by itself.
Seconds are the processor's, of training alone, and of pcx without what it compiles.  Curves stay in --output; what lies
there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from contenders import FAST, OWN, grid  # noqa: E402
from contest import SECONDS, VALIDATION, WRONG, Candidate, Contest, Curve, lowest  # noqa: E402

NEAR = 0.002
"""A share of wrong labels that is near another: 0.2 points."""


@dataclass(frozen=True)
class Net:
    """layers of width units; skips: x + g(x) from the second layer on."""

    layers: int
    width: int
    activation: str
    skips: bool

    @property
    def settings(self) -> tuple[str, ...]:
        pairs = [[i, i + 2] for i in range(1, self.layers)] if self.skips else []
        keys = (
            f"model.hidden={[self.width] * self.layers}",
            f'model.activation="{self.activation}"',
            f"model.skips={pairs}",
        )
        return tuple(key.replace(" ", "") for key in keys)


NETS = {
    "residual-30": Net(30, 128, "relu", True),
    "residual-128": Net(128, 32, "relu", True),
    "plain-128": Net(128, 32, "sigmoid", False),
    "narrow-12": Net(12, 32, "sigmoid", False),
}
TASKS = {"labels": ('model.loss="cross_entropy"',), "autoencoder": ()}
FULL = ('method.name="mac"', 'model.precision="float64"', "run.finish=false")
WAYS: dict[str, tuple[str, ...]] = {
    "stochastic MAC": (),
    "all points": ('stochastic.batch="all"',),
    "quadratic penalty": FULL,
    "augmented Lagrangian": (*FULL, 'penalty.method="augmented_lagrangian"'),
}
RIVALS = ("Adam", "Adam, batch normalisation", "predictive coding")
ONCE = ("quadratic penalty", "augmented Lagrangian", "predictive coding")
"""Ways that are trained from one seed, for what they cost."""


def grid_of(rival: str, net: Net, settings: tuple[str, ...]) -> list[Candidate]:
    """The candidates of a rival."""
    if rival == "predictive coding":
        keys: dict[str, Sequence[float]] = {"relaxed": (16, net.layers), "rate": (0.5,), "lr": (1e-3, 1e-2)}
        return grid("predictive_coding", FAST, (OWN,), settings, batch=(250,), **keys)
    norm = (rival != "Adam",)
    return grid("adam", FAST, (OWN, 1.0), settings, lr=(3e-4, 1e-3, 3e-3), batch=(100,), beta2=(0.999,), norm=norm)


def seeded(c: Candidate, seed: int) -> Candidate:
    """The same from the start, and with the minibatches, of a seed."""
    peer = (*c.peer, ("seed", seed)) if c.peer else ()
    return replace(c, settings=(*c.settings, f"start.seed={seed}"), peer=peer)


def curves(contest: Contest, net: Net, task: str, way: str, seconds: float, seeds: int) -> tuple[str, list[Curve]]:
    """What a way is tuned to, and its curve for each seed."""
    settings, column = (*net.settings, *TASKS[task]), column_of(task)
    if way in WAYS:
        best = Candidate(FAST, (*settings, *WAYS[way]))
    else:
        tried = [seeded(c, 0) for c in grid_of(way, net, settings)]
        found = [lowest(curve, column) for curve in contest.curves(tried, 0.25 * seconds)]
        best = grid_of(way, net, settings)[found.index(min(found))]
    chosen = " ".join(f"{key}={value}" for key, value in best.peer)
    given = " from macmpi's start" if best.peer and 'method.name="sgd"' not in best.settings else ""
    runs = range(1 if way in ONCE else seeds)
    return chosen + given, [contest.curves([seeded(best, seed)], seconds)[0] for seed in runs]


def column_of(task: str) -> int:
    return WRONG if task == "labels" else VALIDATION


def first(curve: Curve, level: float, column: int) -> float | None:
    """Seconds until the error is at a level; None: never."""
    return next((round(r[SECONDS], 2) for r in curve if r[column] <= level), None)


def rows(
    contest: Contest, name: str, task: str, ways: Sequence[str], seconds: float, seeds: int
) -> list[dict[str, Any]]:
    """A row for each way and seed: its lowest error, when, and when stochastic MAC had that error on the same seed.

    near: seconds until the error is within NEAR of the lowest of Adam's, of labels, or within a percent.
    """
    column, found, tuned = column_of(task), {}, {}
    for way in ways:
        tuned[way], found[way] = curves(contest, NETS[name], task, way, seconds, seeds)
        best = sorted(lowest(curve, column) for curve in found[way])
        print(f"{name}, {task}, {way}: {', '.join(f'{error:.4f}' for error in best)}  {tuned[way]}", flush=True)
    made = []
    for seed in range(seeds):
        adams = [lowest(found[way][seed], column) for way in ways if way.startswith("Adam")]
        target = min(adams, default=math.nan)
        near = target + NEAR if task == "labels" else 1.01 * target
        for way in (way for way in ways if seed < len(found[way])):
            curve = found[way][seed]
            best = lowest(curve, column)
            row = {"net": name, "task": task, "way": way, "seed": seed, "tuned": tuned[way], "best": round(best, 5)}
            row |= {"seconds": first(curve, best, column), "near": first(curve, near, column)}
            row |= {"of": round(curve[-1][SECONDS], 2)}
            if "stochastic MAC" in found:
                row["ours"] = first(found["stochastic MAC"][seed], best, column)
            made.append(row)
    return made


def linear(contest: Contest) -> float:
    """The lowest validation error of logistic regressions on the pixels, over their ridges."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from starts import write_task

    with np.load(write_task(contest.folder, FAST, ("model.hidden=[10]", *TASKS["labels"]))["data"]) as data:
        X, Y, X_val, Y_val = (data[key] for key in ("X", "Y", "X_val", "Y_val"))
    fits = (LogisticRegression(C=C, max_iter=500).fit(X, Y.argmax(axis=1)) for C in (0.03, 0.1, 0.3))
    return min(1.0 - float(fit.score(X_val, Y_val.argmax(axis=1))) for fit in fits)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--peers", default=sys.executable, help="an interpreter with NumPy, torch, jax and pcx")
    p.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    p.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    p.add_argument("--ways", nargs="+", choices=(*WAYS, *RIVALS), default=[*WAYS, *RIVALS])
    p.add_argument("--seconds", type=float, default=120.0, help="of training, of every run")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--output", type=Path, default=Path("runs/deep"))
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    folder = args.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    contest = Contest(folder, args.peers, clock="cpu", records=1)
    found = [{"net": "linear", "task": "labels", "best": round(linear(contest), 5)}] if "labels" in args.tasks else []
    for name in args.nets:
        for task in args.tasks:
            found += rows(contest, name, task, args.ways, args.seconds, args.seeds)
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
