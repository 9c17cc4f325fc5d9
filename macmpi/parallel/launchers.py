"""The variables of a launcher tell each of its processes who it is, before there is an MPI to ask."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

MPIEXECS = (("PMI_SIZE", "PMI_RANK"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))
"""An mpiexec sets these: the number of processes that it started, and the number of this one among them."""

SRUN = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
"""srun sets these: its number of processes, and the number of this one."""

HERE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""An mpiexec sets one of these to the number of its processes on this machine."""

SOCKET = "PMI_FD"
"""MPICH's mpiexec and srun's PMI2 set this too: the open socket through which a process speaks to its launcher."""


def started(environment: Mapping[str, str]) -> tuple[int, int, str]:
    """Gives the number of processes of the innermost launcher, that of this one, and the variable that says so.

    (1, 0, "") without a launcher.  An mpiexec inside a task of srun inherits srun's variables, so its own count before
    them.  srun with PMI repeats its own values in the variables of MPICH's mpiexec: those count unless Open MPI's say
    that there is an mpiexec inside.  Of two mpiexecs the one with more processes counts, and if that is wrong the
    program says so instead of running several times.  Collective: no.
    """

    def told(size: str, rank: str) -> list[tuple[int, int, str]]:
        count, number = (environment.get(name, "") for name in (size, rank))
        return [(int(count), int(number) if number.isdecimal() else 0, size)] if count.isdecimal() else []

    step = told(*SRUN)
    found = [one for names in MPIEXECS for one in told(*names)]
    inside = [one for one in found if one[:2] not in [own[:2] for own in step]] or found or step
    return max(inside, default=(1, 0, ""))


def ranks_here(environment: Mapping[str, str]) -> int:
    """Gives the number of processes of this launch on this machine, as its launcher says it; else 1.

    Collective: no.
    """
    told = (environment.get(name, "") for name in HERE)
    return max((int(count) for count in told if count.isdecimal()), default=1)


def speaks() -> bool:
    """Tells whether this process is to say what all of its launch have met: the first of them does.

    So does any that may have no launch around it, but its variables alone, as of a shell that a launcher has started
    and left: only a process that holds its launcher's socket was started by it, and so was the first.  Collective: no.
    """
    return started(os.environ)[1] == 0 or not _connected(os.environ.get(SOCKET, ""))


def mpiexec() -> str | None:
    """The mpiexec of this Python's environment, or that of PATH; None where there is none.  Collective: no."""
    own = Path(sys.executable).with_name("mpiexec")
    return str(own) if own.exists() else shutil.which("mpiexec")


def _connected(text: str) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(int(text)).st_mode)
    except (OSError, ValueError, OverflowError):
        return False
