"""`python -m macmpi.fetch NAME`: downloads a named data set and converts it to the format that named_sets.py reads."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np

from macmpi import StorageError, UsageError
from macmpi.data.gathered import OPENML, OPENML_NAME, openml_file
from macmpi.data.images import pillow
from macmpi.data.named_sets import FILES, PREFIX, folder, library_set
from macmpi.data.reading import told
from macmpi.data.tables import table_bytes
from macmpi.files import first_line, image, replace_file
from macmpi.parallel.command import Namespace, by_one_process
from macmpi.typing import Array

USPS_URL = "https://cs.nyu.edu/~roweis/data/usps_all.mat"
USPS_SHA256 = "da2c8d6e8bd743da00c67020f444e0f28250dfbd16c55d8135c50ffa7719a5f9"

COIL_URL = "https://www.cs.columbia.edu/CAVE/databases/SLAM_coil-20_coil-100/coil-20/coil-20-proc.zip"
COIL_MEAN, COIL_VARIANCE = 0.302, 63.695
"""The images of COIL-20, 32 x 32 in [0, 1], have this mean pixel, and this sum of the variances of their pixels."""

MOST_BYTES = 1_000_000
"""A PNG of the archive may have this number of bytes: 128 x 128 grey pixels take less than 20,000."""


def convert_usps(data: Array) -> tuple[Array, Array]:
    """Returns images (11000, 16, 16) uint8 and labels (11000,) uint8 from the array `data` of usps_all.mat.

    data (256, 1100, 10): pixels, column by column, of each image of each digit, in the order 1, ..., 9, 0.
    """
    images = np.ascontiguousarray(data.transpose(2, 1, 0).reshape(11000, 16, 16).transpose(0, 2, 1))
    labels = np.repeat(np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], dtype=np.uint8), 1100)
    return images, labels


def fetch_usps(target: Path, source: Path | None) -> Path:
    """Writes target/usps.h5 from usps_all.mat, and returns its path.  Raises UsageError.

    source: usps_all.mat; None downloads it.  Its checksum is compared before it is opened, because a damaged file may
    crash the process that reads it.
    """
    from scipy.io import loadmat

    path = source or _download(USPS_URL, USPS_SHA256)
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"{path} is not usps_all.mat: {error.strerror}") from None
    if sha256 != USPS_SHA256:
        raise UsageError(
            f"{path} is not usps_all.mat: its SHA-256 is {sha256}, that of {USPS_URL} is {USPS_SHA256}; fetch that one"
        )
    images, labels = convert_usps(loadmat(path)["data"])
    return _write(target / FILES["usps"], {"images": images, "labels": labels}, USPS_URL)


def read_coil_zip(path: Path) -> Array:
    """Reads the pictures (1440, 128, 128) uint8 of coil-20-proc.zip, ordered by object and then by pose.

    They are unpacked in memory, never to the paths that the archive names.  Raises UsageError for another file.
    """
    Image = pillow("coil-20-proc.zip")
    names = [f"obj{number}__{pose}.png" for number in range(1, 21) for pose in range(72)]
    pictures, at = np.empty((len(names), 128, 128), np.uint8), ""
    try:
        with ZipFile(path) as archive:
            members = {member.filename.rpartition("/")[2]: member for member in archive.infolist()}
            for k, name in enumerate(names):
                at = f"{name}: "
                pictures[k] = _picture(Image, archive, members.get(name))
    except Exception as error:  # noqa: BLE001 - whatever zipfile and Pillow raise, it is another file
        raise UsageError(f"{path} is not coil-20-proc.zip: {at}{first_line(error)}") from None
    return pictures


def _picture(Image: Any, archive: ZipFile, member: ZipInfo | None) -> Array:
    if member is None:
        raise ValueError("it is not there")
    if member.file_size > MOST_BYTES:
        raise ValueError(f"{member.file_size:,} bytes are too many")
    with Image.open(io.BytesIO(archive.read(member)), formats=("PNG",)) as picture:
        if picture.size != (128, 128) or picture.mode != "L":
            raise ValueError(f"{picture.width} x {picture.height} of mode {picture.mode}, not 128 x 128 grey (L)")
        return np.asarray(picture)


def convert_coil(pictures: Array) -> Array:
    """Reduces pictures (1440, 128, 128) uint8 to images (1440, 32, 32) float32 in [0, 1], by means of 4 x 4 blocks.

    Raises UsageError if their mean and total variance are not those of COIL-20.
    """
    blocks = pictures.reshape(-1, 32, 4, 32, 4).sum(axis=(2, 4), dtype=np.float64)
    images = (blocks / (16.0 * 255.0)).astype(np.float32)
    exact = images.astype(np.float64)
    mean, variance = exact.mean(), exact.var(axis=0).sum()
    if abs(mean - COIL_MEAN) > 1e-3 or abs(variance - COIL_VARIANCE) > 1e-3:
        raise UsageError(
            f"the images of coil-20-proc.zip have mean {mean:.3f} and total variance {variance:.3f}; those of the "
            f"processed COIL-20 have {COIL_MEAN} and {COIL_VARIANCE}"
        )
    return images


def fetch_coil(target: Path, source: Path | None) -> Path:
    """Writes target/coil20.h5 from coil-20-proc.zip, and returns its path.  Raises UsageError.

    source: coil-20-proc.zip; None downloads it.
    """
    pillow("coil-20-proc.zip")  # so that a missing Pillow is reported before the download
    path = source or _download(COIL_URL, None)
    try:
        images = convert_coil(read_coil_zip(path))
    except UsageError:
        if source is None:
            path.unlink(missing_ok=True)  # a bad download would otherwise be found again
        raise
    number, pose = (grid.ravel().astype(np.uint8) for grid in np.mgrid[1:21, 0:72])
    return _write(target / FILES["coil"], {"images": images, "object": number, "pose": pose}, COIL_URL)


def fetch_openml(source: str) -> Path:
    """Writes a data set of OpenML as a table, and returns its path.  Raises UsageError.

    source: "openml:NAME" or "openml:NAME@VERSION", which scikit-learn downloads or takes from its cache.
    """
    path, name = openml_file(source), OPENML_NAME.fullmatch(source.removeprefix(OPENML))
    assert name is not None, "the file would have been refused"
    with told(source):
        import pandas  # noqa: F401 - scikit-learn makes tables with it
        from sklearn import datasets
    version: Any = int(name["version"]) if name["version"] else "active"
    try:
        bunch = datasets.fetch_openml(name["name"], version=version, as_frame=True)
    except Exception as error:  # noqa: BLE001 - whatever the network raises, the remedy is the same
        raise UsageError(
            f"{source} could not be downloaded ({first_line(error)}); try again, or save it as a table"
        ) from None
    table = bunch.frame
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, table_bytes(path, {str(c): table[c] for c in table.columns}, list(bunch.target_names or [])))
    return path


def _write(path: Path, arrays: dict[str, Array], source: str) -> Path:
    if os.path.lexists(path) and not (os.path.isfile(path) and source.encode() in path.read_bytes()):
        raise UsageError(f"{path} is there already, and is not of {source}: move it away, or use another MACMPI_DATA")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, image(arrays, {"source": source}))
    return path


def _download(url: str, sha256: str | None) -> Path:
    try:
        import pooch
    except ImportError:
        raise UsageError(
            f"downloads need pooch: pip install pooch; or download {url} and give it with --file"
        ) from None
    try:
        return Path(pooch.retrieve(url, known_hash=sha256 and f"sha256:{sha256}", progressbar=sys.stderr.isatty()))
    except Exception as error:  # noqa: BLE001 - whatever the network raises, the remedy is the same
        raise UsageError(f"{url} could not be downloaded ({error}); fetch it by hand and give it with --file") from None


SETS: dict[str, Callable[[Path, Path | None], Path]] = {"usps": fetch_usps, "coil": fetch_coil}


def fetched(args: Namespace) -> str:
    """Fetches the data set that the command names, and returns the line to print.  Raises UsageError, StorageError."""
    if args.name not in SETS and not args.name.startswith((OPENML, PREFIX)):
        raise UsageError(f"{args.name!r} is none of {', '.join(SETS)}, openml:NAME and sklearn:NAME")
    if args.name not in SETS and args.file is not None:
        raise UsageError(f"--file is for {' and '.join(SETS)}: leave it out")
    try:
        if args.name.startswith(PREFIX):
            library_set(args.name, fetch=True)
            return f"{args.name} is ready"
        path = SETS[args.name](folder(), args.file) if args.name in SETS else fetch_openml(args.name)
    except OSError as error:
        raise StorageError(
            f"{error.filename or folder()} could not be written: {error.strerror}; MACMPI_DATA names another folder"
        ) from None
    return f"{path} is ready"


main = by_one_process("fetch", fetched)


if __name__ == "__main__":
    main()
