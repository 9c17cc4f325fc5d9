"""Only this module knows MPI: here are MPITeam, the ranks of a launch, and settings that MPICH leaves to its user."""

from __future__ import annotations

import glob
import os
import pickle
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from macmpi import MacmpiError, UsageError
from macmpi.console import warn
from macmpi.parallel.clock import Waited, pauses
from macmpi.parallel.exchange import Exchange, Node, lengths, unpack
from macmpi.parallel.launchers import alone, ranks_here, sharing, started
from macmpi.parallel.team import T, Team

BINDINGS = "mpi4py"
"""The package through which MPI is reached."""

PATIENCE = 1800.0
"""Seconds that a rank waits for the others while the config is being read."""

PARTING = 5.0
"""Seconds that a rank waits for the others before it ends."""

STOPPED, INTERNAL = 75, 70
"""Exit codes: of a run that a signal, a limit of time or a deadline stopped, and that can go on; of unknown errors."""


def launch() -> Team:
    """Makes the team of this launch: one process without mpiexec, else all ranks of the world.  Collective: yes.

    Raises UsageError if mpi4py is missing, or if the launcher belongs to another MPI than mpi4py's.
    """
    count, _, name = started(os.environ)
    if count <= 1:
        return Team()
    told = f"{name} says that {count} processes were launched together"
    otherwise = f"if there was no such launch, unset {name}"
    configure()
    try:
        with warnings.catch_warnings(action="ignore"):  # mpi4py warns of the wrong launcher too; one message is enough
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        remedy = misnamed(reason) or "install one, in a clone of macmpi with: pip install '.[mpich]'"
        raise UsageError(f"{told}, but MPI cannot be loaded ({reason}); {remedy}; {otherwise}") from None
    if MPI.COMM_WORLD.size == 1:
        raise UsageError(f"{told}, but this one is alone in its MPI world: {alone(os.environ)}; {otherwise}")
    team = MPITeam(MPI.COMM_WORLD)
    team.barrier("the start")
    unname_shared_memory()
    return team


@contextmanager
def team_of(comm: Any = None) -> Iterator[Team]:
    """Makes a team of the ranks of a communicator of mpi4py; None: of the launch, as `launch` does.

    The team has a duplicate of the communicator, so that its messages are its own.  An error inside that
    not all ranks have met ends all of them, because the others would wait for ever.  Raises UsageError if `comm` is no
    communicator.  Collective: yes.
    """
    try:
        single, own = (False, None) if comm is None else (comm.Get_size() == 1, comm.Dup())
    except (AttributeError, RuntimeError):  # mpi4py's own is one, as of MPI.COMM_NULL
        raise UsageError(f"comm: a communicator of mpi4py is needed, not {type(comm).__name__}") from None
    team = launch() if own is None else Team() if single else MPITeam(own)
    try:
        yield team
    except BaseException as error:
        if team.size > 1 and not (isinstance(error, MacmpiError) and error.agreed):
            die(team, error)
        raise
    finally:
        if own is not None:
            own.Free()


