"""The machines of a launch, as the doctor sees them: ranks, cores, shared memory, kernels, the cost of a start."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from macmpi import many
from macmpi.parallel.exchange import PLACE, RESERVE, free_bytes
from macmpi.parallel.mpi import NETMOD, leftovers
from macmpi.parallel.team import Team, texts

FINE, WARNING, FAULT = "ok", "warning", "FAULT"

FASTER = 1.2
"""The ratio of another kernel's rate to the present one's above which there is a warning."""

PROGRAM = "macmpi.training.launch"
"""A rank imports this module, and with it all that a run needs."""

PACKAGE = Path(__file__).parent.parent
"""The folder of the program."""

UNWRITTEN = "PYTHONDONTWRITEBYTECODE"
"""The variable that forbids Python to keep what it has compiled."""

LONG = 30.0
"""Seconds of a start from which on there is a warning."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's page, and what to do about it; "" where all is well.  fault: no run can be begun."""

    what: str
    found: str
    remedy: str = ""
    fault: bool = False

    @property
    def verdict(self) -> str:
        return FINE if not self.remedy else FAULT if self.fault else WARNING

    def __str__(self) -> str:
        line = f"{self.what:18} {self.verdict:8} {self.found}"
        return f"{line}\n{'':18} {'':8} -> {self.remedy}" if self.verdict != FINE else line


@dataclass(frozen=True)
class Machine:
    """One host: its ranks, the cores that they may use, free bytes of /dev/shm (None without one), dead segments."""

    host: str
    ranks: int
    cores: int
    free: float | None
    left: Sequence[str] = ()


def version_of(package: str) -> str:
    """The version of an installed package, "" where there is none.  Collective: no."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def machines(team: Team) -> list[Machine]:
    """All hosts of this launch, rank 0's first.  Collective: yes."""
    hosts = texts(team, platform.node())
    first = hosts.index(platform.node()) == team.rank
    free = free_bytes() if os.path.isdir(PLACE) else None
    own = [sorted(os.sched_getaffinity(0)), free, leftovers() if first else []]
    said = [json.loads(text) for text in texts(team, json.dumps(own))]
    found = []
    for host in dict.fromkeys(hosts):
        of_host = [facts for facts, other in zip(said, hosts, strict=True) if other == host]
        cores = len(set().union(*(facts[0] for facts in of_host)))
        found.append(Machine(host, len(of_host), cores, *of_host[0][1:]))
    return found


def ranks(found: Sequence[Machine]) -> Finding:
    """Ranks and cores of the hosts."""
    total = sum(m.ranks for m in found)
    text = f"{many(total, 'rank')} on {found[0].host}, which has {many(found[0].cores, 'core')} for them"
    if len(found) > 1:
        each = ", ".join(f"{m.host} ({m.ranks} on {many(m.cores, 'core')})" for m in found[:8])
        text = f"{total} ranks on {len(found)} hosts: {each}{', ...' if len(found) > 8 else ''}"
    crowded = (m for m in found if m.ranks > m.cores)
    fewer = (f"the same bits, no more speed: at most {m.cores} ranks on {m.host}, or more cores" for m in crowded)
    return Finding("ranks", text, next(fewer, ""))


def shared_memory(found: Sequence[Machine]) -> Finding:
    """The space in /dev/shm for the ranks of each host, and what killed programs have left there."""
    if bare := next((m for m in found if m.free is None), None):
        remedy = "MPI between processes of one node may need it: mount a tmpfs"
        return Finding(PLACE, f"not there{_on(bare, found)}", remedy)
    tight = min(found, key=lambda m: (m.free or 0.0) / m.ranks)
    free = tight.free or 0.0
    text = f"{free / 1e6:,.0f} MB free for {many(tight.ranks, 'rank')}{_on(tight, found)}"
    if free < tight.ranks * RESERVE / 5.0:
        return Finding(PLACE, text, "make it larger (containers: --shm-size=1g), or take fewer ranks", fault=True)
    if dirty := [m for m in found if m.left]:
        counts = (f"{len(m.left)} segments of dead programs{_on(m, found)}" for m in dirty)
        remedy = "; ".join(f"rm {' '.join(m.left)}{_on(m, found)}" for m in dirty)
        return Finding(PLACE, ", ".join([text, *counts]), remedy)
    usual = NETMOD in os.environ and free < tight.ranks * RESERVE
    unset = f"too little for MPICH's usual transport: leave {NETMOD} unset, macmpi chooses one that fits"
    return Finding(PLACE, text, unset if usual else "")


def _on(machine: Machine, found: Sequence[Machine]) -> str:
    return f" on {machine.host}" if len(found) > 1 else ""


def kernel(team: Team) -> Finding:
    """The BLAS kernels: whether ranks round alike, and whether a variable makes one slower.  Collective: yes."""
    from macmpi.parallel.kernels import HOLDING, arithmetics, described, unlike

    found = arithmetics(team)
    own = [f"{name}={os.environ[name]}" for name in HOLDING if os.environ.get(name)]
    held = texts(team, " ".join(own))
    measures = bool(own) and held.index(held[team.rank]) == team.rank  # one rank for all with its variables
    costs = [json.loads(text) for text in texts(team, json.dumps(_cost() if measures else ["", ""]))]
    cost, remedies = (
        [f"rank {rank}: {pair[i]}" if team.size > 1 else pair[i] for rank, pair in enumerate(costs) if pair[i]]
        for i in (0, 1)
    )
    if unlike(found):
        remedies.insert(0, f"for bits that any machine repeats give all ranks one {' and '.join(HOLDING)}")
    text = "; ".join([described(found), *cost])
    return Finding("kernel", text, "; ".join(remedies))


def _cost() -> tuple[str, str]:
    """Measures with and without the variables that hold a process to a kernel; result, remedy.  Collective: no."""
    from macmpi.parallel.kernels import HOLDING, free_and_held

    held = " and ".join(name for name in HOLDING if os.environ.get(name))
    try:
        free, here = free_and_held()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"what {held} cost is not known ({error})", ""
    found, better = (f"{m['names']}, {m['product']:.0f} GFLOP/s, {m['exp']:.2f}e9 exp/s" for m in (here, free))
    slower = any(free[rate] > FASTER * here[rate] for rate in ("product", "exp"))
    if slower and here["arithmetic"] != free["arithmetic"]:
        return found, f"without {held} it has {better}: unset, unless other machines of the run need it"
    return f"{found}; no slower than without {held}", ""


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
        return Finding("start-up", f"a process could not import {PROGRAM}", "is the installation whole?")
    host = max(hosts, key=lambda one: (one.ranks / max(one.cores, 1), one.ranks))
    took = each * -(-host.ranks // max(host.cores, 1))
    ranks = f"{many(host.ranks, 'rank')} on {many(host.cores, 'core')}"
    text = f"{each:.1f} s of a core a rank for imports, {took:.1f} s for {ranks}"
    if compiles:
        why = f"unset {UNWRITTEN}" if os.environ.get(UNWRITTEN) else "python -m compileall"
        return Finding("start-up", f"{text}; the sources are compiled each time", f"{why} ({PACKAGE})")
    return Finding("start-up", text, "fewer ranks on this machine, as many as it has cores" if took > LONG else "")
