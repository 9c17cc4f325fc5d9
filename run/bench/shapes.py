"""Stochastic MAC with the defaults of one file against tuned optimisers of today, on nets and data of other shapes.

    python run/bench/compare.py shapes --torch-python T --output DIR [--only large wide] [--pause S]

Every shape is run/usps_fast.toml, or run/large_fast.toml, with other data or another net; no key of the method differs.
Each rival is tuned by successive halving over its learning rate and minibatch, from wide random weights, and again from
stochastic MAC's start, for which it pays nothing; all judge averaged weights.  Muon and SOAP are left out of the large
net for their cost: an epoch of Muon takes 90 to 394 s there (docs/results.md), of Adam 18; of the wide net
SOAP's takes 23, Adam's 2.  Adam's two rates both run to the end there, ten minutes: early errors choose the wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from contenders import AVERAGED, FAST, FROM_OURS, OWN, Study, grid
from contest import RECORDS, Candidate, Contender, Curve, lowest, reached

TRAIN, VALIDATION = 1, 2
"""Columns of a curve."""

TABLE = "regression.npz"
"""The data of the regression, made in the folder of the results."""


@dataclass(frozen=True)
class Shape:
    """settings: on top of the config; range_: of the rivals' random start; seconds: of the final runs.

    records: of an epoch, fewer where evaluation takes long; levels: of E1 train; of each shape also the lowest that any
    rival ends at.
    """

    config: str
    settings: tuple[str, ...]
    range_: float
    seconds: float
    records: int = RECORDS
    levels: tuple[float, ...] = ()


UNENDING = ("stochastic.patience=1000000",)
"""Rivals do not stop by themselves either."""

SMALL = ('data.source="digits"', "model.hidden=[16,4,16]")
"""A net that trains in a moment."""

LABELS = ('model.activation="relu"', 'model.loss="cross_entropy"')
SHAPES = {
    "large": Shape("run/large_fast.toml", (), 4.0, 600.0, 4, (8.0, 6.0, 5.0, 4.0, 3.5, 3.0, 2.5)),
    "wide": Shape(FAST, ("model.hidden=[2000,2000]",), 4.0, 60.0, 1),
    "narrow-deep": Shape(FAST, (f"model.hidden={[100] * 12}".replace(" ", ""),), 4.0, 60.0),
    "regression": Shape(FAST, ("model.hidden=[200,200]", 'model.activation="relu"'), 2.4, 60.0),
    "classification": Shape(FAST, ('data.source="usps-large"', "model.hidden=[500]", *LABELS), 2.4, 60.0),
    "digits": Shape(FAST, ('data.source="digits"', "model.hidden=[64,32,8,32,64]"), 4.0, 15.0),
}


def made(folder: Path) -> Path:
    """The table of the regression: 100,000 and 10,000 points of 40 columns, 5 smooth targets with noise."""
    path = folder / TABLE
    if not path.exists():
        random = np.random.default_rng(0)
        X, ways = random.standard_normal((110_000, 40)), random.standard_normal((40, 15)) / math.sqrt(40.0)
        a, b, c = np.split(X @ ways, 3, axis=1)
        Y = np.sin(2.0 * a) + b * c + 0.1 * random.standard_normal((len(X), 5))
        np.savez(path, X=X[:100_000], Y=Y[:100_000], X_val=X[100_000:], Y_val=Y[100_000:])
    return path


def study(name: str, folder: Path) -> Study:
    """The contenders of a shape."""
    shape = SHAPES[name]
    settings = shape.settings
    if name == "regression":
        settings = (f'data.source="{made(folder)}"', *settings)
    recorded = f"stochastic.records={shape.records}"
    end, large = shape.seconds, name == "large"
    rungs = ((end, 1),) if large else ((end / 20.0, 3), (end / 5.0, 1), (end, 1))

    def rival(label: str, optimiser: str, **keys: Sequence[float]) -> list[Contender]:
        return [
            Contender(
                label + suffix,
                grid(optimiser, shape.config, (start,), settings, **keys, **AVERAGED),
                rungs,
                1 + large,
            )
            for start, suffix in ((shape.range_, ""), (OWN, FROM_OURS))
        ]

    rivals = rival("Adam", "adam", lr=(1e-3, 3e-3), batch=(100,), beta2=(0.99,))
    if not large:
        rivals += rival("Muon", "muon", lr=(0.01, 0.02), batch=(100, 500))
        rivals += rival("SOAP", "soap", lr=(3e-3, 1e-2), batch=(250,), beta2=(0.95,))
    own_end = end / 2.0 if large else end
    ours = Contender("stochastic MAC", [Candidate(shape.config, (*settings, recorded, *UNENDING))], ((own_end, 1),))
    return Study(f"{name}, one core", shape.config, (ours, *rivals), shape.levels)


def rows(name: str, runs: dict[str, list[Curve]]) -> list[str]:
    """Markdown: seconds to each level, and to the rivals' lowest errors, of stochastic MAC and of the best rivals.

    The lowest are those of rivals from random weights, and of those that begin at stochastic MAC's start.
    """
    (_, ours), *others = ((who, curve) for who, curves in runs.items() for curve in curves)
    groups = [[(w, c) for w, c in others if w.endswith(FROM_OURS) == given] for given in (False, True)]
    found = []
    for what, column in (("E1 train", TRAIN), ("E1 validation", VALIDATION)):
        ends = [min((lowest(curve, column), who) for who, curve in group) for group in groups]
        levels = [(level, "") for level in SHAPES[name].levels] if column == TRAIN else []
        for level, label in levels + [(end, f" (the lowest of {who})") for end, who in ends]:
            seconds = reached(ours, level, column)[0]
            best = [min((reached(c, level, column)[0], w) for w, c in group) for group in groups]
            own = f"{seconds:.2f} s" if seconds < math.inf else f"never: {lowest(ours, column):.4g} at best"
            cells = " | ".join(_against(*pair, seconds, group) for pair, group in zip(best, groups, strict=True))
            found.append(f"| {name} | {what} {level:.4g}{label} | {own} | {cells} |")
    return found


def _against(seconds: float, who: str, ours: float, group: Sequence[tuple[str, Curve]]) -> str:
    """When a rival is there, and by how much later than stochastic MAC."""
    if seconds == math.inf:
        last = max(curve[-1][0] for _, curve in group)
        return f"> {last:.0f} s" + (f" (> {last / ours:.1f})" if 0.0 < ours < math.inf else "")
    return f"{who.removesuffix(FROM_OURS)} {seconds:.2f} s" + (
        f" ({seconds / ours:.1f})" if 0.0 < ours < math.inf else ""
    )


HEAD = [
    "| shape | level | stochastic MAC | best rival from random weights (times) | best from stochastic MAC's start |",
    "|---|---|---|---|---|",
]
