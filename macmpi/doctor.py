"""`python -m macmpi.doctor`, alone or under mpiexec: is this installation, this machine, this folder fit for a run?"""

from __future__ import annotations

import platform
import sys
import time
from typing import Any

from macmpi import MacmpiError, __version__
from macmpi.console import guard, say
from macmpi.machine.hosts import FAULT, Finding, kernel, machines, ranks, shared_memory, start_up, version_of
from macmpi.parallel.command import by_all_ranks, parsed, set_threads
from macmpi.parallel.launchers import mpiexec, speaks
from macmpi.parallel.mpi import BINDINGS, launch
from macmpi.parallel.team import Team

MPIS = ("mpich", "openmpi", "impi-rt")
SMALL_ROWS, LARGE_BYTES, REPEATS = 8, 1 << 25, 7
SLOW_LATENCY, SLOW_BANDWIDTH, UNEVEN, THREADED = 2e-3, 2e8, 1.5, 1.5
"""Beyond these (seconds; bytes a second; slowest rank to fastest; cores busy in a product) there is a warning."""


def library(team: Team) -> Finding:
    """The MPI that the ranks run under, or that they would."""
    installed = [f"{name} {version}" for name in MPIS if (version := version_of(name))]
    launcher = mpiexec() or "no mpiexec"
    found = f"{team.library if team.size > 1 else ', '.join(installed) or 'none'}; {launcher}"
    if len(installed) > 1:
        return Finding("MPI", found, f"several MPIs in one environment ({', '.join(installed)}): keep one")
    if not version_of(BINDINGS) or launcher == "no mpiexec":
        return Finding("MPI", found, "one process works; for many ranks: pip install '.[mpich]'")
    return Finding("MPI", found)


def products(team: Team) -> list[Finding]:
    """The rate of matrix products while all ranks compute, and the cores that one keeps busy.  Collective: yes."""
    import numpy as np

    n = 768
    A = np.ones((n, n))
    A @ A
    team.barrier("the products")
    began, busy = time.perf_counter(), time.process_time()
    for _ in range(REPEATS):
        A @ A
    wall, cpu = time.perf_counter() - began, time.process_time() - busy
    rate = 2e-9 * n**3 * REPEATS / wall
    worst = team.max_over_ranks({"slow": -rate, "fast": rate, "cores": cpu / wall})
    slow, fast, cores = -worst["slow"], worst["fast"], worst["cores"]
    found = f"{slow:.0f} to {fast:.0f} GFLOP/s a rank (float64)" if team.size > 1 else f"{rate:.0f} GFLOP/s (float64)"
    uneven = "the slowest rank sets the pace: other programs on its cores?" if fast >= UNEVEN * slow else ""
    deaf = "BLAS does not heed OPENBLAS_NUM_THREADS=1" if cores >= THREADED else ""
    said = f"{cores:.1f} cores busy in a product of one rank"
    return [Finding("dgemm", found, uneven), Finding("BLAS threads", said, deaf, fault=True)]


def exchange(team: Team) -> Finding:
    """Iallgatherv as the half steps use it, small and large.  Collective: yes."""
    import numpy as np

    if team.size == 1:
        return Finding("Iallgatherv", "one rank: nothing to exchange (mpiexec -n N python -m macmpi.doctor)")
    small = np.ones((SMALL_ROWS * team.size, 1))
    large = np.ones((max(LARGE_BYTES // 8000 // team.size, 1) * team.size, 1000))
    latency, seconds = [_median(team, A) for A in (small, large)]
    bandwidth = large.nbytes / seconds
    found = f"{1e6 * latency:,.0f} microseconds, {bandwidth / 1e9:.2f} GB/s ({large.nbytes / 1e6:.0f} MB)"
    slow = latency > SLOW_LATENCY or bandwidth < SLOW_BANDWIDTH
    return Finding("Iallgatherv", found, "more ranks than cores, a busy machine, or a slow network" if slow else "")


def shared_arrays(team: Team) -> Finding:
    """Tells whether the ranks of a node can have one copy of an array (parallel.data = "node").  Collective: yes."""
    import numpy as np

    what = "shared arrays"
    if team.size == 1:
        return Finding(what, "one rank: nothing to share")
    team.share_memory(0.0)
    rows = team.array((team.size, 1000), np.float64)
    rows[team.rank] = team.rank
    team.gather_rows(rows, [1] * team.size)
    lost = float((rows != np.arange(team.size)[:, None]).any())
    if team.max_over_ranks({"lost": lost})["lost"]:
        return Finding(what, "rows of other ranks are missing", 'keep parallel.data = "replicated"', fault=True)
    if not team.shares:
        return Finding(what, "no space", 'with parallel.data = "node" every rank would keep its own copy')
    return Finding(what, "one copy for the ranks of a node works")


def _median(team: Team, array: Any) -> float:
    """Seconds of an exchange that all ranks begin at once.  Collective: yes."""
    counts, taken = [len(array) // team.size] * team.size, []
    for _ in range(REPEATS):
        team.barrier("the exchange")
        began = time.perf_counter()
        team.gather_rows(array, counts)
        taken.append(team.max_over_ranks({"s": time.perf_counter() - began})["s"])
    return sorted(taken)[REPEATS // 2]


def examine(team: Team, argv: list[str]) -> int:
    """All findings, printed; 0, or 2 where there is a fault.  Collective: yes."""
    output = team.from_root(lambda: parsed("doctor", argv).output)
    from macmpi.machine.storage import folder, hdf5

    hosts = machines(team)
    found = [library(team), ranks(hosts), shared_memory(hosts), kernel(team)]
    found += team.from_root(lambda: [start_up(hosts), hdf5(), *folder(output)])
    found += [*products(team), exchange(team), shared_arrays(team)]
    if team.rank == 0:
        say(f"macmpi {__version__}, Python {platform.python_version()}, {platform.platform()}")
        say("\n".join(map(str, found)))
    return 2 if any(f.verdict == FAULT for f in found) else 0


def main() -> None:
    guard()
    set_threads(1)
    try:
        team = launch()
    except MacmpiError as error:
        if speaks():
            say(str(Finding("MPI", "", str(error), fault=True)), error=True)
        sys.exit(error.exit_code)
    by_all_ranks(team, lambda: examine(team, sys.argv[1:]))


if __name__ == "__main__":
    main()
