"""`python -m macmpi.doctor`, alone or under mpiexec: is this installation, this machine, this folder fit for a run?

NumPy, and modules that need it, are imported inside functions, because the number of threads must be set before.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from macmpi import MacmpiError, __version__, listed, many
from macmpi.console import guard, say
from macmpi.parallel.command import by_all_ranks, parsed, set_threads
from macmpi.parallel.exchange import PLACE, RESERVE, free_bytes
from macmpi.parallel.launchers import mpiexec, speaks
from macmpi.parallel.mpi import BINDINGS, NETMOD, launch, leftovers
from macmpi.parallel.team import Team, texts
from macmpi.training.lock import one_node_option
from macmpi.training.process import version_of

FINE, WARNING, FAULT = "ok", "warning", "FAULT"

FASTER, LONG = 1.2, 30.0
"""Above these the doctor warns: another kernel's rate divided by the present one's; seconds of a start."""

PROGRAM = "macmpi.training.launch"
"""The module that a rank imports first; it imports everything that a run needs."""

PACKAGE = Path(__file__).parent
"""The folder in which macmpi is installed."""

UNWRITTEN = "PYTHONDONTWRITEBYTECODE"
"""The environment variable that forbids Python to save compiled modules."""

MPIS = ("mpich", "openmpi", "impi-rt")
SMALL_ROWS, LARGE_BYTES, REPEATS = 8, 1 << 25, 7
SLOW_LATENCY, SLOW_BANDWIDTH, UNEVEN, THREADED = 2e-3, 2e8, 1.5, 1.5
"""Limits of warnings: seconds of a small exchange; bytes/s of a large one; fastest rank / slowest; cores a product."""


@dataclass(frozen=True)
class Finding:
    """A line of the doctor's page: what was examined and found; remedy: what to do, "" if all is well.

    fault: with a remedy, whether no run can be started before it; otherwise the line is a warning.
    """

    what: str
    found: str
    remedy: str = ""
    fault: bool = False

    @property
    def verdict(self) -> str:
        return FINE if not self.remedy else FAULT if self.fault else WARNING

    def __str__(self) -> str:
        line = f"{self.what:18} {self.verdict:8} {self.found}"
        return f"{line}\n{'':18} {'':8} -> {self.remedy}" if self.verdict != FINE else line


@dataclass(frozen=True)
class Machine:
    """A host of this launch: the numbers of its ranks and of the cores that these may use.

    free: free bytes of /dev/shm, None if there is none; left: files in it that programs which died have left.
    """

    host: str
    ranks: int
    cores: int
    free: float | None
    left: Sequence[str] = ()


def library(team: Team) -> Finding:
    """Finds the MPI library of the ranks; for a single process, the libraries that are installed."""
    installed = [f"{name} {version}" for name in MPIS if (version := version_of(name))]
    text = f"{team.library if team.size > 1 else ', '.join(installed) or 'none'}; {mpiexec() or 'no mpiexec'}"
    remedy = "" if version_of(BINDINGS) and mpiexec() else "one process works; for many ranks: pip install '.[mpich]'"
    several = f"several MPIs in one environment ({', '.join(installed)}): keep one"
    return Finding("MPI", text, several if len(installed) > 1 else remedy)


def machines(team: Team) -> list[Machine]:
    """Asks all ranks on which host they are, and returns the hosts, rank 0's first.  Collective: yes."""
    hosts = texts(team, platform.node())
    first = hosts.index(platform.node()) == team.rank
    free = free_bytes() if os.path.isdir(PLACE) else None
    own = [sorted(os.sched_getaffinity(0)), free, leftovers() if first else []]
    said = [json.loads(text) for text in texts(team, json.dumps(own))]

    def machine(host: str) -> Machine:
        told = [facts for facts, other in zip(said, hosts, strict=True) if other == host]
        return Machine(host, len(told), len(set().union(*(cores for cores, *_ in told))), *told[0][1:])

    return [machine(host) for host in dict.fromkeys(hosts)]


