"""Fitters that use scikit-learn: forests, boosted trees, kernels, nearest neighbours, linear classifiers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.demand import Demand, Demands
from macmpi.parallel.streams import Stream
from macmpi.typing import Array

LARGEST = 6.0
"""Margins of a support vector machine become logits by a factor from exp(-LARGEST) to exp(LARGEST)."""


class ByScikitLearn:
    """A base for fitters that call scikit-learn and may raise the error of the segment.

    Its warnings are dropped: of iterations that end early, and of systems that are nearly singular.
    """

    targets: ClassVar[frozenset[str]] = frozenset({"numbers"})
    descends: ClassVar[bool] = False
    library: ClassVar[str] = "sklearn"
    handles: ClassVar[Demands] = frozenset({Demand.WEIGHTED})

    def fit(
        self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream, weights: Array | None = None
    ) -> Array:
        """Fits weights as `Fitter.fit` does, independently of the start."""
        with warnings.catch_warnings(action="ignore"):
            return self.fitted(map, inputs, targets, random, weights)

    def fitted(self, map: Any, inputs: Array, targets: Array, random: Stream, weights: Array | None) -> Array:
        """Fits the weights of a map.  weights (N,): of the points; None if all are 1."""
        raise NotImplementedError


def seed_of(random: Stream) -> int:
    """Draws a seed for scikit-learn from a stream.  Collective: no."""
    return int(random.integers(2**31 - 1))


@dataclass(frozen=True)
class GrowsTrees(ByScikitLearn):
    """A base for fitters of trees, each node of which chooses among a random share of the columns."""

    share: float = 1.0 / 3.0
    kinds: ClassVar[frozenset[str]] = frozenset({"trees"})


@dataclass(frozen=True)
class Forest(GrowsTrees):
    """Grows a random forest: a mean of trees, each grown on a bootstrap sample (Breiman 2001)."""

    def fitted(self, map: Any, inputs: Array, targets: Array, random: Stream, weights: Array | None) -> Array:
        return self.fit_rows(map, slice(0, map.trees), inputs, targets, random, weights)

    def fit_rows(
        self, map: Any, rows: slice, inputs: Array, targets: Array, random: Stream, weights: Array | None = None
    ) -> Array:
        """Grows some of the trees, each with a seed that depends on its number.  Cost: the cost of scikit-learn."""
        from sklearn.ensemble import RandomForestRegressor

        seeds, rows_of_trees = [seed_of(random) for _ in range(map.trees)], list[Array]()
        for seed in seeds[rows]:
            grown = RandomForestRegressor(1, max_depth=map.depth, max_features=self.share, random_state=seed)
            (tree,) = grown.fit(inputs, _columns(targets), sample_weight=weights).estimators_
            rows_of_trees.append(row(tree.tree_, map.depth, 1.0 / map.trees))
        return np.array(rows_of_trees).reshape(len(rows_of_trees), map.parameter_shape[1])


@dataclass(frozen=True)
class Boosted(GrowsTrees):
    """Grows trees by gradient boosting of squared errors: each is fitted to the residual of those before, times `rate`.

    A tree has values for all outputs.  One rank grows all trees, one after the other.
    """

    rate: float = 0.1

    def fitted(self, map: Any, inputs: Array, targets: Array, random: Stream, weights: Array | None) -> Array:
        from sklearn.tree import DecisionTreeRegressor

        mean = np.average(targets, axis=0, weights=weights)
        left, rows = targets - mean, []
        for _ in range(map.trees):
            tree = DecisionTreeRegressor(max_depth=map.depth, max_features=self.share, random_state=seed_of(random))
            tree.fit(inputs, _columns(left), sample_weight=weights)
            left = left - self.rate * tree.predict(inputs).reshape(left.shape)
            rows.append(row(tree.tree_, map.depth, self.rate))
        rows[0][-(mean.size << map.depth) :] += np.tile(mean, 1 << map.depth)
        return np.array(rows)


def row(tree: Any, depth: int, weight: float) -> Array:
    """Converts a tree of scikit-learn to a row of the weights of `Trees`, with its values times `weight`.

    depth: the depth of the trees in `Trees`.  Collective: no.
    """
    at, asked = np.zeros(1, np.intp), list[tuple[Array, Array]]()
    for _ in range(depth):
        ends = tree.children_left[at] < 0
        asked.append((np.where(ends, 0, tree.feature[at]), np.where(ends, 0.0, tree.threshold[at])))
        ways = (np.where(ends, at, children[at]) for children in (tree.children_left, tree.children_right))
        at = np.stack(list(ways), axis=1).ravel()
    columns, thresholds = (np.concatenate(parts) for parts in zip(*asked, strict=True))
    return np.concatenate([columns, thresholds, weight * tree.value[at, :, 0].ravel()]).astype(np.float64)


def _columns(targets: Array) -> Array:
    """Returns targets in the shape that scikit-learn needs: (N,) where there is one column."""
    return targets[:, 0] if targets.shape[1] == 1 else targets


@dataclass(frozen=True)
class KernelRidge(ByScikitLearn):
    """min over f of sum ||t - f(a)||^2 + alpha ||f||_H^2, for f in the span of the kernels of M examples.

    With as many examples as points this is kernel ridge regression itself.  If there are fewer points than examples,
    the weights of the remaining examples are 0.  Cost: N M^2 flops.
    """

    alpha: float = 0.1
    kinds: ClassVar[frozenset[str]] = frozenset({"kernels"})

    def fitted(self, map: Any, inputs: Array, targets: Array, random: Stream, weights: Array | None) -> Array:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import Ridge

        count, seed = min(map.examples, len(inputs)), seed_of(random)
        A, T = inputs.astype(np.float64), targets.astype(np.float64)
        kernel = Nystroem(gamma=1.0 / map.width**2, n_components=count, random_state=seed).fit(A)
        ridge = Ridge(self.alpha, fit_intercept=False).fit(kernel.transform(A), T, sample_weight=weights)
        W = np.zeros(map.parameter_shape)
        W[:count, : map.n_in] = kernel.components_
        W[:count, map.n_in :] = kernel.normalization_.T @ np.atleast_2d(ridge.coef_).T
        return W


@dataclass(frozen=True)
class Nearest(ByScikitLearn):
    """Draws M points as examples, and gives each the mean of the targets of its k nearest points.

    If there are fewer points than examples, some are drawn several times.  Cost: N M distances.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"nearest_neighbours"})
    handles: ClassVar[Demands] = frozenset()

    def fitted(self, map: Any, inputs: Array, targets: Array, random: Stream, weights: Array | None) -> Array:
        from sklearn.neighbors import KNeighborsRegressor

        A, T = inputs.astype(np.float64), targets.astype(np.float64)
        chosen = np.resize(random.permutation(len(A)), map.examples)
        neighbours = KNeighborsRegressor(min(map.k, len(A)), algorithm="brute").fit(A, T)
        return np.hstack([A[chosen], neighbours.predict(A[chosen]).reshape(len(chosen), -1)])


