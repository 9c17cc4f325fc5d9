"""Stochastic MAC with the defaults of one file against tuned optimisers of today, on nets and data of other shapes.

    python run/bench/compare.py shapes --torch-python T --output DIR [--only large wide] [--pause S]

Every shape is run/usps_fast.toml, or run/large_fast.toml, with other data or another net; no key of the method differs.
Each rival is tuned by successive halving over its learning rate, minibatch and start; all judge averaged weights.
SOAP is left out of the large net for its cost: an epoch of the wide one takes it 23 s, and Adam 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from contenders import AVERAGED, FAST, OWN, Study, grid
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

LABELS = ('model.activation="relu"', 'model.loss="cross_entropy"')
SHAPES = {
    "large": Shape("run/large_fast.toml", (), 4.0, 300.0, 2, (8.0, 6.0, 5.0, 4.0, 3.5, 3.0, 2.5)),
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
    starts, end = (shape.range_, OWN), shape.seconds
    rungs = ((end / 20.0, 3), (end / 5.0, 1), (end, 1))

    def rival(label: str, optimiser: str, **keys: Sequence[float]) -> Contender:
        return Contender(label, grid(optimiser, shape.config, starts, settings, **keys, **AVERAGED), rungs, 1)

    others = [rival("SOAP", "soap", lr=(3e-3, 1e-2), batch=(250,), beta2=(0.95,))] if name != "large" else []
    return Study(
        f"{name}, one core",
        shape.config,
        (
            Contender("stochastic MAC", [Candidate(shape.config, (*settings, recorded, *UNENDING))], ((end, 1),)),
            rival("Adam", "adam", lr=(1e-3, 3e-3), batch=(100,), beta2=(0.99,)),
            rival("Muon", "muon", lr=(0.01, 0.02), batch=(100, 500)),
            *others,
        ),
        shape.levels,
    )


def rows(name: str, runs: dict[str, list[Curve]]) -> list[str]:
    """Markdown: seconds to each level, and to the rivals' lowest errors, of stochastic MAC and of the best rival."""
    ours, *others = ((who, curve) for who, (curve,) in runs.items())
    found = []
    for what, column in (("E1 train", TRAIN), ("E1 validation", VALIDATION)):
        who, best = min(others, key=lambda pair: lowest(pair[1], column))
        end = lowest(best, column)
        levels = [*(SHAPES[name].levels if column == TRAIN else ()), end]
        for level in levels:
            seconds, rival = min((reached(curve, level, column)[0], name_) for name_, curve in others)
            own = reached(ours[1], level, column)[0]
            times = f"{seconds / own:.1f}" if own < math.inf else f"never: {lowest(ours[1], column):.4g} at best"
            label = f"{what} {level:.4g}" + (f" (the lowest of {who})" if level == end else "")
            found.append(f"| {name} | {label} | {rival} {seconds:.2f} s | {own:.2f} s | {times} |")
    return found


HEAD = ["| shape | level | best rival there | stochastic MAC | times |", "|---|---|---|---|---|"]
