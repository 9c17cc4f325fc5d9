"""`python -m macmpi.doctor`, alone or under mpiexec: is this installation, this machine, this folder fit for a run?"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from macmpi import MacmpiError, UsageError, __version__
from macmpi.mpich import leftovers
from macmpi.team import BINDINGS, AnyTeam, die, launch, local_ranks, speaks

FINE, WARNING, FAULT = "ok", "warning", "FAULT"

MPIS = ("mpich", "openmpi", "impi-rt")
SHARED_A_RANK = 5.4e6
"""Bytes of /dev/shm that MPICH's usual transport takes a rank; the one that macmpi asks for takes a fifth."""

SMALL_ROWS, LARGE_BYTES, REPEATS = 8, 1 << 25, 7
SLOW_LATENCY, SLOW_BANDWIDTH, UNEVEN, THREADED, FASTER = 2e-3, 2e8, 1.5, 1.5, 1.2
"""Beyond these (seconds; bytes a second; slowest rank to fastest; cores busy in a product; another kernel's rate to
the present one's) there is a warning."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's page, and what to do about it."""

    what: str
    found: str
    verdict: str = FINE
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.what:18} {self.verdict:8} {self.found}"
        return f"{line}\n{'':18} {'':8} -> {self.remedy}" if self.verdict != FINE else line


def library(team: AnyTeam) -> Finding:
    """The MPI that the ranks run under, or that they would."""
    installed = [f"{name} {_version(name)}" for name in MPIS if _version(name)]
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec") or "no mpiexec"
    found = f"{team.library if team.size > 1 else ', '.join(installed) or 'none'}; {launcher}"
    if len(installed) > 1:
        return Finding("MPI", found, WARNING, f"several MPIs in one environment ({', '.join(installed)}): keep one")
    if not _version(BINDINGS) or launcher == "no mpiexec":
        return Finding("MPI", found, WARNING, "one process works; for many ranks: pip install '.[mpich]'")
    return Finding("MPI", found)


def ranks(team: AnyTeam) -> Finding:
    """Ranks and cores of this host."""
    cores = len(os.sched_getaffinity(0))
    found = f"{team.size} rank{'s' if team.size > 1 else ''} on {platform.node()}, which has {cores} cores for them"
    if local_ranks(team) > cores:
        return Finding("ranks", found, WARNING, f"the same bits, no more speed: -n {cores}, or more cores")
    return Finding("ranks", found)


def shared_memory(team: AnyTeam) -> Finding:
    """Room in /dev/shm, and what killed programs have left there."""
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:
        return Finding("/dev/shm", "not there", WARNING, "MPI between processes of one node may need it: mount a tmpfs")
    free, left = disk.f_bavail * disk.f_frsize, leftovers()
    found = f"{free / 1e6:,.0f} MB free"
    if free < team.size * SHARED_A_RANK / 5.0:
        return Finding("/dev/shm", found, FAULT, "make it larger (containers: --shm-size=1g), or take fewer ranks")
    if left:
        return Finding(
            "/dev/shm", f"{found}, {len(left)} segments of dead programs", WARNING, f"rm {' '.join(left[:3])}"
        )
    if free < team.size * SHARED_A_RANK:
        remedy = (
            "too little for MPICH's usual transport: leave MPIR_CVAR_CH4_NETMOD unset, macmpi chooses one that fits"
        )
        return Finding("/dev/shm", found, FINE if "MPIR_CVAR_CH4_NETMOD" not in os.environ else WARNING, remedy)
    return Finding("/dev/shm", found)