def ranks(hosts: Sequence[Machine]) -> Finding:
    """Compares the number of ranks on each host with the number of its cores."""
    total = sum(m.ranks for m in hosts)
    text = f"{many(total, 'rank')} on {hosts[0].host}, which has {many(hosts[0].cores, 'core')} for them"
    if len(hosts) > 1:
        each = listed([f"{m.host} ({m.ranks} on {many(m.cores, 'core')})" for m in hosts])
        text = f"{total} ranks on {len(hosts)} hosts: {each}"
    crowded = (m for m in hosts if m.ranks > m.cores)
    fewer = (f"the same bits, no more speed: at most {m.cores} ranks on {m.host}, or more cores" for m in crowded)
    return Finding("ranks", text, next(fewer, ""))


def shared_memory(hosts: Sequence[Machine]) -> Finding:
    """Examines on each host the free space of /dev/shm, and looks for files that killed programs have left there."""
    if bare := next((m for m in hosts if m.free is None), None):
        remedy = "MPI between processes of one node may need it: mount a tmpfs"
        return Finding(PLACE, f"not there{_on(bare, hosts)}", remedy)
    tight = min(hosts, key=lambda m: (m.free or 0.0) / m.ranks)
    free = tight.free or 0.0
    text = f"{free / 1e6:,.0f} MB free for {many(tight.ranks, 'rank')}{_on(tight, hosts)}"
    if free < tight.ranks * RESERVE / 5.0:
        return Finding(PLACE, text, "make it larger (containers: --shm-size=1g), or take fewer ranks", fault=True)
    if dirty := [m for m in hosts if m.left]:
        counts = (f"{len(m.left)} segments of dead programs{_on(m, hosts)}" for m in dirty)
        remedy = "; ".join(f"rm {' '.join(m.left)}{_on(m, hosts)}" for m in dirty)
        return Finding(PLACE, ", ".join([text, *counts]), remedy)
    usual = NETMOD in os.environ and free < tight.ranks * RESERVE
    unset = f"too little for MPICH's usual transport: leave {NETMOD} unset, macmpi chooses one that fits"
    return Finding(PLACE, text, unset if usual else "")


def _on(machine: Machine, hosts: Sequence[Machine]) -> str:
    return f" on {machine.host}" if len(hosts) > 1 else ""


def kernel(team: Team) -> Finding:
    """Compares the BLAS kernels of all ranks, and the speed of kernels that variables force.  Collective: yes."""
    from macmpi.parallel.kernels import HOLDING, arithmetics, described, unlike

    arithmetic = arithmetics(team)
    held_by = [f"{name}={os.environ[name]}" for name in HOLDING if os.environ.get(name)]
    held = texts(team, " ".join(held_by))
    measures = bool(held_by) and held.index(held[team.rank]) == team.rank  # one of equal ranks
    costs = [json.loads(text) for text in texts(team, json.dumps(_cost() if measures else ["", ""]))]
    cost, remedies = (
        [f"rank {rank}: {pair[i]}" if team.size > 1 else pair[i] for rank, pair in enumerate(costs) if pair[i]]
        for i in (0, 1)
    )
    if unlike(arithmetic):
        remedies.insert(0, f"for bits that any machine repeats give all ranks one {' and '.join(HOLDING)}")
    text = "; ".join([described(arithmetic), *cost])
    return Finding("kernel", text, "; ".join(remedies))


def _cost() -> tuple[str, str]:
    """Times BLAS with and without the variables that force a kernel; returns a text and a remedy.  Collective: no."""
    from macmpi.parallel.kernels import HOLDING, measured_with

    held = " and ".join(name for name in HOLDING if os.environ.get(name))
    try:
        free, here = [measured_with({k: v for k, v in os.environ.items() if k not in out}) for out in (HOLDING, ())]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"what {held} cost is not known ({error})", ""
    as_it_is, freed = (f"{m['names']}, {m['product']:.0f} GFLOP/s, {m['exp']:.2f}e9 exp/s" for m in (here, free))
    slower = any(free[rate] > FASTER * here[rate] for rate in ("product", "exp"))
    if slower and here["arithmetic"] != free["arithmetic"]:
        return as_it_is, f"without {held} it has {freed}: unset, unless other machines of the run need it"
    return f"{as_it_is}; no slower than without {held}", ""


