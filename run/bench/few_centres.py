"""RBF autoencoders with fewer centres than points: MAC's defaults, the paper's mu and alternating optimisation.

    MACMPI_DATA=... python run/bench/few_centres.py few_centres.json [coil digits ...]

The methods take turns on one rank, from the same start.  The file has of each run its curve: seconds of the processor,
E1 of training and of held-out points; and at MAC's end, for both, where alternating optimisation is by then.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from contest import CPU
from programs import give_up

NET = """
[model]
hidden = [100, 2, 100]
activation = ["rbf", "linear", "rbf"]
[start]
method = "elastic_embedding"
[penalty]
ridge = 2e-3
ridge_scale = "objective"
[method]
name = "mac"
"""

CASES = {
    "coil": ("coil", "model.width=[4.0, 0.5]", "data.points=400"),
    "coil_subset": ("coil", "model.width=[4.0, 0.5]", "data.points=400", 'model.centres="subset"'),
    "digits": ("digits", "model.width=[2.5, 0.5]", "data.points=1000"),
    "usps": ("usps", "model.width=[5.0, 0.5]", "data.points=1000"),
}
"""The data, and settings."""

METHODS = {
    "mac": (),
    "mu_max 1e5": ("penalty.mu_max=1e5",),
    "factor 10": ("penalty.factor=10.0",),
    "mu = 1": ("penalty.mu0=1.0", "penalty.mu_every=70", "penalty.factor=5.0", "penalty.mu_max=5.0"),
    "alternating": ('method.name="alternating"',),
}
ITERATIONS = {"mu = 1": "100", "alternating": "20"}


def curve(case: str, method: str, folder: Path) -> list[list[float]]:
    """Seconds, E1 of the training points and of the others, after each iteration."""
    data, *settings = CASES[case]
    config, output = folder / "net.toml", folder / "run"
    config.write_text(f'data = "{data}"\n{NET}')
    words = [str(config), "--output", str(output), "--overwrite", "--iterations", ITERATIONS.get(method, "400")]
    words += [word for setting in (*settings, *METHODS[method]) for word in ("--set", setting)]
    done = subprocess.run([sys.executable, "-c", CPU, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        give_up(words, done.returncode, done.stderr)
    records = [json.loads(line) for line in (output / "curve.jsonl").read_text().splitlines()]
    return [[r["seconds"], r["E1_train"], r["E1_val"]] for r in records]


def beside(own: list[list[float]], other: list[list[float]]) -> dict[str, float]:
    """A run's end, its rises after the third iteration, and where the other run is by then."""
    seconds, train, held = own[-1]
    _, its_train, its_held = [record for record in other if record[0] <= seconds][-1]
    rises = sum(after[1] > before[1] for before, after in pairwise(own[3:]))
    found = {"seconds": seconds, "train": train, "held_out": held, "rises": rises}
    return found | {"alternating_train": its_train, "alternating_held_out": its_held}


def main() -> None:
    path, found = Path(sys.argv[1]), {}
    with tempfile.TemporaryDirectory() as folder:
        for case in sys.argv[2:] or CASES:
            curves = {method: curve(case, method, Path(folder)) for method in METHODS}
            rows = {method: beside(own, curves["alternating"]) for method, own in curves.items()}
            found[case] = {"rows": rows, "curves": curves}
            for method, row in rows.items():
                print(case, method, {key: round(value, 4) for key, value in row.items()}, flush=True)
            path.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
