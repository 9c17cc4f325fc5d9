"""Before MPI is loaded, a launcher's variables tell a process its number, and the system tells its cores and memory.

A container, a batch system or `taskset` may allow less than the machine has: by the affinity of a process, by quotas of
its control group (cgroup) or of any group above it, or by a job's limit.
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
"""An mpiexec sets these: the number of processes that it started, and this one's number among them."""

SRUN = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
"""srun sets these: the number of its processes, and this one's number."""

FLUX = ("FLUX_JOB_SIZE", "FLUX_TASK_RANK")
"""flux run sets these: the number of its processes, and this one's number."""

HERE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""An mpiexec sets one of these to the number of its processes on this machine."""

TASK = "SLURM_TASK_PID"
"""srun sets this too: the process that it has started, which may be a shell around this one."""

SOCKET = "PMI_FD"
"""MPICH's mpiexec and srun's PMI2 set this too: the open socket through which a process speaks to its launcher."""

OTHERS = r"SLURM|SRUN_|PBS_|LSB_|FLUX_|COBALT_|PE_HOSTFILE|PALS_|PMI|PRTE_|OMPI_|MPI_LOCAL"
"""Batch systems and launchers set variables whose names begin so."""

OWN = r"SLURM_CONF|OMPI_ALLOW_RUN_AS_ROOT|OMPI_PREFIX|\w+_MCA_"
"""The user or the site sets those of them whose names begin so."""

ITS_OWN_WORDS = re.compile(r"^(-{74}$|\[[\w.-]+:\d+\] |\[warn\] )", re.MULTILINE)
"""Lines that Open MPI's launcher prints itself, after the last lines of a rank that has ended, begin so."""

HERE_ALONE = {"HYDRA_LAUNCHER": "fork", "I_MPI_HYDRA_BOOTSTRAP": "fork"}
"""With these variables an mpiexec of MPICH, or of Intel MPI, starts its ranks as its own children."""


