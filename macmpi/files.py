"""Files: crash-safe writes, seals that betray a changed byte, and reading what others wrote.

A file that others wrote opens nothing outside of itself, and nothing is made of it that it cannot hold.  Nothing is
ever unpickled or evaluated: h5py gives bytes, and what is not numbers is refused where it is used.
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
    """Gives a name as text that every file, picture and terminal takes: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def as_path(value: Any, name: str) -> Path:
    """A path that was given as text or as a Path.  name: of the argument.  Raises UsageError."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise UsageError(f"{name} = {shown(value)}: a path is needed, text or a pathlib.Path")
    if "\0" in text:
        raise UsageError(f"{name} = {shown(value)}: there is no such file, and there can be none")
    return Path(text)


EXPANSION = 2000
"""No filter makes more bytes of one (deflate: 1,032)."""

SMALL = 1 << 20
"""Datasets of at most this number of bytes may be anything."""


def opened(path: Any) -> h5py.File:
    """An HDF5 file for reading, without a lock: some file systems have none.  Raises OSError.

    What this program reads it replaces as a whole, and never writes in place.  Python opens a file that HDF5 itself
    would lock, by a variable that it obeys before what a program tells it, or that somebody in this process has opened
    with a lock.
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


def names(file: h5py.File, group: str) -> list[str]:
    """Lists what a group holds.  Raises UsageError where it is none, or a link."""
    import h5py

    inside = _inside(file, group)
    if not isinstance(inside, h5py.Group):
        raise UsageError(f"{group} is a dataset, not a group")
    return sorted(inside)


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """The dataset of that path, unread.  Raises UsageError for links, numbers kept elsewhere and sizes that lie."""
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
"""The registered numbers of filters of HDF5 that many files use, and their names."""


def _lacking(dataset: h5py.Dataset) -> str:
    """The filter that reading a dataset needs and h5py has not, even with those that hdf5plugin brings; or ""."""
    from h5py import h5z

    made = dataset.id.get_create_plist()
    codes = [made.get_filter(i)[0] for i in range(made.get_nfilters())]
    if all(map(h5z.filter_avail, codes)):
        return ""
    with suppress(ImportError):
        import hdf5plugin  # noqa: F401 - it registers its filters
    return next((FILTERS.get(code, f"filter {code}") for code in codes if not h5z.filter_avail(code)), "")


def _inside(file: h5py.File, name: str) -> h5py.Group | h5py.Dataset:
    """Gives what the file itself holds under a path.  Raises UsageError for links, KeyError where there is nothing."""
    import h5py

    for path in accumulate(name.split("/"), "{}/{}".format):
        link = file.get(path, getlink=True)
        if link is not None and not isinstance(link, h5py.HardLink):
            raise UsageError(f"{path} is a link to somewhere else; copy what it points to into the file")
    return file[name]


def array(file: h5py.File, name: str) -> Array:
    """Reads all of a dataset.  Raises UsageError."""
    whole: Any = dataset(file, name)[()]
    return whole


def texts(array: Any) -> list[str]:
    """Text of an array of str or bytes (UTF-8), one a value."""
    return [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in array.tolist()]


OF_NETWORKS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "panfs", "wekafs", "gfs2", "ocfs2")
"""File systems that hosts share, and on which a file has one number for all of them."""


