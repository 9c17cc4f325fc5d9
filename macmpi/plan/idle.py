"""Ranks without points: more ranks than the points have blocks, which N alone fixes."""

from __future__ import annotations

from macmpi.plan.plan import Plan


def idle(plan: Plan) -> str:
    """A line that says how many ranks have no points, and how many ranks have some; "" where all have.

    Not of minibatches, whose parts the method itself speaks of.  Collective: no.
    """
    points = plan.work.train
    without = points.row_counts.count(0)
    if not without or plan.minibatch_parts:
        return ""
    most = len(points.blocks)
    plural = "s" if most > 1 else ""
    return (
        f"{without:,} of {plan.ranks:,} ranks have no points and wait for the others: {plan.n_train:,} points are "
        f"{most:,} block{plural}, each of which one rank has; {most:,} rank{plural} would be as fast"
    )
