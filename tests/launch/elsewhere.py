"""macmpi.run, the last rank in another working directory: MACMPI_TEST_ELSEWHERE, of which relative paths count."""

from __future__ import annotations

import os

from macmpi import run

RANKS = {"PMI_RANK": "PMI_SIZE", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE"}
rank, size = next((int(os.environ[a]), int(os.environ[b])) for a, b in RANKS.items() if a in os.environ)
if rank == size - 1:
    os.chdir(os.environ["MACMPI_TEST_ELSEWHERE"])
run.main()
