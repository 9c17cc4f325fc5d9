"""The seconds of an iteration by counted flops, on ranks and a machine that need not be at hand."""

from __future__ import annotations

from dataclasses import replace

from macmpi.config import NESTED, Config
from macmpi.parallel import tiles
from macmpi.parallel.partition import partition_points
from macmpi.plan.cost import Machine, Seconds, predict, seconds_of
from macmpi.plan.estimate import (
    ACCELERATED,
    BLAS_SHARE,
    PASSES,
    SECONDS_A_TILE,
    flops_of_half_steps,
    flops_of_w_steps,
    gram_flops,
)
from macmpi.plan.minibatch_cost import Rates, minibatch_rounds
from macmpi.plan.minibatches import SHARED
from macmpi.plan.plan import Plan
from macmpi.plan.rounds import Round, Work, summed

SECONDS_A_BYTE = 1.5e-9
"""A step of sgd and adam costs this for each byte of the weights."""


def counted(plan: Plan, config: Config, rate: float) -> Work:
    """Counts what an iteration of half steps is assigned by, on cores of `rate` flop/s.  Collective: no."""
    N, segments, steady = plan.n_train, plan.chain.segments, BLAS_SHARE * rate
    z, _ = flops_of_half_steps(plan)
    z += 2.0 * ACCELERATED.get(config.method.acceleration, 0.0) * plan.chain.whole.multiplications
    chunks = len(tiles.point_chunks(N))
    jobs = [[job for job in plan.work.w_step.jobs if job.segment == k] for k in range(len(segments))]

    def of_segment(k: int, flops: float) -> float:
        cost = sum(job.cost for job in jobs[k])
        return (N * flops / steady + SECONDS_A_TILE * len(jobs[k]) * chunks) / cost if cost else 0.0

    def of_gram(k: int) -> float:
        grams = [gram for gram in plan.work.grams(k) if gram.cost]
        return gram_flops(plan, grams[0]) / rate / grams[0].cost if grams else 0.0

    sides = [plan.offsets.gram_shapes[k][1] for k in range(len(segments))]
    large = [plan.offsets.large(k) for k in range(len(segments))]
    return Work(
        point=z / steady + SECONDS_A_TILE * len(tiles.point_tiles(N)) / N,
        factor=tuple(map(of_gram, range(len(segments)))),
        unit=tuple(of_segment(k, flops) for k, flops in enumerate(flops_of_w_steps(plan))),
        shared=sum(n**3 / 3.0 / rate for n, big in zip(sides, large, strict=True) if plan.sharded and not big),
        local=tuple(0.0 if big or plan.sharded else n**3 / 3.0 / rate for n, big in zip(sides, large, strict=True)),
        piece=1.0 / rate,
    )


def predicted(plan: Plan, config: Config, autoencoder: bool, rate: float, machine: Machine) -> Seconds:
    """An iteration of a config on a plan's ranks, the evaluation for its record left out.  Collective: no."""
    if config.method.name == "stochastic":
        rates = Rates(BLAS_SHARE * rate * 8 / plan.dtype.itemsize, rate * 8 / plan.dtype.itemsize)
        found, alone = (
            minibatch_rounds(config.stochastic, p, autoencoder, rates) for p in (plan, replace(plan, ranks=1))
        )
        return seconds_of(found, alone, 0.0, plan.ranks, machine)
    if config.method.name in NESTED:
        return _of_backpropagation(plan, config, rate, machine)
    return predict(counted(plan, config, rate), plan, machine)


def _of_backpropagation(plan: Plan, config: Config, rate: float, machine: Machine) -> Seconds:
    """Passes through the net, and a gradient that all ranks get: once, or for each minibatch."""
    N, name, weights, item = plan.n_train, config.method.name, plan.offsets.weights[-1], plan.dtype.itemsize
    batch = min(config.baseline.batch, N)
    batches = -(-N // batch) if name in ("sgd", "adam") else 0
    seconds = PASSES[name] * 2.0 * N * plan.chain.whole.multiplications / (BLAS_SHARE * rate * 8 / item)
    times = batches or round(PASSES[name] / 3.0)
    shared = batches * SECONDS_A_BYTE * item * weights

    def of(plan: Plan) -> list[Round]:
        if not batches:
            points = plan.work.train
            own = tuple(seconds / times / N * count for count in points.row_counts)
            return summed(own, weights, times, points, plan)
        parts = min(SHARED, batch)
        cut = partition_points(parts, plan.ranks, parts)
        own = tuple(seconds / times / parts * len(run) for run in cut.runs)
        return summed(own, weights, times, cut, plan)

    return seconds_of(of(plan), of(replace(plan, ranks=1)), shared, plan.ranks, machine)
