"""macmpi without tuning against what people use instead, on data that nobody has tuned it for.

    python run/bench/defaults.py                      # six splits of each set and table, the defaults of all
    python run/bench/defaults.py --tuned 20           # the MLP also over 20 settings, chosen on its own held-out points
    python run/bench/defaults.py --sets digits tables # some of the sets (data_sets.py), all public tables

All contenders have the same splits (a quarter for the test) and choose what they choose from the training part.
Seconds are CPU seconds of a whole process, imports included, one thread.  Writes --output (JSON), which a run that was
stopped goes on from; --page writes Markdown tables of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import textwrap
from itertools import product
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
from public_tables import MISSING, TABLES, archive  # noqa: E402

HERE = Path(__file__).resolve()
OURS, FULL, MLP, TUNED, TREES, LINEAR = "macmpi", "full MAC", "MLP", "MLP, tuned", "boosted trees", "linear"
STOPPED = "MLP, stopped early"
SEVERAL_OUTPUTS = ("four outputs",)
TARGET = "the target"
"""The column of a table's target, in the file that macmpi reads."""


def split(name: str, seed: int) -> tuple[str, list[Any]]:
    from data_sets import SETS
    from public_tables import read
    from sklearn.model_selection import train_test_split

    kind, X, y = SETS[name]() if name in SETS else read(name)
    return kind, train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y if kind == "labels" else None)


def error(kind: str, found: Any, wanted: Any) -> float:
    if kind == "labels":
        return 100.0 * float(np.mean(np.asarray(found).astype(str) != wanted.astype(str)))
    scale = wanted.std(axis=0) if wanted.ndim > 1 else 1.0
    return float(np.sqrt(np.mean(np.square((found.reshape(wanted.shape) - wanted) / scale))))


def process(command: list[str], cwd: Path) -> tuple[float, str]:
    """CPU seconds of a process, and what it said where it failed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:]


def ours(kind: str, X: Any, y: Any, X_test: Any, folder: Path, settings: list[str]) -> tuple[Any, float]:
    import macmpi

    if isinstance(X, np.ndarray):
        np.savez(folder / "t.npz", X=X, Y=y)
        data = 'data = "t.npz"'
    else:
        X.assign(**{TARGET: y}).to_csv(folder / "t.csv", index=False)
        data = f'data.source = "t.csv"\ndata.target = "{TARGET}"'
    loss = '"cross_entropy"' if kind == "labels" else '"squared"'
    (folder / "t.toml").write_text(f"{data}\nmodel.loss = {loss}\n")
    options = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "macmpi.run", "t.toml", "--output", "run", *options]
    seconds, failed = process(command, folder)
    if failed:
        raise RuntimeError(failed)
    return macmpi.load(folder / "run" / "model.h5").predict(X_test), seconds


def text_of(X: Any) -> list[str]:
    """The columns of a table that are no numbers: text and truth values."""
    return [name for name, column in X.items() if column.dtype.kind not in "iuf"]


def as_numbers(X: Any) -> Any:
    """Scales numbers, the mean in their gaps; of a table's text each category, and each gap, becomes a column."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    if isinstance(X, np.ndarray):
        return StandardScaler()
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer((OneHotEncoder(handle_unknown="ignore"), text_of(X)), remainder=numbers)


