"""Hooks by which pytest runs on several ranks: one verdict of all ranks on each test, printed by rank 0.

A rank that fails while another is inside a verb leaves it waiting.  It shows its traceback and ends all ranks after
`GRACE` seconds.  A rank that hears nothing from the others ends them after `DEADLINE` seconds; pytest-timeout ends what
never comes to a verb.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from macmpi.parallel import exchange
from macmpi.parallel.mpi import MPITeam, launch
from macmpi.parallel.team import Team

GRACE = float(os.environ.get("MACMPI_TEST_GRACE", "10"))
"""Seconds that a rank which has failed waits for the verdicts of the others."""

DEADLINE = 20.0
"""Seconds that a rank waits for the others inside a verb."""

SHOWN = 6000
"""Bytes of a rank's traceback that the others are told."""

NODES = {"apart": (), "one node": (0, 0, 0), "two nodes": (0, 0, 1), "in turns": (0, 1, 0)}
"""The node that each of three ranks takes itself to be on; "apart" share nothing."""


class World:
    """All ranks of the launch, and a communicator of which only verdicts make use."""

    def __init__(self) -> None:
        self.team = launch()
        if not isinstance(self.team, MPITeam):
            raise pytest.UsageError(
                "--with-mpi wants several ranks: mpiexec -n 3 python -m pytest --with-mpi tests/mpi"
            )
        self.comm, self.failed = self.team._comm.Dup(), False
        self.teams: dict[str, MPITeam] = {}
        os.sched_yield = lambda: time.sleep(5e-5)  # fewer cores than ranks: one that waits leaves its core to another

    def verdicts(self, mine: str) -> list[str]:
        """What every rank says of a test, "" where it has passed.  Collective: yes."""
        rank, size = self.team.rank, self.team.size
        table = bytearray(SHOWN * size)
        text = mine.encode()[-SHOWN:].ljust(SHOWN, b"\0")
        table[rank * SHOWN : (rank + 1) * SHOWN] = text
        byte = self.team._mpi.BYTE
        request = self.comm.Iallgather(self.team._mpi.IN_PLACE, [table, SHOWN, byte])
        end = time.monotonic() + (GRACE if mine else 4.0 * DEADLINE)
        while not request.Test():
            time.sleep(0.0005)
            if time.monotonic() > end:
                print(f"rank {rank} has failed, or the others have not come\n{mine}", file=sys.__stderr__, flush=True)
                self.team.abort(1)
        return [bytes(table[r * SHOWN : (r + 1) * SHOWN]).rstrip(b"\0").decode(errors="replace") for r in range(size)]


WORLD = pytest.StashKey[World]()


def pytest_configure(config: pytest.Config) -> None:
    """MPI is configured by `launch`, before pytest-mpi loads it."""
    if config.getoption("--with-mpi"):
        config.stash[WORLD] = World()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    world = session.config.stash.get(WORLD, None)
    if world is not None and world.team.rank:
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115 - until the process ends


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test that fails on one rank has failed on all of them, so that they go on alike."""
    report = yield
    world = item.config.stash.get(WORLD, None)
    if world is None or item.get_closest_marker("mpi") is None:
        return report  # type: ignore[return-value]
    found = world.verdicts((report.longreprtext or "failed") if report.failed else "")
    if any(found):
        world.failed = True
        world.teams.clear()  # their ranks may be out of step
        report.outcome = "failed"
        report.longrepr = "\n".join(f"--- rank {rank} ---\n{text}" for rank, text in enumerate(found) if text)
    return report  # type: ignore[return-value]


def pytest_unconfigure(config: pytest.Config) -> None:
    """After a failure MPI_Finalize may wait for requests under way: rank 0 ends all ranks once it has printed."""
    world = config.stash.get(WORLD, None)
    if world is not None and world.failed:
        world.verdicts("")
        if world.team.rank == 0:
            world.team.abort(1)
        time.sleep(DEADLINE)


class Ranks(MPITeam):
    """A team whose last words are not captured."""

    def __init__(self, comm: Any, config: pytest.Config) -> None:
        super().__init__(comm)
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")

    def abort(self, code: int) -> NoReturn:
        self._capture.suspend()
        print(*self._capture.read_global_capture(), file=sys.stderr, flush=True)
        self._comm = self._mpi.COMM_WORLD  # of a copy MPICH ends the ranks only as the next one gives up
        super().abort(code)


def made(config: pytest.Config, name: str, monkeypatch: pytest.MonkeyPatch) -> MPITeam:
    """Ranks with a communicator of their own.  Collective: yes."""
    found, nodes = Ranks(config.stash[WORLD].team._comm.Dup(), config), NODES[name]
    found.set_deadline(DEADLINE)
    if nodes:
        split = lambda mpi, comm: comm.Split(nodes[comm.rank % len(nodes)], comm.rank)  # noqa: E731
        monkeypatch.setattr(exchange, "ranks_of_node", split)
        found.share_memory(1e6)
    return found


@pytest.fixture(params=["solo", *(pytest.param(name, marks=pytest.mark.mpi(min_size=3)) for name in NODES)])
def team(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Team:
    """One process, and all ranks: sharing nothing, or memory on one node or on several."""
    if request.param == "solo":
        return Team()
    teams = request.config.stash[WORLD].teams
    if request.param not in teams:
        teams[request.param] = made(request.config, request.param, monkeypatch)
    return teams[request.param]


@pytest.fixture
def new_team(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MPITeam:
    """All ranks, without the memory that other tests have shared."""
    return made(request.config, request.param, monkeypatch)
