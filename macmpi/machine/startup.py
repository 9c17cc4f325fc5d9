"""The doctor's look at starting: what it costs a rank to import the program, and what makes that more."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from macmpi import many
from macmpi.machine.findings import WARNING, Finding
from macmpi.machine.hosts import Machine

PROGRAM = "macmpi.training.launch"
"""A rank imports this module, and with it all that a run needs."""

PACKAGE = Path(__file__).parent.parent
"""The folder of the program."""

UNWRITTEN = "PYTHONDONTWRITEBYTECODE"
"""The variable that forbids Python to keep what it has compiled."""

LONG = 30.0
"""Seconds of a start from which on there is a warning."""


def seconds_of_import() -> tuple[float, bool]:
    """Gives the seconds of a core in which a process imports the program, and whether it compiles sources for that.

    Raises OSError, SubprocessError.  Collective: no.  Cost: a second or two.
    """
    import_module(PROGRAM)  # keeps what can be kept, so that the process starts as a rank of the next launch does
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-v", "-c", f"import {PROGRAM}"]
    told = subprocess.run(command, capture_output=True, timeout=120.0, check=True).stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, b"# code object from " + os.fsencode(PACKAGE) in told


def start_up(hosts: Sequence[Machine]) -> Finding:
    """Finds what the imports of a rank cost, and what those of all ranks of the fullest host take.  Collective: no."""
    try:
        each, compiles = seconds_of_import()
    except (OSError, subprocess.SubprocessError):
        return Finding("start-up", f"a process could not import {PROGRAM}", WARNING, "is the installation whole?")
    host = max(hosts, key=lambda one: (one.ranks / max(one.cores, 1), one.ranks))
    took = each * -(-host.ranks // max(host.cores, 1))
    ranks = f"{many(host.ranks, 'rank')}"
    text = f"{each:.1f} s of a core a rank for imports, {took:.1f} s for {ranks} on {many(host.cores, 'core')}"
    if compiles:
        why = f"unset {UNWRITTEN}" if os.environ.get(UNWRITTEN) else "python -m compileall"
        return Finding("start-up", f"{text}; the sources are compiled each time", WARNING, f"{why} ({PACKAGE})")
    if took > LONG:
        return Finding("start-up", text, WARNING, "fewer ranks on this machine, as many as it has cores")
    return Finding("start-up", text)