def of_table(trees: Any, X: Any) -> Any:
    """Trees for a table: its text becomes categories that they know as such, and they split on gaps."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    text = text_of(X)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=200)
    categorical = [place < len(text) for place in range(X.shape[1])]
    coded = make_column_transformer((codes, text), remainder="passthrough")
    return make_pipeline(coded, trees.set_params(categorical_features=categorical))


def peer(name: str, kind: str, seed: int, tried: int, X: Any) -> Any:
    """An estimator of scikit-learn for points X, scaled inputs and targets where it needs them."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.model_selection import RandomizedSearchCV, ShuffleSplit
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    labels = kind == "labels"
    if name == TREES:
        trees = HistGradientBoostingClassifier(random_state=seed) if labels else HistGradientBoostingRegressor()
        return trees if isinstance(X, np.ndarray) else of_table(trees, X)
    if name == LINEAR:
        linear = LogisticRegression(max_iter=2000) if labels else RidgeCV(10.0 ** np.arange(-2.0, 4.0))
        return make_pipeline(StandardScaler(), linear)
    estimator = MLPClassifier if labels else MLPRegressor
    net = make_pipeline(as_numbers(X), estimator(random_state=seed, early_stopping=name == STOPPED))
    step = "mlpclassifier" if labels else "mlpregressor"
    if name == TUNED:
        grid = {
            f"{step}__hidden_layer_sizes": [(50,), (100,), (200,), (100, 100)],
            f"{step}__alpha": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0],
            f"{step}__learning_rate_init": [5e-4, 1e-3, 3e-3, 1e-2],
            f"{step}__activation": ["relu", "tanh"],
            f"{step}__early_stopping": [False, True],
        }
        held = ShuffleSplit(1, test_size=0.2, random_state=seed)
        net = RandomizedSearchCV(net, grid, n_iter=tried, cv=held, random_state=seed)
    return net if labels else TransformedTargetRegressor(net, transformer=StandardScaler())


def theirs(arguments: list[str]) -> None:
    """In a process of its own: fits a peer to a file's points, writes its predictions."""
    import warnings

    warnings.simplefilter("ignore")
    path, name, kind, seed, tried = arguments
    X, y, X_test = pickle.loads(Path(path).read_bytes())
    found = peer(name, kind, int(seed), int(tried), X).fit(X, y).predict(X_test)
    Path(f"{path}.found").write_bytes(pickle.dumps(found))


def measured(name: str, seed: int, who: str, tuned: int, settings: list[str]) -> dict[str, Any]:
    """A contender's error on the test points of a split, and its CPU seconds."""
    kind, (X, X_test, y, y_test) = split(name, seed)
    with tempfile.TemporaryDirectory() as folder:
        if who in (OURS, FULL):
            method = ["method.name=mac"] if who == FULL else []
            predicted, seconds = ours(kind, X, y, X_test, Path(folder), [*method, *settings])
        else:
            file = Path(folder) / "peer"
            file.write_bytes(pickle.dumps((X, y, X_test)))
            command = [sys.executable, str(HERE), "--peer", str(file), who, kind, str(seed), str(tuned)]
            seconds, failed = process(command, Path(folder))
            if failed:
                raise RuntimeError(failed)
            predicted = pickle.loads(Path(f"{file}.found").read_bytes())
    found = {"set": name, "seed": seed, "who": who, "error": error(kind, predicted, y_test), "seconds": seconds}
    return found | {"commit": commit()}


def of_contender(rows: list[dict[str, Any]], who: str) -> list[str]:
    """The commits at which a contender was measured, in order."""
    return list(dict.fromkeys(row["commit"] for row in rows if row["who"] == who))


def contenders(name: str, tuned: int) -> list[str]:
    """Those of a data set or table: boosted trees have one output."""
    if name in TABLES:
        return [OURS, MLP, STOPPED, TREES]
    return [OURS, FULL, MLP, *[TUNED] * bool(tuned), *[TREES] * (name not in SEVERAL_OUTPUTS), LINEAR]


def of_page(page: Path, without: list[str]) -> list[dict[str, Any]]:
    """Means of a page written earlier, but for some contenders: rows of no split, with the commits that it names."""
    text = page.read_text().partition(PUBLIC)[0]
    named = " ".join(text.split("Commits:")[1].split("Written")[0].split())
    commits = {who.strip(): at for who, at in re.findall(r"([^;:]+?) at ([0-9a-f, -]+?(?:dirty)?)(?=;|\.)", named)}
    lines = text[text.index("| data set") :].partition("\n\n")[0].splitlines()
    (_, *heads), _, *of_sets = (line.strip("| ").split(" | ") for line in lines)
    rows = []
    for name, *cells in of_sets:
        for who, cell in zip((head.partition(":")[0] for head in heads), cells, strict=True):
            if who not in without and cell != "-":
                error, seconds = map(float, cell.split(", "))
                rows.append({"set": name, "seed": -1, "who": who, "error": error, "seconds": seconds})
                rows[-1]["commit"] = commits[who]
    return rows


