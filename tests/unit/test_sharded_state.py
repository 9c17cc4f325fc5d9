"""What ranks have written in turn is read back equal on any number of ranks, or not at all."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from plans import resolved_of
from unit.crew import crew
from unit.test_checkpoint import assert_same, state

from macmpi import StorageError, files
from macmpi.config import Config, Method, Run
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import partition_points
from macmpi.state import State, StochasticState
from macmpi.training import checkpoint
from macmpi.training.checkpoint import rows_of, rows_of_points, with_rows
from macmpi.training.run_directory import RunDirectory

SHARDED = PLACEMENTS["sharded"]

N = 211
SHA256 = "0123abcd" * 8
CONFIG = resolved_of(Config(run=Run(keep_checkpoints=2), method=Method("mac")), 4, 3, 100, 10)


def full(kind: str = "multipliers", iteration: int = 3) -> State:
    """Of all points, with coordinates of an augmented Lagrangian, of a quadratic penalty, or with none."""
    random = np.random.default_rng(iteration)
    columns = {"multipliers": (5, 5), "coordinates": (5, 0), "single": (5, 5), "none": (0, 0), "minibatches": (0, 0)}
    Z, multipliers = (random.normal(size=(N, c)) for c in columns[kind])
    if kind == "minibatches":
        wide = {"grams": random.normal(size=300_000), "inverses": random.normal(size=300_000)}
        return with_rows(state(iteration, StochasticState), {"Z": Z} | wide)
    if kind == "single":
        Z, multipliers = Z.astype(np.float32), multipliers.astype(np.float32)
    return with_rows(state(iteration), {"Z": Z, "multipliers": multipliers if kind != "none" else np.empty(0)})


def own(whole: State, ranks: int, rank: int) -> State:
    rows = partition_points(N, ranks, placement=SHARDED).held(rank).rows
    parts = rows_of_points(whole)
    return with_rows(whole, {name: A[rows] if A.ndim == 2 else A for name, A in parts.items()})


def save(folder: Path, whole: State, ranks: int, last: bool = False) -> list[Any]:
    directory, work = RunDirectory(folder), SimpleNamespace(train=partition_points(N, ranks, placement=SHARDED))
    directory.sums = {"data_sha256": SHA256}
    plan: Any = SimpleNamespace(begun=SimpleNamespace(resolved=CONFIG), placement=SHARDED, work=work)

    def work(team: Any) -> None:
        directory.save(own(whole, ranks, team.rank), plan, team, last)

    return crew(ranks, work)


def path_of(folder: Path, iteration: int = 3) -> Path:
    return checkpoint.path_of(folder / "checkpoints", iteration)


@pytest.mark.parametrize("ranks", [1, 3, 5, 20])
@pytest.mark.parametrize("kind", ["multipliers", "coordinates", "single", "none"])
def test_it_reads_back_equal_on_any_number_of_ranks(kind: str, ranks: int, tmp_path: Path) -> None:
    whole = full(kind)
    assert save(tmp_path, whole, ranks) == [None] * ranks
    path = path_of(tmp_path)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    found, labels = checkpoint.read(path)
    assert_same(found, whole)
    assert labels["data_sha256"] == SHA256
    shared, _ = checkpoint.read(path, without_points=True)
    assert not any(A.size for A in rows_of_points(shared).values())
    for readers in (1, 2, 5, 20):
        partition = partition_points(N, readers, placement=SHARDED)
        for rank in range(readers):
            assert_same(rows_of(path, shared, partition, rank), own(whole, readers, rank))


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, full(), 3)
    path = path_of(tmp_path)
    files.verify(io.BytesIO(path.read_bytes()))
    content = path.read_bytes()
    for at in [*range(0, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(OSError, match="checksum"):
            files.verify(io.BytesIO(path.read_bytes()))
    for end in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(OSError, match="checksum"):
            files.verify(io.BytesIO(path.read_bytes()))


def test_a_damaged_one_gives_way_to_the_one_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for iteration in (3, 4):
        save(tmp_path, full(iteration=iteration), 2)
    path = path_of(tmp_path, 4)
    content = bytearray(path.read_bytes())
    content[content.index(full(iteration=4).Z[N - 1].tobytes())] ^= 1  # of a point of the last rank
    path.write_bytes(content)
    found = checkpoint.newest(tmp_path / "checkpoints", without_points=True)
    assert found is not None
    assert found[1].iteration == 3
    assert capsys.readouterr().err.count("iteration-000004.h5 is damaged") == 1


# --- a full disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["multipliers", "none", "minibatches"])
def test_the_file_has_space_for_all_of_it(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the one that writes plainly: HDF5, which a full disk would crash, is given no file on a disk."""
    asked, opened, fallocate, file = [], [], os.posix_fallocate, h5py.File
    monkeypatch.setattr(checkpoint.os, "posix_fallocate", lambda f, at, n: (asked.append(n), fallocate(f, at, n)))
    monkeypatch.setattr(h5py, "File", lambda *given, **keys: (opened.append(given[0]), file(*given, **keys))[1])
    save(tmp_path, full(kind), 2)
    monkeypatch.undo()
    files.seal(empty := io.BytesIO())
    assert asked == [path_of(tmp_path).stat().st_size - len(empty.getvalue())]
    assert [str(one.name).isdigit() for one in opened] == [True]  # the number of a descriptor


@pytest.mark.parametrize(
    ("step", "times"), [("posix_fallocate", 1), ("fsync", 1), ("fsync", 2), ("fsync", 4), ("replace", 1)]
)
def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(
    step: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is written, at the rows of a rank (the second fsync is rank 1's), at the seal, at the end."""
    save(tmp_path, full(iteration=3), 3)
    content, calls, real = path_of(tmp_path).read_bytes(), [], getattr(os, step)

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == times:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    for last in (False, True):
        calls.clear()
        with monkeypatch.context() as disk:
            disk.setattr(checkpoint.os, step, failing)
            found = save(tmp_path, full(iteration=4), 3, last)
        assert len(calls) == times
        says = "the checkpoint of iteration 4 could not be written: No space left on device"
        if last:
            said = f"{says}; free space in {tmp_path} (or make it writable), then the same command with --resume auto "
            said += "goes on from iteration 3"
            assert all(isinstance(error, StorageError) and error.agreed and str(error) == said for error in found)
            assert capsys.readouterr().err == ""
        else:
            assert found == [None] * 3
            assert capsys.readouterr().err == f"macmpi: {says}; training goes on\n"
        assert path_of(tmp_path).read_bytes() == content
        assert list((tmp_path / "checkpoints").iterdir()) == [path_of(tmp_path)]
    save(tmp_path, full(iteration=4), 3)
    assert_same(checkpoint.read(path_of(tmp_path, 4))[0], full(iteration=4))
