"""--check against the run: seconds of an iteration as it says them, and as they were, on the sets of data_sets.py.

python run/bench/check_seconds.py            # stochastic and full MAC with their defaults, one core
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from data_sets import SETS

METHODS = ("stochastic", "mac")
NEAR = 1.3


def seconds(folder: Path, method: str) -> tuple[float, float]:
    """What --check says, and the mean of the run without its refit."""
    command = [sys.executable, "-m", "macmpi.run", "t.toml", "--set", f"method.name={method}"]
    said = subprocess.run([*command, "--check"], cwd=folder, capture_output=True, text=True, check=True).stdout
    found = re.search(r"^iteration +([\d.e-]+) s measured", said, re.MULTILINE)
    assert found is not None, said
    options = ["--output", method, "--set", "run.refit=false"]
    subprocess.run([*command, *options], cwd=folder, capture_output=True, check=True)
    lines = (folder / method / "curve.jsonl").read_text().splitlines()
    last = [record for record in map(json.loads, lines) if record["phase"] == "iteration"][-1]
    return float(found[1]), last["seconds"] / last["iteration"]


def main() -> None:
    near = count = 0
    for name, made in SETS.items():
        kind, X, y = made()
        with tempfile.TemporaryDirectory() as path:
            folder, cells = Path(path), []
            np.savez(folder / "t.npz", X=X, **({} if y is None else {"Y": y}))
            loss = "cross_entropy" if kind == "labels" else "squared"
            (folder / "t.toml").write_text(f'data = "t.npz"\nmodel.loss = "{loss}"\n')
            for method in METHODS:
                said, was = seconds(folder, method)
                near, count = near + (1 / NEAR <= said / was <= NEAR), count + 1
                cells.append(f"{method} {said:.2g} s, was {was:.2g} s ({said / was:.2f})")
        print(f"{name:26s} {'; '.join(cells)}", flush=True)
    print(f"within 30 %: {near} of {count}")


if __name__ == "__main__":
    main()
