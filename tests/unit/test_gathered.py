"""Sources that are neither HDF5 nor npz: .npy files, folders of images, data sets of scikit-learn and of OpenML."""

from __future__ import annotations

import struct
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import macmpi
from macmpi import UsageError, config, fetch, predict
from macmpi.config import Config, Data
from macmpi.data.gathered import openml_file, with_loss
from macmpi.data.images import images_of
from macmpi.data.loading import Source, load
from macmpi.data.named_sets import read_library_set
from macmpi.parallel import command

Image = pytest.importorskip("PIL.Image")


def decided(data: Data, loss: str = "auto") -> Config:
    return with_loss(replace(Config(data=data), model=config.Model(loss=loss)))[0]  # type: ignore[arg-type]


def refusal(data: Data, loss: str = "auto") -> str:
    with pytest.raises(UsageError) as caught:
        Source(decided(data, loss)).sizes()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- .npy -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["y", "4", "-5", "1.0", "", "99999999999"])
def test_a_target_that_is_no_column_of_an_array(tmp_path: Path, target: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((30, 4)))
    text = refusal(Data(source=str(tmp_path / "a.npy"), target=[target]))
    assert f'data.target = "{target}": ' in text
    assert 'holds float64 of shape (30, 4); the number of one of its columns is needed, as "-1"' in text


# --- folders of images ------------------------------------------------------------------------------------------------


def draw(path: Path, size: tuple[int, int] = (4, 3), mode: str = "L", seed: int = 0, **words: Any) -> np.ndarray:
    """An image of random pixels, size (width, height); the pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng([seed, len(path.name), *path.name.encode()])
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], len(mode))
    pixels = random.integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels, mode=mode).save(path, **words)
    return pixels


def test_images_are_rows_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = ["b.png", "a.png", "c.bmp"]
    pixels = {name: draw(tmp_path / name) for name in names}
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_bytes(b"no image")
    (tmp_path / "empty folder").mkdir()
    expected = np.stack([pixels[name] for name in sorted(names)])
    found, labels = images_of(tmp_path, [])
    assert_array_equal(found, expected)
    assert labels is None
    np.savez(tmp_path / "same.npz", X=expected)
    ours, theirs = (load(Data(source=str(path))) for path in (tmp_path, tmp_path / "same.npz"))
    assert ours.sha256 == theirs.sha256
    assert ours.shape == (3, 4)
    assert ours.autoencoder


def test_folders_are_classes_unless_something_else_is_asked_for(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        for i in range(6):
            draw(tmp_path / label / f"{i}.png", seed=len(label) + i)
    data = Data(source=str(tmp_path))
    asked = decided(data)
    assert asked.model.loss == "cross_entropy"
    found = Source(asked).outline()
    assert found.classes is not None and found.classes.tolist() == ["cat", "dog"]
    for others in (decided(data, "squared"), decided(Data(source=str(tmp_path), target=[]))):
        assert others.model.loss == "squared"
        assert Source(others).outline().autoencoder
    assert "whose folders are the classes" in refusal(Data(source=str(tmp_path), target="cat"))


def test_images_of_other_sizes_are_refused_and_the_remedy_resizes_them(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", (4, 3))
    draw(tmp_path / "b.png", (6, 5))
    draw(tmp_path / "c.png", (4, 3))
    text = refusal(Data(source=str(tmp_path)))
    assert "b.png has 5 x 6 pixels, but a.png 3 x 4: data.image_size = [3, 4] resizes all of them" in text
    assert load(Data(source=str(tmp_path), image_size=[3, 4])).shape == (3, 4)
    assert images_of(tmp_path, [2, 7])[0].shape == (3, 2, 7)


@pytest.mark.parametrize("size", [[10**8, 10**8], [10**15, 1], [10**12, 10**12]])
def test_images_that_no_memory_holds_are_refused(size: list[int], tmp_path: Path) -> None:
    draw(tmp_path / "a.png", (4, 3))
    text = refusal(Data(source=str(tmp_path), image_size=size))
    assert f"{size[0]} x {size[1]} pixels do not fit into memory; data.image_size" in text


def test_folders_that_hold_no_images_of_one_kind(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert "holds no images (.png, " in refusal(Data(source=str(tmp_path / "none")))
    draw(tmp_path / "both" / "a.png")
    draw(tmp_path / "both" / "cats" / "b.png")
    assert "holds images (a.png) as well as folders of images (cats)" in refusal(Data(source=str(tmp_path / "both")))
    draw(tmp_path / "bad" / "a.png")
    (tmp_path / "bad" / "b.png").write_bytes(b"no image")
    assert "b.png cannot be read: " in refusal(Data(source=str(tmp_path / "bad")))
    draw(tmp_path / "deep" / "a.png")
    Image.fromarray(np.ones((3, 4), np.int32), mode="I").save(tmp_path / "deep" / "b.tif")
    assert "b.tif: it has pixels of mode I" in refusal(Data(source=str(tmp_path / "deep")))
    draw(tmp_path / "flat" / "a.png")
    assert "of images folders, one a class" in refusal(Data(source=str(tmp_path / "flat")), "cross_entropy")


def png_of_16_bits(path: Path, pixels: np.ndarray) -> None:
    """Pixels (h, w, 3) as a colour picture, which Pillow reads as one of 8 bits."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


