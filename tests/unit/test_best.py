"""The weights that a model predicts with are never worse than the best constant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.here import run_here
from numpy.testing import assert_allclose

import macmpi
from macmpi import config
from macmpi.config import Model
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import unscaled
from macmpi.methods.starts import constant_weights
from macmpi.nets.build import build_chain
from macmpi.nets.losses import CrossEntropy, Squared
from macmpi.results.scores import all_at_hand
from macmpi.state import block_views
from macmpi.typing import Array


def dataset(Y: Array, classes: Array | None = None) -> Dataset:
    X = np.random.default_rng(0).normal(size=(len(Y), 3))
    return Dataset(X, Y, X, Y, unscaled(3), unscaled(Y.shape[1]), "", classes)


def test_a_constant_tied_net_gives_the_mean_of_the_targets() -> None:
    random = np.random.default_rng(1)
    Y = random.normal(size=(30, 3))
    chain = build_chain(Model([5, 2, 5], "tanh", tied=True), 3, 3)
    flat = random.normal(size=sum(h * d for h, d in chain.block_shapes))
    found = constant_weights(chain, flat, Squared(), Y, all_at_hand(30), 30)
    assert found is not None
    F = chain.forward(block_views(found, chain.block_shapes), Y)
    assert_allclose(F, np.tile(Y.mean(axis=0), (30, 1)), rtol=1e-12)


@pytest.mark.parametrize("hidden", [[4], [5, 3]])
def test_a_constant_net_gives_the_mean_of_the_targets(hidden: list[int]) -> None:
    random = np.random.default_rng(1)
    data = dataset(random.normal(size=(30, 2)))
    chain = build_chain(Model(hidden, "tanh"), 3, 2)
    flat = random.normal(size=sum(h * d for h, d in chain.block_shapes))
    found = constant_weights(chain, flat, Squared(), data.Y, all_at_hand(30), 30)
    assert found is not None
    F = chain.forward(block_views(found, chain.block_shapes), data.X)
    assert_allclose(F, np.broadcast_to(data.Y.mean(axis=0), F.shape), rtol=1e-13)


def test_of_labels_it_gives_their_shares() -> None:
    data = dataset(np.eye(3)[[0, 0, 0, 1, 1, 2]], np.arange(3))
    chain = build_chain(Model([4], "relu"), 3, 3)
    found = constant_weights(
        chain, np.zeros(sum(h * d for h, d in chain.block_shapes)), CrossEntropy(), data.Y, all_at_hand(6), 6
    )
    assert found is not None
    F = np.exp(chain.forward(block_views(found, chain.block_shapes), data.X))
    assert_allclose(F / F.sum(axis=1, keepdims=True), np.broadcast_to([1 / 2, 1 / 3, 1 / 6], F.shape), rtol=1e-13)


@pytest.mark.parametrize("keys", [{"output": "sigmoid"}, {"activation": ["linear", "rbf"], "hidden": [2, 4]}])
def test_outputs_that_are_not_affine_have_none(keys: dict[str, Any]) -> None:
    data = dataset(np.zeros((6, 2)))
    chain = build_chain(Model(**{"hidden": [4], "activation": "tanh", "loss": "squared", **keys}), 3, 2)
    flat = np.zeros(sum(h * d for h, d in chain.block_shapes))
    assert constant_weights(chain, flat, Squared(), data.Y, all_at_hand(6), 6) is None


def test_a_readout_of_convolutions_gives_the_best_constant_of_each_channel(random: np.random.Generator) -> None:
    data = dataset(random.normal(size=(30, 8)))
    table = {"model": {"hidden": [4], "activation": "tanh", "readout": {"channels": 2, "image": [2, 2, 1]}}}
    chain = build_chain(config.validate(table, "this test").model, 3, 8)
    flat = random.normal(size=sum(h * d for h, d in chain.block_shapes))
    found = constant_weights(chain, flat, Squared(), data.Y, all_at_hand(30), 30)
    assert found is not None
    F = chain.forward(block_views(found, chain.block_shapes), data.X)
    assert_allclose(F, np.broadcast_to(np.tile(data.Y.reshape(-1, 2).mean(axis=0), 4), F.shape), rtol=1e-12)


def test_a_readout_that_no_constant_suits_keeps_its_best_weights(tmp_path: Path) -> None:
    """The best constant differs from pixel to pixel, and these weights, though worse, are better than one a channel."""
    random = np.random.default_rng(3)
    pixels = np.repeat([0.0, 1.0], 8)[random.permutation(16)] + 1e-3 * random.normal(size=(40, 16))
    np.savez(tmp_path / "t.npz", X=pixels.reshape(40, 4, 4))
    (tmp_path / "t.toml").write_text(
        'data = "t.npz"\nmethod.name = "adam"\n[model]\nhidden = [16]\nreadout = { channels = 1, image = [4, 4, 1] }\n'
    )
    outcome = run_here("t.toml", "--iterations", 2, "--output", "run", cwd=tmp_path, code=0)
    found = macmpi.load(tmp_path / "run" / "model.h5")
    assert found.card is not None
    assert not found.card.training.constant
    assert "nothing better than a constant" not in outcome.out
    assert found.card.errors["best"].training > 0.5 * 16 * pixels.var(axis=0).mean() / np.ptp(pixels) ** 2