class MPITeam(Team):
    """Is the team of the ranks of a communicator.  Collective: yes.

    An exchange starts once all ranks have come to it, so that waiting and exchange are timed separately.
    """

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._mpi, self._comm = MPI, comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.library = MPI.Get_library_version().splitlines()[0].strip("\x00 \t")
        self.set_deadline(PATIENCE)
        self._ranks = Exchange(comm, MPI, range(self.size), self._finish, self._exchange)
        self._node: Node | None = None
        self._pause = pauses(sharing())

    def set_deadline(self, seconds: float) -> None:
        """Sets the deadline as `Team` describes, a little earlier on rank 0, whose message is then printed.

        Collective: no.
        """
        self._deadline = seconds + (4.0 if self.rank else 0.0)

    def _finish(self, request: Any, phase: str) -> None:
        """Waits for a request of MPI: polls, and between two polls leaves the core to others.

        If that takes longer than the deadline, all ranks end with code 75.

        phase: words for what is waited for.
        """
        if request.Test():
            return
        seconds = Waited()
        while not request.Test():
            waited = seconds()
            self._pause(waited)
            if waited > self._deadline:
                warn(
                    f"rank {self.rank}/{self.size}: no answer from the other ranks for "
                    f"{self._deadline:g} s while waiting for {phase} (run.deadline)"
                )
                self.abort(STOPPED)

    def barrier(self, phase: str) -> None:
        self._finish(self._comm.Ibarrier(), phase)

    def depart(self) -> None:
        request, waited = self._comm.Ibarrier(), Waited()
        while not request.Test() and waited() < PARTING:
            time.sleep(0.001)

    def _exchange(self, start: Callable[[], Any], phase: str) -> None:
        with self.clock("wait"):
            self.barrier(phase)
        with self.clock("comm"):
            self._finish(start(), phase)

    def from_root(self, function: Callable[[], T]) -> T:
        value, failed = _tried(function) if self.rank == 0 else (None, None)
        value, failed = self._broadcast((value, failed and _told(failed)), 0)
        if failed:
            raise failed
        return value

    def all_or_raise(self, function: Callable[[], T]) -> T:
        value, failed = _tried(function)
        flags = bytearray(self.size)
        flags[self.rank] = failed is not None
        self._finish(self._comm.Iallgather(self._mpi.IN_PLACE, [flags, 1, self._mpi.BYTE]), "the other ranks")
        if failed is not None and 0 in flags and isinstance(failed.__context__, OSError):
            failed.args = (f"{failed} (rank {self.rank} on {platform.node()})",)
        if 1 in flags:
            raise self._broadcast(failed and _told(failed), flags.index(1))
        return value

    def _broadcast(self, value: Any, root: int) -> Any:
        """Gives every rank the value of `root`, pickled: it comes from a rank of this launch, never from a file."""
        message = bytearray(pickle.dumps(value))
        size = bytearray(len(message).to_bytes(8, "little"))
        self._finish(self._comm.Ibcast([size, self._mpi.BYTE], root=root), f"rank {root}")
        if self.rank != root:
            message = bytearray(int.from_bytes(size, "little"))
        self._finish(self._comm.Ibcast([message, self._mpi.BYTE], root=root), f"rank {root}")
        return pickle.loads(message)

    def share_memory(self, needed: float) -> None:
        self._node = Node(self, self._mpi, self._comm)
        self._node.reserve(needed)
        self.shares = not self._node.full

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        import numpy as np

        return self._node.array(shape, dtype) if self._node else np.zeros(shape, dtype)

    def common(self, array: Any) -> bool:
        return self._node is not None and len(self._node.nodes) == 1 and self._node.holds(array)

    def fence(self, array: Any) -> None:
        if self._node and self._node.holds(array):
            self._node.barrier("coordinates")

    def _meet(self, array: Any, phase: str, exchange: Callable[[Exchange], None]) -> None:
        """Calls `exchange` with the ranks that exchange an array.

        These are all ranks, or if the ranks of a node share the array, the first one of each node, once all have come.

        array: the array that is exchanged.
        phase: words for what is waited for.
        """
        if self._node and self._node.holds(array):
            self._node.meet(phase, exchange)
        else:
            exchange(self._ranks)

    def share_array(self, array: Any) -> None:
        self._meet(array, "rank 0's data", lambda ranks: ranks.share_array(array))

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None:
        if array.size:
            self._meet(array, "coordinates", lambda ranks: ranks.gather_rows(array, counts))

    def gather_parts(self, flat: Any, parts: Sequence[Sequence[slice]]) -> None:
        if any(any(lengths(own)) for own in parts):
            self._meet(flat, "weights", lambda ranks: ranks.gather_parts(flat, parts))

    def gather_columns(self, own: Any, counts: Sequence[int], columns: Sequence[slice]) -> Any:
        return self._ranks.gather_columns(own, counts, columns)

    def shift_to_next(self, flat: Any, parts: Mapping[int, Sequence[slice]] | Sequence[Sequence[slice]]) -> None:
        import numpy as np

        before, after = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        ours = np.concatenate([flat[:0], *(flat[part] for part in parts[self.rank])])
        theirs = np.empty(sum(lengths(parts[before])), flat.dtype)
        sent, received = ([A, len(A), self._ranks.row_type(flat.itemsize)] for A in (ours, theirs))

        def start() -> Any:
            receiving = self._comm.Irecv(received, before)
            self._finish(self._comm.Isend(sent, after), "the next rank")
            return receiving

        self._exchange(start, "submodels")
        unpack(flat, theirs, parts[before])

    def max_over_ranks(self, values: dict[str, float]) -> dict[str, float]:
        import numpy as np

        table = np.zeros((self.size, len(values)))
        table[self.rank] = list(values.values())
        row_type = self._ranks.row_type(table.itemsize * len(values))
        self._finish(self._comm.Iallgather(self._mpi.IN_PLACE, [table, 1, row_type]), "timings")
        return dict(zip(values, table.max(axis=0).tolist(), strict=True))

    def _end_others(self, code: int) -> None:
        time.sleep(0.2)  # the launcher forwards what was printed before it learns of the abort
        self._comm.Abort(code)


def _tried(function: Callable[[], Any]) -> tuple[Any, MacmpiError | None]:
    """Calls a function; returns its value and None, or None and the known error that it raises."""
    try:
        return function(), None
    except MacmpiError as error:
        return None, error


def _told(error: MacmpiError) -> MacmpiError:
    """Copies an error for all ranks, with its text and exit code, but without attributes of its own class."""
    told = next(kind for kind in type(error).__mro__ if kind.__module__ == "macmpi")(str(error))
    told.exit_code, told.agreed = error.exit_code, True
    return told


