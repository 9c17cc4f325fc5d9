"""Kernel ridge regression on a subset of the points (Nystroem), by scikit-learn."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.parallel.streams import Stream
from macmpi.solvers.fitters.library import ByScikitLearn, seed_of
from macmpi.typing import Array


@dataclass(frozen=True)
class KernelRidge(ByScikitLearn):
    """min over f in the span of the examples' kernels of sum ||t - f(a)||^2 + alpha ||f||_H^2.

    With as many examples as points this is kernel ridge regression itself; of fewer points than examples the rest are
    0.  Cost: N M^2 for M examples.
    """

    alpha: float = 0.1
    kinds: ClassVar[frozenset[str]] = frozenset({"kernels"})
    targets: ClassVar[frozenset[str]] = frozenset({"numbers"})

    def fit(
        self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream, weights: Array | None = None
    ) -> Array:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import Ridge

        count, seed = min(map.examples, len(inputs)), seed_of(random)
        A = inputs.astype(np.float64)
        kernel = Nystroem(gamma=1.0 / map.width**2, n_components=count, random_state=seed).fit(A)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a system that is nearly singular
            ridge = Ridge(self.alpha, fit_intercept=False).fit(
                kernel.transform(A), targets.astype(np.float64), sample_weight=weights
            )
        found = np.zeros(map.parameter_shape)
        found[:count, : map.n_in] = kernel.components_
        found[:count, map.n_in :] = kernel.normalization_.T @ np.atleast_2d(ridge.coef_).T
        return found
