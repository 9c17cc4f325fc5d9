"""Rows that ranks read one by one are together those that one process reads; what is wrong in them is named alike."""

from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from targets import CLASSES, rules_of
from unit.crew import crew

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data import loading, parts
from macmpi.data.dataset import WEIGHTS, Dataset
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import partition_points

SHARDED = PLACEMENTS["sharded"]

RANKS = (1, 3, 5)
N, D = 1203, 6
X = np.random.default_rng(1).normal(size=(N, D)) * [1, 2, 3, 0, 5, 1e3] + [0, 1, 0, 7, 0, 1e4]
X_VAL = np.random.default_rng(2).normal(size=(101, D))
W = np.random.default_rng(3).exponential(size=N)
LABELS = np.array([-3, 0, 7])


def bytes_of(A: np.ndarray) -> np.ndarray:
    return np.clip(A * 20.0 + 100.0, 0.0, 255.0).astype(np.uint8)


def labels_of(A: np.ndarray) -> np.ndarray:
    return LABELS[A[:, :3].argmax(axis=1)]


FILES: dict[str, dict[str, Any]] = {
    "split by the file": {"X": X, "X_val": X_VAL},
    "drawn": {"X": X},
    "regression": {"X": X, "Y": np.sin(X[:, :2]), "X_val": X_VAL, "Y_val": np.sin(X_VAL[:, :2])},
    "drawn regression": {"X": X, "Y": X[:, 1]},
    "constant inputs": {"X": np.ones((50, 2)), "Y": X[:50]},
    "labels": {"X": X, "Y": labels_of(X), "X_val": X_VAL, "Y_val": labels_of(X_VAL)},
    "drawn labels": {"X": X, "Y": labels_of(X)[:, None].astype(np.float32)},
    "bytes": {"X": bytes_of(X), "X_val": bytes_of(X_VAL)},
    "whole numbers": {"X": (100.0 * X).astype(np.int32), "Y": X[:, :1]},
    "half precision": {"X": X[:, :3].astype(np.float16)},
    "big-endian": {"X": X.astype(">f4")},
    "long tails": {"X": np.sinh(4.0 * (X - X.mean(0)) / np.maximum(X.std(0), 1e-3)), "Y": X[:, 0] ** 3},
    "tails compressed twice": {"X": np.sinh(12.0 * (X - X.mean(0)) / np.maximum(X.std(0), 1e-3)), "Y": X[:, 0]},
    "images": {"X": X.reshape(N, 2, 3), "X_val": X_VAL.reshape(-1, 2, 3)},
    "few": {"X": X[:4], "X_val": X_VAL[:2]},
    "very few": {"X": X[:2], "X_val": X_VAL[:2]},
    "drawn from few": {"X": X[:3]},
    "weights": {"X": X, "Y": X[:, :2], "X_val": X_VAL, "Y_val": X_VAL[:, :2], "weights": W, "weights_val": W[:101]},
    "drawn weights": {"X": X, "Y": X[:, 1], "weights": W[:, None].astype(np.float32)},
    "weights of labels": {"X": X, "Y": labels_of(X), "weights": np.arange(N) % 3},
    "weights of 1": {"X": X, "weights": np.ones(N)},
}


def write(folder: Path, arrays: dict[str, Any], **options: Any) -> str:
    """To a file of its own: those that an error still refers to are open."""
    path = folder / f"points{len(list(folder.iterdir()))}.h5"
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)
    return str(path)


def loaded(config: Data, ranks: int, labels: bool = False, dtype: str = "float64", in_file: bool = False) -> list[Any]:
    """What each rank reads, or the error that it raises.  in_file: rows are read again whenever they are used."""

    wanted = rules_of(labels, precision=dtype, in_file=in_file)

    def work(team: Any) -> Dataset:
        found = team.from_root(lambda: loading.survey(config, wanted))
        n, n_val = (partition_points(size, ranks, placement=SHARDED) for size in found.counts[2:])
        return loading.load_rows(config, wanted, found.classes, (n, n_val), team)

    return crew(ranks, work)


def together(parts: list[Dataset]) -> dict[str, np.ndarray]:
    names = [*("X", "Y", "X_val", "Y_val"), *(name for name in WEIGHTS if getattr(parts[0], name) is not None)]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def weighted(name: str) -> bool:
    """A file whose points do not all weigh 1."""
    return not np.all(FILES[name].get("weights", 1.0) == 1.0)


