"""Nearest neighbours on a subset of the points, by scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.parallel.streams import Stream
from macmpi.solvers.fitters.library import ByScikitLearn
from macmpi.typing import Array


@dataclass(frozen=True)
class Nearest(ByScikitLearn):
    """Examples are points that are drawn once; each stands for the mean over the k points that are nearest to it.

    Of fewer points than examples some are there twice.  Cost: N M distances for M examples.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"nearest_neighbours"})
    targets: ClassVar[frozenset[str]] = frozenset({"numbers"})
    handles: ClassVar[Demands] = frozenset()

    def fit(self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream) -> Array:
        from sklearn.neighbors import KNeighborsRegressor

        A, T = inputs.astype(np.float64), targets.astype(np.float64)
        chosen = np.resize(random.permutation(len(A)), map.examples)
        found = KNeighborsRegressor(min(map.k, len(A)), algorithm="brute").fit(A, T)
        return np.hstack([A[chosen], found.predict(A[chosen]).reshape(len(chosen), -1)])
