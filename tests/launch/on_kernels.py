"""Runs one after the other in one launch, the odd ranks on another kernel than the rest: what do they hold in the end?

Arguments: folders, each with run.toml.  MACMPI_TEST_KERNEL: of OpenBLAS, for the odd ranks; MACMPI_TEST_FEATURES: of
the processor, which NumPy does without there.  Prints a line of JSON for each folder: its exit code, and the arrays of
the State in which the ranks differ at some record.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
KERNEL, FEATURES = "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
own = {KERNEL: os.environ["MACMPI_TEST_KERNEL"], FEATURES: os.environ["MACMPI_TEST_FEATURES"]}
if int(next(os.environ[name] for name in RANKS if name in os.environ)) % 2 and os.environ.get(KERNEL) != own[KERNEL]:
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | own)

from macmpi import run  # noqa: E402
from macmpi.parallel.mpi import launch  # noqa: E402
from macmpi.training import loop  # noqa: E402
from macmpi.training.checkpoint import split  # noqa: E402
from macmpi.training.stored import contents, rows_of_points  # noqa: E402

record = loop.Training._record
differing: set[str] = set()


def compared(training: Any, state: Any, phase: str, errors: Any) -> None:
    import numpy as np

    record(training, state, phase, errors)
    arrays, scalars = split(contents(state))
    own = rows_of_points(state) if training.plan.sharded else {}
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
        team.abort(1)
    if team.rank == 0:
        print(json.dumps({"folder": folder, "code": code, "differing": sorted(differing)}), flush=True)