def seconds_of_import() -> tuple[float, bool]:
    """Returns the processor seconds in which a new process imports macmpi, and whether it had to compile sources.

    Raises OSError, SubprocessError.  Collective: no.  Cost: a second or two.
    """
    import_module(PROGRAM)  # writes compiled modules, so that the new process finds them as a rank does
    command = [sys.executable, "-v", "-c", f"import time, {PROGRAM}; print(time.process_time())"]
    ran = subprocess.run(command, capture_output=True, timeout=120.0, check=True)
    return float(ran.stdout), b"# code object from " + os.fsencode(PACKAGE) in ran.stderr


def start_up(hosts: Sequence[Machine]) -> Finding:
    """Finds the seconds in which one rank, and all ranks of the fullest host, import macmpi.  Collective: no."""
    try:
        each, compiles = seconds_of_import()
    except (OSError, subprocess.SubprocessError):
        return Finding("start-up", f"a process could not import {PROGRAM}", "is the installation whole?")
    host = max(hosts, key=lambda one: (one.ranks / max(one.cores, 1), one.ranks))
    took = each * -(-host.ranks // max(host.cores, 1))
    ranks = f"{many(host.ranks, 'rank')} on {many(host.cores, 'core')}"
    text = f"{each:.1f} s of a core a rank for imports, {took:.1f} s for {ranks}"
    if compiles:
        why = f"unset {UNWRITTEN}" if os.environ.get(UNWRITTEN) else "python -m compileall"
        return Finding("start-up", f"{text}; the sources are compiled each time", f"{why} ({PACKAGE})")
    return Finding("start-up", text, "fewer ranks on this machine, as many as it has cores" if took > LONG else "")


# --- HDF5, and the folder for runs ------------------------------------------------------------------------------------


def hdf5() -> Finding:
    """Writes and reads a sealed HDF5 file in memory, and finds out whether a flipped bit is noticed."""
    import h5py
    import numpy as np

    from macmpi.files import image, unsealed, verify

    content = image({"x": np.arange(1000.0)}, {}, sealed=True)
    with unsealed(io.BytesIO(content)) as file:
        same = bool((file["x"][()] == np.arange(1000.0)).all())
    flipped = content[:700] + bytes([content[700] ^ 1]) + content[701:]
    noticed = True
    with suppress(OSError):
        verify(io.BytesIO(flipped))
        noticed = False
    versions = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
    unsafe = "checkpoints would not be safe: pip install --force-reinstall h5py"
    return Finding("HDF5", versions, "" if same and noticed else unsafe, fault=True)


def folder(path: Path) -> list[Finding]:
    """Writes, renames, locks and reads files in a folder, or in the nearest folder above it that exists."""
    from macmpi.files import replace_file

    there = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    name = str(path) if there == path else f"{path} (not there yet; looked at {there})"
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=there) as place:
            began = time.perf_counter()
            replace_file(Path(place, "file"), b"x" * (1 << 20))
            seconds = time.perf_counter() - began
            others = [locks(Path(place, "file")), hdf5_file(Path(place, "file.h5"))]
    except OSError as error:
        return [Finding("folder", name, f"cannot be written ({error.strerror}): run with another --output", fault=True)]
    free = shutil.disk_usage(there).free
    space = f"{name}: {free / 1e9:,.1f} GB free, 1 MB to the disk in {1e3 * seconds:.0f} ms"
    return [Finding("folder", space), *others]


def locks(path: Path) -> Finding:
    """Finds whether a second lock of a file fails, as it must, and whether other nodes would see the first."""
    fails = "do nothing"
    with path.open("rb") as one, path.open("rb") as other:
        try:
            for file in (one, other):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: the second lock is refused
            fails = ""
        except OSError as error:
            fails = f"fail ({error.strerror})"
    if fails:
        remedy = "two runs in one folder may not notice each other: a folder of its own for each run (--output)"
        return Finding("locks", fails, remedy)
    if option := one_node_option(path):
        remedy = (
            "runs on two nodes in one folder may not notice each other: a folder of its own for each run (--output), "
            "or a file system mounted with locks that all nodes share (Lustre: flock)"
        )
        return Finding("locks", f"hold on one node alone (mounted with {option})", remedy)
    return Finding("locks", "work")


