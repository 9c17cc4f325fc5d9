"""Pieces of a stream against a fit to all points, as many passes: the table of docs/python.md.

    MACMPI_DATA=... python run/bench/streams.py streams.json [friedman1 digits usps ...]

Errors are those of points that neither has seen, of the last weights; a piece is given once in each pass.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from sklearn.datasets import load_digits, make_friedman1

import macmpi

PIECES = (4, 10)


class Task(NamedTuple):
    """Training points, other points (X, Y; None of an autoencoder), the error of a model there, and how to train it."""

    train: tuple[Any, Any]
    other: tuple[Any, Any]
    error: Callable[[Any, Any, Any], float]
    passes: int
    keys: dict[str, Any]


def friedman1(seed: int) -> Task:
    X, y = make_friedman1(3000, noise=1.0, random_state=seed)
    train, other = (X[:2000], y[:2000]), (X[2000:], y[2000:])
    return Task(
        train, other, lambda model, A, b: float(np.square(model.predict(A) - b).mean()), 20, {"loss": "squared"}
    )


def digits(seed: int) -> Task:
    X, y = load_digits(return_X_y=True)
    X, y = (A[np.random.default_rng(seed).permutation(len(X))] for A in (X, y))

    def error(model: Any, A: Any, b: Any) -> float:
        return float(-np.log(np.maximum(model.probabilities(A)[np.arange(len(b)), b], 1e-300)).mean())

    return Task((X[:1400], y[:1400]), (X[1400:], y[1400:]), error, 20, {"loss": "cross_entropy"})


def usps(seed: int) -> Task:
    with h5py.File(Path(os.environ["MACMPI_DATA"]) / "usps.h5") as file:
        X = file["images"][:] / 255.0
    X = X[np.random.default_rng(seed).permutation(len(X))]

    def error(model: Any, A: Any, b: Any) -> float:
        return float(0.5 * np.square(model.predict(A) - A.reshape(len(A), -1)).sum(axis=1).mean())

    return Task((X[:5000], None), (X[5000:], None), error, 10, {"loss": "squared", "hidden": [100, 20, 100]})


TASKS = {"friedman1": (friedman1, (0, 1)), "digits": (digits, (0, 1)), "usps": (usps, (0,))}
"""A task, and seeds of its points and weights."""


def outcome(task: Task, seed: int, pieces: int) -> dict[str, float]:
    """The error and processor seconds of a fit to a number of pieces, 1: to all points at once."""
    (X, Y), began = task.train, time.process_time()
    if pieces == 1:
        held = X[::5] if Y is None else (X[::5], Y[::5])  # as a piece does: points that it is trained on
        settings = {"run.max_iterations": task.passes, "run.refit": False, "stochastic.patience": 10**4}
        model = macmpi.fit(X, Y, seed=seed, validation=held, config=settings, **task.keys).with_weights("last")
    else:
        parts = [slice(i * len(X) // pieces, (i + 1) * len(X) // pieces) for i in range(pieces)]
        batches = ((X[s], None if Y is None else Y[s]) for _ in range(task.passes) for s in parts)
        known = {"classes": np.unique(Y)} if task.keys["loss"] == "cross_entropy" else {}
        model = macmpi.fit(batches=batches, seed=seed, **known, **task.keys)
    return {"error": task.error(model, *task.other), "seconds": time.process_time() - began}


def main() -> None:
    if len(sys.argv) < 2 or set(sys.argv[2:]) - TASKS.keys():
        sys.exit((__doc__ or "").strip())
    warnings.simplefilter("ignore", macmpi.MacmpiWarning)
    rows = []
    for name in sys.argv[2:] or TASKS:
        make, seeds = TASKS[name]
        for seed in seeds:
            task = make(seed)
            rows += [{"task": name, "seed": seed, "pieces": k, **outcome(task, seed, k)} for k in (1, *PIECES)]
            print(name, seed, *(f"{row['pieces']}: {row['error']:.4g}" for row in rows[-1 - len(PIECES) :]), flush=True)
    head = {"command": " ".join(sys.argv), "machine": platform.platform(), "python": platform.python_version()}
    Path(sys.argv[1]).write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
