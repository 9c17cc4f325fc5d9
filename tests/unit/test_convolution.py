"""Convolutions: what a patch is, where a chain of them is cut, and weights that are shared over positions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from launch.here import run_here
from numpy.testing import assert_allclose, assert_array_equal
from scipy.signal import correlate2d

import macmpi
from macmpi import UsageError, config
from macmpi.config import Model
from macmpi.nets.build import build_chain
from macmpi.nets.chain import Chain
from macmpi.nets.layers.convolution import Convolution, TransposedConvolution
from macmpi.reductions import LazyRows, sum_over
from macmpi.results import pictures, reading

LAYER = {"channels": 3, "kernel": 3}


def model(*hidden: object, **keys: object) -> Model:
    return config.validate({"model": {"hidden": list(hidden), "activation": "tanh", **keys}}, "this test").model


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ["same", "none"])
def test_a_convolution_is_scipys_correlation(stride: int, padding: str, random: np.random.Generator) -> None:
    map_ = Convolution(7, 8, 2, 3, 3, stride, padding)
    W, A = random.normal(size=map_.parameter_shape), random.normal(size=(4, map_.n_in))
    kernels, images = W[:, :-1].reshape(3, 3, 3, 2), A.reshape(4, 7, 8, 2)
    found = map_.forward(W, A).reshape(4, *map_.shape, 3)
    for n in range(4):
        for unit in range(3):
            whole = sum(
                correlate2d(images[n, :, :, c], kernels[unit, :, :, c], "same" if padding == "same" else "valid")
                for c in range(2)
            )
            starts = [0, 0] if padding == "none" else [_first(size, stride, 3) for size in (7, 8)]
            expected = whole[starts[0] :: stride, starts[1] :: stride] + W[unit, -1]
            assert_allclose(found[n, :, :, unit], expected, rtol=1e-12, atol=1e-12)


def _first(size: int, stride: int, kernel: int) -> int:
    """The middle of the first patch: zeros are added evenly, one more behind."""
    count = -(-size // stride)
    return kernel // 2 - max((count - 1) * stride + kernel - size, 0) // 2


def test_a_transposed_convolution_is_the_transpose_of_one(random: np.random.Generator) -> None:
    """With the kernels turned: it spreads a pixel over the patch that a convolution would gather for it."""
    back, there = TransposedConvolution(3, 4, 2, 5, 3, 2), Convolution(6, 8, 5, 2, 3, 2)
    W = random.normal(size=back.parameter_shape)
    turned = W[:, :-1].reshape(5, 3, 3, 2)[:, ::-1, ::-1].transpose(3, 1, 2, 0).reshape(2, -1)
    V = np.hstack([turned, np.zeros((2, 1))])
    A, B = random.normal(size=(6, back.n_in)), random.normal(size=(6, there.n_in))
    spread = back.forward(np.hstack([W[:, :-1], np.zeros((5, 1))]), A)
    assert_allclose(np.vecdot(spread, B), np.vecdot(A, there.forward(V, B)), rtol=1e-12)


def test_pooling_comes_behind_the_site() -> None:
    chain = build_chain(model({**LAYER, "pool": 2}, 5, image=[4, 4]), 16, 2)
    assert [m.spec()["kind"] for m in chain.segments[0].maps] == ["convolution", "activation"]
    assert [m.spec()["kind"] for m in chain.segments[1].maps] == ["max_pooling", "affine", "activation"]
    assert chain.site_sizes == (48, 5)
    assert chain.segments[0].separable and chain.segments[1].separable


@pytest.mark.parametrize(
    ("sites", "kinds", "sizes"),
    [
        ("after", [["convolution", "activation"], ["max_pooling", "convolution", "softmax", "sum_pooling"]], (48, 6)),
        ("before", [["convolution"], ["activation", "max_pooling", "convolution"]], (48, 24)),
    ],
)
def test_coordinates_of_a_codebook_are_histograms_or_what_its_softmax_reads(
    sites: str, kinds: list[list[str]], sizes: tuple[int, int]
) -> None:
    layers = [{**LAYER, "pool": 2}, {"channels": 6, "kernel": 1, "pool": 2, "pooling": "sum"}]
    chain = build_chain(model(*layers, image=[4, 4], activation=["tanh", "softmax"], sites=sites), 16, 2)
    assert [[m.spec()["kind"] for m in s.maps] for s in chain.segments[:-1]] == kinds
    assert chain.site_sizes == sizes


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"hidden": [{"kernel": 3}]}, "model.hidden.0.channels: is missing"),
        ({"hidden": [{**LAYER, "kern": 3}]}, "model.hidden.0.kern: unknown key; did you mean model.hidden.0.kernel?"),
        ({"hidden": [{**LAYER, "stride": 0}]}, "model.hidden.0.stride: should be greater than or equal to 1"),
        ({"hidden": [{**LAYER, "image": [3]}]}, "image = [4, 4, 16]"),
        ({"hidden": [{**LAYER, "upsample": 2, "stride": 2}]}, "upsample goes with stride = 1"),
        ({"hidden": [{**LAYER, "padding": "full"}]}, "model.hidden.0.padding"),
        ({"hidden": [LAYER], "activation": "rbf"}, 'activation = "rbf" where a layer is a convolution'),
        ({"hidden": [3], "readout": {**LAYER, "pool": 2}}, "no layer reads its pool"),
        ({"hidden": [3], "image": [3]}, "image is a height and a width"),
    ],
)
def test_mistakes_in_a_layer_are_named_with_its_number(keys: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        config.validate({"model": keys}, "this test")
    assert says in str(caught.value)
    assert "1 mistake in" in str(caught.value)


def test_rows_of_positions_are_those_of_points(random: np.random.Generator) -> None:
    (view,) = Chain((Convolution(2, 2, 1, 3, 1),), ()).views.values()
    A = random.normal(size=(5, 12))
    made = LazyRows(lambda rows: A[rows], A.shape, A.dtype)
    expected = A.reshape(20, 3)
    for rows in (view.by_row(A), view.by_row(made)):
        assert_array_equal(np.asarray(rows), expected)
        assert_array_equal(rows[4:12], expected[4:12])
        assert len(rows) == 20
    assert_array_equal(view.by_row(made, slice(1, 3))[8:16], expected[8:16, 1:3])
    (total,) = view.over_rows(sum_over([slice(0, 2), slice(2, 5)]))(lambda rows: (expected[rows].sum(axis=0),))
    assert_allclose(total, expected.sum(axis=0), rtol=1e-14)


def test_colour_images_are_trained_on_drawn_and_known_by_their_shape(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", X=random.uniform(size=(30, 6, 4, 3)))
    (tmp_path / "t.toml").write_text(
        f'data = "{tmp_path}/t.npz"\n[model]\nhidden = [{{ channels = 2, stride = 2 }}, 24]\n'
        "readout = { channels = 3, image = [6, 4, 1] }\n"
    )
    run_here("t.toml", "--iterations", 1, "--output", "run", cwd=tmp_path, code=0)
    (picture,) = (p for p in pictures.draw([reading.read(tmp_path / "run", "run")]) if p.name == "reconstructions")
    shown = picture.figure.axes[0].images[0].get_array()
    assert shown.shape == (6, 4, 3)
    assert 0.0 <= shown.min() <= shown.max() <= 1.0


@pytest.mark.parametrize("method", ["mac", "stochastic", "adam", "lbfgs"])
def test_weights_of_other_groups_stay_0(method: str) -> None:
    """In every method, and what a unit gives is what a convolution of its own group's channels gives."""
    random = np.random.default_rng(5)
    X, keys = random.normal(size=(60, 4, 3, 6)), {"method.name": method, "run.max_iterations": 4, "run.refit": False}
    layers = [{"channels": 6, "kernel": 2, "groups": 3}]
    keys |= {"model.image": [4, 3, 6], "model.hidden": layers}
    model = macmpi.fit(X, X[:, 0, 0, :2], layers="tanh", config=keys, loss="squared")
    (map_, *_), W = model.chain.maps, model.weights[0]
    assert map_.connected is not None and (W[~map_.connected] == 0.0).all() and (W[map_.connected] != 0.0).all()
    A = random.normal(size=(5, 72))
    B = map_.forward(W, A).reshape(5, -1, 6)
    for g in range(3):
        own, units = A.reshape(5, 4, 3, 6)[..., 2 * g : 2 * g + 2], slice(2 * g, 2 * g + 2)
        V = W[units, :-1].reshape(2, 4, 6)[..., 2 * g : 2 * g + 2].reshape(2, -1)
        alone = Convolution(4, 3, 2, 2, 2).forward(np.column_stack([V, W[units, -1]]), own.reshape(5, -1))
        assert_allclose(B[..., units], alone.reshape(5, -1, 2), rtol=1e-12, atol=1e-12)


def test_groups_divide_the_channels_that_are_read_and_those_that_are_given() -> None:
    for layer, words in (
        ({"channels": 4, "groups": 3}, "does not divide channels = 4"),
        ({"channels": 6, "groups": 3}, "does not divide the 4 channels that the layer reads"),
        ({"channels": 4, "groups": 2, "upsample": 2}, "upsample goes with"),
    ):
        with pytest.raises(UsageError, match=words):
            macmpi.fit(
                np.ones((9, 3, 3, 4)),
                np.arange(9.0) / 7.0,
                config={"model.image": [3, 3, 4], "model.hidden": [layer]},
                loss="squared",
            )
