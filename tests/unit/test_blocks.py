"""Rows that stay in their file, or in its type, are those of the data set that is read whole: in every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from targets import rules_of
from unit.test_shards import loaded, together, write

from macmpi import UsageError
from macmpi.config import Config, Data, Parallel
from macmpi.data import loading
from macmpi.data.gathered import with_loss
from macmpi.data.reading import InFile, npy_rows, read_file, whole
from macmpi.parallel.rows import Converted
from macmpi.predict import read_points
from macmpi.reductions import LazyRows

N, D = 907, 5
RANDOM = np.random.default_rng(1)
BYTES = RANDOM.integers(0, 256, (N, D)).astype(np.uint8)
HALVES = RANDOM.normal(size=(N, D)).astype(np.float32)
LABELS = RANDOM.integers(0, 3, N).astype(np.int8)


def of_h5(folder: Path, X: np.ndarray) -> Data:
    return Data(write(folder, {"X": X}))


def of_chunks(folder: Path, X: np.ndarray) -> Data:
    return Data(write(folder, {"X": X, "Y": LABELS}, chunks=True, compression="gzip"))


def of_npy(folder: Path, X: np.ndarray) -> Data:
    np.save(folder / "points.npy", X)
    return Data(str(folder / "points.npy"))


def of_columns(folder: Path, X: np.ndarray) -> Data:
    """The last column, a target, and the second, weights."""
    np.save(folder / "points.npy", np.abs(X))
    return Data(str(folder / "points.npy"), target="-1", weights="1")


def table(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("narwhals")
    parquet.write_table(pa.table(columns), folder / "points.parquet", row_group_size=100, **options)
    return folder / "points.parquet"


def of_parquet(folder: Path, X: np.ndarray) -> Data:
    return Data(str(table(folder, {f"x{i}": X[:, i] for i in range(D)})))


def of_mixed_columns(folder: Path, X: np.ndarray) -> Data:
    """Categories, numbers that are missing, and a target."""
    words = np.array(["red", "green", "blue"])[LABELS % 3]
    some = [None if n % 7 == 0 else float(x) for n, x in enumerate(X[:, 0])]
    columns = {"colour": words, "some": some, "x": X[:, 1], "row": np.arange(N), "y": X[:, 2]}
    return Data(str(table(folder, columns)), target="y", missing="impute")


def of_zarr(folder: Path, X: np.ndarray) -> Data:
    zarr = pytest.importorskip("zarr")
    group = zarr.create_group(folder / "points.zarr")
    for name, A in {"X": X, "Y": X[:, :2]}.items():
        group.create_array(name, data=A, chunks=(100, A.shape[1]))
    return Data(str(folder / "points.zarr"))


FORMATS: dict[str, Callable[[Path, np.ndarray], Data]] = {
    made.__name__: made for made in (of_h5, of_chunks, of_npy, of_columns, of_parquet, of_mixed_columns, of_zarr)
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("of", FORMATS)
def test_rows_have_the_bits_of_those_read_whole(of: str, in_file: bool, ranks: int, tmp_path: Path) -> None:
    """Together they are those of one process, whichever rank reads which, with one sum and one scaling."""
    X, dtype = (BYTES, "float64") if ranks % 2 else (HALVES, "float32")
    config, labels = FORMATS[of](tmp_path, X), of == "of_chunks"
    whole = loading.load(config, rules_of(labels, precision=dtype))
    parts = loaded(config, ranks, labels, dtype, in_file)
    for key, found in together(parts).items():
        assert found.dtype == getattr(whole, key).dtype
        assert_array_equal(found, getattr(whole, key), key)
    for part in parts:
        assert part.sha256 == whole.sha256
        assert part.columns == whole.columns
        assert_array_equal(part.scaling_x.scale, whole.scaling_x.scale)
        if whole.autoencoder:
            assert part.Y is part.X


@pytest.mark.every_case
@pytest.mark.parametrize("of", FORMATS)
def test_what_targets_are_is_decided_alike_wherever_their_rows_lie(of: str, tmp_path: Path) -> None:
    config, found = Config(data=FORMATS[of](tmp_path, BYTES)), list[Any]()
    for place in ("replicated", "sharded"):
        try:
            found.append(with_loss(replace(config, parallel=Parallel(data=place)))[1])
        except UsageError as error:
            found.append(str(error))
    assert found[0] == found[1] and found[0]


@pytest.mark.every_case
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["nc", "2.zarr", "3.zarr"])
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_what_xarray_writes_is_read_as_xarray_reads_it(kind: str, packed: bool, tmp_path: Path) -> None:
    """netCDF and Zarr: numbers that are missing, and those that are kept as integers with a scale and an offset."""
    xarray, path = pytest.importorskip("xarray"), tmp_path / f"points.{kind}"
    made = xarray.Dataset({"X": (("point", "column"), np.where(LABELS[:, None] > 0, HALVES, np.nan))})
    packing = {"dtype": "i2", "scale_factor": 0.001, "add_offset": 1.0, "_FillValue": -32768}
    encoding = {"X": packing} if packed else {}
    if kind == "nc":
        made.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    else:
        made.to_zarr(path, zarr_format=int(kind[0]), encoding=encoding)
    with xarray.open_dataset(path, engine="h5netcdf" if kind == "nc" else "zarr") as file:
        read = file.X.to_numpy()
    found, (rows,) = read_points(path, "X", []), read_file(path, ("X",), unread=True).values()
    assert_array_equal(whole(rows), found)
    assert np.isnan(found).sum() == (LABELS == 0).sum() * D
    np.testing.assert_allclose(found, read, rtol=1e-5 if packed else 0.0)


@pytest.mark.parametrize(("name", "said"), [("x.nc", "nccopy -k nc4"), ("x.zarr", "a group that holds an array X")])
def test_a_kind_of_file_that_is_not_read_is_named(name: str, said: str, tmp_path: Path) -> None:
    if name == "x.zarr":
        pytest.importorskip("zarr").save_array(tmp_path / name, HALVES)
    else:
        (tmp_path / name).write_bytes(b"CDF\x01" + bytes(60))
    with pytest.raises(UsageError, match=said):
        read_file(tmp_path / name, ("X",))


@pytest.mark.parametrize("of", ["of_h5", "of_chunks", "of_npy", "of_parquet", "of_zarr"])
def test_a_rank_keeps_its_rows_in_their_own_type_or_in_the_file(of: str, tmp_path: Path) -> None:
    """Not as numbers of eight bytes: one byte a number, or one run of rows."""
    config, labels = FORMATS[of](tmp_path, BYTES), of == "of_chunks"
    kept, left = (loaded(config, 2, labels, in_file=in_file) for in_file in (False, True))
    for part in kept:
        for rows in (part.X, part.X_val):
            assert isinstance(rows, Converted)
            assert rows.source.dtype == np.uint8
            assert rows.source.nbytes == len(rows) * D
    assert sum(len(part.X) + len(part.X_val) for part in kept) == N
    for part in left:
        assert isinstance(part.X.source, LazyRows)
        held = part.X.source.make.__closure__
        ((_, rows),) = next(cell.cell_contents for cell in held if isinstance(cell.cell_contents, list))
        assert len(rows) == 0


def test_numbers_as_wide_as_the_runs_are_kept_scaled(tmp_path: Path) -> None:
    (part,) = loaded(of_npy(tmp_path, HALVES.astype(np.float64)), 1)
    assert isinstance(part.X, np.ndarray)


@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
def test_any_places_of_rows_are_those_of_an_array(
    in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs in and out of order, steps, numbers that repeat, columns; runs of a few rows are read at a time."""
    monkeypatch.setattr("macmpi.data.parts.RUN", 40 * D)
    (part,) = loaded(of_h5(tmp_path, BYTES), 1, in_file=in_file)
    X, whole = part.X, np.asarray(part.X)
    n, random = len(whole), np.random.default_rng(2)
    for _ in range(60):
        a, b = np.sort(random.integers(0, n + 1, 2)).tolist()
        for places in (slice(a, b), slice(a, b, 3), slice(a, None), random.integers(0, n, 9), np.zeros(0, int)):
            assert_array_equal(X[places], whole[places])
        assert_array_equal(X[:, 1:3][a:b], whole[a:b, 1:3])
    with pytest.raises(ValueError, match="read-only"):
        X[0:3][:] = 0.0