def of_its_own(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which an mpiexec starts ranks on this machine, whatever job this process is in.

    Otherwise mpiexec would ask the batch system for processes of the job, and wait forever if these are in use, as
    within srun; or its ranks would join the outer launch.  Collective: no.
    """
    kept = {name for name in environment if re.match(OWN, name) or not re.match(OTHERS, name)}
    return {name: environment[name] for name in kept} | HERE_ALONE


def started(environment: Mapping[str, str]) -> tuple[int, int, str]:
    """Returns how many processes the innermost launcher has started, this one's number, and the variable that says so.

    Without a launcher it returns (1, 0, "").  An mpiexec inside a task of srun or flux run inherits their variables, so
    its own count comes before theirs.  srun with PMI repeats its own values in the variables of MPICH's mpiexec: those
    count unless Open MPI's say that there is an mpiexec inside.  If there are two mpiexecs, the one with more processes
    counts; if this is wrong, the program ends with a message instead of running several times.  Collective: no.
    """

    def told(size: str, rank: str) -> list[tuple[int, int, str]]:
        count, number = (environment.get(name, "") for name in (size, rank))
        return [(int(count), int(number) if number.isdecimal() else 0, size)] if count.isdecimal() else []

    step = told(*SRUN) + told(*FLUX)
    found = [one for names in MPIEXECS for one in told(*names)]
    inside = [one for one in found if one[:2] not in [own[:2] for own in step]] or found or step
    return max(inside, default=(1, 0, ""))


def ranks_here(environment: Mapping[str, str]) -> int:
    """Returns the number of processes of this launch on this machine, if its launcher says it; else 1.

    Collective: no.
    """
    told = (environment.get(name, "") for name in HERE)
    return max((int(count) for count in told if count.isdecimal()), default=1)


def sharing() -> float:
    """Returns the number of ranks of this launch on this machine for each core that they may use.

    Two ranks may find different numbers, since the affinity of a launcher changes while it looks at the machine.  In a
    task of srun all cores of the machine count: it may be bound to its own cores, and not know the cores of other
    ranks.
    Collective: no.
    """
    return ranks_here(os.environ) / ((os.cpu_count() or 1) if in_task() else cores())


def speaks() -> bool:
    """Tells whether this process prints messages for all processes of its launch, as the first process does.

    A process that no launcher has started also prints, even if it has a launcher's variables, for instance from a shell
    that a launcher had started.  A launcher has started it if it holds the launcher's socket, if its parent is one, or
    if it is below the process that srun has started.  Collective: no.
    """
    launched = _is_socket(os.environ.get(SOCKET, "")) or _program(os.getppid()) in PROXIES or in_task()
    return started(os.environ)[1] == 0 or not launched


def in_task() -> bool:
    """Tells whether srun has started this process, or one above it, as a task of a step.  Collective: no."""
    number, _, name = started(os.environ)
    return number > 1 and name == SRUN[0] and any(str(pid) == os.environ.get(TASK) for pid in ancestors())


def alone(environment: Mapping[str, str]) -> str:
    """Writes why a process that was launched with others is alone in its MPI world, and the remedy.

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
    """Returns the id of the process that has started process `pid`; 0 if that cannot be known."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def ancestors() -> Iterator[int]:
    """Yields the ids of this process, of the one that has started it, and so on, as far as they can be known.

    Collective: no.
    """
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = parent_of(pid)


def mpiexec() -> str | None:
    """Finds the mpiexec of this Python's environment, or on PATH; None if there is none.  Collective: no."""
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
"""Linux names the control groups of a process in the first file, and mounts all of them in the second folder: version 2
as one tree, version 1 as one tree for each controller."""

PROXIES = ("hydra_pmi_proxy", "prterun", "prted")
"""Names of the processes by which an mpiexec starts its ranks of a machine: of MPICH, of Open MPI on its own machine,
and of Open MPI on another one."""


class Memory(NamedTuple):
    """Is a limit of memory in bytes, with a phrase that names its origin, such as "this machine has"."""

    bytes: float
    source: str


def cores() -> int:
    """Returns the number of cores that the processes of this launch on this machine may use together.

    mpiexec may bind each rank to a core of its own, so the affinity of the process that has started the ranks counts;
    without an mpiexec the affinity of this process counts.  Collective: no.
    """
    launcher = next((pid for pid in ancestors() if _program(pid) in PROXIES), 0)
    of_launch = len(os.sched_getaffinity(launcher))
    return max(1, min(of_launch, math.ceil(min(_quotas(), default=of_launch))))


def memory() -> Memory:
    """Returns the memory that the processes of this user's job may use together on this machine.  Collective: no."""
    found = [Memory(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), "this machine has")]
    for name in ("memory.max", "memory.limit_in_bytes"):
        limits = filter(str.isdecimal, _controls("memory", name))
        found += [Memory(float(limit), f"its control group ({name}) allows") for limit in limits]
    for_node, for_core = (os.environ.get(f"SLURM_MEM_PER_{what}", "") for what in ("NODE", "CPU"))
    cores_here = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if for_node.isdecimal() and int(for_node):  # 0 is all of the node
        found.append(Memory(int(for_node) * 2.0**20, "Slurm's --mem allows"))
    elif for_core.isdecimal() and int(for_core) and cores_here.isdecimal():
        found.append(Memory(int(for_core) * int(cores_here) * 2.0**20, "Slurm's --mem-per-cpu allows"))
    return min(found, key=lambda one: one.bytes)


def memory_of_a_process() -> float:
    """Returns the bytes that one process may map (`ulimit -v`).  Collective: no."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else float(limit)


def _program(pid: int) -> str:
    """Returns the name of the program that a process runs; "" if that cannot be known."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _quotas() -> Iterator[float]:
    """Yields the number of cores whose time each control group of this process allows."""
    for text in _controls("cpu", "cpu.max"):
        quota, period = text.split()
        if quota != "max":
            yield int(quota) / int(period)
    for quota, period in zip(_controls("cpu", "cpu.cfs_quota_us"), _controls("cpu", "cpu.cfs_period_us"), strict=False):
        if int(quota) > 0:
            yield int(quota) / int(period)


def _controls(controller: str, name: str) -> Iterator[str]:
    """Yields the contents of the files `name`, from this process's control group up to the root that it can see."""
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