def hdf5() -> Finding:
    """A file image with checksums, sealed, read back; a flipped byte noticed."""
    import io

    import h5py
    import numpy as np

    from macmpi.checkpoint import image, seal, unseal

    content = seal(image({"x": np.arange(1000.0)}, {}))
    with h5py.File(io.BytesIO(unseal(content)), "r") as file:
        same = bool((file["x"][()] == np.arange(1000.0)).all())
    flipped = content[:700] + bytes([content[700] ^ 1]) + content[701:]
    try:
        unseal(flipped)
        noticed = False
    except OSError:
        noticed = True
    found = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
    if not (same and noticed):
        return Finding("HDF5", found, FAULT, "checkpoints would not be safe: pip install --force-reinstall h5py")
    return Finding("HDF5", found)


def kernel() -> Finding:
    """The BLAS kernel, and whether a variable holds the machine to a slower one than it has."""
    from macmpi.kernels import HOLDING, free_and_held, libraries, words

    held = [name for name in HOLDING if os.environ.get(name)]
    if not held:
        return Finding("kernel", words(libraries()))
    try:
        free, here = free_and_held()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Finding("kernel", f"{words(libraries())}; what {' and '.join(held)} cost is not known ({error})")
    found, better = (f"{m['names']}, {m['product']:.0f} GFLOP/s, {m['exp']:.2f}e9 exp/s" for m in (here, free))
    slower = any(free[rate] > FASTER * here[rate] for rate in ("product", "exp"))
    if slower and here["arithmetic"] != free["arithmetic"]:
        remedy = f"without {' and '.join(held)} it has {better}: unset, unless other machines of the run need it"
        return Finding("kernel", found, WARNING, remedy)
    return Finding("kernel", f"{found}; no slower than without {' and '.join(held)}")


def folder(path: Path) -> Finding:
    """A file of this folder: written, renamed, locked twice."""
    from macmpi.checkpoint import replace_file

    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=path) as place:
            began = time.perf_counter()
            replace_file(Path(place, "file"), b"x" * (1 << 20))
            seconds = time.perf_counter() - began
            locks = _locks(Path(place, "file"))
    except OSError as error:
        return Finding("folder", str(path), FAULT, f"cannot be written ({error.strerror}): run with another --output")
    free = shutil.disk_usage(path).free
    found = f"{path}: {free / 1e9:,.1f} GB free, 1 MB to the disk in {1e3 * seconds:.0f} ms, locks {locks}"
    if locks != "work":
        remedy = "two runs in one folder of this file system would not notice each other"
        return Finding("folder", found, WARNING, remedy)
    return Finding("folder", found)


def _locks(path: Path) -> str:
    with path.open("rb") as one, path.open("rb") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return "work" if error.errno in (errno.EAGAIN, errno.EACCES) else f"fail ({error.strerror})"
    return "do nothing"


def products(team: AnyTeam) -> list[Finding]:
    """The rate of matrix products while all ranks compute, and the cores that one keeps busy.  Collective: yes."""
    import numpy as np

    n = 768
    A = np.ones((n, n))
    A @ A
    team.meet("the products")
    began, busy = time.perf_counter(), time.process_time()
    for _ in range(REPEATS):
        A @ A
    wall, cpu = time.perf_counter() - began, time.process_time() - busy
    rate = 2e-9 * n**3 * REPEATS / wall
    worst = team.worst({"slow": -rate, "fast": rate, "cores": cpu / wall})
    slow, fast, cores = -worst["slow"], worst["fast"], worst["cores"]
    found = f"{slow:.0f} to {fast:.0f} GFLOP/s a rank (float64)" if team.size > 1 else f"{rate:.0f} GFLOP/s (float64)"
    even = fast < UNEVEN * slow
    return [
        Finding("dgemm", found)
        if even
        else Finding("dgemm", found, WARNING, "the slowest rank sets the pace: other programs on its cores?"),
        Finding("BLAS threads", f"{cores:.1f} cores busy in a product of one rank")
        if cores < THREADED
        else Finding("BLAS threads", f"{cores:.1f} cores busy", FAULT, "BLAS does not heed OPENBLAS_NUM_THREADS=1"),
    ]


