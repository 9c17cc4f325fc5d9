"""Regression on a subset of the points, the examples, by scikit-learn: kernels (Nystroem) and nearest neighbours."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demands
from macmpi.parallel.streams import Stream
from macmpi.solvers.fitters import ByScikitLearn, seed_of
from macmpi.typing import Array


@dataclass(frozen=True)
class KernelRidge(ByScikitLearn):
    """min over f in the span of the examples' kernels of sum ||t - f(a)||^2 + alpha ||f||_H^2.

    With as many examples as points this is kernel ridge regression itself; of fewer points than examples the rest are
    0.  Cost: N M^2 for M examples.
    """

    alpha: float = 0.1
    kinds: ClassVar[frozenset[str]] = frozenset({"kernels"})

    def fit(
        self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream, weights: Array | None = None
    ) -> Array:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import Ridge

        count, seed = min(map.examples, len(inputs)), seed_of(random)
        A, T = inputs.astype(np.float64), targets.astype(np.float64)
        kernel = Nystroem(gamma=1.0 / map.width**2, n_components=count, random_state=seed).fit(A)
        with warnings.catch_warnings(action="ignore"):  # of a system that is nearly singular
            ridge = Ridge(self.alpha, fit_intercept=False).fit(kernel.transform(A), T, sample_weight=weights)
        found = np.zeros(map.parameter_shape)
        found[:count, : map.n_in] = kernel.components_
        found[:count, map.n_in :] = kernel.normalization_.T @ np.atleast_2d(ridge.coef_).T
        return found


@dataclass(frozen=True)
class Nearest(ByScikitLearn):
    """Examples are points that are drawn once; each stands for the mean over the k points that are nearest to it.

    Of fewer points than examples some are there twice.  Cost: N M distances for M examples.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"nearest_neighbours"})
    handles: ClassVar[Demands] = frozenset()

    def fit(self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream) -> Array:
        from sklearn.neighbors import KNeighborsRegressor

        A, T = inputs.astype(np.float64), targets.astype(np.float64)
        chosen = np.resize(random.permutation(len(A)), map.examples)
        found = KNeighborsRegressor(min(map.k, len(A)), algorithm="brute").fit(A, T)
        return np.hstack([A[chosen], found.predict(A[chosen]).reshape(len(chosen), -1)])
