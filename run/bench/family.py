"""Stochastic MAC against its own family, methods that precondition by Kronecker factors, from random weights.

    python run/bench/compare.py family --torch-python T --clock cpu --repeats 1 --output DIR [--only usps] [--pause S]

Shampoo with corrected eigenvalues (shampoo.py), K-FAC by the package kfac-jax, on minibatches and by its example's
settings of an autoencoder (kfac.py), and SINGD by the package singd.  Each has a grid of rate and damping, or rate and
minibatch, cut down by successive halving; those on minibatches are judged by averaged weights, as stochastic MAC is.
T has the packages of the extra family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from contenders import AVERAGED, FAST, Study, grid
from contest import Candidate, Contender, Curve, lowest, reached
from shapes import SHAPES, SMALL, UNENDING

TRAIN, VALIDATION = 1, 2
"""Columns of a curve."""


@dataclass(frozen=True)
class Net:
    """seconds: of the rivals' final runs; own: of stochastic MAC's; records: of an epoch; levels: of E1 train.

    batches: points of Shampoo's minibatches and of SINGD's, K-FAC's have twice as many; every: steps between two
    turns of Shampoo's bases; rungs: seconds of the runs that choose the settings.
    """

    config: str
    seconds: float
    own: float
    records: int
    levels: tuple[float, ...]
    batches: tuple[int, int]
    every: tuple[int, ...]
    rungs: tuple[float, ...]
    settings: tuple[str, ...] = ()


STIFF = (0.03, 0.1, 0.3)
"""Dampings of K-FAC on minibatches; with less, or at higher rates, it diverges on USPS."""

RANGE = 4.0
"""Of the rivals' random weights, as wide as suits Adam."""

NETS = {
    "usps": Net(FAST, 32.0, 14.0, 4, (8.0, 6.0, 5.0, 4.0, 3.5, 3.0, 2.5, 2.0), (100, 250), (20, 100), (1.5, 6.0)),
    "large": Net("run/large_fast.toml", 600.0, 300.0, 4, SHAPES["large"].levels, (500, 500), (50, 200), (60.0,)),
}
QUICK = {"digits": Net(FAST, 0.2, 0.2, 4, (2.0,), (100, 100), (20,), (), SMALL)}
"""To see that all is there, in seconds."""

SHAMPOO, KFAC, EXAMPLE, SINGD = "Shampoo, eigenvalues corrected", "K-FAC", "K-FAC, all points, adaptive", "SINGD"


def study(name: str, quick: bool = False) -> Study:
    """The contenders on a net; all points at once are too many for one core on the large one."""
    net = (QUICK if quick else NETS)[name]
    first, size = net.batches
    rungs = [*((seconds, 3) for seconds in net.rungs[:-1]), *((seconds, 1) for seconds in net.rungs[-1:])]
    rungs += [(net.seconds, 1)]

    def rival(label: str, optimiser: str, **keys: Sequence[float]) -> Contender:
        candidates = grid(optimiser, net.config, (RANGE,), net.settings, **keys)
        return Contender(label, candidates[:1] if quick else candidates, rungs, 1, 1)

    rivals = [
        rival(SHAMPOO, "shampoo", lr=(3e-3, 6e-3), batch=(first,), beta2=(0.9, 0.95), every=net.every, **AVERAGED),
        rival(KFAC, "kfac", lr=(0.1, 0.2, 0.4), momentum=(0.9,), damping=STIFF, batch=(2 * size,), **AVERAGED),
        rival(SINGD, "singd", lr=(3e-3, 1e-2, 3e-2), batch=(size,), damping=(1e-3, 1e-2), **AVERAGED),
    ]
    if name != "large":
        rivals.insert(2, rival(EXAMPLE, "kfac", adaptive=(1,), damping=(150.0, 3.0, 0.03), batch=(0,)))
    ours = Candidate(net.config, (*net.settings, f"stochastic.records={net.records}", *UNENDING))
    return Study(name, net.config, (Contender("stochastic MAC", [ours], ((net.own, 1),), turns=1), *rivals), net.levels)


HEAD = ("net, error", "stochastic MAC", SHAMPOO, KFAC, EXAMPLE, SINGD)


def rows(name: str, levels: Sequence[float], runs: dict[str, list[Curve]]) -> list[str]:
    """Markdown: seconds to each training error, and to the lowest validation error of each contender.

    In brackets: how many times later than stochastic MAC.
    """
    ours, *_ = (curve for curves in runs.values() for curve in curves)
    least = {who: min((lowest(c, VALIDATION) for c in curves), default=math.inf) for who, curves in runs.items()}
    wanted = [("train", TRAIN, level, "") for level in levels]
    wanted += [
        ("validation", VALIDATION, level, f" (the lowest of {who})")
        for who, level in sorted(least.items(), key=lambda pair: -pair[1])
        if level < math.inf
    ]
    found = []
    for what, column, level, label in wanted:
        seconds = reached(ours, level, column)[0]
        cells = [f"{seconds:.2f} s" if seconds < math.inf else f"never: {lowest(ours, column):.4g} at best"]
        cells += [_against(runs.get(who, []), level, column, seconds) for who in HEAD[2:]]
        found.append(f"| {name}, {what} {level:.4g}{label} | {' | '.join(cells)} |")
    return found


def _against(curves: Sequence[Curve], level: float, column: int, ours: float) -> str:
    """When a rival is there, and how many times later than stochastic MAC."""
    if not curves:
        return "-"
    there = min(reached(curve, level, column)[0] for curve in curves)
    seconds = there if there < math.inf else max(curve[-1][0] for curve in curves)
    never = "> " if there == math.inf else ""
    return f"{never}{seconds:.2f} s" + (f" ({never}{seconds / ours:.1f})" if 0.0 < ours < math.inf else "")
