"""Centres that are far apart."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist


@dataclass(frozen=True)
class Farthest:
    """Each centre is the point farthest from those before it."""

    copies: ClassVar[bool] = True

    def fit(self, inputs, count, start, random):
        chosen = [int(random.integers(len(inputs)))]
        nearest = cdist(inputs, inputs[chosen])[:, 0]
        while len(chosen) < count:
            chosen.append(int(nearest.argmax()))
            nearest = np.minimum(nearest, cdist(inputs, inputs[chosen[-1:]])[:, 0])
        return inputs[chosen].astype(np.float64)
