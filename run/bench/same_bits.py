"""Same results as another commit: python run/bench/same_bits.py COMMIT [CASE ...] [--ranks 2] [--tolerance 0].

Checks out COMMIT into a temporary folder, trains every case with both source trees on the same machine, and compares
all datasets of the two model.h5 files (not the model card, an attribute that tells seconds) and the learning curves.
Tolerance 0 asks for the same bits; else the largest difference allowed, relative to the largest number of the dataset.
Exit code 1 where a case differs or does not end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from programs import ROOT, checked_out, environment, mpiexec

CASES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "digits_mac": ("digits_mac", 25, ()),
    "usps_mac": ("usps_mac", 3, ()),
    "usps_pre": ("usps_pre", 2, ()),
    "usps_al": ("usps_al", 2, ()),
    "usps_fast": ("usps_fast", 2, ()),
    "usps_binary": ("usps_binary", 1, ()),
    "usps_quantise": ("usps_quantise", 1, ()),
    "usps_ring": ("usps_ring", 1, ()),
    "usps_classify": ("usps_classify", 2, ()),
    "coil_mac": ("coil_mac", 1, ()),
    "coil_select": ("coil_select", 1, ("selection.every=1",)),
    "usps_fast_sharded": ("usps_fast", 2, ('parallel.data="sharded"',)),
}
"""Name -> config, iterations, settings."""

ERRORS = ("E1_train", "E1_val", "E_Q", "constraint")


def parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    p = argparse.ArgumentParser(description=first, epilog=rest)
    p.add_argument("commit")
    p.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--tolerance", type=float, default=0.0)
    return p


def train(tree: Path, case: str, output: Path, ranks: int) -> str:
    """Trains a case with the sources of a tree; what it said, if it failed."""
    config, iterations, settings = CASES[case]
    words: list[Any] = ["-m", "macmpi.run", tree / "run" / f"{config}.toml", "--output", output]
    words += ["--iterations", iterations, *(word for s in settings for word in ("--set", s))]
    given: dict[str, Any] = {"cwd": tree, "env": environment(tree), "capture_output": True, "text": True}
    done = subprocess.run(mpiexec(ranks, *words), check=False, **given)
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip() or done.stdout[-500:]}"


def datasets(path: Path) -> dict[str, np.ndarray]:
    """All datasets of a file by name."""
    found: dict[str, np.ndarray] = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def curve(output: Path) -> dict[str, np.ndarray]:
    """The errors of each record by name."""
    records = [json.loads(line) for line in (output / "curve.jsonl").read_text().splitlines()]
    return {f"curve {name}": np.array([float(r[name]) for r in records]) for name in ERRORS}


def differences(old: dict[str, np.ndarray], new: dict[str, np.ndarray], tolerance: float) -> Iterator[str]:
    """A line for each dataset that is missing, of another shape or type, or further off than the tolerance."""
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"{name} only in the {'old' if name in old else 'new'} one"
            continue
        a, b = old[name], new[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            yield f"{name} is {a.dtype} {a.shape} in the old one, {b.dtype} {b.shape} in the new one"
        elif a.tobytes() != b.tobytes():
            off = float(np.abs(a.astype(float) - b).max()) / (float(np.abs(a).max()) or 1.0)
            if not off <= tolerance or tolerance == 0.0:
                yield f"{name} differs by {off:.1e} of its largest number"


def compare(tree: Path, case: str, folder: Path, ranks: int, tolerance: float) -> list[str]:
    """Trains a case with both trees; what differs."""
    outputs = [folder / f"{case}-{which}" for which in ("old", "new")]
    for source, output in zip((tree, ROOT), outputs, strict=True):
        if failed := train(source, case, output, ranks):
            return [f"{output.name}: {failed}"]
    old, new = (datasets(output / "model.h5") | curve(output) for output in outputs)
    return list(differences(old, new, tolerance))


def main() -> int:
    args = parser().parse_args()
    if unknown := set(args.cases) - CASES.keys():
        print(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    bad = 0
    with tempfile.TemporaryDirectory() as folder, checked_out(args.commit, Path(folder)) as tree:
        for case in args.cases or CASES:
            found = compare(tree, case, Path(folder), args.ranks, args.tolerance)
            bad += bool(found)
            alike = "the same bits" if args.tolerance == 0.0 else f"alike to {args.tolerance:g}"
            print(f"{case:20s} {'; '.join(found) or alike}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