@dataclass(frozen=True)
class Classifies(ByScikitLearn):
    """A base for linear classifiers of classes or bits.  C: the inverse of the ridge, as in scikit-learn."""

    C: float = 1.0
    kinds: ClassVar[frozenset[str]] = frozenset({"affine"})
    targets: ClassVar[frozenset[str]] = frozenset({"labels", "bits"})


@dataclass(frozen=True)
class LinearSVM(Classifies):
    """Fits a linear support vector machine for each output against the rest.

    For labels all margins are multiplied by one number, so that as logits they have the least cross-entropy.
    """

    def fitted(self, map: Any, inputs: Array, targets: Array, random: Stream, weights: Array | None) -> Array:
        from sklearn.svm import LinearSVC

        W = one_by_one(lambda: LinearSVC(C=self.C, random_state=0), inputs, targets, weights)
        one_hot = bool((targets.sum(axis=1) == 1.0).all()) and targets.shape[1] > 1
        return W * scale_of(inputs @ W[:, :-1].T + W[:, -1], targets, weights) if one_hot else W


@dataclass(frozen=True)
class Logistic(Classifies):
    """Fits logistic regression: multinomial for labels, one by one for bits."""

    def fitted(self, map: Any, inputs: Array, targets: Array, random: Stream, weights: Array | None) -> Array:
        from sklearn.linear_model import LogisticRegression

        def model() -> Any:
            return LogisticRegression(C=self.C, max_iter=500)

        present = np.flatnonzero(targets.any(axis=0))
        if len(present) < 3 or not (targets.sum(axis=1) == 1.0).all():
            return one_by_one(model, inputs, targets, weights)
        W = np.zeros(map.parameter_shape)
        W[:, -1] = -LARGEST  # a class that no point has
        classifier = model().fit(inputs, targets.argmax(axis=1), sample_weight=weights)
        W[present] = np.hstack([classifier.coef_, classifier.intercept_[:, None]])
        return W


def one_by_one(model: Any, inputs: Array, targets: Array, weights: Array | None = None) -> Array:
    """Fits a classifier for each column of the targets, above 1/2 or not, and returns their weights [V, c].

    A column that is constant gets V = 0.
    """
    W = np.zeros((targets.shape[1], inputs.shape[1] + 1))
    for row, column in zip(W, targets.T, strict=True):
        on = column > 0.5
        if on.all() or not on.any():
            row[-1] = 1.0 if on.all() else -1.0
            continue
        classifier = model().fit(inputs, on, sample_weight=weights)
        row[:-1], row[-1] = classifier.coef_[0], classifier.intercept_[0]
    return W


def scale_of(F: Array, targets: Array, weights: Array | None = None) -> float:
    """Finds the s > 0 for which softmax(s F) has the least cross-entropy with the targets, both (n, h)."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    def entropy(log: float) -> float:
        logits = np.exp(log) * F
        losses = logsumexp(logits, axis=1) - np.einsum("nh,nh->n", logits, targets)
        return float(np.average(losses, weights=weights))

    return float(np.exp(minimize_scalar(entropy, bounds=(-LARGEST, LARGEST), method="bounded").x))
