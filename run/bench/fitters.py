"""Does a forest as first layer gain from the method of auxiliary coordinates?  Against two stages, on real data.

    python run/bench/fitters.py digits usps

Labels, in per cent wrong: trees fitted to the one-hot labels, the largest output counts ("alone"); logistic regression
on the outputs of these trees at the training points ("two stages") or, of forests, at those points that a tree has not
seen ("out of bag"); the net trees-10-affine by MAC, one of those with out-of-bag outputs in its Z-steps.  Codes, in E1:
an autoencoder whose encoder are trees and whose decoder is a net of 50 sigmoids; in two stages the trees are fitted to
the codes of an encoder of 50 sigmoids, trained together with a decoder ("two stages"), and then a decoder to what the
trees give ("decoder refitted").

All trees of a row are as many and as deep.  Half of the validation points choose the best iteration, the other half
are scored: all numbers are those of points that nothing was chosen by.  digits: means over the splits.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

import macmpi
from macmpi.config import Data
from macmpi.data.dataset import Dataset, TargetRules
from macmpi.data.loading import load
from macmpi.nets.layers.fitted import Trees
from macmpi.nets.losses import LOSSES
from macmpi.parallel.streams import stream
from macmpi.solvers.fitters import FITTERS
from macmpi.solvers.fitters.by_scikit_learn import Forest, row, seed_of

TREES, CODE = 50, 8
SPLITS = {"digits": 3, "usps": 1}
KINDS = ("forest", "boosted")

SLOWLY = {"penalty.mu0": 0.1, "penalty.factor": 2.0, "penalty.mu_every": 5}
WAYS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "mu0 0.1": SLOWLY,
    "mu0 0.1, 5 Z-iterations": SLOWLY | {"z_step.iterations": 5},
}

Found = dict[str, list[float]]


def by_mac(data: Dataset, labels: bool, hidden: list[int], layers: list[str], **keys: Any) -> Any:
    """A net by full MAC: that of its best iteration."""
    settings = {"method.name": "mac", "model.trees": TREES, "data.scale": "none", "penalty.patience": 12} | keys
    held, of_labels = data.X_val[::2], {"loss": "cross_entropy"} if labels else {}
    Y, Y_val = (data.Y.argmax(axis=1), data.Y_val[::2].argmax(axis=1)) if labels else (None, None)
    return macmpi.fit(
        data.X,
        Y,
        hidden=hidden,
        layers=layers,
        validation=(held, Y_val) if labels else held,
        config=settings,
        verbose=False,
        **of_labels,
    )


def by_trees(kind: str, depth: int, A: Any, T: Any) -> Any:
    """Trees fitted once to targets: their map as a function."""
    map_ = Trees(A.shape[1], T.shape[1], TREES, depth, kind)
    W = FITTERS[kind]().fit(map_, A, T, None, stream(0, "fitter", 0))
    return lambda B: map_.forward(W, B)


def out_of_bag(depth: int, A: Any, T: Any) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(TREES, max_depth=depth, max_features=1 / 3, random_state=0, oob_score=True)
    return np.nan_to_num(forest.fit(A, T).oob_prediction_)


@contextmanager
def numbered(data: Dataset) -> Iterator[Dataset]:
    """Forests inside give at a training point the mean of those trees that were not grown on it.

    The points have one more column, their number, or -1 where they are none of the training points.
    """
    seen: dict[str, Any] = {}
    fit, forward = Forest.fit, Trees.forward

    def fit_and_remember(self: Any, map: Any, A: Any, T: Any, start: Any, random: Any) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        seed = seed_of(random)
        grown = RandomForestRegressor(map.trees, max_depth=map.depth, max_features=1 / 3, random_state=seed)
        grown.fit(A[:, :-1], T)
        out = np.ones((len(grown.estimators_), len(A)), dtype=bool)
        for own, drawn in zip(out, grown.estimators_samples_, strict=True):
            own[drawn] = False
        seen["out"] = out
        return np.array([row(tree.tree_, map.depth, 1.0 / map.trees) for tree in grown.estimators_])

    def forward_by_others(self: Any, W: Any, A: Any, out: Any = None) -> Any:
        number = A[:, -1].astype(int)
        if "out" not in seen or (number < 0).all():
            return forward(self, W, A)
        one, total, count = replace(self, trees=1), np.zeros((len(A), self.n_out)), np.zeros(len(A))
        for own, W_t in zip(seen["out"], W, strict=True):
            counts = own[number] | (number < 0)
            total += counts[:, None] * forward(one, W_t[None], A)
            count += counts
        return total * (len(W) / np.maximum(count, 1.0))[:, None]

    Forest.fit, Trees.forward = fit_and_remember, forward_by_others
    X = np.column_stack([data.X, np.arange(len(data.X))])
    X_val = np.column_stack([data.X_val, np.full(len(data.X_val), -1.0)])
    try:
        yield replace(data, X=X, X_val=X_val)
    finally:
        Forest.fit, Trees.forward = fit, forward


def labels(data: Dataset, depth: int, found: Found) -> None:
    from sklearn.linear_model import LogisticRegression

    y, y_test, X_test = data.Y.argmax(axis=1), data.Y_val[1::2].argmax(axis=1), data.X_val[1::2]
    for kind in KINDS:
        trees = by_trees(kind, depth, data.X, data.Y)
        of_test = trees(X_test)
        found[f"{kind}, alone"].append(100.0 * np.mean(of_test.argmax(axis=1) != y_test))
        features = {"two stages": trees(data.X)}
        if kind == "forest":
            features["out of bag"] = out_of_bag(depth, data.X, data.Y)
        for name, A in features.items():
            last = LogisticRegression(C=100.0, max_iter=2000).fit(A, y)
            found[f"{kind}, {name}"].append(100.0 * np.mean(last.predict(of_test) != y_test))
        for name, keys in WAYS.items():
            began = time.perf_counter()
            common = {"model.depth": depth, "run.max_iterations": 30}
            model = by_mac(data, True, [10], [kind], **common, **keys)
            found[f"{kind}, MAC, {name}"].append(100.0 * np.mean(model.predict(X_test) != y_test))
            found[f"{kind}, MAC, {name}: seconds"].append(time.perf_counter() - began)
    with numbered(data) as own:
        model = by_mac(own, True, [10], ["forest"], **common)
        found["forest, MAC, out-of-bag Z-step"].append(100.0 * np.mean(model.predict(own.X_val[1::2]) != y_test))


def codes(data: Dataset, depth: int, found: Found) -> None:
    X_test = data.X_val[1::2]

    def error(F: Any) -> float:
        return 0.5 * float(np.square(F - X_test).sum(axis=1).mean())

    net = by_mac(data, False, [50, CODE, 50], ["sigmoid", "linear", "sigmoid"], **{"run.max_iterations": 60})
    Z, centre = net.encode(data.X), data.X.mean(axis=0)
    V = np.linalg.svd(data.X - centre, full_matrices=False)[2][:CODE]
    found["PCA"].append(error((X_test - centre) @ V.T @ V + centre))
    found["sigmoids"].append(error(net.predict(X_test)))
    for kind in KINDS:
        trees = by_trees(kind, depth, data.X, Z)
        of_test = trees(X_test)
        found[f"{kind}, two stages"].append(error(net.decode(of_test)))
        features = {"decoder refitted": trees(data.X)}
        if kind == "forest":
            features["out of bag"] = out_of_bag(depth, data.X, Z)
        for name, A in features.items():
            held = (trees(data.X_val[::2]), data.X_val[::2])
            keys = {"method.name": "stochastic", "data.scale": "none"}
            refit = macmpi.fit(
                A, data.X, hidden=[50], layers="sigmoid", validation=held, config=keys, verbose=False, seed=0
            )
            found[f"{kind}, {name}"].append(error(refit.predict(of_test)))
        for mu0 in (0.1, 1.0):
            schedule = {"penalty.mu0": mu0, "penalty.factor": 3.0, "penalty.mu_every": 5, "model.depth": depth}
            began = time.perf_counter()
            model = by_mac(data, False, [CODE, 50], [kind, "sigmoid"], **schedule, **{"run.max_iterations": 40})
            found[f"{kind}, MAC, mu0 {mu0}"].append(error(model.predict(X_test)))
            found[f"{kind}, MAC, mu0 {mu0}: seconds"].append(time.perf_counter() - began)


def main() -> None:
    p = argparse.ArgumentParser(description="Trees as first layer: MAC against two stages.")
    p.add_argument("data", nargs="+", choices=sorted(SPLITS))
    p.add_argument("--only", choices=["labels", "codes"])
    p.add_argument("--depth", type=int, nargs="+", default=[3, 6])
    args = p.parse_args()
    for what, table in (("labels", labels), ("codes", codes)):
        if args.only not in (None, what):
            continue
        wanted = TargetRules(LOSSES["cross_entropy" if what == "labels" else "squared"])
        for name in args.data:
            for depth in args.depth:
                found: Found = defaultdict(list)
                for split in range(SPLITS[name]):
                    table(load(Data(source=name, seed=split), wanted), depth, found)
                print(f"{what}, {name}, {TREES} trees of depth {depth}")
                for line, values in found.items():
                    print(f"  {line:44s} {np.mean(values):8.3f}", flush=True)


if __name__ == "__main__":
    main()
