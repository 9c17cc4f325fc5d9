"""What other losses than the squared error are good for, on real data: the figures of docs/studies.md.

    MACMPI_DATA=... python run/bench/losses.py [outliers|missing|labels|counts ...]

Every net is judged on clean, complete validation points; three seeds each, which draw split and weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import macmpi
from macmpi import config
from macmpi.data.loading import load
from macmpi.parallel.clock import now

SEEDS = (0, 1, 2)
SHARE_OUT, SHARE_MISSING = 0.1, 0.3
ATTRIBUTES = {"even": (0, 2, 4, 6, 8), "prime": (2, 3, 5, 7), "above 4": (5, 6, 7, 8, 9), "a loop": (0, 6, 8, 9)}


def fitted(X: Any, Y: Any, validation: Any, seed: int, **settings: Any) -> tuple[Any, float]:
    """A net and the seconds that it took."""
    began = now()
    keys = {"data.scale": "none", "model.activation": "tanh", **settings}
    return macmpi.fit(X, Y, validation=validation, config=keys, seed=seed), now() - began


def halves(n: int, seed: int) -> tuple[Any, Any]:
    """Three quarters of n rows to train with, and the others."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: 3 * n // 4], order[3 * n // 4 :]


def error(Y: Any, F: Any) -> float:
    """E1 per point, 1/2 ||y - f||^2."""
    return float(0.5 * np.square(Y - F).sum(axis=1).mean())


def outliers(method: str) -> Iterator[tuple[str, Callable[[int], tuple[float, float]]]]:
    """An autoencoder of digits, a tenth of whose targets lies anywhere between -3 and 4; so in validation too."""
    X = load_digits().data / 16.0

    def of(seed: int, spoilt: bool = True, **keys: Any) -> tuple[float, float]:
        random = np.random.default_rng(seed)
        Y = np.where(random.uniform(size=X.shape) < SHARE_OUT, random.uniform(-3.0, 4.0, X.shape), X) if spoilt else X
        train, held = halves(len(X), seed)
        net = {"model.hidden": [32, 8, 32], "method.name": method, "run.max_iterations": 150}
        model, seconds = fitted(X[train], Y[train], (X[held], Y[held]), seed, **net, **keys)
        return error(X[held], model.predict(X[held])), seconds

    yield "squared, clean targets", lambda seed: of(seed, spoilt=False)
    yield "squared", of
    yield "huber, threshold 0.3", lambda seed: of(seed, **{"model.loss": "huber", "loss.threshold": 0.3})
    yield "huber, threshold 0.1", lambda seed: of(seed, **{"model.loss": "huber", "loss.threshold": 0.1})
    yield "absolute", lambda seed: of(seed, **{"model.loss": "absolute"})


def missing(method: str) -> Iterator[tuple[str, Callable[[int], tuple[float, float]]]]:
    """The autoencoder of USPS, three tenths of whose outputs are missing in training and in validation."""
    data = load(config.Data(source="usps"))
    X, held = data.X, data.X_val

    def of(seed: int, keep: str) -> tuple[float, float]:
        random = np.random.default_rng(seed)
        Y, Y_held = (np.where(random.uniform(size=A.shape) < SHARE_MISSING, np.nan, A) for A in (X, held))
        if keep == "complete":
            Y, Y_held = X, held
        if keep == "filled":
            mean = np.nanmean(Y, axis=0)
            Y, Y_held = (np.where(np.isnan(A), mean, A) for A in (Y, Y_held))
        keys = {"model.hidden": [300, 100, 20, 100, 300], "model.activation": "sigmoid", "run.max_iterations": 40}
        keys |= {"method.name": method, "stochastic.ridge": 0.0, "loss.missing": keep == "missing"}
        model, seconds = fitted(X, Y, (held, Y_held), seed, **keys)
        return error(held, model.predict(held)), seconds

    yield "complete", lambda seed: of(seed, "complete")
    yield "30 % missing, left out", lambda seed: of(seed, "missing")
    yield "30 % missing, filled with the mean", lambda seed: of(seed, "filled")


def labels(method: str) -> Iterator[tuple[str, Callable[[int], tuple[float, float]]]]:
    """Four truths about each digit at once; the share of them that is wrong, in per cent."""
    bunch = load_digits()
    X, Y = bunch.data / 16.0, np.stack([np.isin(bunch.target, digits) for digits in ATTRIBUTES.values()], 1) * 1.0

    def of(seed: int, loss: str) -> tuple[float, float]:
        train, held = halves(len(X), seed)
        net = {"model.hidden": [40], "method.name": method, "model.loss": loss, "run.max_iterations": 150}
        model, seconds = fitted(X[train], Y[train], (X[held], Y[held]), seed, **net)
        return 100.0 * float(np.mean((model.predict(X[held]) > 0.5) != (Y[held] > 0.5))), seconds

    for loss in ("squared", "logistic"):
        yield loss, lambda seed, loss=loss: of(seed, loss)  # type: ignore[misc]


def counts(method: str) -> Iterator[tuple[str, Callable[[int], tuple[float, float]]]]:
    """An autoencoder of digits, whose pixels are counts of dots; half the deviance, of means from 0.01 on."""
    X = load_digits().data

    def of(seed: int, loss: str) -> tuple[float, float]:
        train, held = halves(len(X), seed)
        net = {"model.hidden": [32, 8, 32], "method.name": method, "model.loss": loss, "run.max_iterations": 150}
        model, seconds = fitted(X[train] / 16.0, X[train], (X[held] / 16.0, X[held]), seed, **net)
        mean, Y = np.maximum(model.predict(X[held] / 16.0), 0.01), X[held]
        deviance = np.where(Y > 0.0, Y * np.log(np.where(Y > 0.0, Y, 1.0) / mean), 0.0) - Y + mean
        return float(deviance.sum(axis=1).mean()), seconds

    for loss in ("squared", "poisson"):
        yield loss, lambda seed, loss=loss: of(seed, loss)  # type: ignore[misc]


STUDIES = {"outliers": outliers, "missing": missing, "labels": labels, "counts": counts}


def main() -> None:
    for name in sys.argv[1:] or STUDIES:
        head = f"| {name} | method | seeds {SEEDS} | median | seconds |"
        print(f"\n{STUDIES[name].__doc__}\n\n{head}\n|---|---|---|---|---|")
        for method in ("stochastic", "adam") if name == "missing" else ("stochastic", "mac", "adam"):
            for row, of in STUDIES[name](method):
                found = [of(seed) for seed in SEEDS]
                every, median = (f"{value:.3f}" for value, _ in found), np.median([value for value, _ in found])
                seconds = np.median([seconds for _, seconds in found])
                print(f"| {row} | {method} | {', '.join(every)} | {median:.3f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
