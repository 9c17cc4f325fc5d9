"""The table of docs/tutorial/codes.md: codes of bits by macmpi, against what one would use instead.

    python run/bench/tutorial.py                                     # measures, and writes the table into the page
    python run/bench/tutorial.py --repeats 2 --page /tmp/codes.md    # a trial, into a copy of the page

All contenders of a split are measured one after the other in one process on one thread, so that what else the machine
does strikes them alike.  Seconds are CPU seconds of fit and prediction, imports not counted.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
from defaults import OURS, commit, measured_where  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402
from sklearn.model_selection import GridSearchCV, ShuffleSplit, train_test_split  # noqa: E402
from sklearn.neural_network import MLPRegressor  # noqa: E402

import macmpi  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "codes.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
NEIGHBOURS = 10
BITS = (8, 16, 32)
RECIPE = {
    "start.method": "itq",
    "penalty.mu0": 0.01,
    "penalty.factor": 2.0,
    "penalty.mu_max": 10.0,
    "penalty.ridge": 1.0,
    "w_step.iterations": 10,
    "run.max_iterations": 60,
}
RECIPE_OF = "as usps_binary.toml"
"""The settings of run/usps_binary.toml, which were chosen on other images."""

DEEP = {
    **RECIPE,
    "start.method": "file",
    "penalty.mu0": 0.001,
    "model.sites": ["after", "none"],
}
"""mu0 was chosen among 0.001, 0.01 and 0.1 on a split that is not among those of the table."""

Array = np.ndarray
Row = tuple[str, dict[str, float]]
"""A contender, and its figures by name; the last is its CPU seconds."""


def timed(do: Callable[[], Any]) -> tuple[Any, float]:
    """The answer, and the CPU seconds that it took."""
    began = time.process_time()
    found = do()
    return found, time.process_time() - began


def codes(seed: int) -> list[Row]:
    """Bits of digits: the share of the training images with the nearest codes that show the digit of a test image, and
    R^2 of test images that a decoder makes of their bits."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16.0, y, test_size=0.25, random_state=seed, stratify=y)
    rows = []
    for bits in BITS:
        for name, make in coders(bits, seed).items():
            (code, code_test, decoded), seconds = timed(lambda make=make: made(make, X, X_test))
            found = scores(code, code_test, y, y_test, X_test, decoded)
            rows.append((f"{bits} bits: {name}", found | {"CPU s": seconds}))
    pixels = scores(X, X_test, y, y_test, X_test, X_test)
    return [*rows, ("the 64 pixels themselves", pixels | {"CPU s": 0.0})]


Coder = Callable[[Array], Array]
Coders = tuple[Coder, Coder]
"""Images to truth values, and these as numbers back to images."""


def coders(bits: int, seed: int) -> dict[str, Callable[[Array], Coders]]:
    """Functions of training images that give an encoder and a decoder."""

    def planes(X: Array) -> Coders:
        V, mean = np.random.default_rng(seed).normal(size=(X.shape[1], bits)), X.mean(axis=0)
        return with_ridge(lambda A: (A - mean) @ V > 0.0, X)

    def signs(X: Array) -> Coders:
        pca = PCA(bits, random_state=seed).fit(X)
        return with_ridge(lambda A: pca.transform(A) > 0.0, X)

    def cut(X: Array) -> Coders:
        """An autoencoder of sigmoids, each unit of its code cut at its median."""
        keys = {"activation": "logistic", "max_iter": 1000, "learning_rate_init": 0.01}
        net = MLPRegressor(hidden_layer_sizes=(bits,), random_state=seed, **keys).fit(X, X)

        def inputs(A: Array) -> Array:
            return A @ net.coefs_[0] + net.intercepts_[0]

        middle = np.median(inputs(X), axis=0)
        return with_ridge(lambda A: inputs(A) > middle, X)

    def rotated_mlp(X: Array) -> Coders:
        """ITQ, and an MLP that reads its bits; the weight decay is chosen on points that are held out."""
        encode = rotated(X, bits, seed)
        net = MLPRegressor(hidden_layer_sizes=(100,), max_iter=500, random_state=seed)
        held = ShuffleSplit(1, test_size=0.2, random_state=seed)
        search = GridSearchCV(net, {"alpha": [1e-4, 1e-2, 1e-1, 1.0, 10.0]}, cv=held).fit(encode(X), X)
        return encode, search.predict

    def ours(settings: dict[str, Any]) -> Callable[[Array], Coders]:
        def make(X: Array) -> Coders:
            model = macmpi.fit(X.reshape(-1, 8, 8), hidden=[bits], layers="binary", config=settings, seed=seed)
            return lambda A: model.encode(A) > 0.5, model.decode

        return make

    def deep(X: Array) -> Coders:
        """A net whose bits begin as those of ITQ, and whose decoder has a hidden layer of its own."""
        encode = rotated(X, bits, seed)
        X, X_val = train_test_split(X, test_size=0.2, random_state=seed)
        with tempfile.TemporaryDirectory() as folder:
            start = Path(folder) / "codes.npz"
            np.savez(start, Z=encode(X).astype(np.float64))
            model = macmpi.fit(
                X.reshape(-1, 8, 8),
                validation=X_val.reshape(-1, 8, 8),
                hidden=[bits, 100],
                layers=["binary", "sigmoid"],
                config=DEEP | {"start.coordinates": str(start)},
                seed=seed,
            )
        return lambda A: model.encode(A) > 0.5, model.decode

    return {
        f"{OURS}, from ITQ's, deep decoder": deep,
        f"{OURS}, {RECIPE_OF}": ours(RECIPE),
        f"{OURS}, no settings": ours({}),
        "ITQ": lambda X: with_ridge(rotated(X, bits, seed), X),
        "ITQ, MLP as decoder": rotated_mlp,
        "signs of PCA": signs,
        "MLP autoencoder, cut": cut,
        "random planes": planes,
    }


