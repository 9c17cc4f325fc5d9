"""`python -m macmpi.predict MODEL DATA --output FILE`: apply a trained net to the points of a file.  Needs no MPI."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path

import numpy as np

from macmpi import MacmpiError, StorageError, UsageError
from macmpi.console import guard, program, say, warn
from macmpi.data.reading import contents, read_file
from macmpi.files import first_line, image, replace_file
from macmpi.results.model import Model
from macmpi.results.model_file import PREFERRED, load
from macmpi.typing import Array

ACTIONS = ("predict", "probabilities", "encode", "decode", "reconstruct")
SUFFIXES = (".npy", ".npz", ".h5", ".hdf5")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog=program("predict"),
        description="Apply a trained net to the points of a file.",
        epilog="Exit codes: 0 done, 2 usage, model or data, 74 the output could not be written.",
    )
    p.add_argument("model", type=Path, metavar="MODEL", help="model.h5 of a run directory")
    p.add_argument("data", type=Path, metavar="DATA", help=".npy, or .npz or .h5 with a dataset X")
    p.add_argument("--output", type=Path, required=True, metavar="FILE", help=".npy, or .npz or .h5 (dataset Y)")
    p.add_argument("--what", choices=ACTIONS, default="predict", help="default: predict")
    p.add_argument("--weights", choices=PREFERRED, help="default: the refit, else the best on validation")
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
        raise UsageError(f"{path}: there is no dataset {dataset}; {contents(path)}; name one with --dataset")
    return arrays[dataset]


def apply(model: Model, what: str, X: Array, path: Path) -> Array:
    """Applies the model to the points of a file.  Raises UsageError, naming the file, where they do not fit."""
    try:
        return np.asarray(getattr(model, what)(X))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def check_output(path: Path, inputs: tuple[Path, ...]) -> None:
    """Raises UsageError unless a file can be written under this name that is none of the inputs."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--output {path}: one of {', '.join(SUFFIXES)} is needed")
    if not os.path.isdir(path.parent):
        raise UsageError(f"--output {path}: there is no folder {path.parent}; make it, or name another file")
    if os.path.isdir(path):
        raise UsageError(f"--output {path} is a folder; name a file")
    if any(os.path.exists(path) and os.path.exists(given) and path.samefile(given) for given in inputs):
        raise UsageError(f"--output {path} is an input of this command and would be replaced; name another file")


def packed(suffix: str, Y: Array) -> bytes:
    """The suffix names the format in which the outputs are given."""
    buffer = io.BytesIO()
    if suffix == ".npy":
        np.save(buffer, Y)
    elif suffix == ".npz":
        np.savez(buffer, Y=Y)
    else:
        return image({"Y": Y}, {})
    return buffer.getvalue()


def write(path: Path, Y: Array) -> None:
    """Write the outputs; a file or a link that was there is replaced as a whole.  Raises StorageError."""
    try:
        replace_file(path, packed(path.suffix, Y))
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}; free space there, or name another --output"
        ) from None


def main() -> None:
    guard()
    args = parser().parse_args()
    try:
        check_output(args.output, (args.model, args.data))
        model = load(args.model, args.weights)
        model.check_action(args.what)
        X = read_points(args.data, args.dataset)
        Y = apply(model, args.what, X, args.data)
        write(args.output, Y)
    except MacmpiError as error:
        warn(str(error))
        sys.exit(error.exit_code)
    say(f"{args.what}: {args.data} {X.shape} -> {args.output} {Y.shape}")


if __name__ == "__main__":
    main()
