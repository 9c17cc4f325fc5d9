"""The converters of USPS and COIL-20: the layout of the originals, and the files that they must refuse."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from macmpi import UsageError, fetch
from macmpi.fetch import convert_usps, fetch_coil, read_coil_zip
from macmpi.typing import Array


@pytest.fixture
def mat() -> np.ndarray:
    """(256, 1100, 10) uint8: pixels column by column, images of a digit, digits 1..9, 0."""
    return np.random.default_rng(0).integers(0, 256, (256, 1100, 10), dtype=np.uint8)


def test_pixels_are_read_column_by_column_and_digits_from_one_to_zero(mat: np.ndarray) -> None:
    images, labels = convert_usps(mat)
    assert images.shape == (11000, 16, 16)
    for index, (image, digit) in {0: (0, 0), 1099: (1099, 0), 1100: (0, 1), 10999: (1099, 9)}.items():
        assert np.array_equal(images[index], mat[:, image, digit].reshape(16, 16, order="F"))
    assert list(labels[::1100]) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert (np.bincount(labels) == 1100).all()


def version_7_3(path: Path) -> None:
    """MATLAB's newer format is HDF5 behind a header of 512 bytes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["data"] = np.zeros((10, 1100, 256), np.uint8)
    content = bytearray(path.read_bytes())
    content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    path.write_bytes(content)


def damaged(path: Path) -> None:
    """One byte of an element's size, which SciPy takes at its word."""
    savemat(path, {"data": np.zeros((4, 5, 2), np.uint8)})
    content = bytearray(path.read_bytes())
    content[132] ^= 0x40
    path.write_bytes(content)


NO_USPS: dict[str, Callable[[Path], object]] = {
    "a web page": lambda path: path.write_bytes(b"<html>not found</html>" * 100),
    "empty": lambda path: path.write_bytes(b""),
    "MATLAB 7.3": version_7_3,
    "damaged": damaged,
    "another variable": lambda path: savemat(path, {"images": np.zeros(3)}),
    "not there": lambda path: None,
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", NO_USPS)
def test_another_file_is_refused_in_one_line_and_not_opened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "usps_all.mat"
    NO_USPS[name](path)
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "argv", ["fetch", "usps", "--file", str(path)])
    with pytest.raises(SystemExit) as ended:
        fetch.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"macmpi: {path} is not usps_all.mat: ")
    assert not (tmp_path / "data").exists()


# --- COIL-20 ----------------------------------------------------------------------------------------------------------


def png(pixels: Array, mode: str = "L") -> bytes:
    image = pytest.importorskip("PIL.Image").fromarray(pixels).convert(mode)
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    return content.getvalue()


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def flat(number: int, pose: int) -> Array:
    """A picture that tells its object and pose: 128 x 128, one grey above another."""
    pixels = np.full((128, 128), number, np.uint8)
    pixels[64:] = pose
    return pixels


@pytest.fixture(scope="module")
def members() -> dict[str, bytes]:
    """All 1,440, as text sorts them: not by number."""
    made = {(n, p): png(flat(n, p)) for n in range(1, 21) for p in range(72)}
    return dict(sorted((f"coil-20-proc/obj{n}__{p}.png", content) for (n, p), content in made.items()))


def test_pictures_are_read_by_object_and_pose(members: dict[str, bytes], tmp_path: Path) -> None:
    more = {"coil-20-proc/": b"", "__MACOSX/coil-20-proc/._obj1__0.png": b"junk", "coil-20-proc/readme.txt": b"text"}
    pictures = read_coil_zip(archive(tmp_path / "made.zip", members | more))
    assert pictures.shape == (1440, 128, 128)
    for k in (0, 1, 71, 72, 719, 1439):
        assert np.array_equal(pictures[k], flat(k // 72 + 1, k % 72))


def test_nothing_is_unpacked_to_the_paths_of_the_archive(members: dict[str, bytes], tmp_path: Path) -> None:
    target = tmp_path / "deep" / "down"
    target.mkdir(parents=True)
    moved = {f"../../{name}": content for name, content in members.items()}
    with pytest.raises(UsageError, match="total variance"):
        fetch_coil(target, archive(tmp_path / "made.zip", moved))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "down", "made.zip"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("obj1__0.png", lambda: png(np.zeros((64, 128), np.uint8)), "obj1__0.png: 128 x 64 of mode L, not 128 x 128"),
        ("obj20__71.png", lambda: png(flat(1, 1), "RGB"), "obj20__71.png: 128 x 128 of mode RGB"),
        ("obj7__3.png", lambda: png(flat(1, 1), "1"), "obj7__3.png: 128 x 128 of mode 1,"),
        ("obj2__9.png", lambda: png(flat(1, 1))[:90], "obj2__9.png: "),
        ("obj2__9.png", lambda: b"GIF89a", "obj2__9.png: cannot identify"),
        ("obj3__5.png", lambda: bytes(2_000_000), "obj3__5.png: 2,000,000 bytes are too many"),
        ("obj4__6.png", lambda: None, "obj4__6.png: it is not there"),
    ],
)
def test_a_bad_picture_is_named(
    name: str, content: Callable[[], bytes | None], says: str, members: dict[str, bytes], tmp_path: Path
) -> None:
    made = members | {f"coil-20-proc/{name}": content()}
    path = archive(tmp_path / "made.zip", {k: v for k, v in made.items() if v is not None})
    with pytest.raises(UsageError) as caught:
        fetch_coil(tmp_path / "data", path)
    assert f"{path} is not coil-20-proc.zip: {says}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_a_wrong_download_is_not_kept(members: dict[str, bytes], tmp_path: Path, monkeypatch: Any) -> None:
    """The next attempt would find it instead of downloading again."""
    path = archive(tmp_path / "made.zip", members)
    monkeypatch.setattr(fetch, "_download", lambda url, sha256: path)
    with pytest.raises(UsageError, match="total variance"):
        fetch_coil(tmp_path, None)
    assert not path.exists()


def test_without_pillow_the_remedy_comes_before_the_download(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr(fetch, "_download", lambda url, sha256: pytest.fail("downloaded"))
    with pytest.raises(UsageError, match="pip install pillow"):
        fetch_coil(tmp_path, None)
