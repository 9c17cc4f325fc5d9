"""The memory that ranks need on a node, against the memory that a node has, and what helps where it is too little."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from macmpi import UsageError
from macmpi.config import Config
from macmpi.plan.estimate import estimate, node_bytes, selecting
from macmpi.plan.plan import Plan

MOST = 2**20
"""Nodes, and ranks, that are tried as a remedy."""

Planned = Callable[[Config, int], Plan]
"""The plan of a config on some ranks.  Raises UsageError."""


def memory_here() -> float:
    """The bytes of this machine's memory.  Collective: no."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def bytes_of_node(plan: Plan, config: Config, autoencoder: bool, nodes: int) -> float:
    """The bytes of the busiest of some nodes: of its ranks, and of what these share.  Collective: no."""
    _, each = estimate(plan, config, autoencoder)
    shared = node_bytes(plan, autoencoder, selecting(config)) if plan.per_node else 0.0
    return -(-plan.ranks // nodes) * each + shared


def check_nodes(
    plan: Plan, config: Config, autoencoder: bool, nodes: int, memory: float, planned: Planned, whose: str
) -> None:
    """Raises UsageError where a node of `memory` bytes cannot hold its ranks, with what helps.  Collective: no.

    whose: memory it is.
    """
    need = bytes_of_node(plan, config, autoencoder, nodes)
    if need <= memory:
        return
    ways = list(_ways(plan, config, autoencoder, nodes, memory, planned))
    ranks = -(-plan.ranks // nodes)
    remedy = f"use {', or '.join(ways)}" if ways else "fewer hidden units, or fewer points"
    raise UsageError(
        f"{ranks:,} {'ranks on a node take' if ranks > 1 else 'rank on a node takes'} about {need / 1e9:,.1f} GB of "
        f"memory for {plan.n_train:,} points, and {whose} has {memory / 1e9:,.1f} GB: {remedy}"
    )


def _ways(plan: Plan, config: Config, autoencoder: bool, nodes: int, memory: float, planned: Planned) -> Iterator[str]:
    """Finds what would fit: the same ranks on more nodes, more ranks, another way to hold the data."""

    def fits(config: Config, ranks: int, nodes: int) -> bool:
        try:
            return bytes_of_node(planned(config, ranks), config, autoencoder, nodes) <= memory
        except UsageError:
            return False

    P = plan.ranks
    if (more := _least(lambda m: fits(config, P, m), nodes, P)) is not None:
        yield f"more nodes (at least {more:,} for {P:,} rank{'s' * (P > 1)})"
    elif plan.sharded and (more := _least(lambda ranks: fits(config, ranks, ranks), P, MOST)) is not None:
        yield f"more ranks and nodes (at least {more:,}, a rank a node)"
    for data in ("node", "sharded"):
        other = replace(config, parallel=replace(config.parallel, data=data))
        if config.parallel.data in ("replicated", "node") and data != config.parallel.data and fits(other, P, nodes):
            yield f'parallel.data = "{data}"'


def _least(fits: Callable[[int], bool], first: int, most: int) -> int | None:
    """The least of first + 1, ..., most that fits, where all beyond it do; None if none does."""
    if first >= most or not fits(most):
        return None
    low, high = first, first
    while not fits(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
