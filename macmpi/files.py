"""Files: crash-safe writes, seals that reveal a changed byte, and careful reading of files that others wrote.

Links to other files are refused, and so are datasets that claim to be far larger than what the file stores.  Nothing
is ever unpickled or evaluated: h5py gives bytes, and values that are not numbers are refused where they are used.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from macmpi import StorageError, UsageError, shown
from macmpi.typing import Array

if TYPE_CHECKING:
    import h5py


def readable(name: str | Path) -> str:
    """Returns a name as text that can be printed and encoded: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def as_path(value: Any, name: str) -> Path:
    """Returns an argument, given as text or as a Path, as a Path.  Raises UsageError.

    name: the name of the argument, for the message.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise UsageError(f"{name} = {shown(value)}: a path is needed, text or a pathlib.Path")
    if "\0" in text:
        raise UsageError(f"{name} = {shown(value)}: there is no such file, and there can be none")
    return Path(text)


EXPANSION = 2000
"""No filter of HDF5 expands one stored byte to more bytes than this (deflate: 1,032)."""

SMALL = 1 << 20
"""Datasets of at most this number of bytes may claim any size."""


def opened(path: Any) -> h5py.File:
    """Opens an HDF5 file for reading, without a lock, which some file systems do not have.  Raises OSError.

    No lock is needed, because macmpi replaces files as a whole and never writes into one.  HDF5 locks files all the
    same where HDF5_USE_FILE_LOCKING demands it, and refuses one that this process has opened with a lock elsewhere.
    In both cases Python opens the file and hands it to HDF5.
    """
    import h5py

    locks = os.environ.get("HDF5_USE_FILE_LOCKING", "FALSE").upper() not in ("FALSE", "0")
    if not (locks and isinstance(path, (str, os.PathLike))):
        try:
            return h5py.File(path, "r", locking=False)
        except OSError as error:
            if "flag values don't match" not in str(error):
                raise
    return h5py.File(open(path, "rb"), "r")


def arrays(file: h5py.File, group: str) -> dict[str, Array]:
    """Reads all datasets of a group by their names, ascending.  Raises UsageError, also for a dataset or a link."""
    import h5py

    inside = _inside(file, group)
    if not isinstance(inside, h5py.Group):
        raise UsageError(f"{group} is a dataset, not a group")
    return {name: array(file, f"{group}/{name}") for name in sorted(inside)}


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Returns a dataset of the file without reading its numbers.

    Raises UsageError for a link, for numbers kept in another file, for a filter that is missing here, and where the
    dataset claims to be far larger than what is stored of it.
    """
    import h5py

    data = _inside(file, name)
    if not isinstance(data, h5py.Dataset):
        raise UsageError(f"{name} is a group, not a dataset")
    if data.external or data.is_virtual:
        raise UsageError(f"dataset {name} keeps its numbers in another file; copy them into this one")
    if lacking := _lacking(data):
        raise UsageError(
            f"dataset {name} is compressed by {lacking}, which h5py cannot read here: pip install hdf5plugin, or write "
            "the file again with gzip"
        )
    held = data.id.get_storage_size()
    if data.size and data.nbytes > max(SMALL, EXPANSION * held):
        raise UsageError(
            f"dataset {name} says it is {data.shape} of {data.dtype}, {data.nbytes:,} bytes, but {held:,} are stored"
        )
    return data


FILTERS = {32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd", 32026: "blosc2"}
"""Filters of HDF5 that many files use: their registered numbers, and their names."""


def _lacking(dataset: h5py.Dataset) -> str:
    """Names a filter that is needed to read the dataset and that neither h5py nor hdf5plugin has; "" if none is."""
    from h5py import h5z

    made = dataset.id.get_create_plist()
    codes = [made.get_filter(i)[0] for i in range(made.get_nfilters())]
    if all(map(h5z.filter_avail, codes)):
        return ""
    with suppress(ImportError):
        import hdf5plugin  # noqa: F401 - it registers its filters
    return next((FILTERS.get(code, f"filter {code}") for code in codes if not h5z.filter_avail(code)), "")


def _inside(file: h5py.File, name: str) -> h5py.Group | h5py.Dataset:
    """Returns the group or dataset of that name.  Raises UsageError for a link, KeyError if there is nothing."""
    import h5py

    for path in accumulate(name.split("/"), "{}/{}".format):
        link = file.get(path, getlink=True)
        if link is not None and not isinstance(link, h5py.HardLink):
            raise UsageError(f"{path} is a link to somewhere else; copy what it points to into the file")
    return file[name]


def array(file: h5py.File, name: str) -> Array:
    """Reads a whole dataset into memory.  Raises UsageError."""
    return dataset(file, name)[()]


def texts(array: Any) -> list[str]:
    """Converts an array of str or of UTF-8 bytes to a list of str."""
    return [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in array.tolist()]


OF_NETWORKS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "panfs", "wekafs", "gfs2", "ocfs2")
"""File systems that several hosts share, and on which all of them see the same inode number of a file."""


