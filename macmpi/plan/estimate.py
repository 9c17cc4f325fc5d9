"""--check: sizes, tiles, memory a rank and a node, ranks without points, flops.  Writes nothing."""

from __future__ import annotations

import time
from functools import lru_cache, partial

import numpy as np

from macmpi import UsageError, many
from macmpi.config import NESTED
from macmpi.parallel import launchers, tiles
from macmpi.parallel.exchange import PLACE, free_bytes
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import MOST_AT_HAND
from macmpi.parallel.shared_work import alone
from macmpi.plan.choices import KEPT
from macmpi.plan.plan import Plan
from macmpi.plan.work import SHARED
from macmpi.plan.work_lists import Job
from macmpi.solvers.descent import PAIRS
from macmpi.solvers.z_gauss_newton import GaussNewtonZ, flops_a_point

PASSES_Z, PASSES_DIRECTIONS, PASSES_OTHERS = 2.0, 12.0, 10.0
PASSES_W = {"closed_form": 2.0, "gauss_newton": 4.0, "hessian_free": 4.0}
"""Passes through the segments behind the first site that a Z-step takes besides its directions, and those of directions
that are not counted; through a segment in its W-step, with other solvers and, besides those of CG, with these."""

BUFFERS = 12.0
"""Methods without coordinates have this many arrays of the weights' size."""

RESIDENT, PROGRAM = 120e6, 40e6
"""Bytes of the program itself, as a rank has them in its memory, and those among them that no other process shares."""


