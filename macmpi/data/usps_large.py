"""A large set of digits, 28 x 28, made from USPS by small random changes of place, size, slant and shape.

Only additions, products, quotients and roundings of float64 make it, whose results IEEE 754 prescribes: the same bytes
on every machine.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from macmpi import MacmpiError, UsageError
from macmpi.data.reading import read_file
from macmpi.files import cache, image, replace_file
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

FILE = "usps-large.h5"
"""The set is kept under this name once it is made."""

SHA256 = "8efe372694ef34ead4c0cc3ccbb46e0bc59a4c9d77297379a576fe8d0f8f1254"
"""The digest that all 70,000 images must have."""

Pair = tuple[Array, Array]
"""Images and their labels."""


def usps_large(folder: Path, train: Pair, held: Pair) -> tuple[Pair, Pair]:
    """The set, to train on and to validate with: images (N, 28, 28) uint8, labels (N,).

    It is read from the folder or from the user's cache; where it is in neither, it is made (10 s) and kept in the
    cache.  train, held: images (n, 16, 16) uint8 of USPS, and labels.  Collective: no (rank 0).
    """
    labels = [np.resize(of, n) for (_, of), n in ((train, TRAINING), (held, HELD))]
    for place in (folder / FILE, cache() / FILE):
        images = _kept(place)
        if images is not None:
            return (images[:TRAINING], labels[0]), (images[TRAINING:], labels[1])
    images = np.concatenate([made(train[0], 0, TRAINING), made(held[0], TRAINING, HELD)])
    _keep(image({"images": images}, {"source": "macmpi, from USPS"}), cache() / FILE)
    return (images[:TRAINING], labels[0]), (images[TRAINING:], labels[1])


def _kept(place: Path) -> Array | None:
    """The images of a file, or None where they are not those that were made."""
    if not os.path.isfile(place):
        return None
    with suppress(UsageError):
        images = read_file(place, ("images",)).get("images")
        if images is not None and _digest(images) == SHA256:
            return images
    return None


def _keep(file: bytes, place: Path) -> None:
    """Keeps a file; where the cache takes none, it is made again the next time."""
    with suppress(OSError, MacmpiError):
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, file)


def _digest(images: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()


def made(images: Array, first: int, count: int) -> Array:
    """Images first, ..., first + count - 1 of the set: (count, 28, 28) uint8.

    images: (n, 16, 16) uint8 of USPS, taken in turn.  first, count: multiples of CHUNK.  Cost: about 0.1 ms an image.
    Collective: no.
    """
    found, taken = np.empty((count, SIDE, SIDE), np.uint8), np.resize(np.arange(len(images)), count)
    for start in range(0, count, CHUNK):
        part, random = slice(start, start + CHUNK), stream(0, "usps-large", (first + start) // CHUNK)
        found[part] = changed(images[taken[part]], random)
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
    flat, side = images.reshape(len(images), -1).astype(np.float64), images.shape[2]
    corner = i * side + j

    def values(further: int) -> Array:
        found = np.take_along_axis(flat, (corner + further).reshape(len(images), -1), axis=1)
        return found.reshape(corner.shape)

    upper = values(0) + t * (values(1) - values(0))
    lower = values(side) + t * (values(side + 1) - values(side))
    return np.rint(upper + s * (lower - upper)).astype(np.uint8)
