"""The large set made from USPS: the same bytes everywhere, kept once made, made again where that file is damaged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macmpi.config import Data
from macmpi.data import named_sets
from macmpi.data.named_sets import CHUNK, SIDE, large_images, made

RAMP = (np.arange(40 * 256, dtype=np.uint64) ** 2 % 256).astype(np.uint8).reshape(40, 16, 16)
ROWS = np.resize(np.arange(40), CHUNK)


def test_it_has_the_same_bytes_everywhere() -> None:
    """A digest that a machine of another make gives as well: nothing here depends on a library of mathematics."""
    found = made(RAMP, ROWS)
    assert found.shape == (CHUNK, SIDE, SIDE)
    assert (
        hashlib.sha256(found.tobytes()).hexdigest()
        == "ab188b130fbcbd29b61210d1753111a9f9360b4695376160465982935d59c004"
    )


def test_a_part_of_it_is_the_same_made_alone() -> None:
    both = made(RAMP, np.r_[ROWS, ROWS])
    assert_array_equal(both[:CHUNK], made(RAMP, ROWS))
    assert (both[:CHUNK] != both[CHUNK:]).any(axis=(1, 2)).all()


def test_it_is_kept_once_made_and_made_again_where_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(named_sets, "SHA256", hashlib.sha256(made(RAMP, ROWS).data).hexdigest())
    calls: list[int] = []
    monkeypatch.setattr(named_sets, "made", lambda *words: calls.append(1) or made(*words))
    first, kept = large_images(RAMP, ROWS), tmp_path / "macmpi" / named_sets.LARGE
    assert len(calls) == 1
    assert_array_equal(first, large_images(RAMP, ROWS))
    assert len(calls) == 1
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    assert_array_equal(first, large_images(RAMP, ROWS))
    assert len(calls) == 2


def test_its_points_are_those_of_usps_in_turn_with_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path))
    monkeypatch.setattr(named_sets, "TRAINING", 2 * 5000)
    monkeypatch.setattr(named_sets, "HELD", 300)
    monkeypatch.setattr(named_sets, "large_images", lambda images, rows: np.resize(images[rows], (10_300, SIDE, SIDE)))
    digits = np.repeat(np.arange(10, dtype=np.uint8), 1100)
    with h5py.File(tmp_path / "usps.h5", "w") as file:
        file["images"], file["labels"] = np.resize(RAMP, (11_000, 16, 16)), digits
    raw = named_sets.read_usps_large(Data("usps-large"), labels=True)
    assert raw.arrays["X"].shape == (10_000, SIDE * SIDE)
    assert raw.arrays["X_val"].shape == (300, SIDE * SIDE)
    train, held = named_sets._usps_parts(digits, 0)
    assert_array_equal(raw.arrays["Y"][:, 0], np.r_[digits[train], digits[train]])
    assert_array_equal(raw.arrays["groups_val"], digits[held][:300])
