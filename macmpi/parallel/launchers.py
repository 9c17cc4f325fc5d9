"""Tells a process of its launch before there is an MPI to ask: who it is, and which cores and memory it may use.

The variables of a launcher tell each of its processes who it is.  A container, a batch system or `taskset` allots less
than the machine has: by the affinity of a process, by quotas of its control group (cgroup) or of any above it, by a
job's limit.
"""

from __future__ import annotations

import math
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MPIEXECS = (("PMI_SIZE", "PMI_RANK"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))
"""An mpiexec sets these: the number of processes that it started, and the number of this one among them."""

SRUN = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
"""srun sets these: its number of processes, and the number of this one."""

FLUX = ("FLUX_JOB_SIZE", "FLUX_TASK_RANK")
"""flux run sets these."""

HERE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""An mpiexec sets one of these to the number of its processes on this machine."""

TASK = "SLURM_TASK_PID"
"""srun sets this too: the process that it has started, which may be a shell around this one."""

SOCKET = "PMI_FD"
"""MPICH's mpiexec and srun's PMI2 set this too: the open socket through which a process speaks to its launcher."""

OTHERS = r"SLURM|SRUN_|PBS_|LSB_|FLUX_|COBALT_|PE_HOSTFILE|PALS_|PMI|PRTE_|OMPI_|MPI_LOCAL"
"""A batch system, and the launcher of the ranks of some job, set variables that begin so."""

OWN = r"SLURM_CONF|OMPI_ALLOW_RUN_AS_ROOT|OMPI_PREFIX|\w+_MCA_"
"""The user or the site says those of them that begin so."""

ITS_OWN_WORDS = re.compile(r"^(-{74}$|\[[\w.-]+:\d+\] |\[warn\] )", re.MULTILINE)
"""Open MPI's launcher begins lines of its own so, behind the last words of a rank that has ended."""

HERE_ALONE = {"HYDRA_LAUNCHER": "fork", "I_MPI_HYDRA_BOOTSTRAP": "fork"}
"""With these an mpiexec of MPICH, and of Intel MPI, starts its ranks as its own children."""


def of_its_own(environment: Mapping[str, str]) -> dict[str, str]:
    """Gives the environment in which an mpiexec starts ranks on this machine, in whatever job this process is.

    Else it asks the batch system for processes of the job, and waits for ever where these are in use, as within srun;
    or its ranks join the launch around them.  Collective: no.
    """
    kept = {name for name in environment if re.match(OWN, name) or not re.match(OTHERS, name)}
    return {name: environment[name] for name in kept} | HERE_ALONE


def started(environment: Mapping[str, str]) -> tuple[int, int, str]:
    """Gives the number of processes of the innermost launcher, that of this one, and the variable that says so.

    (1, 0, "") without a launcher.  An mpiexec inside a task of srun or flux run inherits their variables, so its
    own count comes before them.  srun with PMI repeats its own values in the variables of MPICH's mpiexec: those
    count unless Open MPI's say that there is an mpiexec inside.  Of two mpiexecs the one with more processes
    counts, and if that is wrong the program says so instead of running several times.  Collective: no.
    """

    def told(size: str, rank: str) -> list[tuple[int, int, str]]:
        count, number = (environment.get(name, "") for name in (size, rank))
        return [(int(count), int(number) if number.isdecimal() else 0, size)] if count.isdecimal() else []

    step = told(*SRUN) + told(*FLUX)
    found = [one for names in MPIEXECS for one in told(*names)]
    inside = [one for one in found if one[:2] not in [own[:2] for own in step]] or found or step
    return max(inside, default=(1, 0, ""))


def ranks_here(environment: Mapping[str, str]) -> int:
    """Gives the number of processes of this launch on this machine, as its launcher says it; else 1.

    Collective: no.
    """
    told = (environment.get(name, "") for name in HERE)
    return max((int(count) for count in told if count.isdecimal()), default=1)


def sharing() -> float:
    """Ranks of this launch on this machine for each core that they may use.

    A rank may find another number than its neighbour: the affinity of a launcher changes while it looks at the machine.
    A task of srun may be bound to cores of its own, and then does not know those of the others.  Collective: no.
    """
    return ranks_here(os.environ) / ((os.cpu_count() or 1) if in_task() else cores())


def speaks() -> bool:
    """Tells whether this process is to say what all of its launch have met: the first of them does.

    So does any that may have no launch around it, but its variables alone, as of a shell that a launcher has started
    and left: only a process that holds its launcher's socket, or whose parent is one, or that is below the one that
    srun has started, was started by it, and so was the first.  Collective: no.
    """
    launched = _is_socket(os.environ.get(SOCKET, "")) or _program(os.getppid()) in PROXIES or in_task()
    return started(os.environ)[1] == 0 or not launched


def in_task() -> bool:
    """Tells whether srun has started this process, or one above it, as a task of a step.  Collective: no."""
    number, _, name = started(os.environ)
    return number > 1 and name == SRUN[0] and any(str(pid) == os.environ.get(TASK) for pid in ancestors())


