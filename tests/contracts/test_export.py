"""ONNX files compute the model that they were made of: every kind of layer, every config, every kind of data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contracts.examples import MAPS, cases, example_of
from numpy.testing import assert_array_equal
from tolerance import gamma

from macmpi import UsageError, config, export
from macmpi.config import Recurrent
from macmpi.config.auto import decide
from macmpi.data.scaling import Scaling, Tails, unscaled
from macmpi.export import Answers, Runner, answers_of, difference, onnx_runner, points_of
from macmpi.nets.build import build_chain
from macmpi.nets.chain import Chain
from macmpi.nets.layers import KINDS, Map
from macmpi.nets.layers.activation import FUNCTIONS
from macmpi.nets.layers.affine import Affine
from macmpi.nets.losses import LINKS
from macmpi.results.model import Model
from macmpi.typing import Array

ROOT = Path(__file__).resolve().parents[2]

BOUND = gamma(1000) * 1e4
"""Fewer than 1,000 terms are added up on the way to an output of these nets, and none grows errors by 10,000."""

BOUND_SINGLE = gamma(1000, np.float32) * 1e2


def runner_of(model: Model, precision: str = "float64", decoder: bool = False) -> Runner:
    """Computes the ONNX file of a model."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    runner, _ = onnx_runner(export.written(model, precision, decoder)[0], precision)
    assert runner is not None
    return runner


def model_of(chain: Chain, random: np.random.Generator, weights: Any = None, **changes: Any) -> Model:
    """A net with random weights and scalings; those of labels are none."""
    if weights is None:
        weights = tuple(random.normal(size=(h, d)) / math.sqrt(d) for h, d in chain.block_shapes)
    of_x, of_y = (Scaling(random.normal(size=n), random.uniform(0.5, 20.0, n)) for n in (chain.n_in, chain.n_out))
    if "classes" in changes:
        of_y = unscaled(chain.n_out)
    kept = {"last": np.concatenate([W.ravel() for W in weights])}
    return replace(Model(chain, kept, of_x, of_y, autoencoder=False), **changes)


def points(model: Model, random: np.random.Generator, n: int = 40) -> Array:
    return model.scaling_x.undo(random.normal(size=(n, model.chain.n_in)))


def assert_computes(model: Model, X: Array, precision: str = "float64") -> Answers:
    """All answers of the file are those of the model; gives them."""
    found, expected = runner_of(model, precision)(X), answers_of(model, X)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if name == "label":
            assert_array_equal(found[name], array)
        else:
            bound = BOUND if precision == "float64" else BOUND_SINGLE
            assert difference(found[name], array) <= bound, name
            assert np.asarray(found[name]).dtype == precision
    return found


# --- layers -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_layer_every_activation_and_every_link_has_its_nodes() -> None:
    shown = [MAPS[kind][0](np.random.default_rng(0)).map for kind in KINDS]
    assert [map_.kind for map_ in shown if type(map_).export is Map.export] == []
    assert [name for name, function in FUNCTIONS.items() if function.export is None] == []
    assert {"identity", "softmax", *export.LINKS} == set(LINKS)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("case", cases(KINDS, MAPS))
def test_a_layer(case: tuple[str, int], precision: str, random: np.random.Generator) -> None:
    """Each between two affine maps.  Of single precision no points are near a jump: where a layer has jumps, no law."""
    example = example_of(case, MAPS, "MAPS")(random)
    first, last = Affine(4, example.map.n_in), Affine(example.map.n_out, 3)
    weights = [random.normal(size=first.parameter_shape), example.W, random.normal(size=last.parameter_shape)]
    chain = Chain((first, example.map, last), (2,))
    model = model_of(chain, random, tuple(W for W in weights if W is not None))
    X = points(model, random)
    if precision == "float32":
        X = away_from_jumps(model, X)
    assert_computes(model, X, precision)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("link", [link for link in LINKS if link != "softmax"])
def test_a_link(link: str, precision: str, random: np.random.Generator) -> None:
    """Predictions, and what a code is decoded to, are behind it, scaling behind that."""
    for one_dimensional in (False, True):
        chain = build_chain(config.Model([5, 2, 6], activation="tanh"), 4, 1 if one_dimensional else 3)
        model = model_of(chain, random, link=link, one_dimensional=one_dimensional)
        X = points(model, random)
        assert_computes(model, X, precision)
        if precision == "float64":
            codes = model.encode(X)
            found = runner_of(model, decoder=True)(codes)["predictions"]
            assert difference(found, model.decode(codes)) <= BOUND