def identity(path: Path) -> str:
    """Returns a text that identifies a file: it is the same on two hosts only where both see one file.

    Unless hosts share file systems of this kind (`OF_NETWORKS`), host and device are part of the text.  Raises OSError.
    """
    status = os.stat(path)
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    facts: list[object] = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    kinds = {line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == device}
    if not kinds or not kinds.issubset(OF_NETWORKS):
        facts += [device, Path("/proc/sys/kernel/random/boot_id").read_text()]
    return str(facts)


RUN = "run"
"""The attribute of an HDF5 file, and the key of a JSON file, that holds the id of the run that wrote the file."""

ID = re.compile(rb"macmpi-run-[0-9a-f]{32}")
"""The form of a run's id.  Each file that a run writes holds its id, by which the run recognises its own files."""


def new_id() -> str:
    """Draws the id of a new run."""
    return f"macmpi-run-{secrets.token_hex(16)}"


def run_of(path: Path) -> str:
    """Finds the first id of a run in a file; "" if there is none.  Files written by runs have it near the start."""
    if not os.path.isfile(path):
        return ""
    end = b""
    with suppress(OSError), path.open("rb") as file:
        while piece := file.read(SMALL):
            if run := ID.search(end + piece):
                return run[0].decode()
            end = piece[-64:]
    return ""


SEAL = b"macmpi sha256 "

UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""A file system that has no fsync, for folders or at all, reports one of these errors (FUSE, SMB, 9p)."""

WITH_NAMES = (*UNKNOWN, errno.EISDIR, errno.ENOENT)
"""A file system or an old kernel that cannot open a file without a name reports one of these errors (FUSE, NFS)."""

PIECE = 1 << 24
"""The number of bytes of a file that are read at a time."""

DAMAGE = (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError)
"""Reading a damaged checkpoint, or a file that is none, may raise these errors or UsageError."""


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, with escapes for characters that cannot be printed."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in said)


def image(arrays: dict[str, Any], attributes: dict[str, Any], sealed: bool = False) -> bytes:
    """Builds an HDF5 file in memory, in which every dataset has a checksum (fletcher32).

    sealed: whether the file as a whole has one, too, as `seal` appends it.
    """
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        fill(file, arrays, attributes)
    if sealed:
        seal(buffer)
    return buffer.getvalue()


def fill(file: h5py.File, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Writes arrays and attributes into an open HDF5 file; the id of the run first, so that `run_of` finds it early."""
    import h5py

    if RUN in attributes:
        file.attrs[RUN] = np.bytes_(attributes[RUN])
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.kind == "U":  # HDF5 keeps text as bytes
            encoded = np.char.encode(array, "utf-8")
            array = encoded.astype(h5py.string_dtype("utf-8", max(encoded.dtype.itemsize, 1)))
        checked = {"fletcher32": True, "chunks": True} if array.size else {}
        file.create_dataset(name, data=array, **checked)
    file.attrs.update({name: value for name, value in attributes.items() if name != RUN})


