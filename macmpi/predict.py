"""`python -m macmpi.predict MODEL DATA --output FILE`: apply a trained net to the points of a file.  Needs no MPI."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from macmpi import MacmpiError, UsageError
from macmpi.console import guard, say, warn
from macmpi.data.sources import read_file
from macmpi.files import first_line, image, replace_file
from macmpi.results.model import load
from macmpi.typing import Array

ACTIONS = ("predict", "probabilities", "encode", "decode", "reconstruct")
SUFFIXES = (".npy", ".npz", ".h5", ".hdf5")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m macmpi.predict", description="Apply a trained net to the points of a file."
    )
    p.add_argument("model", type=Path, metavar="MODEL", help="model.h5 of a run directory")
    p.add_argument("data", type=Path, metavar="DATA", help=".npy, or .npz or .h5 with a dataset X")
    p.add_argument("--output", type=Path, required=True, metavar="FILE", help=".npy, or .npz or .h5 (dataset Y)")
    p.add_argument("--what", choices=ACTIONS, default="predict", help="default: predict")
    p.add_argument(
        "--weights", choices=("last", "best"), default="last", help="after postprocessing, or best on validation"
    )
    p.add_argument("--dataset", default="X", metavar="NAME", help="dataset to read (default: X)")
    return p


def read_points(path: Path, dataset: str) -> Array:
    """The points of a file.  Raises UsageError."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: one of {', '.join(SUFFIXES)} is needed")
    if path.suffix == ".npy":
        try:
            return np.asarray(np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise UsageError(f"{path} cannot be read: {first_line(error)}") from None
    arrays = read_file(path, (dataset,))
    if dataset not in arrays:
        raise UsageError(f"{path}: there is no dataset {dataset}; name one with --dataset")
    return arrays[dataset]


def write(path: Path, Y: Array) -> None:
    """Write the outputs in the format that the suffix names.  Raises OSError."""
    if path.suffix == ".npy":
        np.save(path, Y)
    elif path.suffix == ".npz":
        np.savez(path, Y=Y)
    else:
        replace_file(path, image({"Y": Y}, {}))


def main() -> None:
    guard()
    args = parser().parse_args()
    try:
        if args.output.suffix not in SUFFIXES:
            raise UsageError(f"--output {args.output}: one of {', '.join(SUFFIXES)} is needed")
        model = load(args.model, args.weights)
        X = read_points(args.data, args.dataset)
        Y = getattr(model, args.what)(X)
        write(args.output, Y)
    except (MacmpiError, OSError) as error:
        warn(str(error))
        sys.exit(2)
    say(f"{args.what}: {args.data} {X.shape} -> {args.output} {Y.shape}")


if __name__ == "__main__":
    main()
