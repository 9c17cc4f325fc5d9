"""The machines of a launch, as the doctor sees them: their ranks, cores and shared memory."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from macmpi.machine.findings import FAULT, FINE, WARNING, Finding
from macmpi.parallel.mpich import leftovers
from macmpi.parallel.team import Team

FASTER = 1.2
"""The ratio of another kernel's rate to the present one's above which there is a warning."""

SHARED_A_RANK = 5.4e6
"""Bytes of /dev/shm that MPICH's usual transport takes a rank; the one that macmpi asks for takes a fifth."""


@dataclass(frozen=True)
class Machine:
    """One host: its ranks, the cores that they may use, free bytes of /dev/shm (None without one), dead segments."""

    host: str
    ranks: int
    cores: int
    free: float | None
    left: Sequence[str] = ()


def machines(team: Team) -> list[Machine]:
    """All hosts of this launch, rank 0's first.  Collective: yes."""
    hosts = _texts(team, platform.node())
    first = hosts.index(platform.node()) == team.rank
    own = [sorted(os.sched_getaffinity(0)), _free(), leftovers() if first else []]
    said = [json.loads(text) for text in _texts(team, json.dumps(own))]
    found = []
    for host in dict.fromkeys(hosts):
        of_host = [facts for facts, other in zip(said, hosts, strict=True) if other == host]
        cores = len(set().union(*(facts[0] for facts in of_host)))
        found.append(Machine(host, len(of_host), cores, *of_host[0][1:]))
    return found


def ranks(found: Sequence[Machine]) -> Finding:
    """Ranks and cores of the hosts."""
    total = sum(m.ranks for m in found)
    text = f"{total} rank{'s' if total > 1 else ''} on {found[0].host}, which has {found[0].cores} cores for them"
    if len(found) > 1:
        each = ", ".join(f"{m.host} ({m.ranks} on {m.cores} cores)" for m in found[:8])
        text = f"{total} ranks on {len(found)} hosts: {each}{', ...' if len(found) > 8 else ''}"
    crowded = next((m for m in found if m.ranks > m.cores), None)
    if crowded:
        remedy = f"the same bits, no more speed: at most {crowded.cores} ranks on {crowded.host}, or more cores"
        return Finding("ranks", text, WARNING, remedy)
    return Finding("ranks", text)


def shared_memory(found: Sequence[Machine]) -> Finding:
    """The space in /dev/shm for the ranks of each host, and what killed programs have left there."""
    what = "/dev/shm"
    bare = next((m for m in found if m.free is None), None)
    if bare:
        remedy = "MPI between processes of one node may need it: mount a tmpfs"
        return Finding(what, f"not there{_on(bare, found)}", WARNING, remedy)
    tight = min(found, key=lambda m: (m.free or 0.0) / m.ranks)
    free = tight.free or 0.0
    text = f"{free / 1e6:,.0f} MB free for {tight.ranks} rank{'s' if tight.ranks > 1 else ''}{_on(tight, found)}"
    if free < tight.ranks * SHARED_A_RANK / 5.0:
        return Finding(what, text, FAULT, "make it larger (containers: --shm-size=1g), or take fewer ranks")
    dirty = next((m for m in found if m.left), None)
    if dirty:
        remedy = f"rm {' '.join(dirty.left[:3])}"
        return Finding(what, f"{text}, {len(dirty.left)} segments of dead programs{_on(dirty, found)}", WARNING, remedy)
    if free < tight.ranks * SHARED_A_RANK:
        remedy = (
            "too little for MPICH's usual transport: leave MPIR_CVAR_CH4_NETMOD unset, macmpi chooses one that fits"
        )
        return Finding(what, text, FINE if "MPIR_CVAR_CH4_NETMOD" not in os.environ else WARNING, remedy)
    return Finding(what, text)


def _on(machine: Machine, found: Sequence[Machine]) -> str:
    return f" on {machine.host}" if len(found) > 1 else ""


def _free() -> float | None:
    """Free bytes of /dev/shm."""
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:
        return None
    return float(disk.f_bavail * disk.f_frsize)


def _texts(team: Team, text: str) -> list[str]:
    """The texts of all ranks.  Collective: yes."""
    import numpy as np

    own = text.encode()
    width = int(team.max_over_ranks({"bytes": float(len(own))})["bytes"])
    rows = np.zeros((team.size, width), np.uint8)
    rows[team.rank, : len(own)] = np.frombuffer(own, np.uint8)
    team.gather_rows(rows, [1] * team.size)
    return [bytes(row).rstrip(b"\0").decode() for row in rows]


def kernel() -> Finding:
    """The BLAS kernel, and whether a variable holds the machine to a slower one than it has."""
    from macmpi.parallel.kernels import HOLDING, free_and_held, libraries, words

    held = [name for name in HOLDING if os.environ.get(name)]
    if not held:
        return Finding("kernel", words(libraries()))
    try:
        free, here = free_and_held()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Finding("kernel", f"{words(libraries())}; what {' and '.join(held)} cost is not known ({error})")
    found, better = (f"{m['names']}, {m['product']:.0f} GFLOP/s, {m['exp']:.2f}e9 exp/s" for m in (here, free))
    slower = any(free[rate] > FASTER * here[rate] for rate in ("product", "exp"))
    if slower and here["arithmetic"] != free["arithmetic"]:
        remedy = f"without {' and '.join(held)} it has {better}: unset, unless other machines of the run need it"
        return Finding("kernel", found, WARNING, remedy)
    return Finding("kernel", f"{found}; no slower than without {' and '.join(held)}")