def away_from_jumps(model: Model, X: Array) -> Array:
    """Those points whose answers hardly change when a point moves a little."""
    codes = [model.encode(X + shift) for shift in (0.0, 1e-3, -1e-3)]
    kept = np.all([np.abs(other - codes[0]).max(axis=1) < 0.1 for other in codes[1:]], axis=0)
    assert kept.sum() > len(X) // 4
    return X[kept]


@pytest.mark.parametrize("path", sorted((ROOT / "run").glob("*.toml")), ids=lambda path: path.name)
def test_the_nets_of_the_documented_configs(path: Path, random: np.random.Generator) -> None:
    """Each with its layers, dense ones some tens of units wide at most."""
    settings, n_in = config.read(path, []), 12
    labels = settings.model.loss == "cross_entropy"
    recurrent = settings.model.sequence
    if settings.model.reads_images:
        n_in = 256
    if recurrent:
        n_in = 2 * settings.model.hidden[0].steps
    settings, _ = decide(settings, n_in, not labels, (16, 16))
    narrow = replace(settings.model, words=2)
    if n_in == 12:
        narrow = replace(narrow, hidden=[max(2, units // 50) for units in settings.model.units])
    chain = build_chain(narrow, n_in, 5 if labels else n_in)
    changes = {"classes": np.arange(5)} if labels else {"autoencoder": True}
    model = model_of(chain, random, **changes)
    assert_computes(model, points(model, random))


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu", "leaky_relu", "linear"])
@pytest.mark.parametrize(("steps", "sites"), [(1, "after"), (4, "after"), (4, "before")])
def test_a_recurrent_layer(
    steps: int, sites: Any, activation: str, precision: str, random: np.random.Generator
) -> None:
    """Alone and before a dense layer; codes are those of its last state, before its activation where the site is."""
    for hidden in ([Recurrent(3, steps)], [Recurrent(5, steps), 2]):
        chain = build_chain(config.Model(hidden, activation, sites=sites), 2 * steps, 3)
        model = model_of(chain, random)
        assert_computes(model, points(model, random), precision)


def test_a_deep_net(random: np.random.Generator) -> None:
    chain = build_chain(config.Model(hidden=[3] * 300, activation="tanh"), 3, 2)
    model = model_of(chain, random)
    assert_computes(model, points(model, random))


# --- data -------------------------------------------------------------------------------------------------------------


def dense(n_out: int, output: Any = "linear") -> Chain:
    return build_chain(config.Model([6, 2, 5], "tanh", output), 4, n_out)


def long_tails(scaling: Scaling, random: np.random.Generator) -> Scaling:
    """Every other column has long tails."""
    long = np.arange(len(scaling.shift)) % 2 == 0
    centre, width = random.normal(size=len(long)), random.uniform(0.5, 3.0, len(long))
    unit = Scaling(0.1 * scaling.shift, np.ones(len(long)))
    return replace(unit, tails=Tails(np.where(long, centre, 0.0), np.where(long, width, 0.0)))


@pytest.mark.parametrize("times", ["once", "twice"])
def test_long_tails_are_compressed_and_stretched(times: str, random: np.random.Generator) -> None:
    """Twice: the first column, and far away an error of g grows by the asinh of the number, 230 of 1e99."""
    model = model_of(dense(4), random)
    scaling = long_tails(model.scaling_x, random)
    assert scaling.tails is not None
    if times == "twice":
        scaling = replace(scaling, tails=replace(scaling.tails, again=np.array([1.0, 0.0, 0.0, 0.0])))
        assert scaling.tails is not None
    model = replace(model, scaling_x=scaling, scaling_y=scaling, autoencoder=True)
    X = points(model, random)
    X[0] = [1e99 if times == "twice" else 1e30, -4.0, -1e30, 4.0]
    X[1] = scaling.tails.centre
    assert_computes(model, X)


@pytest.mark.parametrize("tails", [False, True])
def test_slips_count_as_the_limit(tails: bool, random: np.random.Generator) -> None:
    model = model_of(dense(3), random)
    scaling = replace(long_tails(model.scaling_x, random) if tails else model.scaling_x, limit=10.0)
    model = replace(model, scaling_x=scaling)
    X = points(model, random)
    X[0], X[1] = 1e9, -1e9
    assert_computes(model, X)
    free = replace(model, scaling_x=replace(scaling, limit=np.inf))
    assert not np.allclose(model.predict(X[:2]), free.predict(X[:2]))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_points_of_a_comparison_are_finite_whatever_the_tails(precision: str, random: np.random.Generator) -> None:
    """Numbers that stand for tails of tails grow beyond all numbers: at 3 deviations of 2.5, exp(900)."""
    model = model_of(dense(4), random)
    again = Tails(np.zeros(4), np.ones(4), np.array([1.0, 1.0, 0.0, 1.0]))
    model = replace(model, scaling_x=Scaling(np.zeros(4), np.full(4, 2.5), again))
    X = points_of(model)
    assert np.isfinite(X.astype(precision)).all() and np.abs(X).max() > 1e20
    assert_computes(model, X, precision)


LABELS = {
    "numbers": np.array([-3, 0, 7]),
    "text": np.array(["bee", 'wasp "\\', "fourmi à l'œil"]),
    "small numbers": np.array([3, 1, 2], np.uint8),
    "unsigned numbers": np.array([0, 1, 2**53 - 1], np.uint64),
    "truth values": np.array([False, True]),
    "real numbers": np.array([0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels(kind: str, random: np.random.Generator) -> None:
    classes, chain = LABELS[kind], build_chain(config.Model([6, 2, 5], "tanh"), 4, len(LABELS[kind]))
    weights = tuple(2.0 * random.normal(size=shape) for shape in chain.block_shapes)
    weights[-1][:, -1] = 0.0
    model = model_of(chain, random, weights, classes=classes)
    found = assert_computes(model, points(model, random))
    assert len(np.unique(found["label"])) > 1
    assert found["label"].dtype in (np.int64, np.float64, np.bool_, np.object_)  # docs/export.md; text is object
    assert np.allclose(found["probabilities"].sum(axis=1), 1.0)


def test_probabilities_of_outputs_that_exp_cannot_take(random: np.random.Generator) -> None:
    model = model_of(dense(3), random, classes=np.arange(3))
    model = replace(model, kept={"last": 1e4 * model.kept["last"]})
    found = runner_of(model)(points(model, random))
    assert np.isfinite(found["probabilities"]).all()


def test_a_batch_of_points_is_each_point(random: np.random.Generator) -> None:
    model = model_of(dense(3), random, classes=np.arange(3))
    runner, X = runner_of(model), points(model, random)
    whole = runner(X)
    for rows in (slice(0, 1), slice(7, 8), slice(5, 40)):
        for name, answer in runner(X[rows]).items():
            if name == "label":
                assert_array_equal(answer, whole[name][rows])
            else:
                assert difference(answer, whole[name][rows]) <= BOUND


# --- what is refused --------------------------------------------------------------------------------------------------


class Negation(Map):
    """A kind of map of another package."""

    kind = "negation"
    n_in = n_out = 2
    capabilities: frozenset[str] = frozenset()


def test_kinds_of_other_packages_are_refused_by_name(random: np.random.Generator) -> None:
    chain = Chain((Affine(4, 2), Negation(), Affine(2, 3)), ())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="kind 'negation' of this net cannot be exported, only these: activation, "):
        export.written(model_of(chain, random), "float64")


# --- ONNX -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one_dimensional", [False, True])
def test_a_decoder_alone(one_dimensional: bool, random: np.random.Generator) -> None:
    model = model_of(dense(1 if one_dimensional else 4), random, one_dimensional=one_dimensional)
    codes = model.encode(points(model, random))
    found = runner_of(model, decoder=True)(codes)
    assert list(found) == ["predictions"]
    assert difference(found["predictions"], model.decode(codes)) <= BOUND


def test_an_onnx_file_says_what_goes_in_and_out(random: np.random.Generator) -> None:
    onnx = pytest.importorskip("onnx")
    model = model_of(dense(3), random, classes=LABELS["text"])
    graph = onnx.load_from_string(export.written(model, "float32")[0]).graph

    def said(value: Any) -> tuple[str, int, list[Any]]:
        tensor = value.type.tensor_type
        return value.name, tensor.elem_type, [d.dim_param or d.dim_value for d in tensor.shape.dim]

    single, text = onnx.TensorProto.FLOAT, onnx.TensorProto.STRING
    assert [said(v) for v in graph.input] == [("X", single, ["N", 4])]
    assert [said(v) for v in graph.output] == [
        ("label", text, ["N"]),
        ("probabilities", single, ["N", 3]),
        ("codes", single, ["N", 2]),
    ]


def test_weights_beyond_what_a_file_holds_are_refused(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr(export, "LARGEST", 100)
    with pytest.raises(UsageError, match=r"bytes of weights; an ONNX file holds 100"):
        export.written(model_of(dense(3), random), "float64")