def die(team: Team, error: BaseException) -> NoReturn:
    """Ends all ranks because of an error of this one, after a message with the error.  Collective: no.

    A known error is printed without a traceback; if several ranks meet the same one, the first of them prints it.
    """
    known = isinstance(error, MacmpiError)
    try:
        if known:
            time.sleep(0.3 * min(team.rank, 4))
        text = f" ({error})" if known else f"\n{''.join(traceback.format_exception(error))}"
        warn(f"rank {team.rank}/{team.size} failed; all ranks end{text}")
    finally:
        team.abort(error.exit_code if isinstance(error, MacmpiError) else INTERNAL)


# --- MPICH ------------------------------------------------------------------------------------------------------------


SEGMENTS = "/dev/shm/mpich_sh"
"""The names of MPICH's segments begin so: ..m_ of the transport, ..ar_ of windows, which it unlinks once mapped."""

REMOVED = "/dev/shm/sm_segment"
"""The names of Open MPI's segments begin so; its launcher removes them, unless it is killed together with the ranks."""

NETMOD = "MPIR_CVAR_CH4_NETMOD"

FEW_ROUNDS = {
    "MPIR_CVAR_IBCAST_INTRA_ALGORITHM": "sched_binomial",
    "MPIR_CVAR_IALLGATHERV_INTRA_ALGORITHM": "sched_brucks",
}
"""Algorithms of log2 P rounds for messages of any size; those that MPICH would choose have P rounds for long ones."""


def configure() -> None:
    """Sets the environment variables that MPICH, Open MPI and UCX read when MPI is loaded.  Collective: no.

    On one node MPICH gets a transport that needs a fifth of the shared memory.  If ranks share cores it also gets
    exchanges of few rounds, since a rank that waits then sleeps between two rounds (clock.py).  All ranks must take the
    same algorithm, or they would wait for one another forever.  So the number of the machine's cores decides, which is
    the same for all ranks, and not the number that a rank may use.

    Open MPI is kept from loading a component that warns whenever ranks share memory, and is not needed for that.

    UCX, which both may load, is kept from SIGHUP.  UCX would use the signal for its own debugging, even under nohup,
    and give it back to the system while the process ends, where the signal kills a rank that has done its work.
    """
    if "PMIX_RANK" in os.environ:  # Open MPI's launchers set it, mpiexec as well as srun
        os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    os.environ.setdefault("UCX_DEBUG_SIGNO", "0")
    bundled = glob.glob(os.path.join(sys.prefix, "lib", "libmpi.so*"))
    one_node = os.environ.get("MPI_LOCALNRANKS") == os.environ.get("PMI_SIZE")
    if bundled and one_node and not {"MPI4PY_LIBMPI", NETMOD} & set(os.environ) and _has_loopback():
        for name in [name for name in os.environ if name.startswith("FI_")]:
            del os.environ[name]  # they choose links between nodes, perhaps ones that this libfabric does not know
        os.environ["FI_PROVIDER"] = "sockets"  # the others leave files in /dev/shm, or fail at the end of a run
        chosen = {NETMOD: "ofi"} | (FEW_ROUNDS if ranks_here(os.environ) > (os.cpu_count() or 1) else {})
        for name, value in chosen.items():
            os.environ.setdefault(name, value)


def _has_loopback() -> bool:
    """Tells whether this machine reaches itself over its network, which MPICH's own transport does not need."""
    import socket

    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", 9))
        return True
    return False


def misnamed(reason: str) -> str:
    """Writes a remedy if the loader misses a library under another name than the chosen file has; "" otherwise.

    mpi4py asks for the name of MPICH's common ABI, libmpi.so.12; Debian's file is called libmpich.so.12.

    reason: the loader's message.  Collective: no.
    """
    chosen, asked = os.environ.get("MPI4PY_LIBMPI", ""), reason.split(":")[0]
    if not os.path.isfile(chosen) or ".so" not in asked or os.path.basename(chosen) == asked:
        return ""
    return (
        f"mpi4py asks for {asked}, and MPI4PY_LIBMPI={chosen} has another name: link it by that name (mkdir ~/mpi; "
        f"ln -s {chosen} ~/mpi/{asked}), and set LD_LIBRARY_PATH=~/mpi and MPI4PY_LIBMPI=~/mpi/{asked}"
    )


def leftovers() -> list[str]:
    """Lists segments of MPICH and of Open MPI that no process of this machine maps any more.  Collective: no."""
    used: set[str] = set()
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with suppress(OSError):
            used |= _segments(Path(maps), SEGMENTS) | _segments(Path(maps), REMOVED)
    return sorted({*glob.glob(f"{SEGMENTS}*"), *glob.glob(f"{REMOVED}*")} - used)


def _segments(maps: Path, names: str) -> set[str]:
    """Returns the shared segments that a process maps and whose names begin with `names`.  maps: its file in /proc."""
    return {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if names in line}


def unname_shared_memory() -> None:
    """Unlinks the segments that MPICH has mapped, which then live only as long as the ranks.  Collective: no."""
    with suppress(OSError):
        for path in _segments(Path("/proc/self/maps"), SEGMENTS):
            with suppress(OSError):
                os.unlink(path)
