"""Runs one after the other in one launch, the odd ranks on another processor than the rest: what do they hold?

Their functions of NumPy and SciPy are bent (`bent.py`), and they have another kernel of BLAS.

Arguments: folders, each with run.toml.  MACMPI_TEST_ODD_RANKS: variables for the odd ranks, a table in JSON.  Prints a
line of JSON for each folder: its exit code, and the arrays of the State in which the ranks differ at some record.  In
a folder called struck... the odd ranks lose a bit of what they keep.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
own = json.loads(os.environ["MACMPI_TEST_ODD_RANKS"])
odd = bool(int(next(os.environ[name] for name in RANKS if name in os.environ)) % 2)
if odd and not own.items() <= os.environ.items():
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | own)
if odd:
    import bent

    bent.bend()

from macmpi import run  # noqa: E402
from macmpi.parallel.mpi import launch  # noqa: E402
from macmpi.training import loop  # noqa: E402
from macmpi.training.checkpoint import (  # noqa: E402
    contents,
    rows_of_points,
    split,
)

record = loop.Training._record
differing: set[str] = set()


def compared(training: Any, state: Any, phase: str, errors: Any) -> None:
    import numpy as np

    record(training, state, phase, errors)
    if odd and folder.startswith("struck") and phase == "iteration":
        state.history.best_weights[-1] = np.nextafter(state.history.best_weights[-1], np.inf)
    arrays, scalars = split(contents(state))
    own = {} if training.plan.placement.all_rows else rows_of_points(state)
    numbers = {name: np.array([float(scalars[name])]) for name in scalars if name not in ("finished", "seconds")}
    for name, array in {**arrays, **numbers}.items():
        if name in own:
            continue
        table = np.zeros((training.team.size, 32), np.uint8)
        table[training.team.rank] = list(hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest())
        training.team.gather_rows(table, [1] * training.team.size)
        if (table != table[0]).any():
            differing.add(name)


loop.Training._record = compared  # type: ignore[method-assign]
team = launch()
for folder in sys.argv[1:]:
    differing.clear()
    try:
        code = run.run(team, [f"{folder}/run.toml", "--output", f"{folder}/run"])
    except BaseException as error:  # noqa: BLE001 - both ranks must end
        print(f"{folder}: {error!r}", file=sys.stderr)
        if not getattr(error, "agreed", False):
            team.abort(1)
        code = error.exit_code  # type: ignore[attr-defined]
    if team.rank == 0:
        print(json.dumps({"folder": folder, "code": code, "differing": sorted(differing)}), flush=True)
