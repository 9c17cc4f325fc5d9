"""Runs of the program, one after the other in one launch: python -P same_bits_runs.py LIST.json.

For each case the list has command lines of `python -m macmpi.run`, a file for what they print, and one that says how
they ended.  Only that outward contract is used, so that the sources of any commit can be launched.  A run that ends all
ranks ends this program too.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
"""An mpiexec sets one of these to the number of a process."""


def run(words: list[str]) -> int:
    """The exit code of the program with these words."""
    sys.argv = ["macmpi.run", *words]
    sys.modules.pop("macmpi.run", None)
    try:
        runpy.run_module("macmpi.run", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def main() -> None:
    first = not any(int(os.environ.get(name, "0")) for name in RANKS)
    for job in json.loads(Path(sys.argv[1]).read_text()):
        with Path(job["printed"]).open("a") as out, redirect_stdout(out), redirect_stderr(out):
            codes = []
            for words in job["runs"]:
                codes.append(run(words))
                if codes[-1]:
                    break
        if first:
            ended = Path(job["ended"])
            partial = ended.with_suffix(".partial")
            partial.write_text(str(codes[-1]))
            partial.replace(ended)


if __name__ == "__main__":
    main()