def means(rows: list[dict[str, Any]]) -> dict[str, dict[str, tuple[float, float]]]:
    """The mean error and CPU seconds over the splits, by set and contender."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        found.setdefault(row["set"], {}).setdefault(row["who"], []).append((row["error"], row["seconds"]))
    return {
        name: {who: tuple(np.mean(pairs, axis=0).tolist()) for who, pairs in by_who.items()}
        for name, by_who in found.items()
    }


UNSEEN = 4
"""Defaults were chosen with a view to the splits before this one; those from it on decided one value alone (HEAD)."""

SAME = 0.01
"""Errors that differ by this share are no worse and no better."""

NOISE = 0.05
"""The chance that splits which differ by chance alone are said to differ by more."""


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: mean errors and CPU seconds, then how often macmpi is no worse and better than each contender."""
    found = means(rows)
    others = [who for who in (FULL, MLP, TUNED, TREES, LINEAR) if any(who in row for row in found.values())]
    lines = [f"| data set | {OURS}: error, CPU seconds | {' | '.join(others)} |"]
    lines.append("|---|" + "---|" * (1 + len(others)))
    for name, row in found.items():
        cells = ["{:.4g}, {:.1f}".format(*row[who]) if who in row else "-" for who in (OURS, *others)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"| {OURS} against | no worse | better | within 3 % | its CPU seconds in theirs |",
        "|---|---|---|---|---|",
    ]
    against = [(who, who, found) for who in others]
    if apart := [row for row in rows if row["seed"] >= UNSEEN]:
        own = [who for who in others if any(row["who"] == who for row in apart)]
        against += [(f"{who}, splits from {UNSEEN} on", who, means(apart)) for who in own]
    for title, who, some in against:
        pairs = [(row[OURS][1], row[who][1]) for row in some.values() if who in row]
        ratio = math.exp(sum(math.log(a / b) for a, b in pairs) / len(pairs))
        lines.append(f"| {title} | {' | '.join(compared(some, who))} | {ratio:.2f} |")
    return lines


def compared(found: dict[str, dict[str, tuple[float, float]]], who: str) -> list[str]:
    """On how many sets macmpi is no worse than a contender, better, and within 3 %."""
    pairs = [(row[OURS][0], row[who][0]) for row in found.values() if who in row]
    no_worse = sum(a <= b * (1.0 + SAME) for a, b in pairs)
    better = sum(a < b * (1.0 - SAME) for a, b in pairs)
    return [f"{no_worse} of {len(pairs)}", str(better), str(sum(a <= 1.03 * b for a, b in pairs))]


def spread(rows: list[dict[str, Any]], sizes: dict[str, tuple[int, int]]) -> list[str]:
    """Markdown of the public tables: medians and ranges of errors, then how macmpi does against each contender.

    It says nothing of seconds: contenders may have been measured at different times.

    sizes: rows and inputs of the tables by their names.
    """
    errors: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        errors.setdefault(row["set"], {}).setdefault(row["who"], {})[row["seed"]] = row["error"]
    own = dict.fromkeys(row["who"] for row in rows)
    others = [who for who in (MLP, STOPPED, TREES) if who in own]
    lines = [
        f"| table: outcome | rows, inputs | {' | '.join((OURS, *others))} |",
        "|---|---|" + "---|" * (1 + len(others)),
    ]
    for name, found in errors.items():
        cells = [_median(list(found[who].values())) if who in found else "-" for who in (OURS, *others)]
        size = "{:,}, {}".format(*sizes[name])
        lines.append(f"| {name}: {TABLES[name].target} | {size} | {' | '.join(cells)} |")
    lines += ["", f"| {OURS} against | no worse | better | within 3 % | beyond noise: worse on | better |"]
    lines += ["|---|---|---|---|---|---|"]
    for who in others:
        cells = [*compared(means(rows), who), *_beyond_noise(errors, who)]
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return lines


def _median(errors: list[float]) -> str:
    least, most = (f"{float(f'{error:.3g}'):,g}" for error in (min(errors), max(errors)))
    return f"{np.median(errors):.4g} ({least}-{most})"


