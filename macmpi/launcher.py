"""What the launcher says of this process, by its environment."""

from __future__ import annotations

import os

SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""What the launchers set: the number of processes that they started together."""

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""The same for the number of a process among them."""


def started() -> int:
    """How many processes were started together.  Collective: no."""
    return max([int(os.environ[v]) for v in SIZE_VARIABLES if os.environ.get(v, "").isdigit()], default=1)


def speaks() -> bool:
    """This process is the first of its launch.  Collective: no."""
    return all(os.environ.get(name, "0") == "0" for name in RANK_VARIABLES)