def check_memory(plan: Plan, here: int = 1) -> None:
    """Raises UsageError where the ranks of a machine may not hold what they must, before any of it is allocated.

    here: ranks on this machine.  Collective: no.
    """
    need, (have, whose) = least_bytes(plan), launchers.memory()
    if need > (mapped := launchers.memory_of_a_process()):
        have, whose = mapped, "ulimit -v allows a process"
    place, together = plan.placement, plan.placement.copies(min(here, plan.ranks), here)
    if need * together <= have:
        return
    what = f"model.hidden needs about {in_gb(need)} a rank for {many(plan.n_train, 'point')}"
    if need > have or together == 1:
        ranks = ", or more ranks" if place.spreads else ""
        remedy = f"fewer hidden units, or fewer points (data.points){ranks}"
        if together > 1 and place.spreads:
            remedy = "more ranks on more machines, or fewer hidden units"
        raise UsageError(f"{what}, and {whose} {in_gb(have)}: {remedy}")
    most = int(have // need)
    others = " or ".join(f'"{name}" ({PLACEMENTS[name].words})' for name in place.others)
    other = f", or parallel.data = {others}" if others else ""
    raise UsageError(
        f"{what}, {in_gb(need * together)} for the {together} ranks of this machine, and {whose} "
        f"{in_gb(have)}: at most {many(most, 'rank')} on a machine, so more machines{other}"
    )


def in_gb(count: float) -> str:
    """Bytes, for a person.  Collective: no."""
    return f"{count / 1e9:,.0f} GB" if count >= 1e10 else f"{count / 1e9:.2g} GB"


def least_bytes(plan: Plan) -> float:
    """A rank holds, whatever it does, the program, its points, their coordinates and multipliers, weights, what these
    share, and in a W-step what its regressions read and keep of each point.

    A method without coordinates has no sites; the stochastic one makes Grams and metrics.
    Collective: no.
    """
    chain, sites = plan.chain, sum(plan.chain.site_sizes)
    n, n_val = (len(points.held(0)) for points in (plan.work.train, plan.work.validation))  # rank 0 has as many as any
    held = n * sites * (2.0 if plan.resolved.schedule.multipliers else 1.0) + 2 * plan.offsets.weights[-1]
    if plan.resolved.method.name == "stochastic":
        images = [m.n_out for m in chain.blocks if "patches" in m.own.capabilities]  # each has a metric
        held += sum(h * h + d * d for h, d in chain.block_shapes) + 4 * max(images, default=0) ** 2 + taped(plan)
    found = PROGRAM + plan.dtype.itemsize * float(held) + 8.0 * plan.offsets.grams[-1]
    found += (n + n_val) * plan.resolved.point_bytes
    if plan.resolved.method.name in NESTED:
        return found
    jobs = map(plan.work.w_step.jobs_of, range(plan.ranks))
    kept = min(max(map(partial(_kept, plan), own), default=0) for own in jobs)
    return found + n * (plan.dtype.itemsize * made_width(plan) + 4.0 * rounded_width(plan) + kept)


def _kept(plan: Plan, job: Job) -> int:
    """Counts the bytes that Gauss-Newton keeps of a point while it fits a job's units (`Fit`); 0 of other solvers."""
    own = plan.resolved.regressions[job.segment]
    if own.name != "gauss_newton" or not job.units:
        return 0
    item, solver = plan.dtype.itemsize, getattr(own.solver, "inner", own.solver)
    each = item + (1 if getattr(solver, "cg_iterations", 0) == 1 else 2) * (4 if own.single else item)
    return plan.chain.views[job.segment].rows_per_point * len(job.units) * each


def taped(plan: Plan) -> float:
    """The numbers of all points in the net that a rank keeps for a step of all points.  Collective: no.

    They are what each map gives, and its derivatives.
    """
    outputs = sum(m.n_out for m in plan.chain.maps)
    return 2.0 * outputs * max(plan.work.parts.row_counts) if plan.resolved.whole_steps else 0.0


def estimate(plan: Plan) -> tuple[list[str], float]:
    """Lines for a person, and the bytes of the busiest rank.  Collective: no."""
    nested = plan.resolved.method.name in NESTED
    sizes, weights = "-".join(str(n) for n in plan.chain.layer_sizes), plan.offsets.weights[-1]
    coordinates = plan.n_train * sum(plan.chain.site_sizes)
    shares_of_ranks, memory = (_without_coordinates if nested else _with_coordinates)(plan)
    on_node = ""
    if needed := node_bytes(plan):
        on_node = f", {needed / 1e6:,.0f} MB a node ({free_bytes() / 1e6:,.0f} MB free in {PLACE})"
    if n_in := plan.resolved.columns:  # rank 0 has all columns, too
        sizes, memory = (
            f"{n_in}-{sizes.split('-', 1)[1]}, {plan.in_span}",
            memory
            + plan.dtype.itemsize
            * ((plan.n_train + plan.n_val) * n_in + plan.chain.block_shapes[0][0] * (n_in - plan.chain.n_in)),
        )
    return [
        f"net          {sizes}, {weights:,} weights",
        f"points       {plan.n_train:,} training, {plan.n_val:,} validation; {coordinates:,} coordinates",
        *shares_of_ranks,
        f"memory       about {memory / 1e6:,.0f} MB a rank{on_node}",
    ], memory


Estimate = tuple[list[str], float]
"""An estimate says in words what is assigned, then the bytes of a rank."""


def _with_coordinates(plan: Plan) -> Estimate:
    """Half steps, and what an acceleration adds."""
    chain, N = plan.chain, plan.n_train
    weights = plan.offsets.weights[-1]
    point_tiles = tiles.point_tiles(N)
    work = plan.work.w_step
    n, n_val = (len(points.held(0)) for points in (plan.work.train, plan.work.validation))  # rank 0 has as many as any
    held = n * sum(chain.site_sizes) * (3 if plan.resolved.schedule.multipliers else 1)
    data = (n + n_val) * plan.resolved.point_bytes
    widest = max((_columns(plan, job) for job in work.jobs), default=0)
    made = n * (plan.dtype.itemsize * made_width(plan) + 4.0 * rounded_width(plan))
    travelling = (s for k, s in enumerate(chain.segments) if plan.resolved.travels(k))
    data += plan.dtype.itemsize * n * sum(s.n_in + 1 for s in travelling)  # in the units' coordinates
    factors = 2 * plan.offsets.grams[-1] + 4 * max(s.n_in + 2 for s in chain.segments) ** 2
    own = plan.placement.own_copies
    factors += own * sums_bytes(plan) // 8
    memory = plan.dtype.itemsize * (held * 1.1 + 3.0 * n * widest) + data + 8.0 * (6 * weights + factors) + 210e6
    memory += plan.dtype.itemsize * (_at_hand(plan) + _eliminated(plan))
    memory += made - (1 - own) * (plan.dtype.itemsize * held + data + 8.0 * plan.offsets.grams[-1] + made)
    z_share = max(plan.work.train.row_counts) / N
    w_costs = [sum(j.cost for j in work.jobs_of(rank)) for rank in range(plan.ranks)]
    w_share = max(w_costs) / sum(w_costs)
    shares_of_ranks = [
        f"tiles        {len(point_tiles):,} of {N // len(point_tiles)}-{-(-N // len(point_tiles))} points in "
        f"{many(len(plan.work.train.blocks), 'block')}, "
        f"{many(len(work.jobs), 'job')} of the W-step",
        f"ranks        {plan.ranks}; share of the busiest: {z_share:.1%} of the points, "
        f"{w_share:.1%} of the units' cost",
    ]
    return shares_of_ranks, memory


def _eliminated(plan: Plan) -> float:
    """Counts the numbers that a joint step keeps of a rank's own points: tapes, and a matrix of each point."""
    if plan.resolved.method.acceleration != "joint":
        return 0.0
    square = min(plan.chain.n_out, plan.chain.site_sizes[-1]) ** 2
    return float(max(plan.work.train.row_counts) * (square + 4 * sum(m.n_out for m in plan.chain.maps)))


def flops_of_half_steps(plan: Plan) -> tuple[float, list[float]]:
    """Count the flops a point of products in a Z-step, and of each segment in a W-step, but for Grams.

    Collective: no.
    """
    chain, solver = plan.chain, plan.resolved.z_solver
    passes = [2.0 * segment.multiplications for segment in chain.segments]
    behind = sum(passes[1:])
    z = PASSES_DIRECTIONS * behind
    if chain.sites and isinstance(solver, GaussNewtonZ):
        directions = flops_a_point(chain.site_sizes, chain.n_out, behind, solver.cg_iterations)
        z = solver.iterations * min(directions.values()) * (0.5 if solver.cg_precision == "single" else 1.0)
    z += passes[0] + PASSES_Z * behind if chain.sites else 0.0
    w = []
    for flops, of in zip(passes, plan.resolved.regressions, strict=True):
        steps = getattr(of.solver, "iterations", 0) * getattr(of.solver, "cg_iterations", 0)
        w.append(flops * (PASSES_W[of.name] + 2.0 * steps if of.name in PASSES_W else PASSES_OTHERS))
    return z, w


def _columns(plan: Plan, job: Job) -> int:
    """Counts the columns over its points that a rank keeps while it does a job; none that it makes again."""
    exact = plan.resolved.regressions[job.segment].solver.exact
    if (exact or plan.resolved.travels(job.segment)) and not plan.placement.keeps(0, 0):
        return 0
    if plan.resolved.regressions[job.segment].by_fitter:
        return 2 * plan.chain.segments[job.segment].n_out
    if job.units:
        return plan.chain.views[job.segment].rows_per_point * len(job.units)
    return 2 * sum(m.n_out for m in plan.chain.segments[job.segment].fitted)


def _without_coordinates(plan: Plan) -> Estimate:
    """Backpropagation through minibatches or all points, and what each method adds."""
    chain, N, item, name = plan.chain, plan.n_train, plan.dtype.itemsize, plan.resolved.method.name
    weights, squares = plan.offsets.weights[-1], sum(h * h + d * d for h, d in chain.block_shapes)
    n, n_val = (len(points.held(0)) for points in (plan.work.train, plan.work.validation))
    data = plan.placement.own_copies * (n + n_val) * plan.resolved.point_bytes
    kept = BUFFERS * weights
    if name == "stochastic":
        share = max(plan.work.parts.row_counts) / N
        kept += 5.0 * squares + taped(plan)
    elif name in ("sgd", "adam"):
        parts = min(SHARED, plan.resolved.baseline.batch, N)
        share = -(-parts // plan.ranks) / parts
    else:
        share = max(plan.work.train.row_counts) / N
        kept += 2.0 * PAIRS * weights
    idle = sum(not rows for rows in plan.work.parts.row_counts) if name == "stochastic" else 0
    parts = plan.minibatch_parts
    lazy = f"; {idle} mostly wait: a minibatch is {many(parts, 'part')} (stochastic.parts)" if idle and parts else ""
    shares_of_ranks = [f"ranks        {plan.ranks}; share of the busiest: {share:.1%} of the points{lazy}"]
    return shares_of_ranks, item * (kept + _at_hand(plan)) + data + RESIDENT


def _at_hand(plan: Plan) -> float:
    """Counts the numbers of the points at hand that a rank has besides its own, where it does not hold all."""
    if not plan.placement.spreads:
        return 0.0
    chain, fitted = plan.chain, plan.work.at_hand
    read = [s.n_in + s.n_out for k, s in enumerate(chain.segments) if fitted(k) or s.leading or s.trailing]
    start = [chain.n_in + _targets(plan)] if plan.resolved.start.method in ("pca", "itq", "greedy", "staged") else []
    return float(min(MOST_AT_HAND, plan.n_train) * sum([*read, *start]))


def node_bytes(plan: Plan) -> float:
    """Counts the bytes that the ranks of a node share, 0.0 where they share none.

    They are points, coordinates (twice, at the end), multipliers, a W-step's features, and rounded; Grams and, twice,
    factors of large ones; features, Grams, factors, nets that a selection tries; two arrays in turn for sums of Grams,
    of minibatches for sums, directions, inverses, metrics; weights, average, last step.
    """
    if plan.placement.own_copies:
        return 0.0
    chain, N = plan.chain, plan.n_train
    sites = sum(chain.site_sizes)
    kept = 2 * sites if plan.resolved.schedule.multipliers else sites
    made = made_width(plan)
    data = (N + plan.n_val) * (chain.n_in + _targets(plan))
    weights, squares = plan.offsets.weights[-1], sum(h * h + d * d for h, d in chain.block_shapes)
    shared = data + N * (sites + kept + made)
    if plan.resolved.method.name != "stochastic":
        selecting = _selecting(plan)
        large = [plan.offsets.gram_shapes[k][1] for k in range(len(chain.segments)) if plan.offsets.large(k)]
        grams = plan.offsets.grams[-1] + 2 * sum(n * n for n in large)
        if selecting and plan.has_basis:
            grams += plan.offsets.grams[-1] + 2 * (selecting - 1) * sum(n * n for n in large)
            shared += N * sum(plan.basis_sizes)
        elif selecting:  # two nets more, and inputs, targets and features of a layer
            grams += 2 * plan.offsets.grams[-1]
            shared += N * (2 * (sites + made) + 3 * max(chain.layer_sizes))
        return float(plan.dtype.itemsize * shared + 4 * N * rounded_width(plan) + 8 * grams + 2 * sums_bytes(plan))
    largest, grams = max(max(shape) for shape in chain.block_shapes) ** 2, sum(d * d for _, d in chain.block_shapes)
    parts = plan.minibatch_parts or subtrees(len(plan.work.parts.blocks), plan.ranks)
    turns = 2 * (parts * max(weights, squares) + weights + squares + largest)
    return float(plan.dtype.itemsize * (shared + turns + 3 * weights + grams))


def rounded_width(plan: Plan) -> int:
    """Columns of the inputs that a W-step reads in single precision too.  Collective: no."""
    views = zip(plan.chain.views, plan.resolved.regressions, strict=True)
    return sum(view.width for view, own in views if own.single)


def made_width(plan: Plan) -> int:
    """Columns of the features that a W-step makes and keeps, and of the patches.  Collective: no."""
    chain, regressions, keeps = plan.chain, plan.resolved.regressions, plan.placement.keeps
    segments, views = zip(chain.segments, regressions, strict=True), zip(chain.views, regressions, strict=True)
    features = sum(s.part(0, s.core).n_out for s, own in segments if s.core and (own.by_unit or s.leading))
    widths = (view.width for view, own in views if own.by_unit and view.width > view.map.columns)
    patches = sum(w for w in widths if keeps(plan.n_train * w * plan.dtype.itemsize, KEPT))
    return patches + features * keeps(0, 0)


def _targets(plan: Plan) -> int:
    """The columns of targets that are held besides those of the inputs."""
    return 0 if plan.resolved.autoencoder else plan.chain.n_out


def _selecting(plan: Plan) -> int:
    """0 where no architectures are selected, else the most ridges that a selection compares."""
    keys = plan.resolved.selection
    most = max((len(entry) for entry in keys.ridges if isinstance(entry, list)), default=len(keys.ridges))
    return 0 if keys.criterion == "none" else 1 + most


def sums_bytes(plan: Plan) -> int:
    """Count the bytes of the subtrees' sums of the largest Gram that ranks sum up, as one rank or one node has them.

    A rank that shares no memory has the sums of its own subtrees, its columns of all, and their total.
    """
    of, widest = plan.work.summed, max(plan.work.w_step.widest, plan.work.first_gram.widest)
    if plan.ranks == 1:
        return 0
    rows = subtrees(len(of.blocks), plan.ranks)
    if not plan.placement.own_copies or alone(rows, widest // 8):
        return rows * widest
    own = max(len(tiles.nodes(len(of.blocks), run)) for run in of.runs[:SEEN])
    return (own + rows // plan.ranks + 2) * widest


@lru_cache(maxsize=64)
def subtrees(leaves: int, ranks: int) -> int:
    """Count the sums that ranks exchange of a sum over some blocks.  Collective: no."""
    return sum(len(tiles.nodes(leaves, run)) for run in tiles.contiguous_runs(leaves, ranks))


SEEN = 100
"""Runs of blocks are alike: those of this many ranks are looked at."""


def idle(plan: Plan) -> str:
    """A line that says how many ranks have no points, and how many ranks have some; "" where all have.

    Where every rank holds all points the stochastic method itself speaks of the parts of its minibatches.
    Collective: no.
    """
    without, most = plan.work.train.row_counts.count(0), len(plan.work.train.blocks)
    parts = plan.minibatch_parts
    if not without or (parts and not plan.placement.spreads):
        return ""
    plural, what = "s" if most > 1 else "", "part" if parts else "block"
    remedy = f", and stochastic.parts = {plan.ranks} would give each some" if parts else ""
    return (
        f"{without:,} of {plan.ranks:,} ranks have no points and wait for the others: {plan.n_train:,} points are "
        f"{most:,} {what}{plural}, each of which one rank has; {most:,} rank{plural} would be as fast{remedy}"
    )


def dgemm_rate(n: int = 700, repeats: int = 5) -> float:
    """flop/s of an n x n float64 product on this machine, as configured: the best of some."""
    A = np.ones((n, n))
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        A @ A
        best = min(best, time.perf_counter() - began)
    return 2.0 * n**3 / best


def steady_rate(most: int = 40) -> float:
    """Measure `dgemm_rate` until five in a row are alike: the other ranks may be busy for a while before they wait."""
    rates = [dgemm_rate(repeats=1)]
    while len(rates) < most and (len(rates) < 5 or min(rates[-5:]) < 0.9 * max(rates)):
        rates.append(dgemm_rate(repeats=1))
    return max(rates)
