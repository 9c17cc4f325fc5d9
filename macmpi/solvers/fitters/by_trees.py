"""Forests and boosted trees, each tree grown by scikit-learn, as rows of one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi.parallel.streams import Stream
from macmpi.solvers.fitters import ByScikitLearn, seed_of
from macmpi.typing import Array


@dataclass(frozen=True)
class GrowsTrees(ByScikitLearn):
    """Trees that ask for a share of the columns, drawn at each node."""

    share: float = 1.0 / 3.0
    kinds: ClassVar[frozenset[str]] = frozenset({"trees"})


@dataclass(frozen=True)
class Forest(GrowsTrees):
    """Random forest regression: the mean of trees, each grown on a bootstrap sample (Breiman 2001)."""

    def fit(
        self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream, weights: Array | None = None
    ) -> Array:
        return self.fit_rows(map, slice(0, map.trees), inputs, targets, random, weights)

    def fit_rows(
        self, map: Any, rows: slice, inputs: Array, targets: Array, random: Stream, weights: Array | None = None
    ) -> Array:
        """Some of the trees; each has a seed of its own, by its number.  Cost: scikit-learn's for as many trees."""
        from sklearn.ensemble import RandomForestRegressor

        seeds, found = [seed_of(random) for _ in range(map.trees)], list[Array]()
        for seed in seeds[rows]:
            grown = RandomForestRegressor(1, max_depth=map.depth, max_features=self.share, random_state=seed)
            (tree,) = grown.fit(inputs, _columns(targets), sample_weight=weights).estimators_
            found.append(row(tree.tree_, map.depth, 1.0 / map.trees))
        return np.array(found).reshape(len(found), map.parameter_shape[1])


@dataclass(frozen=True)
class Boosted(GrowsTrees):
    """Gradient boosting of squares: each tree is grown on what the trees before it leave, and counts `rate`.

    A tree has values for all outputs, so that one rank grows them all, one after the other.
    """

    rate: float = 0.1

    def fit(
        self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Stream, weights: Array | None = None
    ) -> Array:
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
    """A tree of scikit-learn as a row of the weights of `Trees`, its values times `weight`.  Collective: no."""
    at, asked = np.zeros(1, np.intp), list[tuple[Array, Array]]()
    for _ in range(depth):
        ends = tree.children_left[at] < 0
        asked.append((np.where(ends, 0, tree.feature[at]), np.where(ends, 0.0, tree.threshold[at])))
        ways = (np.where(ends, at, children[at]) for children in (tree.children_left, tree.children_right))
        at = np.stack(list(ways), axis=1).ravel()
    columns, thresholds = (np.concatenate(parts) for parts in zip(*asked, strict=True))
    return np.concatenate([columns, thresholds, weight * tree.value[at, :, 0].ravel()]).astype(np.float64)


def _columns(targets: Array) -> Array:
    """scikit-learn wants one column as (N,)."""
    return targets[:, 0] if targets.shape[1] == 1 else targets
