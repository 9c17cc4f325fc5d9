"""Runs one after the other in one launch.

Argument: a JSON list of the folders in which they run, each with its command line behind it, as `macmpi.run` takes it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from macmpi import run
from macmpi.console import flush
from macmpi.parallel.mpi import die, launch

NEXT = "--- next run"

ONE_BY_ONE = Path(__file__)
"""The program."""

if __name__ == "__main__":
    team = launch()
    for folder, *words in json.loads(sys.argv[1]):
        os.chdir(folder)
        try:
            assert run.run(team, words) == 0, words
        except BaseException as error:  # noqa: BLE001 - all ranks must end
            die(team, error)
        if team.rank == 0:
            print(NEXT)
    flush()
