"""Reads a folder of images, all of one size, in the order of their names; folders inside it are classes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.reading import told
from macmpi.files import readable
from macmpi.typing import Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pbm", ".pgm", ".ppm", ".pnm")

GREY, COLOUR = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""The modes of Pillow that are read, grey and in colour, all with 8 bits a channel."""


def images_of(folder: Path, size: list[int]) -> tuple[Array, Array | None]:
    """Reads images (N, h, w) uint8, or (N, h, w, 3) if one of them is in colour, and the names of their folders (N,).

    The names are None if the images lie in the folder itself.  Hidden files, and those whose ending is none of an
    image, are left out.
    size: height and width to which images are resized; [] for images that all have one size.  Raises UsageError.
    """
    Image = pillow(str(folder))
    from PIL import ImageOps

    paths, labels = _listed(folder)
    kinds = [_looked_at(Image, path) for path in paths]
    width, height = kinds[0][1]
    for path, (_, found) in zip(paths, kinds, strict=True):
        if not size and found != (width, height):
            raise UsageError(
                f"{path} has {found[1]} x {found[0]} pixels, but {paths[0].name} {height} x {width}: "
                f"data.image_size = [{height}, {width}] resizes all of them"
            )
    height, width = size or (height, width)
    grey = all(mode in GREY for mode, _ in kinds)
    try:
        pixels = np.empty((len(paths), height, width) if grey else (len(paths), height, width, 3), np.uint8)
    except (MemoryError, ValueError):  # ValueError where NumPy has no array of that size
        text = f"{len(paths)} images of {height} x {width} pixels do not fit into memory"
        raise UsageError(f"{folder}: {text}; data.image_size makes them smaller") from None
    for i, path in enumerate(paths):
        with told(str(path)), Image.open(path) as image:
            upright = ImageOps.exif_transpose(image).convert("L" if grey else "RGB")
            pixels[i] = np.asarray(upright if upright.size == (width, height) else upright.resize((width, height)))
    return pixels, None if labels is None else np.array(labels)


def pillow(name: str) -> Any:
    """Imports Pillow's module Image.  name: what is to be read, for the message.  Raises UsageError without Pillow."""
    with told(name):
        from PIL import Image

        return Image


def _listed(folder: Path) -> tuple[list[Path], list[str] | None]:
    """Lists the paths of the images and, for images in folders, the names of their folders.  Raises UsageError."""
    try:
        own = _images_in(folder)
        folders = sorted(path for path in folder.iterdir() if os.path.isdir(path) and not path.name.startswith("."))
        held = {path.name: _images_in(path) for path in folders}
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}") from None
    held = {name: paths for name, paths in held.items() if paths}
    for name in held:
        if readable(name) != name:
            raise UsageError(f"{folder} holds a folder {readable(name)}, whose name is not UTF-8: rename it")
    if own and held:
        raise UsageError(
            f"{folder} holds images ({own[0].name}) as well as folders of images ({next(iter(held))}): "
            "put all of them into folders, one a class, or none"
        )
    if not own and not held:
        raise UsageError(f"{folder} holds no images ({', '.join(SUFFIXES)}), nor do its folders")
    if own:
        return own, None
    return [path for paths in held.values() for path in paths], [name for name, paths in held.items() for _ in paths]


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and os.path.isfile(path)
    )


def _looked_at(Image: Any, path: Path) -> tuple[str, tuple[int, int]]:
    """Returns Pillow's mode of an image, and its size (width, height) when it is turned as its camera says (EXIF).

    The mode of an image with a palette is "L" if all its colours are grey, otherwise "RGB".  Raises UsageError.
    """
    with told(str(path)), Image.open(path) as image:
        _check(image)
        mode, (width, height) = str(image.mode), image.size
        if mode in ("P", "PA"):
            colours = np.asarray(image.convert("RGB"))
            mode = "L" if (colours == colours[..., :1]).all() else "RGB"
        turned = image.getexif().get(0x0112) in (5, 6, 7, 8)
        return mode, (height, width) if turned else (width, height)


def _check(image: Any) -> None:
    """Raises UsageError if reading would lose something: 16 bits, several pictures, or transparency."""
    mode, tiles = str(image.mode), getattr(image, "tile", [])
    deep = ";16" in str(tiles) or any(codec.startswith("ppm") and args[1] > 255 for codec, _, _, args in tiles)
    if mode not in GREY + COLOUR or deep:
        raise UsageError(f"it has pixels of mode {mode}{', 16 bits' * deep}; 8 bits a channel are read: convert it")
    if getattr(image, "n_frames", 1) > 1:
        raise UsageError(f"it holds {image.n_frames} pictures, and one a file is read: save them one by one")
    may_be_clear = "transparency" in image.info or mode in ("LA", "PA", "RGBA")
    if may_be_clear and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
        raise UsageError("it has transparent pixels, whose colour nobody sees: put it on a background")
