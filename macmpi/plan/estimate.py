"""--check writes an estimate: sizes, tiles, memory of a rank and a node, ranks without points.  It writes no file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from macmpi import UsageError, many
from macmpi.parallel import launchers, tiles
from macmpi.parallel.exchange import PLACE, free_bytes
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import MOST_AT_HAND
from macmpi.parallel.shared_work import alone
from macmpi.plan.choices import KEPT
from macmpi.plan.plan import SHARED, Plan
from macmpi.plan.selectable import each
from macmpi.plan.work_lists import Job
from macmpi.solvers.descent import PAIRS

FROM_POINTS = ("pca", "itq", "neighbours", "greedy", "staged")
"""Starts that read points; only those at hand if a rank does not hold all."""

BUFFERS = 12.0
"""Methods without coordinates hold this many arrays of the weights' size."""

RESIDENT, RESIDENT_OF_MAC, PROGRAM = 120e6, 210e6, 40e6
"""Bytes of the program in a rank's memory, without and with half steps, and those that no other process shares."""


def check_memory(plan: Plan, here: int = 1) -> None:
    """Raises UsageError if the ranks of a machine need more memory than there is, before any of it is allocated.

    here: the number of ranks on this machine.  Collective: no.
    """
    need, (have, whose) = least_bytes(plan), launchers.memory()
    stage = max(ledgers(plan), key=lambda entries: sum(entry.least for entry in entries))
    most = max(stage, key=lambda entry: entry.least).what
    if need > (mapped := launchers.memory_of_a_process()):
        have, whose = mapped, "ulimit -v allows a process"
    place, together = plan.placement, plan.placement.copies(min(here, plan.ranks), here)
    if need * together <= have:
        return
    what = f"model.hidden needs about {in_gb(need)} a rank for {many(plan.n_train, 'point')}, most of it for {most}"
    one = need > have or together == 1
    if not one:
        what += f", {in_gb(need * together)} for the {together} ranks of this machine"
    what += f", and {whose} {in_gb(have)}"
    if sum(entry.least for entry in ledger(plan)) * together <= have:
        raise UsageError(f"{what}: run.finish = false leaves out the steps after full MAC, which alone fits")
    if one:
        ranks = "" if place.all_rows else ", or more ranks"
        remedy = f"fewer hidden units, or fewer points (data.points){ranks}"
        if together > 1 and not place.all_rows:
            remedy = "more ranks on more machines, or fewer hidden units"
        raise UsageError(f"{what}: {remedy}")
    others = " or ".join(f'"{name}" ({PLACEMENTS[name].words})' for name in place.others)
    other = f", or parallel.data = {others}" if others else ""
    raise UsageError(f"{what}: at most {many(int(have // need), 'rank')} on a machine, so more machines{other}")


def in_gb(count: float) -> str:
    """Writes a number of bytes in GB.  Collective: no."""
    return f"{count / 1e9:,.0f} GB" if count >= 1e10 else f"{count / 1e9:.2g} GB"


def estimate(plan: Plan) -> tuple[list[str], float]:
    """Writes lines about net, points, shares of the ranks and memory; counts the busiest rank's bytes.

    Collective: no.
    """
    sizes, memory, on_node = "-".join(str(n) for n in plan.chain.net.layer_sizes), rank_bytes(plan), ""
    if needed := node_bytes(plan):
        on_node = f", {needed / 1e6:,.0f} MB a node ({free_bytes() / 1e6:,.0f} MB free in {PLACE})"
    if n_in := plan.resolved.columns:
        sizes = f"{n_in}-{sizes.split('-', 1)[1]}, {plan.in_span}"
    coordinates = plan.n_train * sum(plan.chain.site_sizes)
    return [
        f"net          {sizes}, {plan.offsets.weights[-1]:,} weights",
        f"points       {plan.n_train:,} training, {plan.n_val:,} validation; {coordinates:,} coordinates",
        *(_shares_of_passes if plan.resolved.method.nested else _shares_of_half_steps)(plan),
        f"memory       about {memory / 1e6:,.0f} MB a rank{on_node}",
    ], memory


def _shares_of_half_steps(plan: Plan) -> list[str]:
    """Writes how points and units are assigned."""
    N, work, points = plan.n_train, plan.work.w_step, plan.work.train
    count, blocks, jobs = len(tiles.point_tiles(N)), many(len(points.blocks), "block"), many(len(work.jobs), "job")
    costs = [sum(j.cost for j in work.jobs_of(rank)) for rank in range(plan.ranks)]
    return [
        f"tiles        {count:,} of {N // count}-{-(-N // count)} points in {blocks}, {jobs} of the W-step",
        f"ranks        {plan.ranks}; share of the busiest: {max(points.row_counts) / N:.1%} of the points, "
        f"{max(costs) / sum(costs):.1%} of the units' cost",
    ]