def _beyond_noise(errors: dict[str, dict[str, dict[int, float]]], who: str) -> tuple[str, str]:
    """The tables on which macmpi is worse than a contender by more than chance, and how many those where better are.

    By chance: the mean of the splits' differences is 0 (Student's t, at 5 %).
    """
    from scipy.stats import ttest_1samp

    worse, better = [], 0
    for name, found in errors.items():
        both = sorted(found.get(OURS, {}).keys() & found.get(who, {}).keys())
        apart = np.array([found[OURS][seed] - found[who][seed] for seed in both])
        if len(apart) > 1 and np.ptp(apart) > 0.0 and ttest_1samp(apart, 0.0).pvalue < NOISE:
            if apart.mean() > 0.0:
                worse.append(name)
            else:
                better += 1
    return ", ".join(worse) or "none", str(better)


def commit() -> str:
    """The commit that is checked out, with "-dirty" where files differ from it."""
    words = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(words, cwd=HERE.parent, capture_output=True, text=True).stdout.strip()


def measured_where() -> str:
    """Machine, BLAS kernel and date, for the head of a page."""
    import platform
    from datetime import UTC, datetime

    import scipy.linalg  # noqa: F401 - so that its BLAS is seen too
    import sklearn
    from threadpoolctl import threadpool_info

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    kernels = sorted({info["architecture"] for info in threadpool_info() if "architecture" in info})
    cpu = f"{model or platform.machine()}, {os.cpu_count()} cores, OpenBLAS kernel {', '.join(kernels)}"
    load = f"load {os.getloadavg()[0]:.0f} at the end"
    return f"{cpu}, {load}; scikit-learn {sklearn.__version__}; {datetime.now(UTC):%Y-%m-%d}"


TITLE = "# Without tuning, against others' defaults"

MEASURED = """<details markdown="1">
<summary>How it was measured</summary>

{measured}

</details>"""

HEAD = """Means over {repeats} splits of each set are shown, with a quarter of its points for the test. Errors are per
cent of wrong labels or root mean squared errors (several outputs are divided by their deviations); CPU seconds are of
a whole process on one thread. "Full MAC" is macmpi with `method.name = "mac"`; `run/bench/data_sets.py` makes the
sets."""

CHOSEN = """Machine: {where}. Commits: {commits}. Written by `{command}`.{rest} Ridges, damping, the schedule of full
MAC and the rule of refits were chosen on splits 0 to 2 of some of these sets; minibatches and the patience of
classifiers on splits 0 to 3. No value was chosen for a single set. The size of a regression's first minibatches, and
their slower growth for few points, were decided on all splits (and judged on others: log/minibatches.md)."""

PUBLIC = "## Public tables as they come"

OF_TABLES = """Errors are root mean squared errors or per cent of wrong labels: medians over {repeats} splits, with the
range in brackets. The tables hold text, whole numbers and gaps, and were chosen before any training on them
(`run/bench/public_tables.py`). macmpi reads the training rows as a CSV file, and only target and loss are given. For
scikit-learn's MLP each category is a column, gaps become the mean, and numbers and targets are scaled; "stopped
early" means `early_stopping=True`. The boosted trees are told which columns are categories."""

CHOSEN_OF_TABLES = """Machine: {where}. Commits: {commits}. Written by `{command}`. Means are compared.
"Beyond noise" means a significant difference over the splits (Student's t, 5 %). Some defaults were chosen on some of
these tables: the limit of numbers far outside the training range (diamonds, Crime, MCAS), a patience that waits for
the first epoch (Produc), which texts have their own columns (another table), and refits of up to 5,000 points
(splits 100 to 124 of nine tables, judged on others: log/few_points.md)."""

EARLIER = " A contender with older commits than macmpi has older figures."


