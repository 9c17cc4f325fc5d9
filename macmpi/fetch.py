"""`python -m macmpi.fetch usps`: download a named data set and convert it to the format that data.py reads."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from macmpi import MacmpiError, UsageError
from macmpi.checkpoint import image, replace_file
from macmpi.data import folder
from macmpi.layers import Array

USPS_URL = "https://cs.nyu.edu/~roweis/data/usps_all.mat"
USPS_SHA256 = "da2c8d6e8bd743da00c67020f444e0f28250dfbd16c55d8135c50ffa7719a5f9"


def convert_usps(data: Array) -> tuple[Array, Array]:
    """images (11000, 16, 16) uint8 and labels from usps_all.mat's `data` (256, 1100, 10).

    Digits come in the order 1, ..., 9, 0 and pixels column by column.  Raises UsageError for another file of that
    name, or a broken copy in which images repeat.
    """
    if data.shape != (256, 1100, 10) or data.dtype != np.uint8:
        raise UsageError(f"usps_all.mat holds {data.dtype} of shape {data.shape}; uint8 (256, 1100, 10) is needed")
    images = np.ascontiguousarray(data.transpose(2, 1, 0).reshape(11000, 16, 16).transpose(0, 2, 1))
    distinct = len(np.unique(images.reshape(11000, 256), axis=0))
    if distinct != 11000:
        raise UsageError(f"usps_all.mat is a broken copy: {11000 - distinct} of its images repeat others")
    labels = np.repeat(np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], dtype=np.uint8), 1100)
    return images, labels


def fetch_usps(target: Path, source: Path | None) -> Path:
    """Write target/usps.h5 from a downloaded or given usps_all.mat.  Raises UsageError."""
    from scipy.io import loadmat

    path = source or _download(USPS_URL, USPS_SHA256)
    try:
        data = loadmat(path)["data"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{path} is not usps_all.mat: {error}") from None
    images, labels = convert_usps(data)
    target.mkdir(parents=True, exist_ok=True)
    replace_file(target / "usps.h5", image({"images": images, "labels": labels}, {"source": USPS_URL}))
    return target / "usps.h5"


def _download(url: str, sha256: str) -> Path:
    try:
        import pooch
    except ImportError:
        raise UsageError(
            f"downloads need pooch: pip install pooch; or download {url} and give it with --file"
        ) from None
    try:
        return Path(pooch.retrieve(url, known_hash=f"sha256:{sha256}", progressbar=sys.stderr.isatty()))
    except Exception as error:  # noqa: BLE001 - whatever the network raises, the remedy is the same
        raise UsageError(f"{url} could not be downloaded ({error}); fetch it by hand and give it with --file") from None


def main() -> None:
    p = argparse.ArgumentParser(prog="python -m macmpi.fetch", description="Download and convert a named data set.")
    p.add_argument("name", choices=("usps",))
    p.add_argument("--file", type=Path, metavar="usps_all.mat", help="use this file instead of downloading it")
    args = p.parse_args()
    try:
        path = fetch_usps(folder(), args.file)
    except (MacmpiError, OSError) as error:
        print(f"macmpi: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{path} is ready")


if __name__ == "__main__":
    main()
