"""A combination of keys that is refused, and the configs that several such have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plans import plan_of

from macmpi import config
from macmpi.config import Config
from macmpi.plan.plan import Plan
from macmpi.solvers import W_SOLVERS

Keys = dict[str, Any]

WHOLE = sorted(name for name, kind in W_SOLVERS.items() if "segment" in kind.takes)  # type: ignore[attr-defined]


def configured(keys: Keys) -> Config:
    """The config of {"table.key": value}; two hidden layers."""
    table: dict[str, dict[str, Any]] = {"model": {"hidden": [5, 4]}, "method": {"name": "mac"}}
    for name, value in keys.items():
        part, key = name.split(".")
        table.setdefault(part, {})[key] = value
    return config.validate(table, "this test")


def planned(keys: Keys) -> Plan:
    return plan_of(configured(keys), 4, 3, 37, 11, 2)


STEPS: Keys = {"recurrent": 3, "steps": 2}

RECURRENT: Keys = {"model.hidden": [STEPS], "model.activation": "tanh"}

TIED: Keys = {"model.tied": True, "model.activation": "tanh"}


@dataclass(frozen=True)
class Row:
    """Keys that are refused, what the message says, and the remedies that it names, as keys on top.

    of: how its combination begins, of those that its module lists.
    """

    keys: Keys
    says: tuple[str, ...]
    remedies: tuple[Keys, ...]
    of: str


ONE_OF = f"use one of {', '.join(name for name in W_SOLVERS if name in WHOLE)}, or auto"

ANY_OF = (*({"w_step.solver": name} for name in WHOLE), {"w_step.solver": "auto"})

CURVATURE = Row(
    {"penalty.metric": "curvature"},
    (),
    ({"model.sites": "before"}, {"penalty.metric": "variance"}),
    '`metric = "curvature"`',
)

BASIS: Keys = {
    "model.hidden": [6, 2, 6],
    "model.activation": ["rbf", "linear", "rbf"],
    "model.sites": ["none", "after", "none"],
    "start.method": "pca",
}
"""An autoencoder's shape, with radial basis functions before the code and after it."""

CODES = {"model.activation": ["quantise", "tanh"], "model.words": 8}

WORDS = {"model.activation": ["argmax", "tanh"], "model.sites": ["after", "none"], "model.words": 5}

BITS = {"model.activation": ["binary", "tanh"], "model.sites": ["after", "none"]}

HALVES = {"method.name": "alternating", "model.activation": ["linear", "tanh"], "model.sites": ["after", "none"]}

SELECTED: Keys = {
    **BASIS,
    "model.centres": "subset",
    "selection.criterion": "bic",
    "selection.epsilon2": [0.1],
    "selection.sizes": [[2, 4], [], [3]],
}

RIDGES: Keys = {
    **{"selection.criterion": "aic", "selection.epsilon2": 0.1, "selection.ridges": [0.1, 1.0]},
    "model.sites": "before",
}

UNITS: Keys = {"selection.criterion": "aic", "selection.epsilon2": 0.1, "selection.sizes": [[2, 5], [3]]}

FOREST = {"model.activation": ["forest", "tanh"], "model.trees": 3, "model.depth": 2}

LABELS = {"model.loss": "cross_entropy"}

FIRST = "make the binary layer the first of model.hidden"

IT_FIRST = "make it the first of model.hidden"

OWN: Keys = {"parallel.data": "sharded"}

TOGETHER = 'use parallel.data = "replicated" or "node"'

IMAGES: Keys = {"model.image": [2, 2], "model.hidden": [{"channels": 2, "kernel": 3}, 4], "model.activation": "tanh"}

SKIPS: Keys = {"model.hidden": [5, 5, 5], "model.skips": [[1, 3]], "model.activation": "tanh"}

SPARSE: Keys = {"model.hidden": [{"units": 6, "connections": "random"}, 4], "model.activation": "tanh"}
