"""Sparse layers: which inputs their units read, from the config to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plans import plan_of as planned_of

import macmpi
from macmpi import UsageError, config
from macmpi.config import Sparse
from macmpi.data.reading import with_connections
from macmpi.half_steps.method import random_weights
from macmpi.nets.build import build_chain
from macmpi.plan.plan import Plan
from macmpi.typing import Array


def given(*hidden: Any, **keys: Any) -> config.Config:
    table = {"hidden": list(hidden), "activation": "tanh", "loss": "squared", **keys}
    return config.validate({"model": table, "method": {"name": "mac"}}, "this test")


def connections(table: dict[str, Any], n_in: int, **keys: Any) -> Array:
    """Which inputs the units of a first layer read."""
    map_ = build_chain(given(table, **keys).model, n_in, 2).blocks[0]
    assert map_.connected is not None and map_.connected[:, -1].all()
    return map_.connected[:, :-1]


def test_random_units_read_the_share_of_the_inputs_that_is_asked_for() -> None:
    found = connections({"units": 40, "connections": "random", "share": 0.3}, 20)
    assert found.shape == (40, 20)
    assert_array_equal(found.sum(axis=1), 6)
    assert len(np.unique(found, axis=0)) > 30
    assert found.any(axis=0).all()
    assert connections({"units": 3, "connections": "random", "share": 0.01}, 20).sum() == 3


def test_windows_are_squares_of_pixels_with_all_channels() -> None:
    found = connections({"units": 9, "connections": "local", "width": 2, "groups": 4}, 24, image=[3, 4, 2])
    windows = found.reshape(9, 3, 4, 2)
    assert_array_equal(windows[..., 0], windows[..., 1])
    corners = [(0, 0), (0, 2), (1, 0), (1, 2)]
    for unit, (row, column) in zip((0, 3, 5, 7), corners, strict=True):
        expected = np.zeros((3, 4), dtype=bool)
        expected[row : row + 2, column : column + 2] = True
        assert_array_equal(windows[unit, ..., 0], expected)
    assert Sparse(30, "local").masks == 25


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_a_matrix_of_a_file_becomes_a_part_of_the_config(
    suffix: str, tmp_path: Path, random: np.random.Generator
) -> None:
    path, wanted = tmp_path / f"mask{suffix}", random.uniform(size=(5, 8)) < 0.5
    wanted[:, 0] = True
    if suffix == ".npy":
        np.save(path, wanted)
    else:
        np.savetxt(path, wanted.astype(int), delimiter=",", fmt="%d")
    read = with_connections(given({"units": 5, "connections": str(path)}, 3))
    path.unlink()
    map_ = build_chain(read.model, 8, 2).blocks[0]
    assert map_.connected is not None
    assert_array_equal(map_.connected[:, :-1], wanted)
    assert with_connections(read) == read


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "does not exist"),
        (np.ones((4, 8)), "4 x 8 numbers; give a matrix of 5 rows"),
        (np.ones(8), "8 numbers; give a matrix of 5 rows"),
        (np.array([["a"]]), "holds no numbers"),
    ],
)
def test_a_file_that_is_no_mask_is_refused(made: Array | None, says: str, tmp_path: Path) -> None:
    if made is not None:
        np.save(tmp_path / "mask.npy", made)
    with pytest.raises(UsageError, match=says):
        with_connections(given({"units": 5, "connections": str(tmp_path / "mask.npy")}))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"units": 3}, "model.hidden.0.channels: is missing"),
        ({"units": 3, "connections": "random", "shar": 0.1}, "model.hidden.0.shar: unknown key; did you mean"),
        ({"connections": "random"}, "model.hidden.0.units: is missing"),
        ({"units": 0, "connections": "random"}, "model.hidden.0.units: should be greater than or equal to 1"),
        ({"units": 3, "connections": "random", "share": 0.0}, "model.hidden.0.share: should be greater than 0"),
        ({"units": 3, "connections": ""}, "connections is empty"),
        ({"units": 3, "connections": "random", "groups": 4}, "groups = 4 is more than"),
        ({"units": 3, "connections": "random", "width": 2}, "reads share, groups, seed: leave width out"),
        ({"units": 3, "connections": "banded", "share": 0.5}, "reads width, groups: leave share out"),
        ({"units": 3, "connections": "local", "seed": 1}, "reads width, groups, image: leave seed out"),
        ({"units": 3, "connections": "mask.npy", "groups": 2}, "a file says it all: leave groups out"),
        ({"units": 9, "connections": "local", "groups": 5}, "square grid"),
        ({"units": 9, "connections": "local", "image": [5]}, "image is a height, a width and channels"),
    ],
)
def test_mistakes_in_a_table_are_named(table: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(table)
    assert says in str(caught.value)
    assert "1 mistake in" in str(caught.value) or "channels: is missing" in says


def plan_of(*hidden: Any) -> Plan:
    return planned_of(given(*hidden), 8, 3, 37, 11, 1)


def test_random_weights_exist_where_the_mask_says_and_have_its_fan_in(random: np.random.Generator) -> None:
    plan = plan_of({"units": 400, "connections": "random", "share": 0.25}, 3)
    W = random_weights(plan, 2.0, 0)[: 400 * 9].reshape(400, 9)
    connected = plan.chain.blocks[0].connected
    assert connected is not None
    assert_array_equal(W[~connected], 0.0)
    largest = np.abs(W[connected]).max()
    assert 0.97 * 2.0 / np.sqrt(2.0) < largest <= 2.0 / np.sqrt(2.0)


METHODS: list[dict[str, Any]] = [
    {"method": {"name": "mac"}},
    {"method": {"name": "mac", "acceleration": "momentum"}},
    {"method": {"name": "mac"}, "penalty": {"method": "augmented_lagrangian"}},
    {"method": {"name": "mac"}, "model": {"sites": ["before", "none", "after"]}},
    {"method": {"name": "mac"}, "penalty": {"l1": 0.02}},
    {"method": {"name": "stochastic"}, "stochastic": {"batch": 32}},
    {"method": {"name": "stochastic"}, "stochastic": {"batch": 200, "ridge": 0.0}},
    *({"method": {"name": name}, "baseline": {"batch": 32}} for name in ("sgd", "adam", "cg", "lbfgs")),
]


@pytest.mark.parametrize("keys", METHODS, ids=lambda keys: " ".join(map(str, keys["method"].values())))
def test_every_method_lowers_the_error_and_leaves_them_at_0(keys: dict[str, Any], tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    X = np.tanh(random.normal(size=(150, 4)) @ random.normal(size=(4, 12)))
    hidden = [
        {"units": 20, "connections": "random", "share": 0.3},
        3,
        {"units": 24, "connections": "banded", "width": 2},
    ]
    settings = {**keys, "run": {"max_iterations": 4}}
    model = macmpi.fit(X, hidden=hidden, layers="tanh", config=settings, output=tmp_path / "run")
    blocks = [
        (W, m.connected) for W, m in zip(model.weights, model.chain.blocks, strict=True) if m.connected is not None
    ]
    assert len(blocks) == 2
    for W, connected in blocks:
        assert_array_equal(W[~connected], 0.0)
        assert (W[connected] != 0.0).any()
    assert np.square(X - model.predict(X)).sum() < 0.9 * np.square(X - X.mean(axis=0)).sum()


def test_a_run_does_not_start_from_a_net_of_other_connections(random: np.random.Generator) -> None:
    X, hidden = random.normal(size=(60, 6)), {"units": 8, "connections": "random", "share": 0.5}
    short = {"method": {"name": "adam"}, "run": {"max_iterations": 1}}
    model = macmpi.fit(X, X[:, :2], hidden=[hidden], layers="tanh", config=short)
    again = macmpi.fit(X, X[:, :2], config=short, start=model)
    assert again.chain.blocks[0].connected is not None
    assert_array_equal(again.chain.blocks[0].connected, model.chain.blocks[0].connected)
    with pytest.raises(UsageError, match="a net of other connections than this fit's"):
        macmpi.fit(X, X[:, :2], hidden=[{**hidden, "seed": 1}], layers="tanh", config=short, start=model)


def test_groups_of_neighbouring_units_read_the_same() -> None:
    found = connections({"units": 10, "connections": "random", "share": 0.5, "groups": 3}, 20)
    starts = np.flatnonzero((found[1:] != found[:-1]).any(axis=1)) + 1
    assert_array_equal(starts, [4, 7])
