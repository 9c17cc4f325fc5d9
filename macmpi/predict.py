"""`python -m macmpi.predict MODEL DATA --output FILE`: applies a trained net to the points of a file.  Needs no MPI."""

from __future__ import annotations

import io
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.images import images_of
from macmpi.data.reading import SUFFIXES, check_there, contents, read_array, read_file
from macmpi.data.tables import CSV, PARQUET, is_table, read_table, table_bytes
from macmpi.files import check_output, image, write_output
from macmpi.parallel.command import Namespace, by_one_process
from macmpi.results.model import Model
from macmpi.results.model_file import load
from macmpi.typing import Array

ARRAYS = (".npy", *SUFFIXES)
OUTPUTS = (".npy", ".npz", ".h5", ".hdf5", *CSV, *PARQUET)


def read_points(path: Path, dataset: str, size: list[int]) -> Any:
    """Reads the points of a file, an array or a table, or the images of a folder.  Raises UsageError.

    dataset: the name of the array in a file that holds several.
    size: height and width to which training resized images; [] for images in their own size.
    """
    if os.path.isdir(path) and path.suffix not in SUFFIXES:
        return images_of(path, size)[0]
    if is_table(path):
        return read_table(path, typed=False)
    if path.suffix not in ARRAYS:
        raise UsageError(f"{path}: one of {', '.join((*ARRAYS, *CSV, *PARQUET))} is needed")
    check_there(path, "DATA")
    if path.suffix == ".npy":
        return read_array(path)
    arrays = read_file(path, (dataset,))
    if dataset not in arrays:
        raise UsageError(f"{path}: there is no dataset {dataset}; {contents(path)}; name one with --dataset")
    return arrays[dataset]


def names_of(model: Model, what: str, columns: int) -> list[str]:
    """Names the columns of a table of outputs: the classes, code_1, byte_1, prediction_1, or an autoencoder's columns.

    what: the method of `Model` that computed the outputs, such as "predict" or "encode"; columns: how many.
    """
    if what == "probabilities" and model.classes is not None:
        return [str(c) for c in model.classes.tolist()]
    if what in ("encode", "bits"):
        return [f"{'byte' if what == 'bits' else 'code'}_{i}" for i in range(1, columns + 1)]
    if model.autoencoder and model.columns is not None:
        return model.columns.names
    return ["prediction"] if columns == 1 else [f"prediction_{i}" for i in range(1, columns + 1)]


def packed(path: Path, Y: Array, names: list[str]) -> bytes:
    """Encodes the outputs in the format that the ending of the path names.  Raises UsageError.

    names: the names of the columns, for a table.
    """
    buffer = io.BytesIO()
    if is_table(path):
        return table_bytes(path, dict(zip(names, Y.reshape(len(Y), int(np.prod(Y.shape[1:]))).T, strict=True)))
    if path.suffix == ".npy":
        np.save(buffer, Y)
    elif path.suffix == ".npz":
        np.savez(buffer, Y=Y)
    else:
        return image({"Y": Y}, {})
    return buffer.getvalue()


def predicted(args: Namespace) -> str:
    """Computes and writes the outputs, and returns the line to print.  Raises UsageError and StorageError."""
    check_output(args.output, OUTPUTS, (args.model, args.data), args.overwrite)
    model = load(args.model, args.weights)
    model.check_action(args.what)
    trained = tomllib.loads(model.card.config) if model.card else {}
    X = read_points(args.data, args.dataset, trained.get("data", {}).get("image_size", []))
    try:
        Y = np.asarray(getattr(model, args.what)(X))
    except UsageError as error:
        raise UsageError(f"{args.data}: {error}") from None
    write_output(args.output, packed(args.output, Y, names_of(model, args.what, int(np.prod(Y.shape[1:])))))
    return f"{args.what}: {args.data} {X.shape} -> {args.output} {Y.shape}"


main = by_one_process("predict", predicted)


if __name__ == "__main__":
    main()
