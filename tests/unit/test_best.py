"""The weights that a model predicts with are never worse than the best constant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from launch.here import run_here
from numpy.testing import assert_allclose

import macmpi
from macmpi import config
from macmpi.config import Model
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import unscaled
from macmpi.methods.constant import constant_weights
from macmpi.nets.build import build_chain
from macmpi.nets.losses import CrossEntropy, Squared
from macmpi.results.reference_errors import all_at_hand
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


@pytest.mark.parametrize("method", ["stochastic", "mac", "adam"])
def test_noise_teaches_nothing_and_the_model_says_so(method: str, tmp_path: Path) -> None:
    """Weights that are best on few validation points by chance are no better than the mean on the training points."""
    random = np.random.default_rng(2)
    X, Y = random.normal(size=(60, 2)), random.normal(size=60)
    np.savez(tmp_path / "noise.npz", X=X[:50], Y=Y[:50], X_val=X[50:], Y_val=3.0 * X[50:, 0])
    (tmp_path / "noise.toml").write_text(f'data = "noise.npz"\nmodel.hidden = [3]\nmethod.name = "{method}"\n')
    outcome = run_here(
        "noise.toml", "--output", "run", "--iterations", 3, "--set", "start.seed=4", cwd=tmp_path, code=0
    )
    found = macmpi.load(tmp_path / "run" / "model.h5")
    error = np.mean((found.predict(X[:50]) - Y[:50]) ** 2)
    assert error <= Y[:50].var() * (1 + 1e-9)
    constant = "nothing better than a constant was learnt" in outcome.out
    assert found.card is not None
    assert found.card.training.constant == constant
    if constant:
        assert_allclose(found.predict(X), Y[:50].mean(), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_rectifiers_on_heavy_tails_end_better_than_a_constant(seed: int, tmp_path: Path) -> None:
    """Scaled by their deviations, such inputs throw a net far away again and again."""
    random = np.random.default_rng(seed)
    X = random.standard_t(1.5, (900, 4))
    np.savez(tmp_path / "t.npz", X=X, Y=np.tanh(X[:, 0]) + np.log1p(np.abs(X[:, 1])))
    (tmp_path / "t.toml").write_text('data.source = "t.npz"\ndata.scale = "standard"\nmodel.loss = "squared"\n')
    words = ("--set", "method.name=stochastic", "--set", "stochastic.damping=1e-4", "--set", f"start.seed={seed}")
    run_here("t.toml", "--output", "run", *words, "--iterations", 60, cwd=tmp_path, code=0)
    with h5py.File(tmp_path / "run" / "model.h5") as file:
        assert file.attrs["best_iteration"] > 0
        assert file.attrs["best_E1_train"] < 0.5


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
