"""Seconds of gatherings over slow links, against macmpi/plan/cost.py.

alpha, the meeting and the handshake grow with the delay of the links: alpha and meeting = least + slope delay,
handshake = wait delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path

import numpy as np
from plans import plan_of

from macmpi import config
from macmpi.data.loading import load
from macmpi.plan.cost import Machine, gather, predicted

FITTED, HELD_OUT = (0.02, 0.08), (0.04, 0.16)
"""Seconds of delay between the nodes."""

SIZES = (32, 8_000, 40_000, 100_000, 400_000)
"""Bytes that a gathering of rows brings together."""

CLOSE = 0.15
"""The largest relative error."""

Gatherings = dict[tuple[float, int], float]
"""Seconds by delay and bytes; of a meeting alone by 0 bytes."""


@dataclass(frozen=True)
class Links:
    """What has been fitted.  meeting: its least and slope; ranks: that gather."""

    least: float
    slope: float
    beta: float
    wait: float
    meeting: tuple[float, float]
    ranks: int

    def machine(self, delay: float, cores: int = 1) -> Machine:
        """cores: ranks of a node."""
        alpha = self.least + self.slope * delay
        return Machine(alpha, self.beta, cores, handshake=self.wait * delay, meeting=self.meeting_at(delay))

    def meeting_at(self, delay: float) -> float:
        """Seconds of a step of a meeting."""
        return self.meeting[0] + self.meeting[1] * delay

    def gathering(self, delay: float, size: int) -> float:
        """Seconds of a meeting and a gathering of rows."""
        met = self.meeting_at(delay) * ceil(log2(self.ranks))
        return met + (gather(self.machine(delay), size, self.ranks) if size else 0.0)

    def said(self) -> dict[str, str]:
        return {
            "alpha": f"{1e3 * self.least:.2f} ms + {self.slope:.2f} delays",
            "beta": f"{1e9 * self.beta:.0f} ns a byte (the links take 100)",
            "meeting": f"{1e3 * self.meeting[0]:.2f} ms + {self.meeting[1]:.2f} delays",
            "handshake": f"{self.wait:.2f} delays, of more than {Machine.eager} bytes",
            "fitted at ms": ", ".join(f"{1e3 * delay:g}" for delay in FITTED),
        }


def exchanged(where: Path, name: str, settings: Sequence[str], machine: Machine, ranks: int) -> float:
    """Seconds of the exchanges of an iteration of a config."""
    with chdir(where):
        keys = config.read(Path(name), [s for s in settings if s != "--set"])
        data = load(keys.data)
    plan = plan_of(keys, *data.sizes.counts, ranks)
    return predicted(plan, 1e9, machine).exchange


def fitted(seconds: Gatherings, ranks: int) -> Links:
    """The least relative errors at the delays FITTED."""

    def terms(delay: float, size: int) -> list[float]:
        units = Machine(1.0, 0.0), Machine(delay, 0.0), Machine(0.0, 1.0), Machine(0.0, 0.0, handshake=delay)
        return [gather(unit, size, ranks) for unit in units]

    keys = [key for key in seconds if key[0] in FITTED and key[1]]
    weighed = np.array([[term / seconds[key] for term in terms(*key)] for key in keys])
    gathered = np.array([1.0 - seconds[key[0], 0] / seconds[key] for key in keys])
    solution = np.linalg.lstsq(weighed, gathered, rcond=None)[0]
    steps = ceil(log2(ranks))
    slope, least = np.polyfit(FITTED, [seconds[delay, 0] / steps for delay in FITTED], 1).tolist()
    return Links(*solution.tolist(), (least, slope), ranks)