def seal(file: IO[bytes]) -> None:
    """Appends the SHA-256 of an open file to it, where HDF5 ignores it and `verify` finds it."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]
    file.seek(0, io.SEEK_END)
    file.write(SEAL + digest)


def verify(file: IO[bytes]) -> None:
    """Raises OSError if a byte of a sealed file has changed since `seal`."""
    size, whole = file.seek(0, io.SEEK_END) - len(SEAL) - 32, hashlib.sha256()
    file.seek(0)
    while piece := file.read(max(min(PIECE, size - file.tell()), 0)):
        whole.update(piece)
    if file.read() != SEAL + whole.digest():
        raise OSError("its checksum does not fit: damaged, cut short, or no checkpoint")


def unsealed(file: IO[bytes]) -> h5py.File:
    """Verifies a sealed HDF5 file and opens it for reading.  Raises OSError."""
    verify(file)
    return opened(file)


def partial_of(path: Path, run: str = "") -> Path:
    """Returns the temporary name under which a file is written until it is complete.

    run: the id of the run that writes it, by which its next launch finds files that a killed one has left; "" draws a
    number, so that no two programs use one name.
    """
    return path.with_name(f"{path.name}.{run or secrets.token_hex(4)}.tmp")


def replace_file(path: Path, content: bytes, run: str = "") -> None:
    """Replaces a file so that after a crash `path` is the whole old file or the whole new one.

    The content is written under the name `partial_of` next to it, flushed to the disk, and renamed.  run: as in
    `partial_of`.  Raises OSError.
    """
    partial = partial_of(path, run)
    try:
        write_through(partial, content)
        rename(partial, path)
    except FileExistsError:
        raise
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def check_output(path: Path, suffixes: Sequence[str], inputs: Sequence[Path] = (), overwrite: bool = False) -> None:
    """Raises UsageError, before anything is computed, unless a command can write its --output.

    suffixes: the name must end with one of them.
    inputs: files that the command reads, which it must not replace.
    overwrite: whether another file that is there may be replaced.
    """
    if not path.name.endswith(tuple(suffixes)):
        wanted = f"one of {', '.join(suffixes)}" if len(suffixes) > 1 else suffixes[0]
        raise UsageError(f"--output {path}: a name that ends with {wanted} is needed")
    if not os.path.isdir(path.parent):
        raise UsageError(f"--output {path}: there is no folder {path.parent}; make it, or name another file")
    if os.path.isdir(path):
        raise UsageError(f"--output {path} is a folder; name a file")
    if same_file(path, inputs):
        raise UsageError(f"--output {path} is an input of this command and would be replaced; name another file")
    if os.path.lexists(path) and not overwrite:
        raise UsageError(f"{path} is there already: replace it with --overwrite, or name another file with --output")
    try:
        check_folder(path.parent)
        with suppress(FileNotFoundError):
            os.lstat(partial_of(path))
    except OSError as error:
        raise UsageError(f"--output {path} cannot be written: {error.strerror}; name another file") from None


def same_file(path: Path, others: Iterable[Path]) -> bool:
    """Tells whether `path` exists and is the same file as one of the others.  Collective: no."""
    return os.path.exists(path) and any(os.path.exists(other) and path.samefile(other) for other in others)


def check_folder(folder: Path) -> None:
    """Raises OSError unless a file can be made in a folder, or the folder itself can be made where there is none.

    Nothing is left behind: it tries with a file without a name.
    """
    there = folder
    for there in (folder, *folder.absolute().parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(there)
            break
    if not os.path.isdir(there):
        number = errno.EEXIST if there == folder else errno.ENOTDIR
        raise OSError(number, os.strerror(number), str(there))
    try:
        os.close(os.open(there, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        has_names = error.errno in WITH_NAMES
        if has_names and os.access(there, os.W_OK | os.X_OK):
            return
        number = errno.EACCES if has_names else error.errno or errno.EIO
        raise OSError(number, os.strerror(number), str(there)) from None


def write_output(path: Path, content: bytes) -> None:
    """Writes the output of a command; a file or a link of that name is replaced as a whole.  Raises StorageError."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}; free space there, or name another --output"
        ) from None


def write_through(path: Path, content: bytes) -> None:
    """Writes a new file and flushes it to the disk.  Raises OSError, FileExistsError for a name that is taken."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        to_the_disk(file.fileno())


def to_the_disk(file: int) -> None:
    """Waits until an open file or folder is on the disk, where its file system supports that.  Raises OSError."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in UNKNOWN:
            raise


def rename(old: Path, new: Path) -> None:
    """Renames a file within its folder, and waits until the new name is on the disk.  Raises OSError."""
    os.replace(old, new)
    with suppress(PermissionError):  # a user may have the right to write into a folder but not to list it
        folder = os.open(new.parent, os.O_RDONLY)
        try:
            to_the_disk(folder)
        finally:
            os.close(folder)