def identity(path: Path) -> str:
    """Tells a file from all others: two hosts have the same text only where both reach one file.  Raises OSError.

    Where the kind of file system does not say that hosts share it, host and device are part of the text.
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
"""The attribute of an HDF5 file, and the key of JSON, that holds the id of the run that has written it."""

ID = re.compile(rb"macmpi-run-[0-9a-f]{32}")
"""Ids of runs.  Every file that a run writes holds its own: by that it knows its files, and never by their names."""


def new_id() -> str:
    """The id of a new run."""
    return f"macmpi-run-{secrets.token_hex(16)}"


def run_of(path: Path) -> str:
    """The first id of a run that a file holds, near its beginning in what a run writes; "" where it holds none."""
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
"""With these errors a file system says that it has no fsync, for folders or at all (FUSE, SMB, 9p)."""

WITH_NAMES = (*UNKNOWN, errno.EISDIR, errno.ENOENT)
"""With these errors a file system, or an old kernel, says that it has no files without a name (FUSE, NFS)."""

PIECE = 1 << 24
"""Bytes of a file that are read at a time."""

DAMAGE = (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError)
"""Reading a file that is no checkpoint may raise these or UsageError."""


def first_line(error: Exception) -> str:
    """Gives the first line of what an error says, in which signs that cannot be printed are escaped."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in said)


def image(arrays: dict[str, Any], attributes: dict[str, Any], sealed: bool = False) -> bytes:
    """An HDF5 file in memory, every dataset with a checksum (fletcher32).  sealed: as a whole, too."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        fill(file, arrays, attributes)
    if sealed:
        seal(buffer)
    return buffer.getvalue()


def fill(file: h5py.File, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Writes arrays and attributes into an open file, the id of a run first, as bytes that `run_of` finds."""
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
    """Puts its SHA-256 behind an open file, where HDF5 does not look: no flipped bit goes unnoticed."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]
    file.seek(0, io.SEEK_END)
    file.write(SEAL + digest)


def verify(file: IO[bytes]) -> None:
    """Raises OSError if a byte of a sealed file has changed."""
    size, whole = file.seek(0, io.SEEK_END) - len(SEAL) - 32, hashlib.sha256()
    file.seek(0)
    while piece := file.read(max(min(PIECE, size - file.tell()), 0)):
        whole.update(piece)
    if file.read() != SEAL + whole.digest():
        raise OSError("its checksum does not fit: damaged, cut short, or no checkpoint")


def unsealed(file: IO[bytes]) -> h5py.File:
    """A sealed HDF5 file for reading, once every byte is verified.  Raises OSError."""
    verify(file)
    return opened(file)


def partial_of(path: Path, run: str = "") -> Path:
    """The name under which a file is written before it is complete, which no other program gives to a file.

    run: the id of the run that writes it, by which the next launch finds what a killed one has left.
    """
    return path.with_name(f"{path.name}.{run or secrets.token_hex(4)}.tmp")


def replace_file(path: Path, content: bytes, run: str = "") -> None:
    """Writes next to `path`, flushes to the disk, renames over it: the old file or the new one, never a mixture.

    run: as of `partial_of`.
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
    """Raises UsageError unless a command can write a file under the name --output, which is none of its inputs.

    So nothing is computed first.  overwrite: one that is there may be replaced.
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
    """Tells whether a file is there that one of these names too.  Collective: no."""
    return os.path.exists(path) and any(os.path.exists(other) and path.samefile(other) for other in others)


def check_folder(folder: Path) -> None:
    """Raises OSError where no file can be made in a folder; of one that is not there, where it cannot be made itself.

    Nothing is made.
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
    """Writes what a command was asked for; a file or a link that was there is replaced as a whole.

    Raises StorageError.
    """
    try:
        replace_file(path, content)
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}; free space there, or name another --output"
        ) from None


def write_through(path: Path, content: bytes) -> None:
    """Writes a new file down to the disk.  Raises OSError, also where there is one of that name, or a link."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        to_the_disk(file.fileno())


def to_the_disk(file: int) -> None:
    """Waits until an open file or folder is on the disk, where its file system knows how.  Raises OSError."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in UNKNOWN:
            raise


def rename(old: Path, new: Path) -> None:
    """Renames a file within its folder, down to the disk."""
    os.replace(old, new)
    with suppress(PermissionError):  # who may write into a folder may perhaps not list it
        folder = os.open(new.parent, os.O_RDONLY)
        try:
            to_the_disk(folder)
        finally:
            os.close(folder)