def test_what_would_be_lost_of_a_picture_is_refused(tmp_path: Path) -> None:
    """Wherever it stands among the others: its transparency, its 16 bits, its further pictures."""
    random = np.random.default_rng(0)
    for name, says in (
        ("alpha.png", "transparent"),
        ("deep.png", "16 bits"),
        ("deep.ppm", "16 bits"),
        ("more.gif", "holds 2 pictures"),
        ("more.tif", "holds 2 pictures"),
    ):
        for order in ("0", "z"):
            folder = tmp_path / f"{name} {order}"
            draw(folder / "k.png")
            path, pixels = folder / f"{order}{name}", random.integers(0, 256, (3, 4, 4), dtype=np.uint8)
            if name == "alpha.png":
                Image.fromarray(pixels, mode="RGBA").save(path)
            elif name == "deep.png":
                png_of_16_bits(path, random.integers(0, 2**16, (3, 4, 3)))
            elif name == "deep.ppm":
                path.write_bytes(b"P6 4 3 1023\n" + random.integers(0, 1024, (3, 4, 3)).astype(">u2").tobytes())
            else:
                one, two = (Image.fromarray(A) for A in (pixels[..., 0], 255 - pixels[..., 0]))
                one.save(path, save_all=True, append_images=[two])
            assert f"{path}: it " in refusal(Data(source=str(folder)))
            assert says in refusal(Data(source=str(folder)))


@pytest.mark.parametrize("size", [(4, 3), (16, 16), (160, 116)])
def test_a_palette_of_greys_is_grey_and_one_of_colours_is_not(size: tuple[int, int], tmp_path: Path) -> None:
    pixels = draw(tmp_path / "grey" / "a.png", size)
    Image.fromarray(pixels).convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "grey" / "b.png")
    found, _ = images_of(tmp_path / "grey", [])
    assert_array_equal(found, np.stack([pixels, pixels]))
    Image.fromarray(np.stack([pixels] * 2 + [255 - pixels], 2)).quantize(256).save(tmp_path / "grey" / "c.png")
    assert images_of(tmp_path / "grey", [])[0].shape == (3, *pixels.shape, 3)


