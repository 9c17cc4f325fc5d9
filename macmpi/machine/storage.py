"""The doctor's look at HDF5 and at the folder for runs: writing, locks, and an HDF5 file of that folder."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from macmpi.files import first_line, image, opened, replace_file, unsealed, verify
from macmpi.machine.hosts import Finding
from macmpi.machine.lock import one_node_option

OTHERS = "other programs that use HDF5 need export HDF5_USE_FILE_LOCKING=FALSE here; macmpi does not"


def hdf5() -> Finding:
    """A file image with checksums, sealed, read back; a flipped byte noticed."""
    content = image({"x": np.arange(1000.0)}, {}, sealed=True)
    with unsealed(io.BytesIO(content)) as file:
        same = bool((file["x"][()] == np.arange(1000.0)).all())
    flipped = content[:700] + bytes([content[700] ^ 1]) + content[701:]
    try:
        verify(io.BytesIO(flipped))
        noticed = False
    except OSError:
        noticed = True
    found = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
    unsafe = "checkpoints would not be safe: pip install --force-reinstall h5py"
    return Finding("HDF5", found, "" if same and noticed else unsafe, fault=True)


def folder(path: Path) -> list[Finding]:
    """Files of this folder, or of the nearest one above it that exists: written, renamed, locked, read as HDF5."""
    there = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    name = str(path) if there == path else f"{path} (not there yet; looked at {there})"
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=there) as place:
            began = time.perf_counter()
            replace_file(Path(place, "file"), b"x" * (1 << 20))
            seconds = time.perf_counter() - began
            others = [locks(Path(place, "file")), hdf5_file(Path(place, "file.h5"))]
    except OSError as error:
        return [Finding("folder", name, f"cannot be written ({error.strerror}): run with another --output", fault=True)]
    free = shutil.disk_usage(there).free
    found = f"{name}: {free / 1e9:,.1f} GB free, 1 MB to the disk in {1e3 * seconds:.0f} ms"
    return [Finding("folder", found), *others]


def locks(path: Path) -> Finding:
    """Tells whether a second holder of a lock is refused, and whether other nodes would see the first."""
    if fails := _lock_twice(path):
        remedy = "two runs in one folder may not notice each other: a folder of its own for each run (--output)"
        return Finding("locks", fails, remedy)
    if option := one_node_option(path):
        remedy = (
            "runs on two nodes in one folder may not notice each other: a folder of its own for each run (--output), "
            "or a file system mounted with locks that all nodes share (Lustre: flock)"
        )
        return Finding("locks", f"hold on one node alone (mounted with {option})", remedy)
    return Finding("locks", "work")


def hdf5_file(path: Path) -> Finding:
    """A file of this folder, written as macmpi does and read back, then opened with HDF5's own lock."""
    what = "HDF5 file"
    replace_file(path, image({"x": np.arange(1000.0)}, {}))
    try:
        with opened(path) as file:
            same = bool((file["x"][()] == np.arange(1000.0)).all())
    except OSError as error:
        return Finding(what, first_line(error), "run with another --output, and keep the data elsewhere", fault=True)
    if not same:
        return Finding(what, "reads other numbers than were written", "run with another --output", fault=True)
    try:
        with h5py.File(path, "r+", locking=True):
            return Finding(what, "written and read, with locks and without")
    except OSError as error:
        return Finding(what, f"written and read; with a lock: {first_line(error)}", OTHERS)


def _lock_twice(path: Path) -> str:
    """Says what is wrong with the locks of this file; "" where the second one is refused."""
    with path.open("rb") as one, path.open("rb") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return "" if error.errno in (errno.EAGAIN, errno.EACCES) else f"fail ({error.strerror})"
    return "do nothing"
