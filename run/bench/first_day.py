"""The first hours with macmpi from Python: a first model of the digits, and a grid search against scikit-learn's MLP.

    python run/bench/first_day.py --repeats 3

Seconds are those of the clock; macmpi and MLP search in turn.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from statistics import median
from typing import Any

from defaults import commit, measured_where

FIRST = """
import time; began = time.perf_counter()
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
frame = load_digits(as_frame=True).frame
train, test = train_test_split(frame, test_size=0.25, random_state={seed}, stratify=frame.target)
loaded = time.perf_counter()
import macmpi
model = macmpi.fit(train, "target", loss="cross_entropy")
print(time.perf_counter() - loaded, (model.predict(test) == test.target).mean())
"""

GRID = [[50], [100], [100, 50]]


def first_models(splits: int) -> tuple[list[float], list[float]]:
    """Seconds from `import macmpi` to a model, each in a fresh process, and its share of right labels on other rows."""
    found = []
    for seed in range(splits):
        told = subprocess.run(
            [sys.executable, "-c", FIRST.format(seed=seed)], capture_output=True, text=True, check=True
        )
        found.append([float(word) for word in told.stdout.split()])
    return [seconds for seconds, _ in found], [right for _, right in found]


def searched(estimator: Any, grid: dict[str, Any]) -> float:
    """Seconds of a grid search of 15 fits, and a last one."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV

    X, y = load_digits(return_X_y=True)
    began = time.perf_counter()
    search = GridSearchCV(estimator, grid, cv=5).fit(X, y)
    seconds = time.perf_counter() - began
    print(f"{type(estimator).__name__}: {seconds:.1f} s, best {search.best_score_:.4f}", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--splits", type=int, default=8)
    args = parser.parse_args()
    from sklearn.neural_network import MLPClassifier

    from macmpi.sklearn import MACClassifier

    warnings.simplefilter("ignore")
    print(f"{measured_where()}; commit {commit()}; python run/bench/first_day.py {' '.join(sys.argv[1:])}", flush=True)
    seconds, right = first_models(args.splits)
    print(
        f"first model: {median(seconds):.2f} s (median of {len(seconds)}; {min(seconds):.2f} to {max(seconds):.2f}), "
        f"{sum(right) / len(right):.2%} right on the mean ({min(right):.2%} to {max(right):.2%})",
        flush=True,
    )
    ratios = []
    for _ in range(args.repeats):
        ours = searched(MACClassifier(random_state=0), {"hidden": GRID})
        theirs = searched(MLPClassifier(random_state=0), {"hidden_layer_sizes": [tuple(sizes) for sizes in GRID]})
        ratios.append(ours / theirs)
    print(f"grid search: {median(ratios):.2f} times the MLP's seconds ({', '.join(f'{r:.2f}' for r in ratios)})")


if __name__ == "__main__":
    main()
