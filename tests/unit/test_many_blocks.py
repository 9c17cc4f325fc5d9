"""Where points are many enough for more than 48 blocks, sums go up a tree: the same bits on any number of ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from unit.played import data_of, played
from unit.test_shards import FILES, loaded, write

from macmpi.config import Config, Data, Method, Model, Parallel, WStep
from macmpi.parallel import shared_work, tiles
from macmpi.parallel.points import partition_points

RANKS = (2, 5, 13)
N = 1400
MAC = Config(model=Model([5, 3, 5], "tanh"), method=Method("mac"))
CONFIGS = {
    "replicated": MAC,
    "sharded": replace(MAC, parallel=Parallel("sharded")),
    "before": replace(MAC, model=Model([5, 3, 5], "tanh", sites="before"), parallel=Parallel("sharded")),
    "ring": replace(MAC, parallel=Parallel("sharded"), w_step=WStep(schedule="ring")),
    "lbfgs": replace(MAC, method=Method("lbfgs")),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many points would have: blocks of some 22 points, more than `BLOCKS` of them."""
    for name, value in {"BLOCKS": 4, "BLOCK_ROWS": 32, "POINT_ROWS": 12, "MANY_ROWS": 12, "SUMMED_ROWS": 8}.items():
        monkeypatch.setattr(tiles, name, value)
    assert len(partition_points(N, 1).blocks) == 64


@pytest.mark.long
@pytest.mark.parametrize("table", [0, shared_work.TABLE])
@pytest.mark.parametrize("name", CONFIGS)
def test_iterations_have_the_same_bits(
    name: str, table: int, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether each rank adds up all sums, or its own columns of them."""
    monkeypatch.setattr(shared_work, "TABLE", table)
    data = data_of(N)
    (alone,) = played(CONFIGS[name], data, 1)
    for ranks in RANKS:
        found = played(CONFIGS[name], data, ranks)
        for one in found:
            assert_array_equal(one.state.weights, alone.state.weights)
            assert one.errors == alone.errors
        if CONFIGS[name].parallel.data == "sharded":
            assert_array_equal(np.concatenate([one.state.Z for one in found]), alone.state.Z)
    assert alone.errors[1].train < alone.errors[0].train


@pytest.mark.parametrize("name", ["split by the file", "regression", "labels", "bytes"])
def test_shards_are_scaled_with_the_same_bits(name: str, small_blocks: None, tmp_path: Path) -> None:
    config: Any = Data(write(tmp_path, FILES[name]))
    (alone,) = loaded(config, 1, "labels" in name)
    for ranks in RANKS:
        found = loaded(config, ranks, "labels" in name)
        for key in ("X", "Y", "X_val", "Y_val"):
            assert_array_equal(np.concatenate([getattr(part, key) for part in found]), getattr(alone, key))
        assert {part.sha256 for part in found} == {alone.sha256}


def test_few_blocks_are_summed_in_their_order_and_many_up_the_tree(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same curve but for rounding."""
    (many,) = played(MAC, data_of(N), 1)
    monkeypatch.setattr(tiles, "BLOCK_ROWS", N)
    (few,) = played(MAC, data_of(N), 1)
    for ours, theirs in zip(many.errors, few.errors, strict=True):
        assert_allclose([ours.train, ours.E_Q, ours.constraint], [theirs.train, theirs.E_Q, theirs.constraint], 1e-9)
