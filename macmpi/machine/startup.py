"""The doctor's look at starting: what it costs a rank to import the program, and what makes that more."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from macmpi import many
from macmpi.machine.findings import WARNING, Finding
from macmpi.machine.hosts import Machine

PROGRAM = "macmpi.training.launch"
"""A rank imports this module, and with it all that a run needs."""

UNWRITTEN = "PYTHONDONTWRITEBYTECODE"
"""The variable that forbids Python to keep what it has compiled."""

LONG = 30.0
"""Seconds of a start from which on there is a warning."""


def seconds_of_import() -> float:
    """Seconds of a core in which a new process imports the program.  Raises OSError, SubprocessError.  Collective: no.

    Cost: a second or two.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {PROGRAM}"], capture_output=True, timeout=120.0, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compiled() -> bool:
    """Tells whether the program lies there compiled, so that not every rank of every launch compiles it.

    Collective: no.
    """
    spec = find_spec(PROGRAM)
    if spec is None or spec.origin is None:
        return False
    return os.path.exists(cache_from_source(spec.origin))


def start_up(hosts: Sequence[Machine]) -> Finding:
    """Finds what the imports of a rank cost, and what those of all ranks of the fullest host take.  Collective: no."""
    try:
        each = seconds_of_import()
    except (OSError, subprocess.SubprocessError):
        return Finding("start-up", f"a process could not import {PROGRAM}", WARNING, "is the installation whole?")
    host = max(hosts, key=lambda one: (one.ranks / max(one.cores, 1), one.ranks))
    took = each * -(-host.ranks // max(host.cores, 1))
    ranks = f"{many(host.ranks, 'rank')}"
    text = f"{each:.1f} s of a core a rank for imports, {took:.1f} s for {ranks} on {many(host.cores, 'core')}"
    if not compiled():
        why = f"unset {UNWRITTEN}" if os.environ.get(UNWRITTEN) else "python -m compileall"
        where = Path(__file__).parent.parent
        return Finding("start-up", f"{text}; the sources are compiled each time", WARNING, f"{why} ({where})")
    if took > LONG:
        return Finding("start-up", text, WARNING, "fewer ranks on this machine, as many as it has cores")
    return Finding("start-up", text)
