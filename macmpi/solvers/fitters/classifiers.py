"""Linear classifiers of scikit-learn as dense layers: output layers of labels, or layers of bits."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.parallel.streams import Stream
from macmpi.solvers.fitters import ByScikitLearn
from macmpi.typing import Array

LARGEST = 6.0
"""Margins of a support vector machine become logits by a factor between exp(-6) and exp(6)."""


@dataclass(frozen=True)
class Classifies(ByScikitLearn):
    """A dense layer that tells classes or bits apart.  C: the inverse of the ridge, as scikit-learn has it."""

    C: float = 1.0
    kinds: ClassVar[frozenset[str]] = frozenset({"affine"})
    targets: ClassVar[frozenset[str]] = frozenset({"labels", "bits"})


@dataclass(frozen=True)
class LinearSVM(Classifies):
    """A linear support vector machine for each output against the rest.

    Of labels the margins are scaled alike, so that they are the logits of the least cross-entropy.
    """

    def fit(
        self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream, weights: Array | None = None
    ) -> Array:
        from sklearn.svm import LinearSVC

        W = one_by_one(lambda: LinearSVC(C=self.C, random_state=0), inputs, targets, weights)
        one_hot = bool((targets.sum(axis=1) == 1.0).all()) and targets.shape[1] > 1
        return W * scale_of(inputs @ W[:, :-1].T + W[:, -1], targets, weights) if one_hot else W


@dataclass(frozen=True)
class Logistic(Classifies):
    """Logistic regression: of labels multinomial, of bits each by itself."""

    def fit(
        self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream, weights: Array | None = None
    ) -> Array:
        from sklearn.linear_model import LogisticRegression

        def model() -> Any:
            return LogisticRegression(C=self.C, max_iter=500)

        present = np.flatnonzero(targets.any(axis=0))
        if len(present) < 3 or not (targets.sum(axis=1) == 1.0).all():
            return one_by_one(model, inputs, targets, weights)
        W = np.zeros(map.parameter_shape)
        W[:, -1] = -LARGEST  # a class that no point has
        with warnings.catch_warnings(action="ignore"):  # of iterations that end early
            found = model().fit(inputs, targets.argmax(axis=1), sample_weight=weights)
        W[present] = np.hstack([found.coef_, found.intercept_[:, None]])
        return W


def one_by_one(model: Any, inputs: Array, targets: Array, weights: Array | None = None) -> Array:
    """[V, c] of a classifier for each column of the targets, above 1/2 or not; of one that is constant c alone."""
    W = np.zeros((targets.shape[1], inputs.shape[1] + 1))
    for row, column in zip(W, targets.T, strict=True):
        on = column > 0.5
        if on.all() or not on.any():
            row[-1] = 1.0 if on.all() else -1.0
            continue
        with warnings.catch_warnings(action="ignore"):  # of iterations that end early
            found = model().fit(inputs, on, sample_weight=weights)
        row[:-1], row[-1] = found.coef_[0], found.intercept_[0]
    return W


def scale_of(F: Array, targets: Array, weights: Array | None = None) -> float:
    """The factor of F that has the least cross-entropy."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    def entropy(log: float) -> float:
        logits = np.exp(log) * F
        losses = logsumexp(logits, axis=1) - np.einsum("nh,nh->n", logits, targets)
        return float(np.average(losses, weights=weights))

    return float(np.exp(minimize_scalar(entropy, bounds=(-LARGEST, LARGEST), method="bounded").x))
