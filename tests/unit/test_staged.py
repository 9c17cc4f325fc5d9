"""The staged start: filters, codebooks and an output layer, each found by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of

from macmpi import config
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import unscaled
from macmpi.methods.choose import Method, choose
from macmpi.methods.starts import RIDGE, Origin, codebook, fitted, sample_of, staged, start
from macmpi.nets.chain import Segment
from macmpi.nets.layers.activation import softmax
from macmpi.nets.layers.affine import Affine
from macmpi.nets.losses import LOSSES
from macmpi.parallel.streams import Stream, stream
from macmpi.parallel.team import Team
from macmpi.solvers.fitters import KMeans
from macmpi.state import State
from macmpi.typing import Array

CASCADE = {
    "hidden": [{"channels": 6, "kernel": 3}, {"channels": 8, "kernel": 2, "pool": 4, "pooling": "sum"}],
    "activation": ["relu", "softmax"],
    "image": [8, 8],
    "loss": "cross_entropy",
}


def bars(n: int, random: np.random.Generator, noise: float = 0.3) -> tuple[Array, Array]:
    """Images of 8 x 8 pixels with a bar somewhere, and the class of each: upright, or lying."""
    images, labels = noise * random.normal(size=(n, 8, 8)), random.integers(2, size=n)
    for image, lying, place, first in zip(images, labels, *random.integers(1, 5, size=(2, n)), strict=True):
        (image.T if lying else image)[first : first + 4, place] += 1.0
    return images.reshape(n, -1), np.eye(2)[labels]


def dataset(n: int = 200, **keys: Any) -> Dataset:
    random = np.random.default_rng(7)
    (X, Y), (X_val, Y_val) = bars(n, random, **keys), bars(50, random, **keys)
    return Dataset(X, Y, X_val, Y_val, unscaled(64), unscaled(2), "")


def method_of(name: str, data: Dataset, **tables: Any) -> Method:
    table = {"model": CASCADE, "start": {"method": "staged"}, "method": {"name": name}} | tables
    given = config.validate(table, "this test")
    plan = plan_of(given, 64, 2, len(data.X), len(data.X_val), 1)
    return choose(plan, data, Team())


def begun(name: str, data: Dataset, **tables: Any) -> tuple[Method, State[Any]]:
    method = method_of(name, data, **tables)
    return method, start(method, Origin())


class Given:
    """A trainer that gives some of the rows."""

    copies = True

    def fit(self, inputs: Array, count: int, start: Array | None, random: Stream) -> Array:
        return inputs[3 : 3 + count]


def test_the_softmax_of_a_codebook_is_that_of_squared_distances(random: np.random.Generator) -> None:
    rows = random.normal(size=(40, 5)) + 3.0
    W = codebook(rows, 6, Given(), random)
    words = rows[3:9]
    distances = np.square(rows[:, None] - words).sum(axis=2)
    width2 = 0.5 * distances.min(axis=1).mean()
    found = softmax(rows @ W[:, :-1].T + W[:, -1])
    assert_allclose(found, softmax(-distances / width2), rtol=1e-10, atol=1e-14)


def test_words_begin_as_product_quantisation() -> None:
    """Of each run of columns the nearest of its words by k-means is on; the outputs are those of a regression on it."""
    data = dataset()
    net = {"hidden": [12], "activation": "argmax", "words": 4}
    method, state = begun("mac", data, model=net)
    random = stream(0, "staged", 0)
    rows, near = sample_of(Affine(64, 12), data.X, random), []
    for columns in np.array_split(np.arange(64), 3):
        words = KMeans().fit(rows[:, columns], 4, None, random)
        near.append(np.eye(4)[np.square(data.X[:, None, columns] - words).sum(axis=2).argmin(axis=1)])
    assert_array_equal(state.Z, np.hstack(near))
    A = np.hstack([*near, np.ones((200, 1))])
    least = 0.5 * np.square(data.Y - A @ np.linalg.lstsq(A, data.Y)[0]).sum() / 200
    assert least <= method.evaluate(state).train <= least * (1.0 + 1e-3)
    few = begun("mac", dataset(10), model=net)[1]  # more points than words of a run, fewer than units
    assert_array_equal(few.Z.sum(axis=1), np.full(10, 3.0))


def test_stages_weigh_points(random: np.random.Generator) -> None:
    """Words are found of points as often as they weigh; a point of weight 0 moves nothing."""
    rows = sample_of(Affine(1, 4), np.arange(4.0)[:, None], random, np.array([20.0, 10.0, 0.0, 10.0]))
    assert_array_equal(np.sort(rows[:, 0]), [0.0, 0.0, 1.0, 3.0])
    data, w, found = dataset(), np.tile([0.0, 1.0, 3.0, 1.0], 50), []
    for wild in (1e3, 2e3):
        X, Y = (np.where(w[:, None] == 0.0, wild, A) for A in (data.X, data.Y))
        net = {"hidden": [12], "activation": "argmax", "words": 4}
        found.append(begun("mac", replace(data, X=X, Y=Y, weights=w), model=net)[1].weights)
    assert_array_equal(*found)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy", "huber"])
def test_the_output_layer_is_a_minimum(loss: str, random: np.random.Generator) -> None:
    A, labels = 0.01 * random.normal(size=(300, 4)) + 1.0, random.integers(3, size=300)
    Y = np.eye(3)[labels]
    A[:, 0] += 0.02 * labels
    layer = Segment((Affine(4, 3),), (0,))
    W, ridge = fitted(layer, LOSSES[loss], A, Y), RIDGE * 300 * A.var(axis=0).mean()

    def slope(W: Array) -> Array:
        G = layer.maps[0].weight_vjp(W, A, -LOSSES[loss].residual(Y, layer.forward([W], A)))
        return G + ridge * W * [1, 1, 1, 1, 0]

    assert np.abs(slope(W)).max() < 0.01 * np.abs(slope(np.zeros_like(W))).max()


@pytest.mark.parametrize("name", ["mac", "stochastic", "adam"])
def test_every_method_begins_at_the_stages_as_they_are(name: str) -> None:
    data = dataset()
    method, state = begun(name, data)
    assert_array_equal(state.weights, staged(method_of(name, data)))
    assert method.evaluate(state, feasible=True).train < 0.5 * np.log(2.0)


def test_joint_training_goes_on_from_there() -> None:
    method, state = begun("lbfgs", dataset(noise=0.6))
    before = method.evaluate(state).train
    method.begin(state)
    for _ in range(10):
        method.sweep(state)
    assert method.evaluate(state).train < 0.8 * before
