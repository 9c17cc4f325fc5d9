"""Data sets for the comparison of defaults: those bundled with scikit-learn, generators, and tables made here.

A data set is (kind, X, y): "regression" (root mean squared error, of several outputs each in its deviation),
"labels" (share of wrong labels in per cent), "autoencoder" (y is None; root mean squared error).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn import datasets

Array = np.ndarray
Made = tuple[str, Array, Array | None]


def _integers() -> Made:
    """Age, income and three flags."""
    r = np.random.default_rng(0)
    n = 5000
    age, income, flags = r.integers(18, 80, n), r.integers(10_000, 200_000, n), r.integers(0, 2, (n, 3))
    y = 0.02 * (age - 40.0) ** 2 + income / 20_000.0 + 5.0 * flags[:, 0] * (age > 50) + 3.0 * flags[:, 1]
    return "regression", np.column_stack([age, income, flags]), y + 0.1 * r.standard_normal(n)


def _heavy() -> Made:
    """Columns with heavy tails, of which the target takes logarithms and signs."""
    r = np.random.default_rng(0)
    n = 8000
    X = r.standard_t(1.5, (n, 8))
    X[:, 4:] = np.exp(2.0 * r.standard_normal((n, 4)))
    y = 20.0 * np.tanh(X[:, 0]) + 10.0 * np.log1p(X[:, 4]) * np.sign(X[:, 1]) + 5.0 * np.sqrt(np.abs(X[:, 2]))
    y += X[:, 5] * (X[:, 5] < 20.0) + 60.0 * np.log1p(X[:, 6])
    return "regression", X, y + 5.0 * r.standard_normal(n)


def _correlated() -> Made:
    """Forty columns of five factors."""
    r = np.random.default_rng(0)
    mixing, factors = r.standard_normal((5, 40)), r.standard_normal((3000, 5))
    X = factors @ mixing + 0.1 * r.standard_normal((3000, 40))
    y = np.sin(2.0 * factors[:, 0]) + factors[:, 1] * factors[:, 2] + 0.1 * r.standard_normal(3000)
    return "regression", X, y


def _outputs() -> Made:
    """Four outputs, one in another unit."""
    r = np.random.default_rng(0)
    X, mixing = r.uniform(-2.0, 2.0, (4000, 6)), r.standard_normal((6, 4))
    Y = np.sin(X @ mixing) + 0.1 * r.standard_normal((4000, 4))
    Y[:, 1] *= 100.0
    return "regression", X, Y


def _skewed() -> Made:
    """A target with a long tail."""
    r = np.random.default_rng(0)
    X = r.standard_normal((4000, 10))
    return "regression", X, np.exp(X[:, 0] + 0.5 * X[:, 1] * X[:, 2]) + 0.1 * r.standard_normal(4000)


def _regression(made: Callable[[], tuple[Array, Array]]) -> Callable[[], Made]:
    return lambda: ("regression", *made())


def _labels(made: Callable[[], tuple[Array, Array]]) -> Callable[[], Made]:
    def named() -> Made:
        X, y = made()
        return "labels", X, np.unique(y, return_inverse=True)[1]

    return named


def _classes(n: int, columns: int, informative: int, classes: int, **keys: object) -> Callable[[], Made]:
    return _labels(
        lambda: datasets.make_classification(
            n, columns, n_informative=informative, n_classes=classes, random_state=0, **keys
        )
    )


SETS: dict[str, Callable[[], Made]] = {
    "diabetes": _regression(lambda: datasets.load_diabetes(return_X_y=True)),
    "friedman1": _regression(lambda: datasets.make_friedman1(20_000, 10, noise=1.0, random_state=0)),
    "friedman1, 1,000": _regression(lambda: datasets.make_friedman1(1000, 10, noise=1.0, random_state=0)),
    "friedman2": _regression(lambda: datasets.make_friedman2(4000, noise=50.0, random_state=0)),
    "friedman3": _regression(lambda: datasets.make_friedman3(4000, noise=0.1, random_state=0)),
    "linear": _regression(lambda: datasets.make_regression(500, 50, n_informative=20, noise=10.0, random_state=0)),
    "swiss roll": _regression(lambda: datasets.make_swiss_roll(3000, noise=0.5, random_state=0)),
    "integers": _integers,
    "heavy tails": _heavy,
    "correlated": _correlated,
    "four outputs": _outputs,
    "skewed target": _skewed,
    "digits": _labels(lambda: datasets.load_digits(return_X_y=True)),
    "breast cancer": _labels(lambda: datasets.load_breast_cancer(return_X_y=True)),
    "wine": _labels(lambda: datasets.load_wine(return_X_y=True)),
    "iris": _labels(lambda: datasets.load_iris(return_X_y=True)),
    "five classes": _classes(5000, 40, 15, 5),
    "eight classes": _classes(6000, 60, 20, 8),
    "rare class": _classes(6000, 20, 8, 2, weights=[0.95], flip_y=0.01),
    "more columns than points": _classes(300, 500, 30, 2),
    "moons": _labels(lambda: datasets.make_moons(2000, noise=0.25, random_state=0)),
    "quantiles": _labels(
        lambda: datasets.make_gaussian_quantiles(n_samples=4000, n_features=8, n_classes=4, random_state=0)
    ),
    "hastie": _labels(lambda: datasets.make_hastie_10_2(8000, random_state=0)),
}
