"""A checkpoint is read back bit for bit or not at all, and a crash at any moment leaves a good one behind."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampled import examples

from macmpi import UsageError, __version__, files
from macmpi.state import KINDS, History, MacState, Record, State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import contents

LABELS = {"config": '{"model.hidden": [3, 2]}', "data_sha256": "0123abcd" * 8}


def filled(record: type[Record], iteration: int = 3) -> Record:
    """A record in which no field is empty or 0."""
    random = np.random.default_rng(iteration)
    made = {"Array": lambda: random.normal(size=7), "float": random.random, "int": lambda: int(random.integers(1, 99))}
    return record(**{f.name: made[str(f.type)]() for f in fields(record)})


def state(iteration: int = 3, record: type[Record] = MacState) -> State[Any]:
    random = np.random.default_rng(iteration)
    history = History(
        e1_val=0.1 + 0.2,
        reference=0.7,
        best_weights=random.normal(size=12),
        best_e1_val=1.0 / 3.0,
        best_iteration=2,
        fell_to=0.75,
        fell_at=1,
        best_poor=False,
        multipliers_norm=0.375,
        errors=random.random(4),
    )
    return State(
        weights=random.normal(size=12),
        Z=random.normal(size=(6, 5)),
        mu=1234.5678,
        own=filled(record, iteration),
        iteration=iteration,
        position=250,
        mu_done=123.0,
        seconds=17.25,
        finished="converged",
        history=history,
    )


def save(folder: Path, iteration: int = 3, keep: int = 10) -> Path:
    return checkpoint.save(folder, state(iteration), LABELS, keep)


def assert_same(found: State, expected: State) -> None:
    assert type(found.own) is type(expected.own)
    ours, theirs = contents(found), contents(expected)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert type(ours[name]) is type(value), name
        assert_array_equal(ours[name], value, strict=True)


# --- round trip -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", KINDS)
def test_every_field_comes_back_bit_for_bit(tmp_path: Path, record: type[Record]) -> None:
    found, labels = checkpoint.read(checkpoint.save(tmp_path, state(record=record), LABELS, 10))
    assert_same(found, state(record=record))
    assert {name: labels[name] for name in LABELS} == LABELS
    assert labels["macmpi"] == __version__


@pytest.mark.parametrize("record", KINDS)
def test_the_state_of_this_file_has_no_default_left(record: type[Record]) -> None:
    """So that a field that is forgotten in a checkpoint is missed here."""
    fresh, full = contents(State(np.zeros(12), np.zeros((6, 5)), 1.0, record())), contents(state(record=record))
    assert [name for name in fresh if np.array_equal(fresh[name], full[name])] == []


@pytest.mark.parametrize("record", KINDS)
def test_no_name_stands_for_two_fields(record: type[Record]) -> None:
    parts = [f.name for kind in (State, History, record) for f in fields(kind)]
    assert len(parts) == len(set(parts))


# --- the newest good one ----------------------------------------------------------------------------------------------


def newest_iteration(folder: Path) -> int:
    found = checkpoint.newest(folder)
    assert found is not None
    path, read, labels = found
    assert_same(read, state(read.iteration))
    assert labels["config"] == LABELS["config"]
    assert path == folder / f"iteration-{read.iteration:06d}.h5"
    return read.iteration


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def last_byte_lost(content: bytes) -> bytes:
    return content[:-1]


def empty(content: bytes) -> bytes:
    return b""


def not_hdf5(content: bytes) -> bytes:
    return b"iteration 3, mu = 1e4\n" * 100


def zeros(content: bytes) -> bytes:
    return bytes(len(content))


def weights_flipped(content: bytes) -> bytes:
    return flipped(content, content.index(state(5).weights.tobytes()) + 20)


def mu_flipped(content: bytes) -> bytes:
    return flipped(content, content.index(np.float64(1234.5678).tobytes()) + 6)


def config_flipped(content: bytes) -> bytes:
    return flipped(content, content.index(b"model.hidden") + 3)


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x04]) + content[at + 1 :]


DAMAGES = [truncated, last_byte_lost, empty, not_hdf5, zeros, weights_flipped, mu_flipped, config_flipped]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_a_damaged_one_is_passed_over_with_a_warning(
    damage: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 4)
    path = save(tmp_path, 5)
    path.write_bytes(damage(path.read_bytes()))
    assert newest_iteration(tmp_path) == 4
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert str(path) in warning


def test_only_damaged_ones_are_an_error_with_its_remedy(tmp_path: Path) -> None:
    save(tmp_path).write_bytes(b"")
    with pytest.raises(UsageError, match=rf"no good checkpoint in {tmp_path}.*--resume no"):
        checkpoint.newest(tmp_path)


def test_a_future_format_is_refused_by_the_version_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
        later.setattr(checkpoint, "__version__", "99.1.2")
        path = save(tmp_path)
    for read in (lambda: checkpoint.read(path), lambda: checkpoint.newest(tmp_path)):
        with pytest.raises(UsageError, match=rf"written by macmpi 99\.1\.2 in format {checkpoint.FORMAT + 1}"):
            read()


shapes = st.integers(0, 5)
numbers = st.floats(allow_nan=False, width=32)


@examples(60)
@given(st.lists(numbers, max_size=9), shapes, shapes, st.sampled_from([np.float32, np.float64]), st.floats(), st.text())
def test_any_state_comes_back(weights: list[float], n: int, h: int, dtype: type, mu: float, finished: str) -> None:
    """Of any shape, empty ones included, in either precision; with any mu and text that UTF-8 can hold."""
    finished = finished.encode("utf-8", "ignore").decode().replace("\0", "")
    saved = State(np.array(weights, dtype), np.full((n, h), 0.5, dtype), mu, MacState(), finished=finished)
    with tempfile.TemporaryDirectory() as folder:
        assert_same(checkpoint.read(checkpoint.save(Path(folder), saved, {}, 1))[0], saved)


@examples(200)
@given(st.binary(max_size=300), st.integers(0, 10**6), st.integers(0, 7), st.integers(1, 400))
def test_no_flip_and_no_cut_gets_through_the_seal(content: bytes, at: int, bit: int, cut: int) -> None:
    file = io.BytesIO(content)
    files.seal(file)
    sealed = file.getvalue()
    files.verify(file)
    assert sealed.startswith(content)
    for damaged in (flipped_bit(sealed, at % len(sealed), bit), sealed[: -min(cut, len(sealed))]):
        with pytest.raises(OSError, match="checksum"):
            files.verify(io.BytesIO(damaged))


def flipped_bit(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for iteration in range(8, 13):
        save(tmp_path, iteration, keep=3)
    assert [path.name for path in checkpoint.saved(tmp_path)] == [f"iteration-{i:06d}.h5" for i in (12, 11, 10)]


# --- writing ----------------------------------------------------------------------------------------------------------


def no_space(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path)
    content = path.read_bytes()
    other = state()
    other.weights += 1.0
    with monkeypatch.context() as full:
        full.setattr(files.os, step, no_space)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(tmp_path, other, LABELS, 1)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_complete_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def watched(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(files.os, name, watched(name))
    files.replace_file(tmp_path / "file", b"content")
    assert calls == ["fsync", "replace", "fsync"]
    assert (tmp_path / "file").read_bytes() == b"content"


def test_files_of_no_checkpoint_are_left_alone(tmp_path: Path) -> None:
    """Under a name with more digits or fewer, or a temporary one: nobody but their owner knows what they are."""
    others = [tmp_path / f"iteration-{name}" for name in ("000003.h5.tmp", "3.h5", "0000000003.h5", "mine.h5")]
    for path in others:
        path.write_bytes(b"mine")
    for iteration in (2, 3):
        path = save(tmp_path, iteration, keep=1)
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])
    assert [other.read_bytes() for other in others] == [b"mine"] * len(others)
    assert newest_iteration(tmp_path) == 3
