"""The data of same_bits.py: made by a seed, written once, read by both commits."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

SEED = 20121224
POINTS, VALIDATION, COLUMNS, TARGETS = 400, 90, 12, 3


def _random(name: str) -> np.random.Generator:
    """A stream of its own for each name."""
    return np.random.default_rng([SEED, *name.encode()])


def _inputs(rows: int, columns: int, name: str) -> np.ndarray:
    """Points near a curved surface of three dimensions."""
    random = _random(name)
    hidden = random.standard_normal((rows, 3))
    return np.tanh(hidden @ _random("loadings").standard_normal((3, columns))) + 0.1 * random.standard_normal(
        (rows, columns)
    )


def _outputs(X: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * X[:, :TARGETS]) + X[:, TARGETS : 2 * TARGETS] ** 2


def _with_gaps(Y: np.ndarray, name: str) -> np.ndarray:
    """A third is missing, of the first point all."""
    gone = _random(f"gaps {name}").uniform(size=Y.shape) < 0.3
    gone[0] = True
    return np.where(gone, np.nan, Y)


def arrays() -> dict[str, dict[str, np.ndarray]]:
    """The arrays of each data set, by its name."""
    X, X_val = _inputs(POINTS, COLUMNS, "X"), _inputs(VALIDATION, COLUMNS, "X_val")
    Y, Y_val = _outputs(X), _outputs(X_val)
    inputs = {"X": X, "X_val": X_val}
    numbers = {**inputs, "Y": Y, "Y_val": Y_val}
    labels = {**inputs, "Y": Y.argmax(axis=1), "Y_val": Y_val.argmax(axis=1)}
    gaps = {**inputs, "Y": _with_gaps(Y, "Y"), "Y_val": _with_gaps(Y_val, "Y_val")}
    weights = {
        "weights": _random("w").uniform(0.0, 3.0, POINTS),
        "weights_val": _random("v").uniform(0.0, 3.0, VALIDATION),
    }
    of_outputs = {
        "weights": np.maximum(_random("o").normal(1.0, 1.0, Y.shape), 0.0),
        "weights_val": np.maximum(_random("u").normal(1.0, 1.0, Y_val.shape), 0.0),
    }
    pictures = {
        "X": _inputs(POINTS, 36, "P").reshape(-1, 6, 6),
        "X_val": _inputs(VALIDATION, 36, "Q").reshape(-1, 6, 6),
    }
    long = _inputs(6200, 4, "long")
    return {
        "codes": inputs,
        "few": {"X": X[:60], "X_val": X_val[:20]},
        "few_numbers": {"X": X[:60], "X_val": X_val[:30], "Y": Y[:60], "Y_val": Y_val[:30]},
        "long": {"X": long[:6100], "X_val": long[6100:]},
        "numbers": numbers,
        "labels": labels,
        "weighted_labels": {**labels, **weights},
        "truth": {**inputs, "Y": (Y > 0.0).astype(float), "Y_val": (Y_val > 0.0).astype(float)},
        "counts": {**inputs, "Y": np.floor(np.exp(Y)), "Y_val": np.floor(np.exp(Y_val))},
        "gaps": gaps,
        "weighted": {**numbers, **weights},
        "weighted_gaps": {**gaps, **weights},
        "weighted_outputs": {**numbers, **of_outputs},
        "pictures": pictures,
        "pictures_labels": {
            **pictures,
            "Y": pictures["X"][:, 2, :3].argmax(axis=1),
            "Y_val": pictures["X_val"][:, 2, :3].argmax(axis=1),
        },
    }


def write_table(path: Path) -> None:
    """A table with numbers, categories and missing values; validation points are drawn from it."""
    random = _random("table")
    ages, lengths = random.uniform(18.0, 90.0, POINTS), random.lognormal(size=POINTS)
    cities = np.array(["Oslo", "Rome", "Quito"])[random.integers(3, size=POINTS)]
    prices = 0.1 * ages + np.log(lengths) + (cities == "Rome")
    gone = random.uniform(size=POINTS) < 0.2
    rows = [
        f"{'' if g else repr(float(a))},{float(b)!r},{c},{float(p)!r}"
        for g, a, b, c, p in zip(gone, ages, lengths, cities, prices, strict=True)
    ]
    path.write_text("\n".join(["age,length,city,price", *rows]) + "\n")


def write_data(folder: Path) -> dict[str, str]:
    """Writes all data sets; the path of each by its name."""
    found = {"table": str(folder / "table.csv")}
    write_table(folder / "table.csv")
    for name, held in arrays().items():
        found[name] = str(folder / f"{name}.h5")
        with h5py.File(found[name], "w") as file:
            for key, array in held.items():
                file[key] = array
    return found
