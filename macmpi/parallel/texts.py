"""Texts of all ranks, of whatever lengths."""

from __future__ import annotations

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
