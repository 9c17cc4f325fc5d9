"""The pinball loss: quantiles."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from macmpi.nets.losses import ByOutput


@dataclass(frozen=True)
class Pinball(ByOutput):
    """(level - 1/2) r + 1/2 sqrt(r^2 + threshold^2), r = y - f: least where a share `level` of the y lie below f."""

    level: float = 0.9
    threshold: float = 0.1
    curvature: ClassVar[str] = "majoriser"
    stiffness: ClassVar[float] = 5.0

    def values(self, Y, F):
        return (self.level - 0.5) * (Y - F) + 0.5 * np.hypot(Y - F, self.threshold)

    def slopes(self, Y, F):
        return 0.5 - self.level - 0.5 * (Y - F) / np.hypot(Y - F, self.threshold)

    def curvatures(self, Y, F):
        return 0.5 / np.hypot(Y - F, self.threshold)


upper, lower = Pinball(0.9), Pinball(0.1)
