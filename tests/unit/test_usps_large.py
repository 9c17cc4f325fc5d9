"""The large set made from USPS: the same bytes everywhere, read as the program wrote it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import usps_large
from numpy.testing import assert_array_equal
from targets import rules_of
from usps_large import CHUNK, SIDE, made

from macmpi import UsageError
from macmpi.config import Data
from macmpi.data.loading import load
from macmpi.data.named_sets import usps_parts

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


def test_its_points_are_those_of_usps_in_turn_with_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACMPI_DATA", str(tmp_path))
    monkeypatch.setattr(usps_large, "made", lambda images, rows: np.resize(images[rows], (len(rows), SIDE, SIDE)))
    monkeypatch.setattr(usps_large.sys, "argv", ["usps_large.py"])
    digits = np.repeat(np.arange(10, dtype=np.uint8), 1100)
    with h5py.File(tmp_path / "usps.h5", "w") as file:
        file["images"], file["labels"] = np.resize(RAMP, (11_000, 16, 16)), digits
    with pytest.raises(SystemExit, match=r"is usps\.h5 the right file"):
        usps_large.main()
    with pytest.raises(UsageError, match=r"usps-large\.h5 does not exist; make it"):
        load(Data("usps-large", points=3))
    train, held = usps_parts(digits, 0)
    monkeypatch.setattr(usps_large, "SHA256", digest_of(train, held))
    usps_large.main()
    found = load(Data("usps-large", points=5100), rules_of(True, precision="float32"))
    assert found.X.shape == (5100, SIDE * SIDE)
    assert len(found.X_val) == 10_000
    assert_array_equal(found.Y.argmax(axis=1), np.r_[digits[train], digits[train]][:5100])
    assert_array_equal(found.Y_val.argmax(axis=1)[:6000], np.r_[digits[held], digits[held]][:6000])


def digest_of(train: np.ndarray, held: np.ndarray) -> str:
    """The digest of the images that stand for those that are made."""
    rows = np.r_[np.resize(train, 60_000), np.resize(held, 10_000)]
    images = np.resize(np.resize(RAMP, (11_000, 16, 16))[rows], (70_000, SIDE, SIDE))
    return hashlib.sha256(images.data).hexdigest()