def rotated(X: Array, bits: int, seed: int) -> Coder:
    """ITQ (Gong and Lazebnik, 2011): signs of principal components that are turned so as to lie near their signs."""
    pca = PCA(bits, random_state=seed).fit(X)
    V = pca.transform(X)
    R = np.linalg.qr(np.random.default_rng(seed).normal(size=(bits, bits)))[0]
    for _ in range(50):
        left, _, right = np.linalg.svd(np.sign(V @ R).T @ V)
        R = (left @ right).T
    return lambda A: pca.transform(A) @ R > 0.0


def with_ridge(encode: Coder, X: Array) -> Coders:
    """A linear decoder for an encoder that has none."""
    return encode, Ridge(1.0).fit(encode(X), X).predict


def made(make: Callable[[Array], Coders], X: Array, X_test: Array) -> tuple[Array, Array, Array]:
    """Codes of both sets, and the test images from their codes."""
    encode, decode = make(X)
    code_test = encode(X_test).astype(np.float64)
    return encode(X).astype(np.float64), code_test, decode(code_test)


def precision(A: Array, A_test: Array, y: Array, y_test: Array) -> float:
    """The share of the nearest training points, in per cent, that have the label of the test point."""
    distances = (A_test**2).sum(axis=1)[:, None] - 2.0 * A_test @ A.T + (A**2).sum(axis=1)
    nearest = np.argsort(np.round(distances, 9), axis=1, kind="stable")[:, :NEIGHBOURS]
    return 100.0 * float(np.mean(y[nearest] == y_test[:, None]))


def scores(code: Array, code_test: Array, y: Array, y_test: Array, X_test: Array, decoded: Array) -> dict[str, float]:
    total = np.sum((X_test - X_test.mean(axis=0)) ** 2)
    fit = 1.0 - float(np.sum((decoded - X_test) ** 2) / total)
    return {"same digit, %": precision(code, code_test, y, y_test), "R^2": fit}


# --- pages ------------------------------------------------------------------------------------------------------------


def table(splits: list[list[Row]]) -> list[str]:
    """Markdown, a row a contender, a column a number of bits: the mean and the deviation over the splits of each figure
    but the seconds, which are means."""
    found: dict[str, dict[str, str]] = {}
    for i, (name, figures) in enumerate(splits[0]):
        bits, _, contender = name.rpartition(" bits: ")
        cells = []
        for key in figures:
            values = np.array([rows[i][1][key] for rows in splits])
            digits = 2 if abs(values.mean()) < 20.0 else 1
            spread = "" if key == "CPU s" else f" ± {values.std(ddof=1):.{digits}f}"
            cells.append(f"{values.mean():.{digits}f}{spread}")
        found.setdefault(contender, {})[bits] = ", ".join(cells)
    columns = [str(bits) for bits in BITS]
    lines = [f"| {', '.join(splits[0][0][1])} | {' | '.join(f'{bits} bits' for bits in columns)} |"]
    lines += ["|---|" + "---|" * len(columns)]
    for contender, cells_of in found.items():
        own = [cells_of.get(bits, "") for bits in columns] if "" not in cells_of else [cells_of[""], *[""] * 2]
        lines.append(f"| {contender} | {' | '.join(own)} |")
    return lines


def into(page: Path, lines: list[str], command: str, repeats: int) -> None:
    """Replaces the table of a page, and the text that says where it is from."""
    head = (
        f"{measured_where()}; commit {commit()}. One thread; the machine was shared, so seconds are rough. Means ± "
        f"deviations over {repeats} splits, a quarter of the points for the test. Written by `{command}`."
    )
    text = page.read_text(encoding="utf-8")
    own = "\n".join([BEGIN, textwrap.fill(head, 118, break_on_hyphens=False, break_long_words=False), "", *lines, END])
    changed, count = re.subn(f"{BEGIN}.*?{END}", lambda _: own, text, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"{page}: one pair of {BEGIN} and {END} is needed")
    page.write_text(changed, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    splits = []
    for seed in range(args.repeats):
        splits.append(codes(seed))
        print(seed, *(f"{name}: {figures}" for name, figures in splits[-1]), sep="\n  ", flush=True)
    lines = table(splits)
    print("\n".join(lines))
    into(args.page, lines, " ".join(["python", "run/bench/tutorial.py", *sys.argv[1:]]), args.repeats)


if __name__ == "__main__":
    main()
