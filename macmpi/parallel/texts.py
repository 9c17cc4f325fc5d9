"""Texts of all ranks, of whatever lengths, and whether all ranks say the same."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable

from macmpi import MacmpiError
from macmpi.parallel.team import Team


def texts(team: Team, text: str) -> list[str]:
    """The texts of all ranks, on every rank.  Collective: yes."""
    import numpy as np

    own = text.encode()
    width = int(team.max_over_ranks({"bytes": float(len(own))})["bytes"])
    rows = np.zeros((team.size, width), np.uint8)
    rows[team.rank, : len(own)] = np.frombuffer(own, np.uint8)
    team.gather_rows(rows, [1] * team.size)
    return [bytes(row).rstrip(b"\0").decode() for row in rows]


def check_alike(team: Team, text: str, error: Callable[[str, str], MacmpiError]) -> None:
    """Raises error(who, said) on all ranks where the text of some ranks is not rank 0's.  Collective: yes.

    who: names those ranks and their hosts, "ranks 2-3 on node7"; said: the text of the first of them, and rank 0's.
    """
    if team.size == 1:
        return
    said = [json.loads(both) for both in texts(team, json.dumps([text, platform.node()]))]
    others: dict[str, list[int]] = {}
    for rank, (found, host) in enumerate(said):
        if found != said[0][0]:
            others.setdefault(host, []).append(rank)
    if others:
        who = ", ".join(f"{named(numbers)} on {host}" for host, numbers in others.items())
        theirs = next(found for found, _ in said if found != said[0][0])
        raised = error(who, f"{theirs}; on rank 0: {said[0][0]}")
        raised.agreed = True
        raise raised


def named(numbers: list[int]) -> str:
    """Names ranks by their runs: "ranks 0-3, 6"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    listed = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'s' if len(numbers) > 1 else ''} {listed}"
