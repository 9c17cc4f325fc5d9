"""What a message costs: `mpiexec -n 2 python run/bench/messages.py` prints seconds of an exchange by bytes, as JSON."""

from __future__ import annotations

import json
import statistics
import time

import numpy as np

from macmpi.parallel.mpi import launch

BYTES = (8, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24)
SECONDS, LEAST, MOST = 0.5, 5, 200


def main() -> None:
    team = launch()
    found = {}
    for count in BYTES:
        rows = max(count // 8 // team.size, 1)
        array, counts = np.ones((rows * team.size, 1)), [rows] * team.size
        took = list[float]()
        going = True
        while going:
            team.max_over_ranks({})
            began = time.perf_counter()
            team.gather_rows(array, counts)
            took.append(team.max_over_ranks({"took": time.perf_counter() - began})["took"])
            going = len(took) < LEAST or (len(took) < MOST and sum(took) < SECONDS)
        found[array.nbytes] = statistics.median(took[1:])
    if team.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