def exchange(team: AnyTeam) -> Finding:
    """Iallgatherv as the half steps use it, small and large.  Collective: yes."""
    import numpy as np

    if team.size == 1:
        return Finding("Iallgatherv", "one rank: nothing to exchange (mpiexec -n N python -m macmpi.doctor)")
    small = np.ones((SMALL_ROWS * team.size, 1))
    large = np.ones((max(LARGE_BYTES // 8000 // team.size, 1) * team.size, 1000))
    latency, seconds = (_median(team, A) for A in (small, large))
    bandwidth = large.nbytes / seconds
    found = f"{1e6 * latency:,.0f} microseconds, {bandwidth / 1e9:.2f} GB/s ({large.nbytes / 1e6:.0f} MB)"
    if latency > SLOW_LATENCY or bandwidth < SLOW_BANDWIDTH:
        return Finding("Iallgatherv", found, WARNING, "more ranks than cores, a busy machine, or a slow network")
    return Finding("Iallgatherv", found)


def shared_arrays(team: AnyTeam) -> Finding:
    """Whether the ranks of a node can have one copy of an array, as parallel.data = "node" asks.  Collective: yes."""
    import numpy as np

    what = "shared arrays"
    if team.size == 1:
        return Finding(what, "one rank: nothing to share")
    team.share_memory(0.0)
    rows = team.array((team.size, 1000), np.float64)
    rows[team.rank] = team.rank
    team.gather_rows(rows, [1] * team.size)
    lost = float((rows != np.arange(team.size)[:, None]).any())
    if team.worst({"lost": lost})["lost"]:
        return Finding(what, "rows of other ranks are missing", FAULT, 'keep parallel.data = "replicated"')
    if not team.shares:
        return Finding(what, "no room", WARNING, 'with parallel.data = "node" every rank would keep its own copy')
    return Finding(what, "one copy for the ranks of a node works")


def _median(team: AnyTeam, array: Any) -> float:
    """Seconds of an exchange that all ranks begin together.  Collective: yes."""
    counts, taken = [len(array) // team.size] * team.size, []
    for _ in range(REPEATS):
        team.meet("the exchange")
        began = time.perf_counter()
        team.gather_rows(array, counts)
        taken.append(team.worst({"s": time.perf_counter() - began})["s"])
    return sorted(taken)[REPEATS // 2]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m macmpi.doctor", description=__doc__, allow_abbrev=False)
    p.add_argument("--output", type=Path, default=Path(), metavar="DIR", help="the folder for runs (default: this one)")
    return p


def examine(team: AnyTeam, argv: list[str]) -> int:
    """All findings, printed; 0, or 2 where there is a fault.  Collective: yes."""

    def settle() -> Path:
        try:
            output: Path = parser().parse_args(argv).output
        except SystemExit as end:
            error = UsageError("")
            error.exit_code = int(end.code or 0)
            raise error from None
        return output

    output = team.from_root(settle)
    local: list[Callable[[], Finding]] = [
        *(lambda: library(team), lambda: ranks(team), lambda: shared_memory(team), hdf5, kernel, lambda: folder(output))
    ]
    found = team.from_root(lambda: [check() for check in local])
    found += [*products(team), exchange(team), shared_arrays(team)]
    if team.rank == 0:
        print(f"macmpi {__version__}, Python {platform.python_version()}, {platform.platform()}")
        print("\n".join(map(str, found)), flush=True)
    return 2 if any(f.verdict == FAULT for f in found) else 0


def main() -> None:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    try:
        team = launch()
    except MacmpiError as error:
        if speaks():
            print(Finding("MPI", "", FAULT, str(error)), file=sys.stderr)
        sys.exit(error.exit_code)
    try:
        code = examine(team, sys.argv[1:])
    except MacmpiError as error:
        if not error.agreed:
            die(team, error)
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - every rank must end, whatever happened in this one
        die(team, error)
    sys.exit(code)


if __name__ == "__main__":
    main()
