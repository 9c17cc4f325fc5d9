"""Run by test_spmd.py on five ranks: one launch, in which communicators of 1, 2, 3 and 5 ranks share all choices.

Prints one line of JSON, {check: verdict or ""}, on rank 0.  A rank that fails ends all ranks.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import traceback
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import cycle, pairwise
from typing import Any

import numpy as np
from choices import SOME, Choice, choices, on_ranks

from macmpi import MacmpiError, NumericalError, UsageError
from macmpi.data.dataset import Dataset, share
from macmpi.methods.choose import choose
from macmpi.methods.starts import coordinates_first, start
from macmpi.parallel import exchange
from macmpi.parallel.clock import Clock
from macmpi.parallel.mpi import MPITeam, launch
from macmpi.parallel.shared_work import MatrixAcrossRanks
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.solvers.cholesky import cholesky
from macmpi.state import State
from macmpi.training.checkpoint import contents, rows_of_points, split, with_rows

SIZES = (1, 2, 3, 5)
LARGEST = max(SIZES)
ITERATIONS = 2
CHANGED = "sizes"


# --- the method: every registered choice, with the bits of one process ------------------------------------------------


NODES = {2: (0, 0), 3: (0, 0, 1), 5: (0, 1, 1, 0, 2)}
"""The node that each of a number of ranks takes itself to be on: one, of uneven sizes, in no order."""

ON_NODES: dict[int, MPITeam] = {}
"""The team of a size whose ranks share memory."""


class Uneven(Clock):
    """Of a rank that comes late, another one each time, so that rows read too late, or too early, are seen."""

    def __init__(self, team: Team) -> None:
        super().__init__()
        self._turns = cycle([0.003 * (r == team.rank) for r in range(team.size)])

    def __call__(self, phase: str) -> AbstractContextManager[None]:
        if phase in ("z", "w"):
            time.sleep(next(self._turns))
        return super().__call__(phase)


class Strict(MPITeam):
    """Ranks that share no memory, but show each who would disturb the others if they did.

    Rows can be written only from fence (or array) to gather_rows (or share_array).  Meanwhile the rows of others
    are infinite for whoever reads them, and nobody may have written them when they come.
    """

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.own = slice(0)
        self._given: dict[int, tuple[Any, float]] = {}

    def _others(self, array: Any) -> list[Any]:
        return [array[: self.own.start], array[self.own.stop :]]

    def _mine(self, array: Any) -> bool:
        return id(array) in self._given and self._given[id(array)][0]() is array

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        array = super().array(shape, dtype)
        self._given[id(array)] = weakref.ref(array), 0.0
        return array

    def fence(self, array: Any) -> None:
        assert self._mine(array), "not from Team.array"
        array.flags.writeable = True
        for rows in self._others(array):
            rows[:] = np.inf
        self._given[id(array)] = weakref.ref(array), np.inf

    def gather_rows(self, array: Any, counts: Sequence[int]) -> None:
        mine = self._mine(array)
        if mine:
            assert array.flags.writeable, "rows are exchanged that were never opened"
            assert counts[self.rank] == self.own.stop - self.own.start
            kept = self._given[id(array)][1]
            assert all(np.array_equal(rows, np.full_like(rows, kept)) for rows in self._others(array))
        super().gather_rows(array, counts)
        if mine:
            array.flags.writeable = False

    def share_array(self, array: Any) -> None:
        super().share_array(array)
        if self._mine(array):
            array.flags.writeable = False


STRICT: dict[int, Strict] = {}
"""The strict team of a size."""


def strict(team: MPITeam, plan: Plan) -> Strict:
    """The same ranks, strict with each other."""
    found = STRICT.setdefault(team.size, Strict(team._comm))
    found.own = plan.work.train.own(team.rank).rows
    return found


def on_nodes(team: MPITeam) -> MPITeam:
    """The same ranks, sharing memory as if they were on several nodes."""
    if team.size not in ON_NODES:
        nodes = NODES[team.size]
        exchange.ranks_of_node = lambda mpi, comm: comm.Split(nodes[comm.rank], comm.rank)
        shared = ON_NODES[team.size] = MPITeam(team._comm)
        shared.share_memory(1e6)
        assert shared.shares and shared._node and len(shared._node.nodes) == len(set(nodes))
    return ON_NODES[team.size]


def bits(plan: Plan, choice: Choice, team: Team) -> dict[str, str]:
    """A short run, every array and number of it."""
    if plan.placement.one_copy and isinstance(team, MPITeam):
        team = on_nodes(team)
        team.set_deadline(100.0)
        data = share(team, choice.data if team.rank == 0 else None)
        assert all(team._node and team._node.holds(A) for A in (data.X, data.Y, data.X_val, data.Y_val))
        team.clock = Uneven(team)
    else:
        data = held(choice.data, plan, team)
        if isinstance(team, MPITeam) and plan.placement.all_rows:
            team = strict(team, plan)
    method = choose(plan, data, team)
    state = start(method, choice.origin)
    if plan.placement.one_copy and isinstance(team, MPITeam) and state.Z.size:
        assert team._node and team._node.holds(state.Z)
    method.begin(state)
    feasible = not coordinates_first(plan)
    found = {"start": digest(whole(state, plan, team), *numbers(method.evaluate(state, feasible)))}
    for i in range(ITERATIONS):
        method.sweep(state)
        notes = method.notes(state)
        errors = numbers(method.evaluate(state))
        found[f"iteration {i + 1}"] = digest(whole(state, plan, team), *errors, notes.get("cost", 0.0))
        found |= {CHANGED: str(state.own.sizes.tolist())} if notes.get("changed") else {}
        if plan.resolved.schedule.multipliers:
            method.move_multipliers(state)
            all_points = whole(state, plan, team)
            found[f"multipliers {i + 1}"] = digest(all_points, np.abs(all_points.own.multipliers).max() > 0.0)
        state.mu *= 10.0
    after = method.finish(state)
    errors = numbers(method.evaluate(after, feasible=True))
    found["postprocessing"] = digest(whole(after, plan, team), *errors)
    return found


def held(data: Dataset, plan: Plan, team: Team) -> Dataset:
    """The points of this rank where they are sharded."""
    train, validation = (partition.held(team.rank).rows for partition in (plan.work.train, plan.work.validation))
    X, X_val = data.X[train], data.X_val[validation]
    Y, Y_val = (X, X_val) if data.autoencoder else (data.Y[train], data.Y_val[validation])
    w = None if data.weights is None else data.weights[train]
    w_val = None if data.weights_val is None else data.weights_val[validation]
    weighed = {"weights": w, "weights_val": w_val}
    return data if plan.placement.all_rows else replace(data, X=X, Y=Y, X_val=X_val, Y_val=Y_val, **weighed)


def whole(state: State, plan: Plan, team: Team) -> State:
    """The state with the coordinates of all points: only here are they ever gathered."""
    if plan.placement.all_rows:
        return state
    found = {}
    for name, rows in rows_of_points(state).items():
        if rows.ndim == 2:
            found[name] = np.zeros((plan.n_train, rows.shape[1]), rows.dtype)
            found[name][plan.work.train.own(team.rank).rows] = rows
            team.gather_rows(found[name], plan.work.train.row_counts)
    return with_rows(state, found)


def numbers(errors: Any) -> list[float]:
    return [value for value in errors if value is not None]


def digest(state: State, *values: Any) -> str:
    sha = hashlib.sha256()
    for value in (*(A for name, A in split(contents(state))[0].items() if name != "best_weights"), *values):
        array = np.asarray(value, dtype=float)
        assert np.isfinite(array).all(), "equal bits of what is not finite say nothing"
        sha.update(array.tobytes())
    return sha.hexdigest()


ALONE: dict[str, dict[str, str]] = {}
"""What one process gives, by the name of the choice."""


CHOSEN: dict[int, list[Choice]] = {}
"""The choices that run on each number of ranks: all that are asked for by name, else those of `on_ranks`."""


def choose_for_all(world: Any) -> None:
    """Rank 0 makes the choices, which takes some seconds."""
    mine: dict[int, list[Choice]] = {}
    if world.rank == 0:
        many = os.environ.get("MACMPI_TEST_CHOSEN", "")
        mine = {size: list(choices()) for size in NODES} if SOME in os.environ else on_ranks(many)
    CHOSEN.update(world.bcast(mine))


def run_alone(world: Any) -> None:
    """Every choice that runs, in one process, each on one rank: waiting for each other leaves the cores free."""
    taken = {choice.name: choice for chosen in CHOSEN.values() for choice in chosen}
    mine = {name: bits(taken[name].plan(1), taken[name], Team()) for name in sorted(taken)[world.rank :: world.size]}
    others = world.Ibarrier()
    while not others.Test():
        time.sleep(0.01)
    for part in world.allgather(mine):
        ALONE.update(part)


def check_method(team: MPITeam) -> dict[str, str]:
    """Verdicts of this rank."""
    verdicts = {}
    for choice in CHOSEN.get(team.size, []):
        alone, plan = ALONE[choice.name], choice.plan(team.size)
        together = bits(plan, choice, team)
        wrong = [stage for stage in alone if alone[stage] != together[stage]]
        stages = [b for stage, b in alone.items() if stage != "postprocessing" or plan.chain.sites]
        moved = len(set(stages)) == len(stages)
        if choice.config.selection.criterion != "none" and CHANGED not in alone:
            moved = False
        verdicts[choice.name] = f"other bits from {wrong[0]} on" if wrong else "" if moved else "nothing moves"
    return verdicts


# --- the verbs --------------------------------------------------------------------------------------------------------


def value_from_root(team: MPITeam) -> str:
    calls = []

    def function() -> dict[str, Any]:
        calls.append(1)
        return {"a": [1, (2.5, "text")], "none": None, "large": "x" * 300_000}

    value = team.from_root(function)
    wrong = value != {"a": [1, (2.5, "text")], "none": None, "large": "x" * 300_000}
    return f"{value!r:.80}" if wrong or len(calls) != (team.rank == 0) else ""


def none_from_root(team: MPITeam) -> str:
    return "" if team.from_root(lambda: None) is None else "not None"


def error_from_root(team: MPITeam) -> str:
    """The same error on every rank, and the next exchange is as good as ever."""

    def refuse(kind: type[MacmpiError]) -> None:
        raise kind("no, because of rank 0")

    for kind in (UsageError, NumericalError):
        try:
            team.from_root(lambda kind=kind: refuse(kind))  # type: ignore[misc]
        except MacmpiError as error:
            if type(error) is not kind or str(error) != "no, because of rank 0":
                return repr(error)
        else:
            return "nothing was raised"
    return "" if team.from_root(lambda: 5) == 5 else "out of step"


def together_on_each(team: MPITeam) -> str:
    """Each rank has its own value; an error of any rank, of several the first one's, is raised on all."""
    value = team.all_or_raise(lambda: ["x" * 300_000, team.rank])
    if value != ["x" * 300_000, team.rank]:
        return f"{value!r:.80}"

    def refuse(ranks: set[int]) -> int:
        if team.rank in ranks:
            kind = NumericalError if team.rank % 2 else UsageError
            raise kind(f"no, because of rank {team.rank}")
        return team.rank

    for ranks in ({team.size - 1}, {0}, set(range(team.size // 2, team.size)), set(range(team.size))):
        first = min(ranks)
        try:
            team.all_or_raise(lambda ranks=ranks: refuse(ranks))  # type: ignore[misc]
        except MacmpiError as error:
            kind = NumericalError if first % 2 else UsageError
            if type(error) is not kind or str(error) != f"no, because of rank {first}" or not error.agreed:
                return repr(error)
        else:
            return "nothing was raised"
    return "" if team.all_or_raise(lambda: team.rank) == team.rank else "out of step"


def rows_gathered(team: MPITeam) -> str:
    """Rank r has r rows, the last none, so one rank at least has none; then rank 0 has all."""
    uneven = [*range(team.size - 1), 0]
    one_sided = [4] + [0] * (team.size - 1)
    for counts, columns in ((uneven, 3), (one_sided, 1), ([2] * team.size, 5)):
        n = sum(counts)
        expected = np.sqrt(np.arange(1.0, n * columns + 1)).reshape(n, columns)
        array = np.full((n, columns), np.nan)
        start = sum(counts[: team.rank])
        mine = slice(start, start + counts[team.rank])
        array[mine] = expected[mine]
        team.gather_rows(array, counts)
        if not np.array_equal(array, expected):
            return f"{counts}: {array.tolist()}"
    return ""


def parts_gathered(team: MPITeam) -> str:
    """Slices of several lengths, given out in turn from the last rank on, some ranks with none; and none at all."""
    bounds = [0, 3, 4, 11, 11, 40, 41, 45]
    slices = [slice(a, b) for a, b in pairwise(bounds)]
    in_turn = [slices[team.size - 1 - r :: team.size] for r in range(team.size)]
    lopsided = [slices if r == team.size - 1 else [] for r in range(team.size)]
    expected = np.sqrt(np.arange(45.0))
    for parts in (in_turn, lopsided):
        flat = np.full(45, np.nan)
        for part in parts[team.rank]:
            flat[part] = expected[part]
        team.gather_parts(flat, parts)
        if not np.array_equal(flat, expected):
            return f"{parts}: {flat.tolist()}"
    untouched = np.ones(3)
    team.gather_parts(untouched, [[] for _ in range(team.size)])
    return "" if np.array_equal(untouched, np.ones(3)) else "an empty gather wrote something"


def parts_passed_on(team: MPITeam) -> str:
    """Rank r has r parts of several lengths, so rank 0 none; all round, each rank then has those of every other."""
    flat = np.full(40, np.nan)
    parts = [[slice(5 * r + i, 5 * r + 2 * i + 1) for i in range(r)] for r in range(team.size)]
    for part in parts[team.rank]:
        flat[part] = 100.0 * team.rank + np.arange(40.0)[part]
    expected = np.full(40, np.nan)
    for leg in range(team.size):
        for part in parts[(team.rank - leg) % team.size]:
            expected[part] = 100.0 * ((team.rank - leg) % team.size) + np.arange(40.0)[part]
        if not np.array_equal(flat, expected, equal_nan=True):
            return f"leg {leg}: {flat.tolist()}"
        team.shift_to_next(flat, parts[-leg:] + parts[:-leg])
    return "" if np.array_equal(flat, expected, equal_nan=True) else "what came home has changed"


def worst_by_name(team: MPITeam) -> str:
    r, last = float(team.rank), float(team.size - 1)
    values = team.max_over_ranks({"up": r, "down": -r - 1.0, "one": 7.0 if r == last else -np.inf})
    expected = {"up": last, "down": -1.0, "one": 7.0}
    return "" if values == expected and list(values) == list(expected) else repr(values)


def array_shared(team: MPITeam) -> str:
    for shape in ((7,), (5, 3), (2, 3, 4), (0, 3), (1000, 40)):
        expected = np.sqrt(np.arange(float(np.prod(shape)))).reshape(shape)
        array = expected.copy() if team.rank == 0 else np.full(shape, np.nan)
        team.share_array(array)
        if not np.array_equal(array, expected):
            return f"{shape}"
    return ""


def time_accounted(team: MPITeam) -> str:
    """Exchanges are timed, waiting for the others apart from them."""
    team.set_deadline(100.0)
    team.gather_rows(np.zeros((team.size, 2)), [1] * team.size)
    team.set_deadline(float("inf"))
    seconds = team.clock.take()
    fine = seconds["seconds_comm"] > 0.0 and seconds["seconds_wait"] > 0.0 and seconds["seconds_z"] == 0.0
    return "" if fine else repr(seconds)


def same_as_solo(team: MPITeam) -> str:
    """What Team's verbs give is what they mean."""
    if team.size > 1:
        return ""
    array, solo = np.arange(6.0).reshape(3, 2), Team()
    for one in (team, solo):
        one.gather_rows(array, [3])
        one.gather_parts(array.ravel(), [[slice(0, 2), slice(4, 6)]])
        one.shift_to_next(array.ravel(), [[slice(1, 3)]])
        one.share_array(array)
        if one.max_over_ranks({"a": 1.5}) != {"a": 1.5} or one.from_root(lambda: "value") != "value":
            return type(one).__name__
        if one.all_or_raise(lambda: "value") != "value":
            return type(one).__name__
    return "" if np.array_equal(array.ravel(), np.arange(6.0)) else "an array changed"


def large_factors_in_place(team: MPITeam) -> str:
    """Two of them, the first as it was when the second is made: on one node in memory that the ranks share."""
    if team.size not in NODES:
        return ""
    shared = on_nodes(team)
    shared.set_deadline(100.0)
    pieces, random, found = MatrixAcrossRanks(shared), np.random.default_rng(3), []
    for n in (600, 530):
        A = random.normal(size=(n + 9, n))
        found.append((A.T @ A, cholesky(A.T @ A, pieces)))
    near = len(set(NODES[team.size])) == 1
    if any(shared.common(R) != near for _, R in found):
        return "in the wrong memory"
    same = all(np.array_equal(np.triu(R), np.triu(cholesky(H))) for H, R in found)
    return "" if shared.all_or_raise(lambda: same) else "other bits than one rank's"


VERBS = (
    value_from_root,
    none_from_root,
    error_from_root,
    together_on_each,
    rows_gathered,
    parts_gathered,
    parts_passed_on,
    worst_by_name,
    array_shared,
    large_factors_in_place,
    time_accounted,
    same_as_solo,
)


# --- the launch -------------------------------------------------------------------------------------------------------


def check_all(comm: Any) -> dict[str, str]:
    """On a communicator of some size: the verdicts of all its ranks, the first bad one of each check."""
    team = MPITeam(comm)
    mine = {verb.__name__: verb(team) for verb in VERBS} | check_method(team)
    table = comm.gather(mine)
    if table is None:
        return {}
    return {
        f"{team.size} ranks: {name}": next((f"rank {r}: {v[name]}" for r, v in enumerate(table) if v[name]), "")
        for name in mine
    }


def main() -> None:
    os.sched_yield = lambda: time.sleep(5e-5)  # five ranks on fewer cores: a rank that waits leaves its core to another
    team = launch()
    assert isinstance(team, MPITeam) and team.size == LARGEST, "five ranks are needed"
    world, undefined = team._comm, team._mpi.UNDEFINED
    verdicts: dict[str, str] = {}
    try:
        # Splitting waits with a busy core, so it comes first.
        parts = [world.Split(0 if world.rank < size else undefined, world.rank) for size in SIZES]
        choose_for_all(world)
        run_alone(world)
        for part in parts:
            if part != team._mpi.COMM_NULL:
                verdicts |= check_all(part)
        if world.rank == 0:
            print(json.dumps(verdicts), flush=True)
    except BaseException:  # noqa: BLE001 - whatever happened in this rank, the others must end too
        traceback.print_exc()
        sys.stderr.flush()
        world.Abort(1)


if __name__ == "__main__":
    main()
