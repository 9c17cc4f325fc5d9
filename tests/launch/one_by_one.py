"""Runs one after the other in one launch.  Argument: a JSON list of their command lines, as `macmpi.run` takes them."""

from __future__ import annotations

import json
import sys

from macmpi import run
from macmpi.console import flush
from macmpi.parallel.mpi import die, launch

NEXT = "--- next run"

if __name__ == "__main__":
    team = launch()
    for words in json.loads(sys.argv[1]):
        try:
            assert run.run(team, words) == 0, words
        except BaseException as error:  # noqa: BLE001 - all ranks must end
            die(team, error)
        if team.rank == 0:
            print(NEXT)
    flush()