def alone(environment: Mapping[str, str]) -> str:
    """Says why a process that was launched with others is alone in its MPI world, and what helps.

    environment: the variables of the process.  Collective: no.
    """
    name = started(environment)[2]
    if name == SRUN[0] and not environment.get(SOCKET):
        kind = environment.get("SLURM_MPI_TYPE") or "none"
        if kind == "pmi2":
            remedy = "mpi4py's MPI does not speak it: take another of those that srun --mpi=list names"
        else:
            remedy = "start them by srun --mpi=pmi2, or set SLURM_MPI_TYPE=pmi2 (for Open MPI pmix; srun --mpi=list)"
        return f"srun --mpi={kind} does not connect them; {remedy}"
    if name == FLUX[0]:
        return "flux run does not connect them; start them by flux run -o pmi=simple (for Open MPI -o pmi=pmix)"
    return (
        "mpiexec belongs to another MPI than mpi4py's; use the mpiexec of this Python's environment, or set "
        "MPI4PY_LIBMPI to the launcher's library"
    )


def parent_of(pid: int) -> int:
    """The id of the process that has started another one; 0 where that cannot be known."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def ancestors() -> Iterator[int]:
    """This process, the one that has started it, and so on, as far as that can be known.  Collective: no."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = parent_of(pid)


def mpiexec() -> str | None:
    """The mpiexec of this Python's environment, or that of PATH; None where there is none.  Collective: no."""
    import shutil

    own = Path(sys.executable).with_name("mpiexec")
    return str(own) if os.path.exists(own) else shutil.which("mpiexec")


def _is_socket(text: str) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(int(text)).st_mode)
    except (OSError, ValueError, OverflowError):
        return False


# --- cores and memory -------------------------------------------------------------------------------------------------


GROUPS_OF_SELF = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
"""Linux names the control groups of a process in the first, and mounts all of them in the second: version 2 as one
tree, version 1 as one tree for each controller."""

PROXIES = ("hydra_pmi_proxy", "prterun", "prted")
"""Names of the processes by which an mpiexec starts its ranks of a machine: of MPICH, of Open MPI on its own machine,
and of Open MPI on another one."""


class Memory(NamedTuple):
    """Bytes, and what sets them: "this machine has", or the limit's name and a verb."""

    bytes: float
    source: str


def cores() -> int:
    """Gives the number of cores that the processes of this launch on this machine may use together.

    mpiexec may bind each rank to a core of its own, so the affinity of what has started the ranks counts; without an
    mpiexec that is this process.  Collective: no.
    """
    launcher = next((pid for pid in ancestors() if _program(pid) in PROXIES), 0)
    of_launch = len(os.sched_getaffinity(launcher))
    return max(1, min(of_launch, math.ceil(min(_quotas(), default=of_launch))))


def memory() -> Memory:
    """Gives the memory that the processes of this user's job may use together on this machine.  Collective: no."""
    found = [Memory(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), "this machine has")]
    for name in ("memory.max", "memory.limit_in_bytes"):
        for text in _controls("memory", name):
            if text.isdecimal():
                found.append(Memory(float(text), f"its control group ({name}) allows"))
    for_node, for_core = (os.environ.get(f"SLURM_MEM_PER_{what}", "") for what in ("NODE", "CPU"))
    cores_here = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if for_node.isdecimal() and int(for_node):  # 0 is all of the node
        found.append(Memory(int(for_node) * 2.0**20, "Slurm's --mem allows"))
    elif for_core.isdecimal() and int(for_core) and cores_here.isdecimal():
        found.append(Memory(int(for_core) * int(cores_here) * 2.0**20, "Slurm's --mem-per-cpu allows"))
    return min(found, key=lambda one: one.bytes)


def memory_of_a_process() -> float:
    """Gives the bytes that one process may map (`ulimit -v`).  Collective: no."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else float(limit)


def _program(pid: int) -> str:
    """The name of what a process runs; "" where that cannot be known."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _quotas() -> Iterator[float]:
    """Cores' worth of time that the control groups of this process allow."""
    for text in _controls("cpu", "cpu.max"):
        quota, period = text.split()
        if quota != "max":
            yield int(quota) / int(period)
    for quota, period in zip(_controls("cpu", "cpu.cfs_quota_us"), _controls("cpu", "cpu.cfs_period_us"), strict=False):
        if int(quota) > 0:
            yield int(quota) / int(period)


def _controls(controller: str, name: str) -> Iterator[str]:
    """Gives what the files of that name say, from this process's control group up to the root that it can see."""
    with suppress(OSError):
        for line in GROUPS_OF_SELF.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            top = CGROUPS / controllers
            group = top / path.strip("/")
            for place in (group, *group.parents):
                with suppress(OSError):
                    yield (place / name).read_text().strip()
                if place == top:
                    break
