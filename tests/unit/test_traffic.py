"""What a plan says that its ranks exchange is what they exchange: counted on ranks that are threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from unit.crew import Member
from unit.played import data_of, played

from macmpi.config import Config, Method, Model, Parallel, Stochastic, WStep
from macmpi.parallel import tree_sum
from macmpi.plan.minibatches import EARLY
from macmpi.plan.plan import make_plan
from macmpi.plan.traffic import traffic

RANKS = (2, 3, 5, 12)
N = 1200
VERBS = ("gather_rows", "gather_parts", "gather_columns", "shift_to_next", "share_array")
SIGMOID = Model([5, 3, 5], "sigmoid")
MAC = Config(model=SIGMOID, method=Method("mac"))
SHARDED = Parallel("sharded")
EXACT = {
    "replicated": MAC,
    "sharded, exact": replace(MAC, model=replace(SIGMOID, sites="before"), parallel=SHARDED),
    "ring": replace(MAC, parallel=SHARDED, w_step=WStep(schedule="ring", linear_solver="same")),
}


class Seen:
    """The verbs that each rank calls, and the bytes that come into it from others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
        self.counts = [Counter[str]() for _ in range(ranks)]
        self.bytes = [0.0] * ranks
        for verb in VERBS:
            monkeypatch.setattr(Member, verb, self._noted(verb, getattr(Member, verb)))

    def _noted(self, verb: str, plain: Any) -> Any:
        def noted(team: Member, array: Any, *more: Any) -> Any:
            self.counts[team.rank][verb] += 1
            found = plain(team, array, *more)
            self.bytes[team.rank] += bytes_into(verb, team, array, found, more)
            return found

        return noted


def bytes_into(verb: str, team: Member, array: Any, found: Any, more: Sequence[Any]) -> float:
    """Bytes that a rank has not had before."""
    match verb:
        case "gather_rows":
            return array.nbytes - array.nbytes / max(len(array), 1) * more[0][team.rank]
        case "gather_columns":
            return found.nbytes / max(len(found), 1) * (len(found) - len(array))
        case "gather_parts":
            sizes = [sum(part.stop - part.start for part in own) for own in more[0]]
            return array.itemsize * (sum(sizes) - sizes[team.rank])
        case "shift_to_next":
            return array.itemsize * sum(p.stop - p.start for p in more[0][(team.rank - 1) % team.size])
    return 0.0


def counted(config: Config, ranks: int, monkeypatch: pytest.MonkeyPatch, sweeps: int = 2) -> list[Any]:
    """Of each rank: the verbs of the last sweep, and the bytes that they bring it."""
    with monkeypatch.context() as patched:
        seen = Seen(patched, ranks)
        marks: list[list[Any]] = [[] for _ in range(ranks)]
        played(
            config,
            data_of(N),
            ranks,
            sweeps,
            lambda team: marks[team.rank].append((Counter(seen.counts[team.rank]), seen.bytes[team.rank])),
        )
    return [(own[-1][0] - own[-2][0], own[-1][1] - own[-2][1]) for own in marks]


@pytest.mark.parametrize("table", [0, tree_sum.TABLE])
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", EXACT)
def test_the_plan_knows_each_exchange_of_an_iteration(
    name: str, ranks: int, table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether sums are added up by every rank or by columns; the bytes of all ranks but for how evenly they
    have them, and for what is exchanged in single precision."""
    monkeypatch.setattr(tree_sum, "TABLE", table)
    config, data = EXACT[name], data_of(N)
    plan = make_plan(config, *data.sizes.counts, ranks)
    expected, found = traffic(plan, config), counted(config, ranks, monkeypatch)
    for verbs, _ in found:
        assert {verb: n for verb, n in verbs.items() if n} == expected.verbs
    moved = sum(bytes_ for _, bytes_ in found)
    assert moved == pytest.approx(expected.bytes * (ranks - 1), rel=0.15)


@pytest.mark.parametrize("ranks", RANKS)
def test_line_searches_that_go_on_are_sums_that_no_plan_knows(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gauss-Newton on sharded points: at least a start, a gradient, a product and a trial; at most all halvings."""
    config, data = replace(MAC, parallel=SHARDED), data_of(N)
    plan = make_plan(config, *data.sizes.counts, ranks)
    planned, jobs = sum(traffic(plan, config).verbs.values()), len(plan.work.w_step.jobs)
    solver = plan.choices.regressions[0].solver
    for verbs, _ in counted(config, ranks, monkeypatch):
        assert planned / 3 <= sum(verbs.values())
        assert sum(verbs.values()) <= planned + 3 * jobs * solver.iterations * solver.halvings  # type: ignore[attr-defined]


@pytest.mark.parametrize("ranks", RANKS)
def test_minibatches_exchange_what_the_plan_says(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of an epoch, to a tenth, after the first EARLY minibatches, of which more renew inverses."""
    keys = Stochastic(batch=30, batch_max=30, parts=12, ridge=0.0)
    config, data = Config(model=SIGMOID, method=Method("stochastic"), stochastic=keys), data_of(N)
    plan = make_plan(config, *data.sizes.counts, ranks)
    planned, sweeps = sum(traffic(plan, config).verbs.values()), 2 + -(-EARLY // (N // keys.batch))
    for verbs, _ in counted(config, ranks, monkeypatch, sweeps):
        assert planned == pytest.approx(sum(verbs.values()), rel=0.1)


@pytest.mark.parametrize("name", ["replicated", "node", "sharded", "stochastic"])
@pytest.mark.parametrize("ranks", [1024, 16_384])
def test_a_team_of_any_size_is_played(name: str, ranks: int) -> None:
    """At 1e8 points of 256 columns: no rank gets the sums of all others, and all messages are counted."""
    method = Method("stochastic" if name == "stochastic" else "mac")
    data = {"stochastic": "sharded"}.get(name, name)
    keys = Stochastic(parts=ranks, batch=64 * ranks, batch_max=64 * ranks)
    config = Config(
        model=Model([64, 16, 64], "sigmoid", sites="after"), method=method, parallel=Parallel(data), stochastic=keys
    )  # type: ignore[arg-type]
    plan = make_plan(config, 256, 256, 10**8, 10**6, ranks)
    found = traffic(plan, config)
    assert sum(found.verbs.values()) > 0
    assert max(plan.work.train.row_counts) <= 1.1 * 10**8 / ranks or name == "stochastic"
    if data == "sharded":
        widest = 8 * max(max(d * d for _, d in plan.chain.block_shapes), plan.offsets.weights[-1])
        assert found.bytes <= 3.0 * widest * sum(found.verbs.values())
    assert found.steps >= sum(found.verbs.values())
