"""Random initial weights: the range goes by the fan-in, each block has its own stream, trained blocks begin at 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plans import plan_of as planned_of

from macmpi.config import Config, Method, Model, Start
from macmpi.half_steps.method import random_block, random_weights
from macmpi.plan.plan import Plan

NETS: dict[str, tuple[list[int], dict[str, Any]]] = {
    "deep": ([40, 30, 20], {}),
    "one layer": ([50], {"activation": "tanh"}),
    "few inputs": ([300, 2, 200], {}),
    "residual": ([30] * 16, {"skips": [[i, i + 2] for i in range(1, 16)]}),
    "no sites": ([40, 30], {"sites": "none"}),
    "basis functions": ([30, 20, 40], {"activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"]}),
}


def plan_of(name: str) -> Plan:
    hidden, keys = NETS[name]
    start = Start("pca" if "rbf" in keys.get("activation", []) else "uniform")
    return planned_of(Config(model=Model(hidden, **keys), start=start, method=Method("mac")), 25, 35, 200, 20, 1)


@pytest.mark.parametrize("name", NETS)
def test_weights_fill_a_range_that_goes_by_the_fan_in(name: str) -> None:
    """Of 600 or more uniform weights the largest is within 5% of the bound, but for a chance of 1e-6.

    Many layers that are added to what skips carry share one layer's range.
    """
    plan = plan_of(name)
    for b, (h, d) in enumerate(plan.chain.block_shapes):
        if b in plan.resolved.trainers:
            continue
        added = 15.0 if name == "residual" and 0 < b < 16 else 1.0
        found, bound = random_block(plan, b, 3.0, 7), 3.0 / added / np.sqrt(plan.chain.blocks[b].own.fan_in)
        assert found.shape == (h * d,)
        assert 0.95 * bound < found.max() <= bound
        assert -bound <= found.min() < -0.95 * bound


@pytest.mark.parametrize("name", NETS)
def test_blocks_follow_each_other_in_one_flat_array(name: str) -> None:
    plan = plan_of(name)
    flat = random_weights(plan, 2.0, 4)
    assert flat.shape == (plan.offsets.weights[-1],)
    for b in range(len(plan.chain.blocks)):
        place = slice(*plan.offsets.weights[b : b + 2])
        assert_array_equal(flat[place], random_block(plan, b, 2.0, 4))


def test_each_block_and_each_seed_has_a_stream_of_its_own() -> None:
    square = planned_of(Config(model=Model([9, 9, 9], activation="sigmoid"), method=Method("mac")), 9, 9, 200, 20, 1)
    drawn = [random_block(square, b, 2.0, seed) for b in range(4) for seed in (0, 1)]
    assert all((one != two).all() for i, one in enumerate(drawn) for two in drawn[:i])


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_a_residual_net_begins_alike_at_any_depth(activation: str) -> None:
    """What the output layer reads differs as much from point to point behind 64 layers as behind 16, within a half."""
    X, sizes = np.random.default_rng(0).standard_normal((200, 30)), []
    for layers in (16, 64):
        skips = [[i, i + 2] for i in range(1, layers)]
        net = Model([30] * layers, activation=activation, skips=skips)
        plan = planned_of(Config(model=net, method=Method("mac")), 30, 5, 200, 20, 1)
        flat = random_weights(plan, 2.0, 3)
        weights = [flat[plan.offsets.block(b)].reshape(shape) for b, shape in enumerate(plan.chain.block_shapes)]
        read = plan.chain.part(0, len(plan.chain.maps) - 1).forward(weights[:-1], X)
        sizes.append(np.sqrt(np.mean(read.var(axis=0))))
    assert 2.0 / 3.0 < sizes[1] / sizes[0] < 1.5
