"""The cores and the memory of its machine that this process and the others of its job may use.

A container, a batch system or `taskset` allots less than the machine has: by the affinity of a process, by quotas of
its control group (cgroup) or of any above it, by a job's limit.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from macmpi.parallel.launchers import ancestors

GROUPS_OF_SELF = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
"""Linux names the control groups of a process in the first, and mounts all of them in the second: version 2 as one
tree, version 1 as one tree for each controller."""

PROXY = "hydra_pmi_proxy"
"""MPICH's mpiexec starts its ranks of a machine by a process of this name."""


class Memory(NamedTuple):
    """Bytes, and what sets them: "this machine has", or the limit's name and a verb."""

    bytes: float
    source: str


def cores() -> int:
    """Gives the cores that the processes of this launch on this machine may use together.

    mpiexec may bind each rank to a core of its own, so the affinity of what has started the ranks counts; without an
    mpiexec that is this process.  Collective: no.
    """
    of_launch = len(os.sched_getaffinity(_launcher()))
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


def _launcher() -> int:
    """The process that has started the ranks of this machine, or this one."""
    with suppress(OSError):
        for pid in ancestors():
            if Path(f"/proc/{pid}/comm").read_text().strip() == PROXY:
                return pid
    return 0


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
