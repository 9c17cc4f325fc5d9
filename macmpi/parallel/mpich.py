"""MPICH leaves to its user: transport and algorithms on one node, and the end of its segments of shared memory."""

from __future__ import annotations

import glob
import os
import sys
from contextlib import suppress
from pathlib import Path

from macmpi.parallel.waiting import sharing

SEGMENTS = "/dev/shm/mpich_sh"
"""Their names begin so: ..m_ of the transport, ..ar_ of windows, which MPICH unlinks itself once they are mapped."""

NETMOD = "MPIR_CVAR_CH4_NETMOD"

FEW_ROUNDS = {
    "MPIR_CVAR_IBCAST_INTRA_ALGORITHM": "sched_binomial",
    "MPIR_CVAR_IALLGATHERV_INTRA_ALGORITHM": "sched_brucks",
}
"""Algorithms of log2 P rounds for messages of any size: those of MPICH's choice have P rounds for long ones."""


def configure() -> None:
    """Before MPI is loaded: on one node a transport that needs a fifth of the shared memory, and exchanges of few
    rounds where ranks share cores, since a rank that waits there sleeps between two rounds (waiting.py).

    All ranks must take the same algorithm; on one node they come to the same one.  Collective: no.
    """
    bundled = glob.glob(os.path.join(sys.prefix, "lib", "libmpi.so*"))
    one_node = os.environ.get("MPI_LOCALNRANKS") == os.environ.get("PMI_SIZE")
    if bundled and one_node and not {"MPI4PY_LIBMPI", NETMOD} & set(os.environ) and _has_loopback():
        for name in [name for name in os.environ if name.startswith("FI_")]:
            del os.environ[name]  # they choose links between nodes, perhaps ones that this libfabric does not know
        os.environ["FI_PROVIDER"] = "sockets"  # the others leave files in /dev/shm, or fail at the end of a run
        chosen = {NETMOD: "ofi"} | (FEW_ROUNDS if sharing() > 1.0 else {})
        for name, value in chosen.items():
            os.environ.setdefault(name, value)


def _has_loopback() -> bool:
    """Tells whether this machine reaches itself; if not, MPICH's own choice is left, which asks for no network."""
    import socket

    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", 9))
        return True
    return False


def misnamed(reason: str) -> str:
    """The remedy where the loader misses a library by another name than the chosen file has; "" elsewhere.

    mpi4py asks for the name that MPICH's ABI agreed on, libmpi.so.12; that of Debian is libmpich.so.12.
    Collective: no.
    """
    chosen, asked = os.environ.get("MPI4PY_LIBMPI", ""), reason.split(":")[0]
    if not os.path.isfile(chosen) or ".so" not in asked or os.path.basename(chosen) == asked:
        return ""
    return (
        f"mpi4py asks for {asked}, and MPI4PY_LIBMPI={chosen} has another name: link it by that name (mkdir ~/mpi; "
        f"ln -s {chosen} ~/mpi/{asked}), and set LD_LIBRARY_PATH=~/mpi and MPI4PY_LIBMPI=~/mpi/{asked}"
    )


def leftovers() -> list[str]:
    """Segments of MPICH that no process of this machine maps any more.  Collective: no."""
    used: set[str] = set()
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with suppress(OSError):
            used |= _segments(Path(maps))
    return sorted(set(glob.glob(f"{SEGMENTS}*")) - used)


def _segments(maps: Path) -> set[str]:
    """The segments that a process maps."""
    return {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if SEGMENTS in line}


def unname_shared_memory() -> None:
    """Unlink the segments that MPICH has mapped: they live as long as the ranks, however these end.  Collective: no."""
    with suppress(OSError):
        for path in _segments(Path("/proc/self/maps")):
            with suppress(OSError):
                os.unlink(path)