def hdf5_file(path: Path) -> Finding:
    """Writes an HDF5 file as macmpi does, reads it back, and opens it with HDF5's own lock."""
    import h5py
    import numpy as np

    from macmpi.files import first_line, image, opened, replace_file

    what = "HDF5 file"
    replace_file(path, image({"x": np.arange(1000.0)}, {}))
    try:
        with opened(path) as file:
            same = bool((file["x"][()] == np.arange(1000.0)).all())
            wrong = "" if same else "reads other numbers than were written"
    except OSError as error:
        wrong = first_line(error)
    if wrong:
        return Finding(what, wrong, "run with another --output, and keep the data elsewhere", fault=True)
    try:
        with h5py.File(path, "r+", locking=True):
            return Finding(what, "written and read, with locks and without")
    except OSError as error:
        others = "other programs that use HDF5 need export HDF5_USE_FILE_LOCKING=FALSE here; macmpi does not"
        return Finding(what, f"written and read; with a lock: {first_line(error)}", others)


def products(team: Team) -> list[Finding]:
    """Times matrix products while all ranks compute, and counts the cores that a product occupies.  Collective: yes."""
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
    rates = f"{slow:.0f} to {fast:.0f} GFLOP/s a rank (float64)" if team.size > 1 else f"{rate:.0f} GFLOP/s (float64)"
    uneven = "the slowest rank sets the pace: other programs on its cores?" if fast >= UNEVEN * slow else ""
    deaf = "BLAS does not heed OPENBLAS_NUM_THREADS=1" if cores >= THREADED else ""
    said = f"{cores:.1f} cores busy in a product of one rank"
    return [Finding("dgemm", rates, uneven), Finding("BLAS threads", said, deaf, fault=True)]


def exchange(team: Team) -> Finding:
    """Times Iallgatherv as the half steps use it, for a small and for a large array.  Collective: yes."""
    import numpy as np

    if team.size == 1:
        return Finding("Iallgatherv", "one rank: nothing to exchange (mpiexec -n N python -m macmpi.doctor)")
    small = np.ones((SMALL_ROWS * team.size, 1))
    large = np.ones((max(LARGE_BYTES // 8000 // team.size, 1) * team.size, 1000))
    latency, seconds = [_median(team, A) for A in (small, large)]
    bandwidth = large.nbytes / seconds
    text = f"{1e6 * latency:,.0f} microseconds, {bandwidth / 1e9:.2f} GB/s ({large.nbytes / 1e6:.0f} MB)"
    slow = latency > SLOW_LATENCY or bandwidth < SLOW_BANDWIDTH
    return Finding("Iallgatherv", text, "more ranks than cores, a busy machine, or a slow network" if slow else "")


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
    """Returns the median of the seconds of an exchange that all ranks begin together.  Collective: yes."""
    counts, taken = [len(array) // team.size] * team.size, []
    for _ in range(REPEATS):
        team.barrier("the exchange")
        began = time.perf_counter()
        team.gather_rows(array, counts)
        taken.append(team.max_over_ranks({"s": time.perf_counter() - began})["s"])
    return sorted(taken)[REPEATS // 2]


# --- the command ------------------------------------------------------------------------------------------------------


def examine(team: Team, argv: list[str]) -> int:
    """Prints all findings, and returns the exit code: 2 where one of them is a fault, otherwise 0.  Collective: yes."""
    output = team.from_root(lambda: parsed("doctor", argv).output)
    hosts = machines(team)
    findings = [library(team), ranks(hosts), shared_memory(hosts), kernel(team)]
    findings += team.from_root(lambda: [start_up(hosts), hdf5(), *folder(output)])
    findings += [*products(team), exchange(team), shared_arrays(team)]
    if team.rank == 0:
        say(f"macmpi {__version__}, Python {platform.python_version()}, {platform.platform()}")
        say("\n".join(map(str, findings)))
    return 2 if any(f.verdict == FAULT for f in findings) else 0


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