def test_a_folder_of_images_is_predicted_as_it_was_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resized as then; the classes are those of its folders."""
    for i in range(12):
        draw(tmp_path / "images" / "ab"[i % 2] / f"{i}.png", (6, 5), seed=i)
    settings = {"data.source": str(tmp_path / "images"), "data.image_size": [3, 4], "run.max_iterations": 1}
    macmpi.save(macmpi.fit(config=settings), str(tmp_path / "m.h5"))
    monkeypatch.setattr(
        "sys.argv", ["p", *(str(tmp_path / name) for name in ("m.h5", "images")), "--output", str(tmp_path / "o.npy")]
    )
    predict.main()
    expected = macmpi.load(str(tmp_path / "m.h5")).predict(images_of(tmp_path / "images", [3, 4])[0])
    assert_array_equal(np.load(tmp_path / "o.npy"), expected)
    assert set(expected) <= {"a", "b"}


@pytest.mark.parametrize("name", ["images", "sklearn:iris"])
def test_ranks_cannot_read_their_rows_of_these(tmp_path: Path, name: str) -> None:
    draw(tmp_path / "images" / "a.png")
    source = name if ":" in name else str(tmp_path / name)
    asked = replace(Config(data=Data(source=source)), parallel=config.Parallel("sharded"))
    with pytest.raises(UsageError, match="is read whole; use parallel"):
        with_loss(asked)


# --- scikit-learn and OpenML ------------------------------------------------------------------------------------------

datasets = pytest.importorskip("sklearn.datasets")


def test_sets_of_scikit_learn() -> None:
    iris = decided(Data(source="sklearn:iris"))
    assert iris.model.loss == "cross_entropy"
    found = Source(iris).outline()
    assert found.classes is not None and found.classes.tolist() == ["setosa", "versicolor", "virginica"]
    assert found.sizes.counts == (4, 3, 120, 30)
    assert Source(decided(Data(source="sklearn:diabetes"))).outline().one_dimensional
    assert Source(decided(Data(source="sklearn:linnerud"))).sizes().n_out == 3
    digits = Data(source="sklearn:digits")
    assert "Y holds whole numbers, 10 different ones" in refusal(digits)
    assert Source(decided(digits, "cross_entropy")).outline().shape == (8, 8)


@pytest.mark.parametrize(
    ("bunch", "says"),
    [
        ({"data": ["a", "b"], "target": np.arange(2)}, "gives no arrays of data and targets"),
        ({"data": np.ones((2, 2))}, "gives no arrays of data and targets"),
        ({"data": SimpleNamespace(toarray=None), "target": np.arange(2)}, "is sparse"),
    ],
    ids=["texts", "no targets", "sparse"],
)
def test_sets_without_rows_of_numbers(bunch: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_iris", lambda: bunch)
    with pytest.raises(UsageError, match=says):
        read_library_set("sklearn:iris")


def fetched(*words: str) -> tuple[int, str]:
    """Exit code and what is said of `python -m macmpi.fetch WORDS`."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["macmpi.fetch", *words])
        patch.setattr(command, "say", said.append)
        patch.setattr(command, "warn", said.append)
        try:
            fetch.main()
        except SystemExit as end:
            return int(end.code or 0), "".join(said)
    return 0, "".join(said)


@pytest.fixture
def openml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A data folder of its own, and OpenML in the place of the network: how it was asked."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path / "data"))
    asked: list[dict[str, Any]] = []

    def answer(name: str, **words: Any) -> Any:
        asked.append({"name": name, **words})
        if name == "nowhere":
            raise OSError("no route to host")
        random = np.random.default_rng(1)
        frame = pd.DataFrame({"age": random.normal(size=50), "job": pd.Categorical(random.choice(["a", "b"], 50))})
        frame["class"] = pd.Categorical(np.where(frame["age"] > 0.0, "good", "bad"))
        return SimpleNamespace(frame=frame, target_names=["class"])

    monkeypatch.setattr(datasets, "fetch_openml", answer)
    return asked


@pytest.mark.parametrize(("version", "asked_for"), [("", "active"), ("@3", 3)])
def test_a_set_of_openml_is_fetched_once_and_read_from_its_file(
    openml: list[dict[str, Any]], version: str, asked_for: Any
) -> None:
    source = f"openml:credit-g{version}"
    text = refusal(Data(source=source))
    assert text.endswith(f"does not exist; fetch it: python -m macmpi.fetch {source}")
    code, said = fetched(source)
    assert (code, said) == (0, f"{openml_file(source)} is ready")
    assert openml == [{"name": "credit-g", "version": asked_for, "as_frame": True}]
    data = Data(source=source)
    assert decided(data).model.loss == "cross_entropy"
    found = Source(decided(data)).outline()
    assert found.columns is not None and found.columns.names == ["age", "job_a", "job_b"]
    assert found.classes is not None and found.classes.tolist() == ["bad", "good"]
    assert Source(decided(Data(source=source, target="age", ignore=["class"]))).outline().one_dimensional
    assert Source(decided(Data(source=source, target=[]))).outline().autoencoder
    assert len(openml) == 1


def test_a_set_of_scikit_learn_is_fetched_into_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    known = {"data": np.ones((4, 2)), "target": np.arange(4.0)}

    def fetch_california_housing(*, download_if_missing: bool = True) -> dict[str, Any]:
        asked.append(download_if_missing)
        return known

    monkeypatch.setattr(datasets, "fetch_california_housing", fetch_california_housing)
    assert fetched("sklearn:california_housing") == (0, "sklearn:california_housing is ready")
    assert read_library_set("sklearn:california_housing")["X"] is known["data"]
    assert asked == [True, False]
