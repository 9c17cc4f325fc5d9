"""What the cost model says that ranks exchange in an iteration is what they exchange: counted on ranks as threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plans import plan_of
from unit.crew import Member
from unit.played import data_of, played

from macmpi.config import Config, Method, Model, Parallel, WStep
from macmpi.parallel import shared_work
from macmpi.plan.cost import Rates, rounds
from macmpi.plan.plan import Plan

N = 1200
VERBS = ("gather_rows", "gather_parts", "gather_columns", "shift_to_next", "share_array")
SIGMOID = Model([5, 3, 5], "sigmoid")
MAC = Config(model=SIGMOID, method=Method("mac"))
SHARDED = Parallel("sharded")


def exchanged(config: Config, ranks: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exchanges of each rank in the last of two sweeps."""
    counts, marks = [0] * ranks, list[list[int]]([] for _ in range(ranks))

    def noted(plain: Any) -> Any:
        def note(team: Member, *words: Any) -> Any:
            counts[team.rank] += 1
            return plain(team, *words)

        return note

    with monkeypatch.context() as patched:
        for verb in VERBS:
            patched.setattr(Member, verb, noted(getattr(Member, verb)))
        played(config, data_of(N), ranks, 2, lambda team: marks[team.rank].append(counts[team.rank]))
    return [own[-1] - own[-2] for own in marks]


def planned(plan: Plan) -> int:
    none = (0.0,) * len(plan.chain.segments)
    return sum(r.times for r in rounds(Rates(0.0, none, none, 0.0), plan) if r.bytes)


@pytest.mark.parametrize("table", [0, shared_work.TABLE])
@pytest.mark.parametrize("ranks", [2, 3, 12])
@pytest.mark.parametrize(
    ("config", "fewer"),
    [
        (MAC, 0),
        (replace(MAC, model=replace(SIGMOID, sites="before"), parallel=SHARDED), 0),
        (replace(MAC, parallel=SHARDED, w_step=WStep(schedule="ring", linear_solver="same")), 2),
    ],
    ids=["replicated", "sharded, exact", "ring"],
)
def test_the_exchanges_of_an_iteration_are_those_of_its_rounds(
    config: Config, fewer: int, ranks: int, table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether sums are added up by every rank or by columns; of the ring a sum of two numbers a unit is left out."""
    monkeypatch.setattr(shared_work, "TABLE", table)
    expected = planned(plan_of(config, *data_of(N).sizes.counts, ranks))
    for count in exchanged(config, ranks, monkeypatch):
        assert expected <= count <= expected + fewer
