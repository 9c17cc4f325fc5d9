"""Prints, for each number of bytes, the seconds that one of a series of gatherings takes; 0 bytes: a meeting alone.

mpiexec -n P python exchange.py BYTES ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from macmpi.parallel.clock import now
from macmpi.parallel.mpi import launch

REPEATS = 9


def main() -> None:
    team = launch()
    found: dict[str, float] = {}

    def timed(exchange: Callable[[], object]) -> float:
        team.barrier("the first one")
        began = now()
        for _ in range(REPEATS):
            exchange()
        return team.max_over_ranks({"took": now() - began})["took"] / REPEATS

    for size in sys.argv[1:]:
        rows = max(int(size) // 8 // team.size, 1)
        array, counts = np.ones((rows * team.size, 1)), [rows] * team.size
        found[str(array.nbytes)] = timed(partial(team.gather_rows, array, counts))
    found["0"] = timed(lambda: team.barrier("the others"))
    if team.rank == 0:
        print(json.dumps(found))


main()
