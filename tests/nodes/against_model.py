"""Seconds of gatherings over slow links, against macmpi/plan/cost.py.

alpha and the handshake grow with the delay of the links: alpha = least + slope delay, handshake = wait delay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from macmpi.plan.cost import Machine, gather

FITTED, HELD_OUT = (0.02, 0.08), (0.04, 0.16)
"""Seconds of delay between the nodes."""

SIZES = (32, 8_000, 40_000, 100_000, 400_000)
"""Bytes that a gathering of rows brings together."""

CLOSE = 0.15
"""The largest relative error."""

Gatherings = dict[tuple[float, int], float]
"""Seconds by delay and bytes."""


@dataclass(frozen=True)
class Links:
    """What has been fitted.  ranks: that gather."""

    least: float
    slope: float
    beta: float
    wait: float
    ranks: int

    def machine(self, delay: float) -> Machine:
        return Machine(self.least + self.slope * delay, self.beta, handshake=self.wait * delay)

    def gathering(self, delay: float, size: int) -> float:
        """Seconds of a gathering of rows."""
        return gather(self.machine(delay), size, self.ranks)

    def said(self) -> dict[str, str]:
        return {
            "alpha": f"{1e3 * self.least:.2f} ms + {self.slope:.2f} delays",
            "beta": f"{1e9 * self.beta:.0f} ns a byte (the links take 100)",
            "handshake": f"{self.wait:.2f} delays, of more than {Machine.eager} bytes",
            "fitted at ms": ", ".join(f"{1e3 * delay:g}" for delay in FITTED),
        }


def fitted(seconds: Gatherings, ranks: int) -> Links:
    """The least relative errors at the delays FITTED."""

    def terms(delay: float, size: int) -> list[float]:
        units = Machine(1.0, 0.0), Machine(delay, 0.0), Machine(0.0, 1.0), Machine(0.0, 0.0, handshake=delay)
        return [gather(unit, size, ranks) for unit in units]

    keys = [key for key in seconds if key[0] in FITTED]
    weighed = np.array([[term / seconds[key] for term in terms(*key)] for key in keys])
    solution = np.linalg.lstsq(weighed, np.ones(len(keys)), rcond=None)[0]
    return Links(*solution.tolist(), ranks)
