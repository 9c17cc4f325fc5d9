"""--check against the run: seconds of an iteration as it says them, and as they were, one core.

python run/bench/check_seconds.py                            # stochastic and full MAC by default, sets of data_sets.py
python run/bench/check_seconds.py run/*.toml --iterations 6     # configs as they are, and with sharded data if they can
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from data_sets import SETS

METHODS = ("stochastic", "mac")
NEAR = 1.3


def seconds(config: Path, *settings: str, iterations: int = 0) -> tuple[float, float] | str:
    """What --check says, and the mean of the run without its refit; or why there is no run."""
    command = [sys.executable, "-m", "macmpi.run", str(config)]
    command += [word for setting in settings for word in ("--set", setting)]
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    if checked.returncode:
        return checked.stderr.strip().splitlines()[-1]
    found = re.search(r"^iteration +(?:about )?([\d.e-]+) s (?:measured|predicted)", checked.stdout, re.MULTILINE)
    assert found is not None, checked.stdout
    with tempfile.TemporaryDirectory() as output:
        options = ["--output", f"{output}/run", "--set", "run.refit=false"]
        options += ["--iterations", str(iterations)] * bool(iterations)
        subprocess.run([*command, *options], capture_output=True, check=True)
        lines = (Path(output) / "run" / "curve.jsonl").read_text().splitlines()
    records = list(map(json.loads, lines))
    start = next((r["seconds"] for r in records if r["iteration"] == 0), 0.0)
    last = [record for record in records if record["phase"] == "iteration"][-1]
    return float(found[1]), (last["seconds"] - start) / last["iteration"]


def sets() -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """The sets of data_sets.py with the defaults of each method: name, config, settings."""
    for name, made in SETS.items():
        kind, X, y = made()
        with tempfile.TemporaryDirectory() as folder:
            data, config = Path(folder) / "t.npz", Path(folder) / "t.toml"
            np.savez(data, X=X, **({} if y is None else {"Y": y}))
            loss = "cross_entropy" if kind == "labels" else "squared"
            config.write_text(f'data = "{data}"\nmodel.loss = "{loss}"\n')
            for method in METHODS:
                yield f"{name}, {method}", config, (f"method.name={method}",)


def configs(paths: Sequence[Path]) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Configs as they are, and with sharded data."""
    for path in paths:
        yield path.stem, path, ()
        yield f"{path.stem}, sharded", path, ('parallel.data="sharded"',)


def main() -> None:
    p = argparse.ArgumentParser(description="Seconds that --check says against those of the run.")
    p.add_argument("configs", nargs="*", type=Path, metavar="CONFIG.toml")
    p.add_argument("--iterations", type=int, default=0, help="of each run at most")
    args = p.parse_args()
    near = count = 0
    for name, config, settings in configs(args.configs) if args.configs else sets():
        found = seconds(config, *settings, iterations=args.iterations)
        if isinstance(found, str):
            print(f"{name:32s} {found}", flush=True)
            continue
        said, was = found
        near, count = near + (1 / NEAR <= said / was <= NEAR), count + 1
        print(f"{name:32s} said {said:.2g} s, was {was:.2g} s ({said / was:.2f})", flush=True)
    print(f"within 30 %: {near} of {count}")


if __name__ == "__main__":
    main()