# --- the law ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scale"),  # every file as it comes, and in turns with one of the other scales
    [*zip(FILES, itertools.repeat("auto")), *zip(FILES, itertools.cycle(["none", "range", "standard", "robust"]))],
)
def test_the_ranks_rows_are_together_those_of_one_process(name: str, scale: Any, tmp_path: Path) -> None:
    labels = "labels" in name
    config = Data(write(tmp_path, FILES[name]), scale=scale)
    whole, sums = loading.load(config, rules_of(labels)), set()
    for ranks in RANKS:
        parts = loaded(config, ranks, labels)
        for key, found in together(parts).items():
            assert_array_equal(found, getattr(whole, key), key)
        for part in parts:
            for ours, theirs in ((part.scaling_x, whole.scaling_x), (part.scaling_y, whole.scaling_y)):
                assert_array_equal(ours.scale, theirs.scale)
                assert_array_equal(ours.shift, theirs.shift)
                assert (ours.tails is None) is (theirs.tails is None)
                if ours.tails is not None and theirs.tails is not None:
                    assert ours.compresses_as(theirs)
                    assert (ours.tails.again is not None) is ("twice" in name and scale != "standard")
            assert part.autoencoder is whole.autoencoder
            assert (part.weights is None) is (whole.weights is None) is not weighted(name)
            assert_array_equal(part.classes, whole.classes)
        sums |= {part.sha256 for part in parts}
    assert len(sums) == 1


@pytest.mark.parametrize(
    "keys", [{"points": 100}, {"points": 2}, {"validation": 0.6}, {"seed": 5}, {"points": 400, "validation": 0.01}]
)
@pytest.mark.parametrize("name", ["split by the file", "drawn regression"])
def test_every_choice_of_points_is_that_of_one_process(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    config = Data(write(tmp_path, FILES[name]), **keys)
    whole = loading.load(config)
    for key, found in together(loaded(config, 3)).items():
        assert_array_equal(found, getattr(whole, key))


# --- who reads what ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["split by the file", "drawn"])
def test_no_row_is_read_by_two_ranks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[str, int], set[int]] = {}
    read = parts.DataPart.raw

    def noted(part: parts.DataPart, places: slice) -> np.ndarray:
        seen.setdefault((part.name, threading.get_ident()), set()).update(np.asarray(part.rows[places]).tolist())
        return read(part, places)

    monkeypatch.setattr(parts.DataPart, "raw", noted)
    config = Data(write(tmp_path, FILES[name]))
    loaded(config, 3)
    for name in {name for name, _ in seen}:
        rows = [found for (where, _), found in seen.items() if where == name]
        assert len(rows) == 3
        assert sum(map(len, rows)) == len(set.union(*rows))


