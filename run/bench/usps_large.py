"""Makes the set that data = "usps-large" names, from USPS: python run/bench/usps_large.py [FOLDER].

Writes FOLDER/usps-large.h5 (55 MB, 10 s), by default in the folder of usps.h5: 60,000 images of 28 x 28 pixels from the
5,000 of USPS to train on and 10,000 from those to validate with, by small random changes of place, size, slant and
shape.  Only additions, products, quotients and roundings of float64 make them, whose results IEEE 754 prescribes: they
are the same bytes everywhere, and have the digest SHA256.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np

from macmpi import UsageError
from macmpi.data.named_sets import FILES, folder, usps_parts
from macmpi.data.reading import read_file
from macmpi.files import image, replace_file
from macmpi.parallel.streams import Stream, stream
from macmpi.typing import Array

TRAINING, HELD = 60_000, 10_000
"""Images to train on and to validate with."""

SIDE = 28
"""Height and width of an image."""

CHUNK = 500
"""Images that are made at a time, from a random stream of their own."""

PIXEL = 0.75
"""Pixels of USPS that a pixel is wide: the digit is about 20 pixels high, as in the middle of a frame."""

SHIFT, SCALE, TURN, SHEAR, BEND = 1.5, 0.15, 0.13, 0.2, 1.1
"""The most of each change: pixels of USPS; a share; the tangent of half an angle; a share; pixels of USPS."""

KNOTS = 4
"""Rows and columns of the grid of displacements that bends an image."""

MARGIN = 3
"""Pixels of background around an image of USPS, which every pixel further out is like."""

SHA256 = "8efe372694ef34ead4c0cc3ccbb46e0bc59a4c9d77297379a576fe8d0f8f1254"
"""The digest that all 70,000 images must have."""


def made(images: Array, rows: Array) -> Array:
    """Images (N, 28, 28) uint8, each made of one (16, 16) of USPS.  Cost: about 0.1 ms an image.  Collective: no.

    rows: (N,), which of them.
    """
    found = np.empty((len(rows), SIDE, SIDE), np.uint8)
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        found[part] = changed(images[rows[part]], stream(0, "usps-large", start // CHUNK))
    return found


def changed(images: Array, random: Stream) -> Array:
    """Changes each of n images (n, 16, 16) at random: (n, 28, 28) uint8."""
    n, side = len(images), images.shape[1]

    def between(most: float, *shape: int) -> Array:
        return most * (2.0 * random.random((n, *shape)) - 1.0)

    size, turn, shear = 1.0 + between(SCALE, 1, 1), between(TURN, 1, 1), between(SHEAR, 1, 1)
    cosine, sine = (1.0 - turn * turn) / (1.0 + turn * turn), 2.0 * turn / (1.0 + turn * turn)
    place = PIXEL * (np.arange(SIDE) - 0.5 * (SIDE - 1))
    y, x = place[:, None], place[None, :]
    x = x + shear * y
    down, right = size * (cosine * y + sine * x), size * (cosine * x - sine * y)
    knots = between(BEND, 2, KNOTS, KNOTS)
    middle = 0.5 * (side - 1) + MARGIN
    down, right = (to + between(SHIFT, 1, 1) + _smooth(knots[:, i]) + middle for i, to in enumerate((down, right)))
    return _sampled(np.pad(images, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))), down, right)


def _smooth(knots: Array) -> Array:
    """(n, KNOTS, KNOTS) displacements at the knots -> (n, 28, 28), between them by a smooth step."""
    at = np.arange(SIDE) * ((KNOTS - 1) / (SIDE - 1))
    below = np.minimum(at.astype(int), KNOTS - 2)
    t = at - below
    t = t * t * (3.0 - 2.0 * t)
    rows = knots[:, below] + t[:, None] * (knots[:, below + 1] - knots[:, below])
    return rows[:, :, below] + t * (rows[:, :, below + 1] - rows[:, :, below])


def _sampled(images: Array, down: Array, right: Array) -> Array:
    """The values of images (n, h, w) at places between their pixels, (n, 28, 28) uint8."""
    last = images.shape[1] - 1
    down, right = (np.minimum(np.maximum(to, 0.0), last - 1e-9) for to in (down, right))
    i, j = down.astype(int), right.astype(int)
    s, t = down - i, right - j
    values, n = images.astype(np.float64), np.arange(len(images))[:, None, None]

    def row(i: Array) -> Array:
        left = values[n, i, j]
        return left + t * (values[n, i, j + 1] - left)

    upper = row(i)
    return np.rint(upper + s * (row(i + 1) - upper)).astype(np.uint8)


def rows_of(digits: Array) -> Array:
    """Which image of USPS each is made of: those to train on, and those to validate with, each in turn."""
    train, held = usps_parts(digits, 0)
    return np.r_[np.resize(train, TRAINING), np.resize(held, HELD)]


def main() -> None:
    try:
        usps = read_file(folder() / FILES["usps"], ("images", "labels"))
    except UsageError as error:
        sys.exit(f"usps_large: {error}; MACMPI_DATA names the folder of usps.h5")
    rows = rows_of(usps["labels"])
    images = made(usps["images"], rows)
    if hashlib.sha256(images.data).hexdigest() != SHA256:
        sys.exit("usps_large: other images than those of this set were made; is usps.h5 the right file?")
    path = (Path(sys.argv[1]) if len(sys.argv) > 1 else folder()) / FILES["usps-large"]
    content = {"images": images, "labels": usps["labels"][rows]}
    replace_file(path, image(content, {"source": "macmpi, from USPS"}))
    print(path)


if __name__ == "__main__":
    main()
