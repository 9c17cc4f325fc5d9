"""Training on data that nobody has chosen: does every run end better than the best constant, or say that it did not?

    python run/bench/fuzz.py --sets 200                     # methods and activations in turn
    python run/bench/fuzz.py --sets 40 --method stochastic --seed 7

Each set has some of: heavy tails, outliers of 1e6, columns that are duplicate, constant, dependent or correlated, tiny
and huge units, rare labels, fewer points than columns, 20 points.  A run fails that ends with a traceback, or with exit
code 0 though its weights are worse than the best constant on the training points.  The table is written to --output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import h5py  # noqa: E402
import numpy as np  # noqa: E402

Array = np.ndarray
ACTIVATIONS = ("auto", "relu", "leaky_relu", "sigmoid", "tanh")
METHODS = ("stochastic", "mac")


def inputs(random: np.random.Generator, n: int, d: int) -> tuple[Array, list[str]]:
    """X (n, d) and what is strange about it."""
    X, said = random.normal(size=(n, d)), []

    def some() -> Array:
        return random.choice(d, size=random.integers(1, d + 1), replace=False)

    def tails() -> None:
        X[:, some()] = random.standard_t(1.1, size=(n, 1))

    def lognormal() -> None:
        own = some()
        X[:, own] = np.exp(4.0 * X[:, own])

    def outliers() -> None:
        X[random.integers(n), some()] = random.choice([-1e6, 1e6])

    def duplicates() -> None:
        X[:, some()] = X[:, :1]

    def constants() -> None:
        X[:, some()[: d - 1]] = random.choice([0.0, 5.0, -1e4])

    def dependent() -> None:
        own = some()
        X[:, own] = X @ random.normal(size=(d, len(own)))

    def units() -> None:
        X[:, :] *= 10.0 ** random.uniform(-9, 9, size=d)

    def offsets() -> None:
        X[:, :] += 10.0 ** random.uniform(0, 6, size=d)

    def flags() -> None:
        own = some()
        X[:, own] = random.random((n, len(own))) < 0.02

    for kind in (tails, lognormal, outliers, duplicates, constants, dependent, flags, units, offsets):
        if random.random() < 0.3:
            kind()
            said.append(kind.__name__)
    if not np.ptp(X, axis=0).any():
        X[:, 0] = random.normal(size=n)
    return X, said


def targets(random: np.random.Generator, X: Array) -> tuple[Array | None, str]:
    """Y, or None for an autoencoder, and what it is."""
    kind = random.choice(["smooth", "smooth", "heavy", "outlier", "noise", "labels", "rare labels", "autoencoder"])
    n, d = X.shape
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-300)
    y = np.tanh(Z @ random.normal(size=d)) + 0.3 * np.square(Z[:, 0]) + 0.1 * random.normal(size=n)
    if kind == "autoencoder":
        return None, kind
    if kind == "heavy":
        y = np.sinh(3.0 * y)
    if kind == "outlier":
        y[random.integers(n)] = 1e6
    if kind == "noise":
        y = random.normal(size=n)
    if kind == "labels":
        return np.digitize(y, np.quantile(y, np.linspace(0, 1, random.integers(2, 7) + 1)[1:-1])), kind
    if kind == "rare labels":
        return (y > np.sort(y)[-max(n // 50, 2)]).astype(int), kind
    return y * 10.0 ** random.uniform(-6, 6) + 10.0 ** random.uniform(-3, 3), kind


def data_set(seed: int) -> tuple[dict[str, Array], str]:
    random = np.random.default_rng(seed)
    n, d = int(random.choice([20, 30, 60, 200, 1000, 3000])), int(random.choice([1, 2, 5, 12, 40]))
    X, said = inputs(random, n, d)
    Y, kind = targets(random, X)
    return {"X": X} | ({} if Y is None else {"Y": Y}), f"{n} x {d} {kind}; {', '.join(said) or 'plain'}"


def tried(job: tuple[int, str, str]) -> dict[str, Any]:
    """A run on a generated set: its exit code, errors of the weights kept and of the best constant."""
    seed, method, activation = job
    arrays, words = data_set(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        np.savez(path / "t.npz", **arrays)  # type: ignore[arg-type]
        labels = "labels" in words
        lines = ['data = "t.npz"', "[model]", f'activation = "{activation}"', *['loss = "cross_entropy"'] * labels]
        (path / "t.toml").write_text("\n".join([*lines, "[method]", f'name = "{method}"']))
        command = [sys.executable, "-m", "macmpi.run", "t.toml", "--output", "run"]
        done = subprocess.run(command, cwd=path, capture_output=True, text=True, timeout=600, env=dict(os.environ))
        found = {"seed": seed, "method": method, "activation": activation, "data": words, "code": done.returncode}
        if done.returncode == 0:
            with h5py.File(path / "run" / "model.h5") as file:
                found["error"] = float(file.attrs["best_E1_train"])
            constant = next(line for line in done.stdout.splitlines() if line.startswith("  predict the "))
            found["constant"] = constant.split()[-1]
        else:
            found["said"] = (done.stderr or done.stdout).strip().splitlines()[-1][:300]
    return found


def last_digit(printed: str) -> float:
    """The unit of the last digit of a number: 1e-4 of 0.1234, 1e+03 of 1.234e+06."""
    return 10.0 ** float(Decimal(printed).as_tuple().exponent)


def failed(row: dict[str, Any]) -> bool:
    """It ended with a traceback, or with 0 though its weights are worse than the best constant, as far as printed."""
    if row["code"] == 0:
        return not row["error"] <= float(row["constant"]) + last_digit(row["constant"])
    return row["code"] not in (2, 70) or "Traceback" in row["said"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first set's; the others follow")
    parser.add_argument("--method", choices=METHODS)
    parser.add_argument("--activation", choices=ACTIVATIONS)
    parser.add_argument("--all", action="store_true", help="every method and activation on every set, not in turn")
    parser.add_argument("--output", type=Path, default=Path("runs/fuzz.json"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    ways = list(
        product([args.method] if args.method else METHODS, [args.activation] if args.activation else ACTIVATIONS)
    )
    jobs = [
        (seed, *way)
        for i, seed in enumerate(range(args.seed, args.seed + args.sets))
        for way in (ways if args.all else [ways[i % len(ways)]])
    ]
    rows = []
    with ThreadPoolExecutor(args.workers) as pool:
        for row in pool.map(tried, jobs):
            rows.append(row)
            if failed(row) or row["code"]:
                print("FAILED" if failed(row) else "refused", json.dumps(row), flush=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(rows, indent=1))
    bad, refused = sum(map(failed, rows)), sum(row["code"] != 0 and not failed(row) for row in rows)
    print(f"{len(rows)} runs: {bad} failed, {refused} said that they could not be trained; {args.output}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
