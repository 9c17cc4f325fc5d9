"""A layer whose units are the means of the nearest examples, by scikit-learn."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.neighbors import KNeighborsRegressor

from macmpi.nets.layers import Map


@dataclass(frozen=True)
class Neighbours(Map):
    """b = the mean of v_m over the k examples c_m nearest to a: weights [c_m, v_m] (examples, n_in + n_out)."""

    n_in: int
    n_out: int
    examples: int = 400
    k: int = 5
    kind: ClassVar[str] = "neighbours"
    fitter: ClassVar[str] = "neighbours"
    capabilities: ClassVar[frozenset[str]] = frozenset()

    @property
    def parameter_shape(self):
        return (self.examples, self.n_in + self.n_out)

    def forward(self, W, A, out=None):
        found = KNeighborsRegressor(self.k, algorithm="brute").fit(W[:, : self.n_in], W[:, self.n_in :])
        return found.predict(A).astype(A.dtype)


@dataclass(frozen=True)
class Nearest:
    """Examples are points drawn once; their values are means over the points nearest to them."""

    kinds: ClassVar[frozenset[str]] = frozenset({"neighbours"})
    targets: ClassVar[frozenset[str]] = frozenset({"numbers"})
    descends: ClassVar[bool] = False
    library: ClassVar[str] = "sklearn"

    def fit(self, map, inputs, targets, start, random):
        chosen = np.resize(random.permutation(len(inputs)), map.examples)
        found = KNeighborsRegressor(map.k, algorithm="brute").fit(inputs, targets)
        return np.hstack([inputs[chosen], found.predict(inputs[chosen])])


def neighbours(inputs, units):
    return [Neighbours(inputs, units)]
