"""Memory that the ranks of a node share: which rows its first rank exchanges, how much it is, its pages."""

from __future__ import annotations

import mmap
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import changed, plan_of

from macmpi.config import Config, Method, Model, Parallel, Selection, Start
from macmpi.parallel.exchange import placed, populated, runs_by_turn, starts_of, unpack
from macmpi.plan.estimate import estimate, node_bytes

quick = settings(deadline=None, derandomize=True, database=None)


@quick
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_runs_by_turn_bring_every_nodes_rows_to_every_node(raw: list[int], data: Any) -> None:
    """As Allgatherv would: in each round each node gives the rows of one run of its ranks."""
    nodes = [sorted(set(raw)).index(node) for node in raw]
    counts = data.draw(st.lists(st.integers(0, 5), min_size=len(nodes), max_size=len(nodes)))
    owners = np.repeat(np.arange(len(nodes)), counts)
    seen = [np.where(np.isin(owners, [r for r, n in enumerate(nodes) if n == node]), owners, -1) for node in set(nodes)]
    for own in runs_by_turn(nodes):
        sizes, starts = placed(own, counts)
        pieces = [seen[n][starts[n] : starts[n] + sizes[n]].copy() for n in range(len(seen))]
        for copy in seen:
            for n, piece in enumerate(pieces):
                copy[starts[n] : starts[n] + sizes[n]] = piece
    for copy in seen:
        np.testing.assert_array_equal(copy, owners)


@quick
@given(st.lists(st.integers(0, 4), max_size=6))
def test_what_lies_end_to_end_is_put_into_its_parts(sizes: list[int]) -> None:
    parts = [slice(a, b) for a, b in pairwise(starts_of([*sizes, 0]))][::2]
    flat, again = np.arange(1.0, sum(sizes) + 1), np.zeros(sum(sizes))
    kept = np.concatenate([np.zeros(0, int), *(np.arange(len(flat))[part] for part in parts)])
    unpack(again, flat[kept], parts)
    np.testing.assert_array_equal(again[kept], flat[kept])
    assert not np.delete(again, kept).any()


def test_memory_is_given_pages_where_there_is_memory() -> None:
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 4 * page) as memory:
        array = np.frombuffer(memory, np.uint8)
        array[0] = 7
        assert populated(array.ctypes.data, slice(0, 4 * page))
        assert populated(array.ctypes.data, slice(5, 5))
        assert populated(array.ctypes.data, slice(page + 3, 2 * page + 1))
        assert array[0] == 7
        assert not array[1:].any()
        del array


def megabytes(kind: Any, ranks: int = 4) -> list[float]:
    """The numbers of the line of --check."""
    config = Config(parallel=Parallel(kind), method=Method("mac"))
    plan = plan_of(config, 100, 100, 1_000_000, 10_000, ranks)
    (line,) = [line for line in estimate(plan)[0] if line.startswith("memory")]
    return [float(word.strip("(").replace(",", "")) for word in line.split() if word.strip("(")[0].isdigit()]


def test_a_check_counts_a_ranks_memory_and_its_nodes_apart() -> None:
    (replicated,), (rank, node, _) = megabytes("replicated"), megabytes("node")
    assert rank + node > 0.9 * replicated
    assert rank < replicated - 0.5 * node


@pytest.mark.parametrize("sites", ["after", "before"])
def test_what_a_node_shares(sites: Any) -> None:
    """Points, coordinates and their last copy; before the activation, what a W-step multiplies too; sums of Grams."""
    config = Config(
        model=Model([7, 5], sites=sites, activation="sigmoid"), parallel=Parallel("node"), method=Method("mac")
    )
    plan, coder = (plan_of(config, 4, n_out, 1000, 100, 2) for n_out in (3, 4))
    features = 12 if sites == "before" else 0
    grams, turns = 5 * 5 + 8 * 8 + 6 * 6, 2 * 2 * 8 * 8
    assert node_bytes(plan) == 8 * (1100 * 7 + 1000 * (24 + features) + grams + turns)
    assert node_bytes(coder) == 8 * (1100 * 4 + 1000 * (24 + features) + grams + turns)
    assert node_bytes(replace(plan, ranks=1)) == 8 * (1100 * 7 + 1000 * (24 + features) + grams)


def test_a_node_has_two_factors_of_a_large_gram() -> None:
    """And no sums of it: it is made by rows."""
    plan = plan_of(
        Config(model=Model([512], activation="sigmoid"), parallel=Parallel("node"), method=Method("mac")),
        4,
        3,
        1000,
        100,
        2,
    )
    assert node_bytes(plan) == 8 * (1100 * 7 + 2 * 1000 * 512 + 5 * 5 + 3 * 513 * 513 + 2 * 2 * 5 * 5)
    tried = 2 * (5 * 5 + 513 * 513) + 1000 * (2 * 512 + 3 * 512)
    assert node_bytes(changed(plan, selection=Selection("aic"))) - node_bytes(plan) == 8 * tried


def test_a_node_has_the_features_and_grams_of_all_centres_while_their_numbers_are_selected() -> None:
    net = Model([20, 2, 15], activation=["rbf", "linear", "rbf"], sites=["none", "after", "none"], centres="subset")
    config = Config(model=net, parallel=Parallel("node"), method=Method("mac"), start=Start("pca"))
    plan = plan_of(config, 4, 4, 100, 10, 2)
    tried = 20 * 20 + 15 * 15 + 100 * (20 + 15)
    assert node_bytes(changed(plan, selection=Selection("aic"))) - node_bytes(plan) == 8 * tried
