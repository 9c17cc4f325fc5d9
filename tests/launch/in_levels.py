"""Run by test_levels.py under mpiexec: columns gathered in two levels are those of the whole; prints its verdicts."""

from __future__ import annotations

import sys

import numpy as np

from macmpi.parallel import exchange
from macmpi.parallel.mpi import launch
from macmpi.parallel.tiles import contiguous_runs


def main() -> None:
    exchange.FROM, exchange.FEWER = 2, 0
    team = launch()
    group = exchange.group_size(team.size)
    wrong = []
    for counts in ([1] * team.size, [r % 3 for r in range(team.size)], [0] * (team.size - 1) + [4]):
        for width in (1, 5, team.size, 10_000):
            for dtype in (np.float32, np.float64):
                whole = np.random.default_rng(width).standard_normal((sum(counts), width)).astype(dtype)
                first = sum(counts[: team.rank])
                runs = [run.rows for run in contiguous_runs(width, team.size)]
                found = team.gather_columns(whole[first : first + counts[team.rank]].copy(), counts, runs)
                if found.dtype != dtype or not np.array_equal(found, whole[:, runs[team.rank]]):
                    wrong.append((counts, width))
    told = team.max_over_ranks({"wrong": float(len(wrong))})
    if team.rank == 0:
        print(f"groups of {group}, {told['wrong']:.0f} wrong", file=sys.stdout)


if __name__ == "__main__":
    main()
