"""Sums over parts that ranks own: the same bits on any number of ranks, whoever adds what up."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from unit.crew import crew

from macmpi.parallel import shared_work
from macmpi.parallel.shared_work import TreeSum
from macmpi.parallel.team import Team
from macmpi.typing import Array

RANKS = [2, 3, 5, 12]


def total(team: Team, leaves: int, width: int, dtype: type = np.float64) -> Array:
    tree = TreeSum(leaves, team)

    def add(i: int, out: Array) -> None:
        out += np.random.default_rng(i).normal(size=width).astype(dtype)

    first = tree(add, width, dtype)
    kept = first.copy()
    again = tree(add, width, dtype)
    assert_array_equal(first, kept)
    assert_array_equal(again, kept)

    def put(i: int, out: Array) -> None:
        out[:] = 0.0
        add(i, out)

    assert_array_equal(tree(put, width, dtype, sets=True), kept)
    return first


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("leaves", [1, 7, 12, 48])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sum_has_the_same_bits_on_any_number_of_ranks(
    leaves: int, ranks: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrow and added up by every rank, or wide and by each its share; of fewer columns than ranks too."""
    for width, wide in ((50, 10), (50, 100), (3, 1)):
        monkeypatch.setattr(shared_work, "WIDE", wide)
        alone = total(Team(), leaves, width, dtype)
        expected = sum(np.random.default_rng(i).normal(size=width) for i in range(leaves))
        assert_allclose(alone, expected, rtol=1e-4, atol=1e-4)
        for found in crew(ranks, lambda team, width=width: total(team, leaves, width, dtype)):  # type: ignore[misc]
            assert found.dtype == dtype
            assert_array_equal(found, alone)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_sum_of_all_columns_is_in_no_memory_that_ranks_may_share(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is given it may write it."""
    monkeypatch.setattr(shared_work, "WIDE", 10)

    def apart(team: Team) -> bool:
        made, array, team.shares = [], team.array, True
        team.array = lambda *kind: made.append(array(*kind)) or made[-1]  # type: ignore[method-assign, func-returns-value]
        total = TreeSum(12, team)(lambda i, out: out.fill(i), 50)
        return bool(made) and not any(np.shares_memory(total, common) for common in made)

    assert all(crew(ranks, apart))


@pytest.mark.parametrize("ranks", [1, *RANKS])
@pytest.mark.parametrize("table", [0, 10_000])
def test_numbers_may_be_joined_by_the_least_and_the_largest(
    ranks: int, table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of adding them; by every rank, or by each its columns."""
    monkeypatch.setattr(shared_work, "TABLE", table)
    drawn = np.random.default_rng(3).normal(size=(96, 7))

    def found(team: Team, join: np.ufunc) -> Array:
        def put(i: int, out: Array) -> None:
            out[:] = drawn[i]

        return TreeSum(96, team, join=join)(put, 7, sets=True)

    for join in (np.minimum, np.maximum):
        for one in crew(ranks, lambda team, join=join: found(team, join)):  # type: ignore[misc]
            assert_array_equal(one, join.reduce(drawn))


def test_many_narrow_sums_are_no_table_at_every_rank() -> None:
    assert shared_work.alone(2, 10**9)
    assert shared_work.alone(48, shared_work.WIDE - 1)
    assert not shared_work.alone(3, shared_work.WIDE)
    assert not shared_work.alone(16_384, shared_work.WIDE - 1)
    assert shared_work.alone(16_384, 3)


@pytest.mark.parametrize("ranks", [1, *RANKS])
@pytest.mark.parametrize("wide", [10, 1000])
def test_a_rank_may_ask_for_some_columns(ranks: int, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the bits of the whole sum, and stay as they are until the next one is asked for."""
    monkeypatch.setattr(shared_work, "WIDE", wide)

    def found(team: Team) -> list[tuple[Array, Array]]:
        tree, reads = TreeSum(12, team), [slice(2 * team.rank, 2 * team.rank + 9), slice(45, 50)]
        some, whole = TreeSum(12, team), []
        for turn in range(3):

            def add(i: int, out: Array) -> None:
                out += np.random.default_rng(100 * turn + i).normal(size=50)  # noqa: B023

            asked, total = some.exchanged(add, 50), tree(add, 50)
            parts = [asked.part(run, np.empty(run.stop - run.start)).copy() for run in reads]
            whole += [(part, total[run]) for part, run in zip(parts, reads, strict=True)]
        return whole

    for rank in crew(ranks, found):
        for asked, total in rank:
            assert_array_equal(asked, total)
