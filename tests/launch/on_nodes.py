"""macmpi.run on ranks that take themselves to be on several nodes, or on nodes without space for shared memory.

MACMPI_TEST_NODES: the node of each rank, "0,0,1"; MACMPI_TEST_FREE: how many bytes are free on each.
"""

from __future__ import annotations

import os

from macmpi import run
from macmpi.parallel import exchange

if nodes := os.environ.get("MACMPI_TEST_NODES"):
    colours = [int(node) for node in nodes.split(",")]
    exchange.ranks_of_node = lambda mpi, comm: comm.Split(colours[comm.rank], comm.rank)
if free := os.environ.get("MACMPI_TEST_FREE"):
    exchange.free_bytes = lambda: float(free)

run.main()