def damaged(of: str, folder: Path) -> Data:
    """Bytes of rows 600 to 699 are lost."""
    if of == "of_npy":
        config = of_npy(folder, BYTES)
        return config
    config = FORMATS[of](folder, BYTES)
    if of == "of_zarr":
        chunk = next(path for path in Path(config.source).glob("X/c/6/0"))
        chunk.write_bytes(chunk.read_bytes()[:20])
        return config
    path = Path(config.source)
    content = bytearray(path.read_bytes())
    if of == "of_parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        start = parquet.ParquetFile(path).metadata.row_group(6).column(2).data_page_offset
        content[start : start + 8] = b"\xff" * 8
    else:
        with h5py.File(path) as file:
            X = file["X"]
            held = next(X.id.get_chunk_info(i) for i in range(X.id.get_num_chunks()))
        content[held.byte_offset : held.byte_offset + 8] = b"\xff" * 8
    path.write_bytes(content)
    return config


@pytest.mark.parametrize("of", ["of_chunks", "of_zarr", "of_parquet"])
def test_a_block_that_cannot_be_read_names_file_and_rows(of: str, tmp_path: Path) -> None:
    config = damaged(of, tmp_path)
    errors = loaded(replace(config, target=""), 2, of == "of_chunks")
    for error in errors:
        assert isinstance(error, UsageError), error
        assert config.source in str(error)
        assert "cannot be read" in str(error)
    if of == "of_zarr":
        assert ": dataset X, rows " in str(errors[0])


