"""Seconds an iteration against points, sharded: python run/bench/growth.py 10000 100000 1000000 [--ranks 2].

Synthetic points through the net of run/usps_mac.toml, float32, by stochastic MAC and with coordinates before the
activation; the sizes in turn, `--repeats` times.  The data are kept in --data (a temporary folder unless given).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import h5py
import numpy as np
from programs import mpiexec, output_of

RUN = Path(__file__).resolve().parents[1]
LATENT, WIDTH, SLAB, NOISE = 20, 256, 10_000, 0.05
SINGLE = ['model.precision="float32"', "penalty.mu_max=1e4"]
CONFIGS: dict[str, tuple[str, list[str]]] = {
    "stochastic": ("usps_fast.toml", []),
    "pre-activation": ("usps_pre.toml", SINGLE),
}


def write(path: Path, points: int) -> None:
    """X (points, 256) and a twentieth as many for validation, slab by slab: a smooth random map of 20 numbers."""
    random = np.random.default_rng(1)
    A, B = random.normal(size=(LATENT, 100)) / 4.0, random.normal(size=(100, WIDTH)) / 5.0
    with h5py.File(path, "w") as file:
        for name, count in (("X", points), ("X_val", max(2000, points // 20))):
            rows = file.create_dataset(name, (count, WIDTH), "f4")
            for first in range(0, count, SLAB):
                n = min(SLAB, count - first)
                smooth = np.tanh(random.normal(size=(n, LATENT)) @ A) @ B
                rows[first : first + n] = 1.0 / (1.0 + np.exp(-smooth)) + NOISE * random.normal(size=(n, WIDTH))


def seconds(name: str, data: Path, ranks: int, iterations: int) -> tuple[list[float], str]:
    """Of each iteration of one launch; its peak memory of a rank."""
    config, settings = CONFIGS[name]
    settings = [f'data.source="{data}"', 'parallel.data="sharded"', f"stochastic.parts={ranks}", *settings]
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "macmpi.run", RUN / config, "--output", folder, "--iterations", iterations]
        text = output_of(mpiexec(ranks, *words, *(part for text in settings for part in ("--set", text))))
        records = [json.loads(line) for line in (Path(folder) / "curve.jsonl").read_text().splitlines()]
    marks = [record["seconds"] for record in records if record["phase"] != "postprocess"]
    memory = next(line.split("rank")[1].strip() for line in text.splitlines() if "peak memory" in line)
    return np.diff(marks).tolist(), memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("points", type=int, nargs="+")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="every iteration of every launch, too")
    args = parser.parse_args()
    if min(*args.points, args.ranks, args.iterations, args.repeats) < 1:
        parser.error("points, --ranks, --iterations and --repeats from 1 on")
    if args.data and not args.data.is_dir():
        parser.error(f"--data {args.data}: there is no such folder")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.data or Path(temporary)
        for n in args.points:
            if not (folder / f"points{n}.h5").exists():
                write(folder / f"points{n}.h5", n)
        found: dict[tuple[int, str], list[float]] = {}
        rows = []
        for _ in range(args.repeats):
            for n in args.points:
                for name in CONFIGS:
                    took, memory = seconds(name, folder / f"points{n}.h5", args.ranks, args.iterations)
                    each = " ".join(f"{1e4 * t / n:.4f}" for t in took)
                    found.setdefault((n, name), []).append(1e4 * took[-1] / n)
                    rows.append({"points": n, "method": name, "seconds": took, "memory": memory})
                    print(f"{n:>9,} points  {name:15s} seconds for 10,000 points: {each}   {memory} a rank", flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows))
        if args.repeats > 1:
            print("the last iteration, least and median of the launches:")
        for (n, name), ten_thousand in found.items() if args.repeats > 1 else ():
            print(f"{n:>9,} points  {name:15s} {min(ten_thousand):.4f} {statistics.median(ten_thousand):.4f}")


if __name__ == "__main__":
    main()
