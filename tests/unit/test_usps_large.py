"""The large set made from USPS: the same bytes everywhere, kept once made, made again where that file is damaged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macmpi.data import usps_large
from macmpi.data.usps_large import CHUNK, SIDE, made

RAMP = (np.arange(40 * 256, dtype=np.uint64) ** 2 % 256).astype(np.uint8).reshape(40, 16, 16)


def test_it_has_the_same_bytes_everywhere() -> None:
    """A digest that a machine of another make gives as well: nothing here depends on a library of mathematics."""
    found = made(RAMP, 0, CHUNK)
    assert found.shape == (CHUNK, SIDE, SIDE)
    assert (
        hashlib.sha256(found.tobytes()).hexdigest()
        == "ab188b130fbcbd29b61210d1753111a9f9360b4695376160465982935d59c004"
    )


def test_a_part_of_it_is_the_same_made_alone() -> None:
    images = np.resize(RAMP, (CHUNK, 16, 16))
    both = made(images, 0, 2 * CHUNK)
    assert_array_equal(both[CHUNK:], made(images, CHUNK, CHUNK))
    assert (both[:CHUNK] != both[CHUNK:]).any(axis=(1, 2)).all()


def test_it_is_kept_once_made_and_made_again_where_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(usps_large, "TRAINING", CHUNK)
    monkeypatch.setattr(usps_large, "HELD", CHUNK)
    labels = np.arange(40) % 10
    digest = hashlib.sha256(np.concatenate([made(RAMP, 0, CHUNK), made(RAMP, CHUNK, CHUNK)]).data).hexdigest()
    monkeypatch.setattr(usps_large, "SHA256", digest)
    calls: list[int] = []
    monkeypatch.setattr(usps_large, "made", lambda *words: calls.append(1) or made(*words))

    def read() -> list[np.ndarray]:
        train, held = usps_large.usps_large(tmp_path / "data", (RAMP, labels), (RAMP, labels))
        return [*train, *held]

    first, kept = read(), tmp_path / "macmpi" / usps_large.FILE
    assert len(calls) == 2
    for one, other in zip(first, read(), strict=True):
        assert_array_equal(one, other)
    assert len(calls) == 2
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    for one, other in zip(first, read(), strict=True):
        assert_array_equal(one, other)
    assert len(calls) == 4
    assert_array_equal(first[1][:40], labels)