def main() -> None:
    if sys.argv[1:2] == ["--peer"]:
        return theirs(sys.argv[2:])
    from data_sets import SETS
    from public_tables import read

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*SETS, *(TABLES if archive() else [])]
    groups = {"sets": [*SETS], "tables": names[len(SETS) :]}
    parser.add_argument("--sets", nargs="*", default=names, choices=[*names, *groups], metavar="SET")
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="the number of the first split")
    parser.add_argument("--again", nargs="*", default=[], help="contenders in --output that are measured again")
    parser.add_argument("--who", nargs="*", help="the contenders that are measured (default: all)")
    parser.add_argument("--rest", type=Path, metavar="PAGE", help="a page that has the others' means from earlier")
    parser.add_argument("--tuned", type=int, default=0, metavar="N", help="settings of the MLP that are tried; 0: none")
    parser.add_argument("--set", action="append", default=[], help="a setting of macmpi's, to try one")
    parser.add_argument("--output", type=Path, default=Path("runs/defaults.json"))
    parser.add_argument("--page", type=Path, help="a Markdown file for the table")
    args = parser.parse_args()
    if not archive():
        print(MISSING, flush=True)
    args.sets = list(dict.fromkeys(name for word in args.sets for name in groups.get(word, [word])))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(args.output.read_text()) if args.output.exists() else []
    rows = [row for row in rows if row["who"] not in args.again]
    done = {(row["set"], row["seed"], row["who"]) for row in rows}
    for seed, name in product(range(args.first, args.first + args.repeats), args.sets):
        for who in args.who or contenders(name, args.tuned):
            if (name, seed, who) not in done:
                rows.append(measured(name, seed, who, args.tuned, args.set))
                args.output.write_text(json.dumps(rows, indent=1))
                print(*rows[-1].values(), flush=True)
    sets = [row for row in rows if row["set"] in SETS]
    tables = [row for row in rows if row["set"] in TABLES]
    if args.rest and sets:
        sets += of_page(args.rest, list({row["who"] for row in sets}))
    lines, own = (table(sets) if sets else []), []
    if tables:
        own = spread(tables, {name: read(name)[1].shape for name in dict.fromkeys(row["set"] for row in tables)})
    print("\n".join([*lines, *own]))
    if args.page:
        words = ["python", "run/bench/defaults.py", *sys.argv[1:]]
        earlier = args.rest.read_text() if args.rest else ""
        args.page.write_text(page(" ".join(words), (sets, lines), (tables, own), earlier))


Rows = list[dict[str, Any]]


def page(command: str, sets: tuple[Rows, list[str]], tables: tuple[Rows, list[str]], earlier: str = "") -> str:
    """The Markdown of the page: an answer, a section of the sets, one of the public tables, of rows and lines of each.

    earlier: a page whose sections stay where there are no rows.
    """

    def section(about: str, chosen: str, rows: Rows, lines: list[str]) -> str:
        commits = "; ".join(
            f"{who} at {', '.join(of_contender(rows, who))}" for who in dict.fromkeys(row["who"] for row in rows)
        )
        named = {
            **{"commits": commits, "command": command, "where": measured_where(), "rest": EARLIER if earlier else ""},
            "repeats": len({row["seed"] for row in rows if row["seed"] >= 0}),
        }
        about, chosen = (
            textwrap.fill(" ".join(text.format(**named).split()), 118, break_on_hyphens=False, break_long_words=False)
            for text in (about, chosen)
        )
        return "\n".join([about, "", *lines, "", MEASURED.format(measured=chosen)])

    first, _, second = (part.strip() for part in earlier.partition(PUBLIC))
    first = first[first.index("Means over") :] if "Means over" in first else ""
    if sets[0]:
        first = section(HEAD, CHOSEN, *sets)
    if tables[0]:
        second = section(OF_TABLES, CHOSEN_OF_TABLES, *tables)
    parts = [TITLE, answer(first, second), first, *([PUBLIC, second] if second else [])]
    return "\n\n".join(part for part in parts if part) + "\n"


def answer(first: str, second: str) -> str:
    """What the tables of the sets and of the public ones say against the MLP and against boosted trees."""
    own = []
    for part in (first, second):
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if " of " in line and line.startswith("|")]
        own.append({name: cells for name, *cells in rows})
    said = []
    for who, words in (
        (MLP, f"Without tuning {OURS} is no worse than scikit-learn's MLP"),
        (TREES, "It is no worse than scikit-learn's boosted trees"),
    ):
        of = [
            f"{part[who][0]} {what}"
            for part, what in zip(own, ("data sets", "public tables"), strict=True)
            if who in part
        ]
        said += [f"{words} on {' and on '.join(of)}."] if of else []
    worse = own[1].get(TREES, ["", "", "", "none"])[3]
    if worse != "none":
        said.append(f"Beyond noise macmpi is worse than boosted trees on the tables {worse.replace(', ', ' and ')}.")
    return textwrap.fill(" ".join(said), 118)


if __name__ == "__main__":
    main()
