"""Memory that the ranks of a node share: who has one copy with whom, what is used again, and where memory is short."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from mpi.ranks import NODES

from macmpi.parallel import exchange
from macmpi.parallel.mpi import MPITeam

pytestmark = pytest.mark.mpi(min_size=3)
shared = pytest.mark.parametrize("new_team", [name for name in NODES if NODES[name]], indirect=True)


def lies_in_shared_memory(team: MPITeam, array: np.ndarray) -> bool:
    assert team._node
    return team._node.holds(array)


@shared
def test_an_array_is_one_for_the_ranks_of_a_node(new_team: MPITeam, request: pytest.FixtureRequest) -> None:
    """Each rank writes a row of its own and, without an exchange, reads those of its node."""
    team, nodes = new_team, NODES[request.node.callspec.params["new_team"]]
    array = team.array((team.size, 2), float)
    assert team.shares and lies_in_shared_memory(team, array)
    assert team.common(array) == (len(set(nodes)) == 1)
    team.fence(array)
    array[team.rank] = team.rank + 1.0
    team.fence(array)
    here = nodes[team.rank % 3]
    expected = [[rank + 1.0 if nodes[rank % 3] == here else 0.0] * 2 for rank in range(team.size)]
    assert np.array_equal(array, expected)


@shared
def test_memory_of_arrays_that_are_gone_is_used_again_as_zeros(new_team: MPITeam) -> None:
    team = new_team
    assert team._node
    first = team.array((100, 3), float)
    team.fence(first)
    first[:] = 7.0
    team.gather_rows(first, [100, *([0] * (team.size - 1))])
    view = first[50:]
    del first
    gc.collect()
    second = team.array((10, 3), float)
    assert len(team._node._windows) == 2, "a view of it still lives"
    del view, second
    gc.collect()
    third = team.array((90, 3), np.float32)
    assert len(team._node._windows) == 2
    assert not third.any()


@shared
def test_what_a_single_rank_still_has_is_not_used_again(new_team: MPITeam) -> None:
    team = new_team
    assert team._node
    first = team.array((6, 2), float)
    kept = first if team.rank == team.size - 1 else None
    del first
    gc.collect()
    second = team.array((6, 2), float)
    assert len(team._node._windows) == 2
    del kept, second


@shared
@pytest.mark.parametrize("lacking", ["free bytes", "pages", "a window"])
def test_where_memory_is_short_every_rank_has_its_own_copy(
    new_team: MPITeam, lacking: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One rank lacks it; all agree, rank 0 says so once, and the verbs work."""
    team = new_team
    assert team._node
    if team.rank == team.size - 1:
        if lacking == "free bytes":
            monkeypatch.setattr(exchange, "free_bytes", lambda: 0.0)
        elif lacking == "pages":
            monkeypatch.setattr(exchange, "populated", lambda address, part: False)
    if lacking == "a window":  # an error of MPI is raised on all ranks of a node

        def refuse(*args: object, **kwargs: object) -> None:
            raise team._mpi.Exception(team._mpi.ERR_NO_MEM)

        monkeypatch.setattr(team._node, "_mpi", Refusing(team._mpi, refuse))
    arrays = [team.array((team.size, 2), float) for _ in range(2)]
    assert not any(lies_in_shared_memory(team, array) or team.common(array) for array in arrays)
    for array in arrays:
        team.fence(array)
        array[team.rank] = team.rank
        team.gather_rows(array, [1] * team.size)
        assert np.array_equal(array, [[rank] * 2 for rank in range(team.size)])
    said = capfd.readouterr().err
    assert said.count("lacks") == (team.rank == 0), said


class Refusing:
    """MPI whose windows cannot be made."""

    def __init__(self, mpi: object, refuse: object) -> None:
        self._mpi = mpi
        self.Win = type("Win", (), {"Allocate_shared": staticmethod(refuse)})

    def __getattr__(self, name: str) -> object:
        return getattr(self._mpi, name)


@pytest.mark.parametrize("new_team", ["apart"], indirect=True)
def test_more_than_is_free_is_not_shared(new_team: MPITeam, capfd: pytest.CaptureFixture[str]) -> None:
    team = new_team
    assert not team.shares
    team.share_memory(1e18)
    assert not team.shares
    assert not lies_in_shared_memory(team, team.array((4, 2), float))
    assert capfd.readouterr().err.count("every rank keeps its own copy") == (team.rank == 0)
