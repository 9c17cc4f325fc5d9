"""Files that are damaged or made to mislead are read, or refused in one message of one line: no other error."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pytest
from launch.here import run_here
from scipy.io import savemat
from targets import CLASSES

from macmpi import UsageError, config, fetch
from macmpi.config import Data
from macmpi.data import loading
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import partition_points
from macmpi.parallel.team import Team

SHARDED = PLACEMENTS["sharded"]

X = np.random.default_rng(0).normal(size=(12, 3))
ARRAYS = {"X": X, "Y": np.arange(12) % 3, "X_val": X[:4], "Y_val": np.arange(4) % 3}
DEFAULTS = Path(__file__).resolve().parents[2] / "run" / "defaults.toml"
LONG = "a" * 300


def npz(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, **ARRAYS)
    return file.getvalue()


def h5(**options: Any) -> bytes:
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for name, array in ARRAYS.items():
            file.create_dataset(name, data=array, **options)
    return content.getvalue()


def mat() -> bytes:
    file = io.BytesIO()
    savemat(file, {"data": np.zeros((4, 5, 2), np.uint8)})
    return file.getvalue()


def whole(path: Path) -> None:
    loading.load(Data(source=str(path)), CLASSES)


def sharded(path: Path) -> None:
    source = Data(source=str(path))
    found = loading.survey(source, CLASSES)
    n, n_val = (partition_points(size, 1, placement=SHARDED) for size in found.counts[2:])
    loading.load_rows(source, CLASSES, found.classes, (n, n_val), Team())


def as_config(path: Path) -> None:
    config.read(path, [])


def as_usps(path: Path) -> None:
    fetch.fetch_usps(path.parent / "data", path)


KINDS: dict[str, tuple[Callable[[], bytes], Callable[[Path], None]]] = {
    "plain.npz": (lambda: npz(np.savez), whole),
    "packed.npz": (lambda: npz(np.savez_compressed), whole),
    "plain.h5": (h5, whole),
    "packed.h5": (lambda: h5(chunks=True, compression="gzip", fletcher32=True), whole),
    "sharded.h5": (h5, sharded),
    "sharded.npz": (lambda: npz(np.savez), sharded),
    "usps_all.mat": (mat, as_usps),
    "defaults.toml": (DEFAULTS.read_bytes, as_config),
}


def damages(content: bytes, random: Random) -> Iterator[bytes]:
    """Bits flipped, bytes cleared, the end cut off, something put in between."""
    for _ in range(60):
        flipped = bytearray(content)
        for _ in range(random.choice([1, 1, 4])):
            flipped[random.randrange(len(content))] ^= 1 << random.randrange(8)
        yield bytes(flipped)
    for _ in range(15):
        at = random.randrange(len(content))
        yield content[:at]
        yield content[:at] + random.choice([b"\0", b"\xff"]) * 8 + content[at + 8 :]
        yield content[:at] + random.randbytes(4) + content[at:]


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    made, read = KINDS[name]
    path, refused = tmp_path / name, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of headers that are odd
        for content in damages(made(), Random(name)):
            path.write_bytes(content)
            try:
                read(path)
            except UsageError as error:
                refused += 1
                assert name.endswith(".toml") or "\n" not in str(error)
    assert refused


# --- made to mislead --------------------------------------------------------------------------------------------------


def archive(path: Path, member: str, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(member, content)


def member(header: bytes) -> bytes:
    """A .npy file of that header, and of no numbers."""
    padded = header.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


MEMBERS = {
    "unclosed header": ("X.npy", member(b"{'descr': '<f8', 'fortran_order': False, 'shape': (40, 3)")),
    "2^70 rows": ("X.npy", member(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1180591620717411303424, 3), }")),
    "negative rows": ("X.npy", member(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 3), }")),
    "no .npy": ("X", b"hello"),
    "no .npy of that name": ("X.npy", b"hello"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "points.npz", X=X)
    (tmp_path / "points.toml").write_text('data = "points.npz"\nmodel.hidden = [2]\n')
    return tmp_path


def refusal(folder: Path, *settings: str, file: str = "points.toml") -> str:
    words = [part for setting in settings for part in ("--set", setting)]
    before = sorted(folder.rglob("*"))
    outcome = run_here(file, "--check", *words, cwd=folder, code=2)
    assert sorted(folder.rglob("*")) == before
    (line,) = outcome.err.splitlines()
    return line


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_an_npz_with_such_a_member(kind: str, name: str, folder: Path) -> None:
    archive(folder / "made.npz", *MEMBERS[name])
    message = refusal(folder, 'data="made.npz"', f'parallel.data="{kind}"')
    assert message.startswith("macmpi: made.npz cannot be read: ")


NAMES = {
    "x.npz": ("an .npy file", lambda file: np.save(file, X)),
    "x.npy": ("it is an .npz file: name it so", lambda file: np.savez(file, X=X)),
    "x.csv.gz": ("it is not compressed by gzip", lambda file: file.write(b"a,b\n1,2\n")),
    "x.csv": ("it is compressed, or no text", lambda file: np.savez(file, X=X)),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_kind_than_its_name_says(name: str, folder: Path) -> None:
    says, write = NAMES[name]
    with (folder / name).open("wb") as file:
        write(file)
    assert says in refusal(folder, f'data="{name}"')


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.parquet", "x.npz"])
def test_a_folder_or_nothing_in_the_place_of_a_file(name: str, folder: Path) -> None:
    missing = refusal(folder, f'data="{name}"')
    assert "does not exist" in missing
    (folder / name).mkdir()
    assert "is no file" in (found := refusal(folder, f'data="{name}"')) or "holds no images" in found


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_config_may_begin_with_a_byte_order_mark(mark: bytes, folder: Path) -> None:
    content = (folder / "points.toml").read_bytes()
    (folder / "marked.toml").write_bytes(mark + content)
    run_here("marked.toml", "--check", cwd=folder, code=0)
    (folder / "wide.toml").write_bytes(content.decode().encode("utf-16"))
    assert "wide.toml is not TOML: it is no UTF-8; save it so" in refusal(folder, file="wide.toml")


DEEP = ".".join("a" * 3000)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (f"start.seed=0x{'f' * 5000}", "start.seed is a number of too many digits"),
        (f"model.hidden=[3, 0x{'f' * 5000}]", "model.hidden is a number of too many digits"),
        (f"{DEEP}=1", "a.a is nested too deeply"),
        ("a\nb", "--set a b is not TOML"),
    ],
)
def test_a_setting_that_toml_takes_and_nothing_else(setting: str, says: str, folder: Path) -> None:
    assert says in refusal(folder, setting)


@pytest.mark.parametrize("name", [f"{LONG}.npz", f"{LONG}.h5", "a\\u0000b.npz", "a\\u0000b.h5"])
@pytest.mark.parametrize(
    "settings",
    [
        ['data="{}"'],
        ['data="{}"', 'parallel.data="sharded"'],
        ['start.method="file"', 'start.coordinates="{}"', "model.sites='after'"],
        ['start.method="model"', 'start.model="{}"'],
    ],
    ids=["data", "sharded", "coordinates", "model"],
)
def test_a_name_that_no_file_can_have(settings: list[str], name: str, folder: Path) -> None:
    message = refusal(folder, *(setting.format(name) for setting in settings))
    assert "does not exist" in message or "there is no such file" in message