def _shares_of_passes(plan: Plan) -> list[str]:
    """Writes how points are assigned, and how many ranks mostly wait."""
    name, N, waiting = plan.resolved.method.name, plan.n_train, ""
    points = plan.work.parts if name == "stochastic" else plan.work.train
    share, idle = max(points.row_counts) / N, points.row_counts.count(0)
    if name in ("sgd", "adam"):
        parts = min(SHARED, plan.resolved.baseline.batch, N)
        share = -(-parts // plan.ranks) / parts
    if idle and (parts := plan.minibatch_parts):
        waiting = f"; {idle} mostly wait: a minibatch is {many(parts, 'part')} (stochastic.parts)"
    return [f"ranks        {plan.ranks}; share of the busiest: {share:.1%} of the points{waiting}"]


# --- memory -----------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """Describes a part of a rank's memory.

    what: the name of the part.
    bytes: its bytes, as `--check` counts them.
    least: the part of these bytes that every run holds, whatever it does.
    shared: if the placement has one copy on each node, the ranks of a node hold this part together, once.
    """

    what: str
    bytes: float
    least: float = 0.0
    shared: bool = False


def least_bytes(plan: Plan) -> float:
    """Counts the bytes that the busiest rank holds in every run.  Collective: no."""
    return max(sum(entry.least for entry in entries) for entries in ledgers(plan))


def rank_bytes(plan: Plan) -> float:
    """Counts the bytes of the busiest rank, without bytes that it shares with others of its node.  Collective: no."""
    one = plan.placement.one_copy
    return max(sum(entry.bytes for entry in entries if not (entry.shared and one)) for entries in ledgers(plan))


def node_bytes(plan: Plan) -> float:
    """Counts the bytes that the ranks of a node share, 0.0 where they share none.  Collective: no."""
    one = plan.placement.one_copy
    return max(float(sum(entry.bytes for entry in entries if entry.shared and one)) for entries in ledgers(plan))


def ledgers(plan: Plan) -> list[list[Entry]]:
    """Returns the ledger of each stage of a run: full MAC, and the steps after it if there are any.

    Collective: no.
    """
    return [ledger(stage) for stage in (plan, plan.finishing) if stage is not None]


def ledger(plan: Plan) -> list[Entry]:
    """Lists the parts of memory that the busiest rank, or its node, holds as it trains by a plan.  Collective: no."""
    of, item, nested = plan.resolved, plan.dtype.itemsize, plan.resolved.method.nested
    n, n_val = (len(points.held(0)) for points in (plan.work.train, plan.work.validation))  # no rank has more than this
    points, weights = (n + n_val) * float(of.point_bytes), float(item * plan.offsets.weights[-1])
    entries = [
        Entry("the program", RESIDENT if nested else RESIDENT_OF_MAC, PROGRAM),
        Entry("points", points, points, shared=True),
        Entry("weights", BUFFERS * weights if nested else 48.0 * plan.offsets.weights[-1], 2.0 * weights),
        Entry("points at hand", item * _at_hand(plan)),
        *(_of_passes(plan) if nested else _of_half_steps(plan, n)),
    ]
    if of.repeatable and (of.run.refit is True or (of.run.refit == "auto" and of.gains)):
        entries.append(Entry("points of a refit", points, shared=True))
    if of.columns:  # rank 0 has all columns, too
        layer = plan.chain.block_shapes[0][0] * (of.columns - plan.chain.n_in)
        entries.append(Entry("columns", item * float((plan.n_train + plan.n_val) * of.columns + layer)))
    return entries


def _of_half_steps(plan: Plan, n: int) -> Iterator[Entry]:
    """Lists the further parts of full MAC, of an acceleration or of a selection, on a rank of n points."""
    of, chain, item, shares = plan.resolved, plan.chain, plan.dtype.itemsize, plan.placement.one_copy
    coordinates, moves = float(item * n * sum(chain.site_sizes)), of.schedule.multipliers
    held, least = (count * coordinates for count in ((3, 2) if moves else (1, 1)))
    yield Entry("coordinates", held, least, shared=True)
    yield Entry("coordinates at the end", shares * (not moves) * coordinates, shared=True)
    yield Entry("coordinates of some points", 0.1 * held)
    single = sum(chain.views[k].width for k, regression in of.regressions.items() if regression.single)
    made = n * (item * float(made_width(plan)) + 4.0 * single)
    yield Entry("the inputs of regressions", made, made, shared=True)
    jobs = map(plan.work.w_step.jobs_of, range(plan.ranks))
    kept = min(max(map(partial(_kept, plan), some), default=0) for some in jobs)
    widest = max((_columns(plan, job) for job in plan.work.w_step.jobs), default=0)
    yield Entry("regressions", 3.0 * item * n * widest, float(n * kept))
    travelling = (chain.segments[k].n_in + 1 for k in of.regressions if of.travels(k))
    yield Entry("inputs of units that travel", 0.0 if shares else float(item * n * sum(travelling)))
    grams = 8.0 * plan.offsets.grams[-1]
    large = 8.0 * sum(side**2 for k, side in enumerate(plan.offsets.sides) if plan.offsets.large(k))
    yield Entry("Grams", grams, grams, shared=True)
    if of.running:
        yield Entry("running sums", 8.0 * of.minibatches * (plan.offsets.weights[-1] + plan.offsets.grams[-1]))
    yield Entry("factors of Grams", grams + 32.0 * max(s.n_in + 2 for s in chain.segments) ** 2)
    yield Entry("factors of large Grams", shares * 2.0 * large, shared=True)
    yield Entry("sums of Grams", (1.0 + shares) * sums_bytes(plan), shared=True)
    if of.method.acceleration == "joint":  # tapes, and a matrix for each point
        square = min(chain.n_out, chain.site_sizes[-1]) ** 2
        numbers = max(plan.work.train.row_counts) * (square + 4 * sum(m.n_out for m in chain.maps))
        yield Entry("a joint step", item * float(numbers))
    if of.selection.criterion != "none" and shares:
        ridges = max(map(len, each(of.selection.ridges, 1)))
        tried = grams + 2.0 * ridges * large + item * n * float(sum(plan.basis_sizes))
        if not plan.has_basis:  # two more nets, and a layer's inputs, targets, features
            tried = 2.0 * (grams + coordinates + item * n * made_width(plan)) + 3.0 * item * n * max(chain.layer_sizes)
        yield Entry("nets that a selection tries", tried, shared=True)


def _of_passes(plan: Plan) -> Iterator[Entry]:
    """Lists the further parts of a method without coordinates."""
    of, chain, item, weights = plan.resolved, plan.chain, float(plan.dtype.itemsize), plan.offsets.weights[-1]
    if of.method.name in ("cg", "lbfgs"):
        yield Entry("pairs of steps", item * 2.0 * PAIRS * weights)
    if of.method.name != "stochastic":
        return
    squares, inputs = (sum(a * h * h + d * d for h, d in chain.block_shapes) for a in (1, 0))
    images = [m.n_out for m in chain.blocks if "patches" in m.own.capabilities]  # each has a metric
    yield Entry("curvature", item * 5.0 * squares, item * (squares + 4 * max(images, default=0) ** 2))
    if of.whole_steps:  # the outputs of each map, and its derivatives
        tapes = item * 2.0 * sum(m.n_out for m in chain.maps) * max(plan.work.parts.row_counts)
        yield Entry("outputs of all layers", tapes, tapes)
    if plan.placement.one_copy:  # weights, average, last step; sums, directions, inverses, metrics, twice in turn
        parts = plan.minibatch_parts or subtrees(len(plan.work.parts.blocks), plan.ranks)
        turns = parts * max(weights, squares) + weights + squares + max(map(max, chain.block_shapes)) ** 2
        yield Entry("what ranks exchange", item * (2 * turns + 3 * weights + inputs), shared=True)


def _kept(plan: Plan, job: Job) -> int:
    """Counts the bytes per point that Gauss-Newton keeps while it fits a job's units (`Fit`); 0 for other solvers."""
    regression = plan.resolved.regressions[job.segment]
    if regression.name != "gauss_newton" or not job.units:
        return 0
    item, solver = plan.dtype.itemsize, getattr(regression.solver, "inner", regression.solver)
    each = item + (1 if getattr(solver, "cg_iterations", 0) == 1 else 2) * (4 if regression.single else item)
    return plan.chain.views[job.segment].rows_per_point * len(job.units) * each


def _columns(plan: Plan, job: Job) -> int:
    """Counts the values per point that a rank keeps while it does a job; 0 if it computes them again."""
    exact = plan.resolved.regressions[job.segment].solver.exact
    if (exact or plan.resolved.travels(job.segment)) and not plan.placement.all_rows:
        return 0
    if plan.resolved.regressions[job.segment].by_fitter:
        return 2 * plan.chain.segments[job.segment].n_out
    if job.units:
        return plan.chain.views[job.segment].rows_per_point * len(job.units)
    return 2 * sum(m.n_out for m in plan.chain.segments[job.segment].fitted)


def _at_hand(plan: Plan) -> float:
    """Counts the numbers of the points at hand, which a rank holds besides its own if it does not hold all points."""
    if plan.placement.all_rows:
        return 0.0
    chain, fitted = plan.chain, plan.work.at_hand
    read = [s.n_in + s.n_out for k, s in enumerate(chain.segments) if fitted(k) or s.leading or s.trailing]
    targets = 0 if plan.resolved.autoencoder else chain.n_out
    start = [chain.n_in + targets] if plan.resolved.start.method in FROM_POINTS else []
    return float(min(MOST_AT_HAND, plan.n_train) * sum([*read, *start]))


def made_width(plan: Plan) -> int:
    """Counts the columns of features and of patches that a W-step makes and keeps.  Collective: no."""
    chain, regressions, kept = plan.chain, plan.resolved.regressions, plan.placement.all_rows
    segments = ((chain.segments[k], regression.by_unit) for k, regression in regressions.items())
    features = sum(s.part(0, s.core).n_out for s, by_unit in segments if s.core and (by_unit or s.leading))
    views = [chain.views[k] for k, regression in regressions.items() if regression.by_unit]
    widths = [view.width for view in views if view.width > view.map.columns]
    patches = sum(w for w in widths if kept and plan.n_train * w * plan.dtype.itemsize <= KEPT)
    return patches + features * kept


def sums_bytes(plan: Plan) -> int:
    """Counts the bytes for the largest Gram's partial sums, on one rank, or on a node that has one copy.

    A rank that shares no memory holds the sums of its own subtrees, its columns of all subtrees, and their total.
    """
    of, widest = plan.work.summed, max(plan.work.w_step.widest, plan.work.first_gram.widest)
    if plan.ranks == 1:
        return 0
    rows = subtrees(len(of.blocks), plan.ranks)
    if plan.placement.one_copy or alone(rows, widest // 8):
        return rows * widest
    held = max(len(tiles.nodes(len(of.blocks), run)) for run in of.runs[:SEEN])
    return (held + rows // plan.ranks + 2) * widest


@lru_cache(maxsize=64)
def subtrees(leaves: int, ranks: int) -> int:
    """Counts the partial sums that all ranks together exchange for one sum over points.  Collective: no.

    leaves: the number of blocks of points; each rank has consecutive ones.
    """
    return sum(len(tiles.nodes(leaves, run)) for run in tiles.contiguous_runs(leaves, ranks))


SEEN = 100
"""The ranges of blocks of ranks are alike, so only those of this many ranks are looked at."""


def idle(plan: Plan) -> str:
    """Says how many ranks have no points, and how many ranks would be as fast; "" if all have points.

    It is also "" if every rank holds all points of a stochastic run, which speaks of its minibatches' parts itself.
    Collective: no.
    """
    without, most = plan.work.train.row_counts.count(0), len(plan.work.train.blocks)
    parts = plan.minibatch_parts
    if not without or (parts and plan.placement.all_rows):
        return ""
    remedy = f", and stochastic.parts = {plan.ranks} would give each some" if parts else ""
    return (
        f"{without:,} of {plan.ranks:,} ranks have no points and wait for the others: {plan.n_train:,} points are "
        f"{many(most, 'part' if parts else 'block')}, each of which one rank has; {many(most, 'rank')} would be as "
        f"fast{remedy}"
    )


def dgemm_rate(n: int = 700, repeats: int = 5) -> float:
    """Measures the flop/s of an n x n float64 product on this machine, as configured: the best of `repeats`."""
    A = np.ones((n, n))
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        A @ A
        best = min(best, time.perf_counter() - began)
    return 2.0 * n**3 / best


def steady_rate(most: int = 40) -> float:
    """Measures `dgemm_rate` until five in a row are alike, since other ranks may be busy at first; returns the best."""
    rates = [dgemm_rate(repeats=1)]
    while len(rates) < most and (len(rates) < 5 or min(rates[-5:]) < 0.9 * max(rates)):
        rates.append(dgemm_rate(repeats=1))
    return max(rates)