def test_an_npy_file_that_ends_early_is_refused_when_it_is_opened_and_when_it_is_read(tmp_path: Path) -> None:
    config = of_npy(tmp_path, BYTES)
    path = Path(config.source)
    rows, (part,) = npy_rows(path), loaded(config, 1, in_file=True)
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(len(content) - 10 * D)
    assert_array_equal(rows[: N - 10], BYTES[: N - 10])
    with pytest.raises(ValueError, match="ends within"):
        rows[N - 11 : N - 9]
    with pytest.raises(UsageError, match=rf"{path}: dataset X, rows [\d,]+ to [\d,]+ cannot be read: the file ends"):
        np.asarray(part.X)
    with pytest.raises(UsageError, match="shorter than its header says"):
        npy_rows(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (np.asfortranarray(HALVES), "np.ascontiguousarray"),
        (np.array([[None]]), "Python objects"),
        (np.zeros((2, 0)), "at least 2 rows and 1 column"),
    ],
)
def test_npy_files_that_cannot_be_read_by_rows(content: np.ndarray, said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", content, allow_pickle=True)
    for error in loaded(Data(str(tmp_path / "points.npy")), 2):
        assert said in str(error)
        assert "points.npy" in str(error)


def test_some_columns_are_read_by_runs() -> None:
    """Never all columns of all rows."""
    most = []

    def read(start: int, stop: int) -> np.ndarray:
        most.append(stop - start)
        return np.arange(start, stop)[:, None] + np.array([0.0, 0.5])

    rows = InFile((40_000, 2), np.dtype(float), read)[:, 1]
    assert rows.shape == (40_000,)
    assert_array_equal(rows[()], np.arange(40_000) + 0.5)
    assert max(most) < 20_000
