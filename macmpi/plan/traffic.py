"""The exchanges of a plan's ranks in an iteration: a team of any size, played by one process.

The verbs of the team (`parallel/team.py`) that a method calls, how often, and the bytes that come into a rank; found
from the plan alone, so for 16,384 ranks and 1e8 points as well as for two.  Evaluation, records and decisions are left
out: some exchanges of a few numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, inf, log2

from macmpi.config import Config
from macmpi.parallel.columns import group_size, messages
from macmpi.plan.minibatch_cost import Rates, minibatch_rounds
from macmpi.plan.plan import Plan
from macmpi.plan.rounds import Round, Work, rounds


@dataclass(frozen=True)
class Traffic:
    """verbs: calls an iteration, by name; bytes: into each rank, or each node what it has once; steps: messages of a
    rank one behind the other, those of the meeting before each exchange included, as the cost model counts them."""

    verbs: dict[str, int]
    bytes: float
    steps: int


def half_step_rounds(plan: Plan) -> list[Round]:
    """The rounds of an iteration of half steps, without their seconds.  Collective: no."""
    none = (0.0,) * len(plan.chain.segments)
    return [r for r in rounds(Work(0.0, none, none, 0.0), plan) if r.bytes]


def traffic(plan: Plan, config: Config) -> Traffic:
    """The exchanges of an iteration; none on one rank.  Collective: no.

    Of Gauss-Newton on sharded points as many sums as it takes where each line search accepts its first trial and no
    unit stops early.
    """
    if plan.ranks == 1:
        return Traffic({}, 0.0, 0)
    if config.method.name == "stochastic":
        found = minibatch_rounds(config.stochastic, plan, config.stochastic.ridge == "auto", Rates(inf, inf))
    else:
        found = half_step_rounds(plan)
    verbs = Counter[str]()
    for r in found:
        verbs[r.verb] += r.times if r.bytes else 0
    moved = sum(r.times * r.bytes * _share(r.verb, plan.ranks) for r in found)
    return Traffic({verb: n for verb, n in verbs.items() if n}, moved, sum(_steps(r, plan.ranks) for r in found))


SCATTERED = ("gather_columns", "shift_to_next")
"""Verbs of which a rank gets its share alone."""


def _share(verb: str, ranks: int) -> float:
    """The part of a round's bytes that comes into a rank."""
    levels = 2 if verb == "gather_columns" and group_size(ranks) > 1 else 1
    return levels / ranks if verb in SCATTERED else 1.0


def _steps(r: Round, ranks: int) -> int:
    meeting = ceil(log2(ranks))
    each = {"gather_columns": messages(ranks, group_size(ranks)), "shift_to_next": 1}.get(r.verb, meeting)
    return r.times * (meeting + each) if r.bytes else 0


def said(plan: Plan, config: Config) -> list[str]:
    """A line of --check on what ranks exchange; none where there is nothing.  Collective: no."""
    if config.method.name not in ("mac", "stochastic") or plan.ranks == 1:
        return []
    found = traffic(plan, config)
    named = ", ".join(f"{count:,} {verb}" for verb, count in sorted(found.verbs.items()))
    return [
        f"exchanges    {sum(found.verbs.values()):,} an iteration ({named}); {found.bytes / 1e6:,.1f} MB into a rank, "
        f"{found.steps:,} messages one behind the other"
    ]
