"""Arrays of HDF5 files that others wrote: nothing outside of the file is opened, nothing is made that it cannot hold.

Nothing is ever unpickled or evaluated: h5py gives bytes, and what is not numbers is refused where it is used.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import h5py

from macmpi import UsageError
from macmpi.layers import Array

EXPANSION, SMALL = 2000, 1 << 20
"""No filter makes more of a byte (deflate: 1,032); datasets up to so many bytes may be anything."""


def opened(path: Any) -> h5py.File:
    """An HDF5 file for reading, without a lock: some file systems have none.  Raises OSError.

    What this program reads it replaces as a whole, and never writes in place.
    """
    return h5py.File(path, "r", locking=False)


def names(file: h5py.File, group: str) -> list[str]:
    """What a group holds.  Raises UsageError where it is none, or a link."""
    found = _inside(file, group)
    if not isinstance(found, h5py.Group):
        raise UsageError(f"{group} is a dataset, not a group")
    return sorted(found)


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """The dataset of that path, unread.  Raises UsageError for links, numbers kept elsewhere and sizes that lie."""
    found = _inside(file, name)
    if not isinstance(found, h5py.Dataset):
        raise UsageError(f"{name} is a group, not a dataset")
    if found.external or found.is_virtual:
        raise UsageError(f"dataset {name} keeps its numbers in another file; copy them into this one")
    held = found.id.get_storage_size()
    if found.size and found.nbytes > max(SMALL, EXPANSION * held):
        raise UsageError(
            f"dataset {name} says it is {found.shape} of {found.dtype}, {found.nbytes:,} bytes, but {held:,} are stored"
        )
    return found


def _inside(file: h5py.File, name: str) -> h5py.Group | h5py.Dataset:
    """What the file itself holds under a path.  Raises UsageError for links, KeyError where there is nothing."""
    for path in accumulate(name.split("/"), "{}/{}".format):
        link = file.get(path, getlink=True)
        if link is not None and not isinstance(link, h5py.HardLink):
            raise UsageError(f"{path} is a link to somewhere else; copy what it points to into the file")
    return file[name]


def array(file: h5py.File, name: str) -> Array:
    """All of `dataset`.  Raises UsageError."""
    whole: Any = dataset(file, name)[()]
    return whole
