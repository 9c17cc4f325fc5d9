"""Median seconds of a gathering of rows, as a half step does it: mpiexec -n P python exchange.py BYTES ..."""

from __future__ import annotations

import json
import sys
from statistics import median

import numpy as np

from macmpi.parallel.clock import now
from macmpi.parallel.mpi import launch

REPEATS = 9


def main() -> None:
    team = launch()
    found: dict[str, float] = {}
    for size in sys.argv[1:]:
        rows = max(int(size) // 8 // team.size, 1)
        array, counts, seconds = np.ones((rows * team.size, 1)), [rows] * team.size, []
        for _ in range(REPEATS):
            team.barrier("a repetition")
            began = now()
            team.gather_rows(array, counts)
            seconds.append(team.max_over_ranks({"took": now() - began})["took"])
        found[str(array.nbytes)] = median(seconds)
    if team.rank == 0:
        print(json.dumps(found))


main()