@pytest.mark.parametrize(
    ("name", "passes"),
    [("drawn", 3), ("long tails", 4), ("tails compressed twice", 4)],
    ids=["standard", "robust", "twice"],
)
def test_scaling_reads_no_training_row_more_often_than_its_kind_needs(
    name: str, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for ranges, means and the sample, once for squares, once for means of compressed tails, and to fill."""
    reads: dict[tuple[str, int], int] = {}
    read, lock = parts.DataPart.raw, threading.Lock()

    def noted(part: parts.DataPart, places: slice) -> np.ndarray:
        with lock:
            for place in ((part.name, row) for row in np.asarray(part.rows[places]).tolist()):
                reads[place] = reads.get(place, 0) + 1
        return read(part, places)

    monkeypatch.setattr(parts.DataPart, "raw", noted)
    loaded(Data(write(tmp_path, FILES[name])), 3)
    assert max(reads.values()) == passes


class Counting:
    """Rows that are asked for by runs."""

    def __init__(self, A: np.ndarray) -> None:
        self.A, self.shape, self.largest = A, A.shape, 0

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.largest = max(self.largest, rows.stop - rows.start)
        return self.A[rows]


def test_what_a_dataset_declares_of_its_numbers_is_heeded_by_ranks_too(tmp_path: Path) -> None:
    source = write(tmp_path, FILES["drawn labels"])
    with h5py.File(source, "r+") as file:
        file["X"].attrs.update(scale_factor=0.5, add_offset=-3.0)
    whole, parts = loading.load(Data(source), CLASSES), loaded(Data(source), 3, labels=True)
    assert_array_equal(np.concatenate([part.X for part in parts]), whole.X)
    assert {part.sha256 for part in parts} == {whole.sha256}
    with h5py.File(source, "r+") as file:
        file["X"].attrs["_FillValue"] = file["X"][N - 1, 0]
    for error in loaded(Data(source), 3, labels=True):
        assert f"dataset X is nan at [{N - 1}, 0]" in str(error)


# --- what is refused --------------------------------------------------------------------------------------------------


def bad(at: tuple[int, int], value: float, A: np.ndarray = X) -> np.ndarray:
    A = A.copy()
    A[at] = value
    return A


def with_label(value: Any) -> np.ndarray:
    Y = labels_of(X).astype(type(value))
    Y[-1] = value
    return Y


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nan in the last rank's rows": ({"X": bad((N - 1, 3), np.nan), "X_val": X_VAL}, ["dataset X is nan", "[1202, 3]"]),
    "inf in the first rank's": ({"X": bad((0, 0), -np.inf), "X_val": X_VAL}, ["dataset X is -inf", "[0, 0]"]),
    "huge": ({"X": bad((N - 1, 5), 1e120)}, ["dataset X is 1e+120", "[1202, 5]"]),
    "nan to validate with": ({"X": X, "X_val": bad((100, 2), np.nan, X_VAL)}, ["dataset X_val is nan", "[100, 2]"]),
    "nan in a target": ({"X": X, "Y": bad((N - 1, 0), np.nan)}, ["dataset Y is nan", "[1202, 0]"]),
    "no X": ({"Z": X}, ["no dataset X"]),
    "ragged": ({"X": X, "Y": X[1:]}, ["X has 1,203 rows but Y has 1202"]),
    "other columns": ({"X": X, "X_val": X_VAL[:, 1:]}, ["X", "X_val", "6", "5"]),
    "half of a validation set": ({"X": X, "Y": X, "X_val": X_VAL}, ["Y_val goes with X_val and Y"]),
    "complex": ({"X": X + 1j}, ["dataset X holds complex128"]),
    "text": ({"X": np.full((9, 2), b"a")}, ["dataset X holds |S1"]),
    "one row": ({"X": X[:1]}, ["dataset X has shape (1, 6)"]),
    "no columns": ({"X": X[:, :0]}, ["dataset X has shape (1203, 0)"]),
    "one number": ({"X": 3.0}, ["dataset X"]),
    "two rows, one held out": ({"X": X[:2]}, ["only 1 training point is left"]),
    "constant": ({"X": np.ones((40, 3))}, ["every column of X is constant"]),
    "constant targets": ({"X": X, "Y": np.ones(N)}, ["every column of Y is constant"]),
    "tiny": ({"X": 1e-120 * X}, ["dataset X holds nothing larger"]),
    "labels: none": ({"X": X}, ["needs class labels"]),
    "labels: half a label": ({"X": X, "Y": with_label(0.5)}, ["dataset Y is 0.5 at [1202]"]),
    "labels: nan": ({"X": X, "Y": with_label(np.nan)}, ["dataset Y is nan at [1202, 0]"]),
    "labels: inf": ({"X": X, "Y": with_label(np.inf)}, ["dataset Y is inf at [1202, 0]"]),
    "labels: beyond float64": (
        {"X": X, "Y": with_label(2**60 + 1)},
        ["at [1202]", "at or beyond 2^53"],
    ),
    "labels: one-hot": ({"X": X, "Y": np.eye(3)[labels_of(X) % 3]}, ["dataset Y has 3 columns", "argmax"]),
    "labels: one class": ({"X": X, "Y": np.full(N, 4)}, ["Y holds 1 class;"]),
    "labels: one class to train on": (
        {"X": X, "Y": np.full(N, 4), "X_val": X_VAL, "Y_val": np.arange(101) % 2},
        ["all training points belong to one class"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_data_are_refused_on_all_ranks_as_on_one(name: str, tmp_path: Path) -> None:
    arrays, named = REFUSED[name]
    config, labels = Data(write(tmp_path, arrays)), name.startswith("labels")
    with pytest.raises(UsageError):
        loading.load(config, rules_of(labels))
    errors = loaded(config, 3, labels)
    assert len({str(error) for error in errors}) == 1
    for error in errors:
        assert isinstance(error, UsageError)
        assert error.agreed
        for part in (*named, config.source):
            assert part in str(error)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "points.h5"
    links = {"dangling": h5py.SoftLink("/nothing"), "outside": h5py.ExternalLink(str(tmp_path / "gone.h5"), "/X")}
    for name, link in links.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["X"] = link
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file.create_group("X")
    (tmp_path / "text.h5").write_text("1 2 3")
    for name in ("gone", "dangling", "outside", "group", "text"):
        path = tmp_path / f"{name}.h5"
        for error in loaded(Data(str(path)), 2):
            assert isinstance(error, UsageError), name
            assert str(path) in str(error)


def test_a_chunk_that_is_damaged(tmp_path: Path) -> None:
    source = write(tmp_path, {"X": X}, chunks=(100, D), fletcher32=True)
    with h5py.File(source) as file:
        place = file["X"].id.get_chunk_info(12).byte_offset
    content = bytearray(Path(source).read_bytes())
    content[place] ^= 1
    Path(source).write_bytes(content)
    for error in loaded(Data(source), 3):
        rows = re.search(re.escape(f"{source}: dataset X, rows ") + r"([\d,]+) to ([\d,]+) cannot be read", str(error))
        assert rows, str(error)
        first, last = (int(found.replace(",", "")) for found in rows.groups())
        assert first < 1300 and last >= 1200


def test_a_file_that_one_rank_cannot_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, calls, raw_of = write(tmp_path, FILES["drawn"]), [], loading.raw_of

    def failing(config: Data, *asked: Any, **keys: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise UsageError(f"{config.source} cannot be read: not from here")
        return raw_of(config, *asked, **keys)

    monkeypatch.setattr(loading, "raw_of", failing)
    for error in loaded(Data(source), 3):
        assert "not from here" in str(error)


def mixed(sources: list[str], labels: bool) -> list[Any]:
    """What the ranks read, each from a file of its own, or the error that they raise."""

    def work(team: Any) -> Dataset:
        config = Data(sources[team.rank], scale="none")
        found = team.from_root(lambda: loading.survey(config, rules_of(labels)))
        n, n_val = (partition_points(size, team.size, placement=SHARDED) for size in found.counts[2:])
        return loading.load_rows(config, rules_of(labels), found.classes, (n, n_val), team)

    return crew(len(sources), work)


NUMBERED = np.column_stack([np.arange(301.0), np.random.default_rng(4).normal(size=301)])
"""A row knows its number."""

SAME_SHAPE: dict[str, dict[str, Any]] = {
    "drawn": {"X": NUMBERED, "Y": NUMBERED[:, 1:], "weights": NUMBERED[:, 0] % 5},
    "split": {"X": NUMBERED[:200], "Y": NUMBERED[:200], "X_val": NUMBERED[200:], "Y_val": NUMBERED[200:]},
    "labels": {"X": NUMBERED, "Y": np.arange(301) % 3},
}


@pytest.mark.parametrize("seed", range(12))
def test_another_file_of_the_same_shape_is_refused_where_a_rank_would_read_other_rows(
    seed: int, tmp_path: Path
) -> None:
    """A row of one dataset is another on some ranks; it matters if one of these has that row.  Equal copies pass."""
    random = np.random.default_rng(seed)
    name, ranks = list(SAME_SHAPE)[seed % 3], int(random.integers(2, 6))
    own, changed = SAME_SHAPE[name], str(random.choice(list(SAME_SHAPE[name])))
    row, odd = int(random.integers(len(own[changed]))), random.permutation(np.arange(1, ranks))[: 1 + seed % 3].tolist()
    other = {key: A.copy() for key, A in own.items()}
    other[changed][row] = (other[changed][row] + 1) % 3 if name == "labels" and changed == "Y" else 0.5
    first, copy, second = (write(tmp_path, arrays) for arrays in (own, own, other))
    alike = mixed([copy if r in odd else first for r in range(ranks)], name == "labels")
    number = own["X_val"][row, 0] if changed.endswith("_val") else own["X"][row, 0]
    owner = next(r for r, data in enumerate(alike) if number in (*data.X[:, 0], *data.X_val[:, 0]))
    for rank, found in enumerate(mixed([second if r in odd else first for r in range(ranks)], name == "labels")):
        if owner in odd:
            assert isinstance(found, UsageError)
            assert f"rank {owner} on " in str(found)
            assert found.agreed
        else:
            assert_array_equal(found.X, alike[rank].X)


# --- before anything is read ------------------------------------------------------------------------------------------


def test_the_survey_of_a_check_knows_sizes_classes_and_whether_a_model_fits(tmp_path: Path) -> None:
    """Against the data set that is read whole."""
    for name in ("regression", "labels", "drawn"):
        config, labels = Data(write(tmp_path, FILES[name])), name == "labels"
        found, whole = loading.survey(config, rules_of(labels)), loading.load(config, rules_of(labels))
        assert found.counts == whole.sizes.counts
        assert_array_equal(found.classes, whole.classes)
        blank = loading.blank(found)
        assert [A.shape[1] for A in (blank.X, blank.Y)] == list(found.counts[:2])
        assert_array_equal(blank.scaling_y.apply(np.ones((1, found.n_out))), 1.0)


def test_a_part_reads_runs_and_no_wider_gap_along() -> None:
    """As docs/parallel.md says of sharded files: up to GAP - 1 rows between two wanted ones are read along."""
    read = []

    class Source(np.ndarray):
        def __getitem__(self, rows: Any) -> Any:
            read.append((rows.start, rows.stop))
            return X[rows]

    rows = np.array([3, 4, 4 + parts.GAP, 5 + 2 * parts.GAP])
    kept = parts.RowSet(np.packbits(np.isin(np.arange(N), rows)))
    found = parts.DataPart(X.view(Source), kept, "X").raw(slice(0, len(rows)))
    assert_array_equal(found, X[rows])
    assert read == [(3, 5 + parts.GAP), (5 + 2 * parts.GAP, 6 + 2 * parts.GAP)]
