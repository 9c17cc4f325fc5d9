"""A split is a permutation's, kept as bits, and no rank but the one that draws it lists all rows."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from unit.crew import crew

from macmpi.config import Data
from macmpi.data import loading, parts
from macmpi.data.dataset import NUMBERS
from macmpi.data.parts import drawn
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import partition_points
from macmpi.parallel.rows import BYTES, RowSet
from macmpi.parallel.streams import stream
from macmpi.parallel.tiles import Tile

SHARDED = PLACEMENTS["sharded"]

MANY = 3 * 8 * BYTES + 5
"""Rows whose bits are several blocks."""


def by_permutation(n: int, config: Data) -> tuple[Any, Any]:
    """The split as it is defined: a permutation of all rows, validation first; each part ascending."""
    held = min(max(1, round(config.validation * n)), n - 1)
    order = stream(config.seed, "split").permutation(n)
    train = order[held:]
    return np.sort(train[: config.points or len(train)]), np.sort(order[:held])


@pytest.mark.parametrize("n", [2, 3, 9, 1203, MANY])
@pytest.mark.parametrize("points", [0, 1, 7])
@pytest.mark.parametrize("validation", [0.01, 0.2, 0.99])
def test_bits_are_the_permutations_rows(n: int, points: int, validation: float) -> None:
    config = Data(points=min(points, n - 1), validation=validation, seed=n)
    for whole, rows in zip(by_permutation(n, config), drawn(n, config), strict=True):
        assert len(rows) == len(whole)
        assert_array_equal(rows[:], whole)
    assert parts.split_sizes(n, config) == tuple(map(len, by_permutation(n, config)))


@pytest.mark.parametrize("share", [0.0, 1e-5, 0.3, 1.0])
def test_runs_of_rows_are_those_of_the_list(share: float, random: np.random.Generator) -> None:
    among = random.uniform(size=MANY) < share
    among[[0, 8 * BYTES - 1, 8 * BYTES]] = share > 0.0
    rows, whole = RowSet(np.packbits(among)), np.flatnonzero(among)
    cuts = [0, 1, *random.integers(0, len(whole) + 1, size=20).tolist(), len(whole) - 1, len(whole), len(whole) + 9]
    for a in cuts:
        for b in cuts:
            if a >= 0 <= b:
                assert_array_equal(rows[a:b], whole[a:b])


def test_one_rank_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "points.h5", "w") as file:
        file["X"] = np.arange(1203.0)[:, None]
    config, drawers = Data(str(tmp_path / "points.h5"), scale="none"), []

    def noted(*given: Any) -> Any:
        drawers.append(threading.get_ident())
        return drawn(*given)

    monkeypatch.setattr(parts, "drawn", noted)

    def work(team: Any) -> tuple[int, Any]:
        found = team.from_root(lambda: loading.survey(config))
        partitions = [partition_points(size, 3, placement=SHARDED) for size in found.counts[2:]]
        return threading.get_ident(), loading.load_rows(config, NUMBERS, found.classes, partitions, team)

    found = crew(3, work)
    assert drawers == [found[0][0]]
    for name, rows in zip(("X", "X_val"), by_permutation(1203, config), strict=True):
        assert_array_equal(np.concatenate([getattr(part, name) for _, part in found])[:, 0], rows)


def test_a_rank_that_is_given_the_bits_needs_no_memory_for_all_rows(tmp_path: Path) -> None:
    """Less than a byte a row, where a list of rows takes eight; for the survey too, unless there are labels."""
    n = 1_000_000
    with h5py.File(tmp_path / "points.h5", "w") as file:
        file["X"] = np.zeros((n, 1), np.int8)
    config = Data(str(tmp_path / "points.h5"))
    for rows in (drawn(n, config), [range(size) for size in parts.split_sizes(n, config)]):
        tracemalloc.start()
        loading.survey(config)
        found = parts.parts_of(parts.raw_of(config, by_rows=True), config, rows)
        found["X"].read(Tile(700_000, 700_100))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < n
