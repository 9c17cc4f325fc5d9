"""Every verb of a team on one process, and on ranks that share nothing or the memory of one node or of several."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macmpi import MacmpiError, NumericalError, UsageError
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import contiguous_runs
from macmpi.typing import Array

COUNTS = {
    "even": lambda size: [2] * size,
    "uneven": lambda size: [3 * rank + 1 for rank in range(size)],
    "first has none": lambda size: list(range(size)),
    "last has none": lambda size: [*range(1, size), 0],
    "one has all": lambda size: [*([0] * (size - 1)), 4],
    "none at all": lambda size: [0] * size,
}


def numbers(*shape: int) -> Array:
    return np.sqrt(np.arange(1.0, np.prod(shape, dtype=int) + 1.0)).reshape(shape)


def own_rows(team: Team, counts: list[int]) -> slice:
    start = sum(counts[: team.rank])
    return slice(start, start + counts[team.rank])


def refuse(kind: Callable[[str], MacmpiError], text: str) -> Any:
    raise kind(text)


class Holding(UsageError):
    """An error that is made of more than its text, and holds what cannot be pickled."""

    def __init__(self, text: str, held: Any) -> None:
        super().__init__(text)
        self.held, self.exit_code = held, 7


def after(team: Team) -> None:
    """The ranks are still in step."""
    assert team.from_root(lambda: "in step") == "in step"
    assert team.max_over_ranks({"rank": float(team.rank)}) == {"rank": team.size - 1.0}


# --- values and errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, {"a": [1, (2.5, "text")]}, "x" * 3_000_000], ids=["none", "nested", "large"])
def test_a_value_from_the_root(team: Team, value: Any) -> None:
    called = []
    assert team.from_root(lambda: called.append(1) or value) == value
    assert len(called) == (team.rank == 0)
    after(team)


@pytest.mark.parametrize("kind", [UsageError, NumericalError])
def test_an_error_from_the_root(team: Team, kind: type[MacmpiError]) -> None:
    with pytest.raises(kind, match=r"^no$") as error:
        team.from_root(lambda: refuse(kind, "no"))
    assert error.value.agreed
    after(team)


@pytest.mark.parametrize("held", [1, lambda: 1], ids=["a number", "a function"])
@pytest.mark.parametrize("verb", ["from_root", "all_or_raise"])
def test_an_error_of_any_class_is_everybodys(team: Team, verb: str, held: Any) -> None:
    with pytest.raises(UsageError, match=r"^no$") as error:
        getattr(team, verb)(lambda: refuse(lambda text: Holding(text, held), "no"))
    assert error.value.agreed
    assert error.value.exit_code == 7
    after(team)


def test_together_each_rank_has_its_own_value(team: Team) -> None:
    assert team.all_or_raise(lambda: ["x" * 300_000, team.rank]) == ["x" * 300_000, team.rank]
    after(team)


@pytest.mark.parametrize("who", ["first", "last", "all"])
def test_together_the_first_error_is_everybodys(team: Team, who: str) -> None:
    failing = {"first": [0], "last": [team.size - 1], "all": list(range(team.size))}[who]
    with pytest.raises(UsageError, match=rf"^no, because of rank {failing[0]}$") as error:
        team.all_or_raise(lambda: refuse(UsageError, f"no, because of rank {team.rank}") if team.rank in failing else 1)
    assert error.value.agreed
    after(team)


def test_the_worst_by_name(team: Team) -> None:
    r, last = float(team.rank), float(team.size - 1)
    found = team.max_over_ranks({"up": r, "down": -r - 1.0, "one": 7.0 if r == last else -np.inf})
    assert found == {"up": last, "down": -1.0, "one": 7.0}
    assert list(found) == ["up", "down", "one"]


def test_nobody_leaves_a_meeting_before_all_have_come(team: Team, tmp_path: Path) -> None:
    """The rank that comes last leaves a file that all the others find."""
    path = Path(team.from_root(lambda: str(tmp_path)), "here")
    if team.rank == team.size - 1:
        time.sleep(0.05)
        path.touch()
    team.barrier("a test")
    assert path.exists()
    after(team)


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_an_array_is_zeros_of_its_kind(team: Team, dtype: type) -> None:
    for shape in ((7,), (5, 3), (0, 3), (3, 0), (2, 200_000)):
        found = team.array(shape, dtype)
        assert (found.shape, found.dtype) == (shape, dtype)
        assert not found.any()
        assert team.shares or not team.common(found)
        team.fence(found)
    after(team)


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("given", [False, True], ids=["own array", "team's array"])
def test_rows_gathered(team: Team, counts: str, given: bool) -> None:
    """Short and long rows; twice, so that rows are opened while others may still read the old ones."""
    rows = COUNTS[counts](team.size)
    n, mine = sum(rows), own_rows(team, rows)
    for columns in (1, 3, 200_000):
        array = team.array((n, columns), float) if given else np.zeros((n, columns))
        for turn in (1.0, 2.0):
            expected = turn * numbers(n, columns)
            team.fence(array)
            array[mine] = expected[mine]
            team.gather_rows(array, rows)
            assert np.array_equal(array, expected), columns
    after(team)


@pytest.mark.parametrize("given", [False, True], ids=["own array", "team's array"])
def test_an_array_of_the_root_is_shared(team: Team, given: bool) -> None:
    for shape in ((7,), (5, 3), (2, 3, 4), (0, 3), (2, 200_000)):
        array = team.array(shape, float) if given else np.zeros(shape)
        team.fence(array)
        if team.rank == 0:
            array[...] = numbers(*shape)
        team.share_array(array)
        assert np.array_equal(array, numbers(*shape)), shape
    after(team)


def slices(sizes: list[int]) -> list[slice]:
    bounds = np.cumsum([0, *sizes]).tolist()
    return [slice(a, b) for a, b in pairwise(bounds)]


PARTS = {
    "in turns": lambda size: [slices([3, 1, 7, 0, 29, 1, 4])[rank::size] for rank in range(size)],
    "last has all": lambda size: [*([[]] * (size - 1)), slices([3, 1, 7, 0, 29, 1, 4])],
    "none at all": lambda size: [[] for _ in range(size)],
    "large": lambda size: [slices([200_000] * 5)[rank::size] for rank in range(size)],
}


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("given", [False, True], ids=["own array", "team's array"])
def test_parts_gathered(team: Team, parts: str, given: bool) -> None:
    """What belongs to nobody stays as it is."""
    owned = PARTS[parts](team.size)
    n = max([part.stop for own in owned for part in own], default=0) + 2
    flat, expected = team.array((n,), float) if given else np.zeros(n), np.zeros(n)
    team.fence(flat)
    for rank, own in enumerate(owned):
        for part in own:
            expected[part] = numbers(n)[part]
            if rank == team.rank:
                flat[part] = expected[part]
    team.gather_parts(flat, owned)
    assert np.array_equal(flat, expected)
    after(team)


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("width", [1, 5, 100_000])
def test_columns_gathered(team: Team, counts: str, width: int) -> None:
    """Of every rank's rows; of fewer columns than ranks some have none."""
    rows = COUNTS[counts](team.size)
    columns = [run.rows for run in contiguous_runs(width, team.size)]
    for turn in (1.0, 2.0):
        whole = turn * numbers(sum(rows), width)
        found = team.gather_columns(whole[own_rows(team, rows)].copy(), rows, columns)
        assert np.array_equal(found, whole[:, columns[team.rank]])
    after(team)


@pytest.mark.parametrize("length", [1, 60_000])
def test_parts_passed_on(team: Team, length: int) -> None:
    """Rank r has r parts, so rank 0 none; once round, each rank has had those of all, and its own again."""
    size, parts = team.size, []
    for rank, whole in enumerate(slices([length * size * size] * size)):
        parts.append([slice(whole.start + 2 * i * length, whole.start + (2 * i + 1) * length) for i in range(rank)])
    n = length * size**3
    flat, expected = np.zeros(n), np.zeros(n)
    for leg in range(size + 1):
        held = (team.rank - leg) % size
        for part in parts[held]:
            expected[part] = (held + 1.0) * numbers(n)[part]
            if leg == 0:
                flat[part] = expected[part]
        assert np.array_equal(flat, expected)
        team.shift_to_next(flat, [parts[(rank - leg) % size] for rank in range(size)])
    after(team)
