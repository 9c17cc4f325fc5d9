"""A saved model computes the net that was trained, in the units of the data."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import macmpi
from macmpi import UsageError, config, files
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling, Tails
from macmpi.nets.build import build_chain
from macmpi.nets.chain import Chain
from macmpi.nets.layers import build
from macmpi.results import model, model_file
from macmpi.results.model import Model
from macmpi.state import MacState, State, block_views
from macmpi.training import checkpoint
from macmpi.typing import Array

HIDDEN = (7, 2, 6)


def net(d: int, targets: int, activation: Any = "sigmoid", sites: Any = "after", output: Any = "linear") -> Chain:
    return build_chain(config.Model(list(HIDDEN), activation, output, sites), d, targets)


def scaling(random: np.random.Generator, size: int) -> Scaling:
    return Scaling(random.normal(size=size), random.uniform(0.5, 20.0, size))


def dataset(random: np.random.Generator, d: int, targets: int | None) -> Dataset:
    """targets: None for an autoencoder."""
    X = random.normal(size=(5, d))
    of_x = scaling(random, d)
    if targets is None:
        return Dataset(X, X, X, X, of_x, of_x, "")
    Y = random.normal(size=(5, targets))
    return Dataset(X, Y, X, Y, of_x, scaling(random, targets), "")


def flat_of(weights: tuple[Any, ...]) -> dict[str, Any]:
    return {"last": np.concatenate([W.ravel() for W in weights])}


class Saved:
    """A model.h5, and what went into it."""

    def __init__(
        self,
        path: Path,
        random: np.random.Generator,
        targets: int | None,
        classes: Array | None = None,
        **changes: Any,
    ) -> None:
        self.path, self.data = path, replace(dataset(random, 4, targets), classes=classes)
        self.chain = net(4, 4 if targets is None else targets, **changes)
        size = sum(h * w for h, w in self.chain.block_shapes)
        self.weights = {name: random.normal(size=size) for name in ("last", "best")}
        model_file.write(path, Model.of(self.chain, self.weights, self.data), {"iteration": 3})

    def expected(self, X: Array, name: str = "best") -> Array:
        weights = block_views(self.weights[name], self.chain.block_shapes)
        scaled = (X - self.data.scaling_x.shift) / self.data.scaling_x.scale
        return self.chain.forward(weights, scaled) * self.data.scaling_y.scale + self.data.scaling_y.shift


@pytest.fixture
def autoencoder(tmp_path: Path, random: np.random.Generator) -> Saved:
    return Saved(tmp_path / "model.h5", random, None)


@pytest.fixture
def regression(tmp_path: Path, random: np.random.Generator) -> Saved:
    return Saved(tmp_path / "regression.h5", random, 3)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"])
def test_predict_is_the_chain_in_the_datas_units(activation: str, tmp_path: Path, random: np.random.Generator) -> None:
    saved = Saved(tmp_path / "model.h5", random, 3, activation=activation)
    X = 10.0 * random.normal(size=(9, 4))
    for name in ("last", "best"):
        assert_allclose(model_file.load(saved.path, name).predict(X), saved.expected(X, name), rtol=1e-13, atol=1e-13)


def test_long_tails_are_compressed_on_the_way_in_and_stretched_on_the_way_out(
    tmp_path: Path, random: np.random.Generator
) -> None:
    """Of an autoencoder, whose outputs are its inputs; the weights are of no use to data that are scaled otherwise."""
    saved = Saved(tmp_path / "model.h5", random, None)
    tails = Tails(np.array([0.0, 1.0, 0.0, -2.0]), np.array([0.0, 3.0, 0.0, 0.5]))
    of_x = replace(saved.data.scaling_x, tails=tails)
    data = replace(saved.data, scaling_x=of_x, scaling_y=of_x)
    model_file.write(saved.path, Model.of(saved.chain, saved.weights, data), {})
    found, X = model_file.load(saved.path), 10.0 * random.normal(size=(9, 4))
    inputs = (np.where(tails.width > 0, np.arcsinh((X - tails.centre) / [1, 3, 1, 0.5]), X) - of_x.shift) / of_x.scale
    F = saved.chain.forward(block_views(saved.weights["best"], saved.chain.block_shapes), inputs)
    linear = F * of_x.scale + of_x.shift
    expected = np.where(tails.width > 0, np.sinh(linear) * tails.width + tails.centre, linear)
    assert_allclose(found.predict(X), expected, rtol=1e-11)
    assert_array_equal(found.weights_for(saved.chain, data).shape, saved.weights["best"].shape)
    others = Tails(tails.centre, 2.0 * tails.width), replace(tails, again=np.array([0.0, 1.0, 0.0, 0.0]))
    for other in (saved.data, *(replace(data, scaling_x=replace(of_x, tails=tails)) for tails in others)):
        with pytest.raises(UsageError, match="compresses long tails"):
            found.weights_for(saved.chain, other)


def test_a_file_tells_columns_that_are_compressed_twice(tmp_path: Path, random: np.random.Generator) -> None:
    """Files without such columns are as they were, so that every version reads them."""
    saved, again = Saved(tmp_path / "model.h5", random, None), np.array([0.0, 1.0, 0.0, 0.0])
    once = Tails(np.array([0.0, 1.0, 0.0, -2.0]), np.array([0.0, 3.0, 0.0, 0.5]))
    for tails in (once, replace(once, again=again)):
        data = replace(saved.data, scaling_x=replace(saved.data.scaling_x, tails=tails))
        model_file.write(saved.path, Model.of(saved.chain, saved.weights, data), {})
        found = model_file.load(saved.path).scaling_x
        assert found.compresses_as(data.scaling_x)
        X = 1e5 * random.normal(size=(9, 4))
        assert_array_equal(found.apply(X), data.scaling_x.apply(X))
        with h5py.File(saved.path) as file:
            assert ("x_again" in file["scaling"]) is (tails.again is not None)


def test_what_is_loaded_is_what_was_saved(autoencoder: Saved) -> None:
    for name in ("last", "best"):
        loaded = macmpi.load(str(autoencoder.path), weights=name)
        assert loaded.chain == autoencoder.chain
        assert loaded.autoencoder
        assert_array_equal(np.concatenate([W.ravel() for W in loaded.weights]), autoencoder.weights[name])
        for side in ("scaling_x", "scaling_y"):
            assert_array_equal(getattr(loaded, side).shift, getattr(autoencoder.data, side).shift)
            assert_array_equal(getattr(loaded, side).scale, getattr(autoencoder.data, side).scale)
    assert_array_equal(macmpi.load(str(autoencoder.path)).weights[0].ravel()[:3], autoencoder.weights["best"][:3])


def test_decoding_the_codes_is_predicting(autoencoder: Saved, regression: Saved, random: np.random.Generator) -> None:
    X = random.normal(size=(9, 4))
    for saved in (autoencoder, regression):
        loaded = model_file.load(saved.path)
        codes = loaded.encode(X)
        assert codes.shape == (9, min(HIDDEN))
        assert_array_equal(loaded.decode(codes), loaded.predict(X))


@pytest.mark.parametrize("activation", ["tanh", ["relu", "softmax", "sigmoid"]])
@pytest.mark.parametrize(
    ("sites", "code"),
    [
        *(("after", 4), ("before", 3), ("none", 4)),
        *((["after", "none", "before"], 4), (["none", "before", "none"], 3), (["none", "after", "none"], 4)),
    ],
)
def test_the_code_is_that_of_the_smallest_layer_whether_it_has_a_site_or_not(
    sites: Any, code: int, activation: Any, tmp_path: Path, random: np.random.Generator
) -> None:
    saved = Saved(tmp_path / "model.h5", random, None, activation=activation, sites=sites)
    loaded, X = model_file.load(saved.path), random.normal(size=(9, 4))
    scaled = (X - saved.data.scaling_x.shift) / saved.data.scaling_x.scale
    weights = block_views(saved.weights["best"], saved.chain.block_shapes)
    codes = loaded.encode(X)
    assert codes.shape == (9, min(HIDDEN))
    assert_allclose(codes, saved.chain.part(0, code).forward(weights, scaled), rtol=1e-13, atol=1e-13)
    assert_array_equal(loaded.decode(codes), loaded.predict(X))
    assert_array_equal(loaded.reconstruct(X), loaded.predict(X))


# --- classifiers ------------------------------------------------------------------------------------------------------

CLASSES = np.array([-3.0, 0.0, 7.0])


@pytest.fixture
def classifier(tmp_path: Path, random: np.random.Generator) -> Saved:
    saved = Saved(tmp_path / "classifier.h5", random, 3, CLASSES)
    unit = Scaling(np.zeros(3), np.ones(3))
    saved.data = replace(saved.data, scaling_y=unit)
    model_file.write(saved.path, Model.of(saved.chain, saved.weights, saved.data), {})
    return saved


def test_a_classifier_predicts_the_labels_of_its_largest_outputs(
    classifier: Saved, random: np.random.Generator
) -> None:
    loaded, X = macmpi.load(str(classifier.path), "last"), 10.0 * random.normal(size=(50, 4))
    labels = loaded.predict(X)
    assert labels.shape == (50,)
    assert_array_equal(labels, CLASSES[classifier.expected(X, "last").argmax(axis=1)])
    assert len(np.unique(labels)) > 1


def test_probabilities_sum_to_1_and_are_largest_at_the_label(classifier: Saved, random: np.random.Generator) -> None:
    loaded, X = model_file.load(classifier.path), 10.0 * random.normal(size=(50, 4))
    P = loaded.probabilities(X)
    assert P.shape == (50, 3)
    assert (P > 0.0).all()
    assert_allclose(P.sum(axis=1), 1.0, rtol=1e-14)
    assert_array_equal(CLASSES[P.argmax(axis=1)], loaded.predict(X))
    scores = classifier.expected(X)
    assert_allclose(np.log(P[:, 1] / P[:, 0]), scores[:, 1] - scores[:, 0], rtol=1e-10, atol=1e-10)


def test_a_classifier_encodes_and_does_not_reconstruct(classifier: Saved, random: np.random.Generator) -> None:
    loaded, X = model_file.load(classifier.path), random.normal(size=(9, 4))
    assert_array_equal(CLASSES[loaded.decode(loaded.encode(X)).argmax(axis=1)], loaded.predict(X))
    with pytest.raises(UsageError, match="use predict"):
        loaded.reconstruct(X)


def test_other_models_have_no_probabilities(regression: Saved, random: np.random.Generator) -> None:
    with pytest.raises(UsageError, match="no classifier: use predict"):
        model_file.load(regression.path).probabilities(random.normal(size=(9, 4)))


# --- what goes in and out ---------------------------------------------------------------------------------------------


def test_an_autoencoder_reconstructs_and_a_regression_does_not(
    autoencoder: Saved, regression: Saved, random: np.random.Generator
) -> None:
    X = random.normal(size=(9, 4))
    loaded = model_file.load(autoencoder.path)
    assert_array_equal(loaded.reconstruct(X), loaded.predict(X))
    with pytest.raises(UsageError, match="use predict"):
        model_file.load(regression.path).reconstruct(X)


def test_other_columns_and_other_things_are_refused(autoencoder: Saved, random: np.random.Generator) -> None:
    loaded = model_file.load(autoencoder.path)
    with pytest.raises(UsageError, match="X has 5 columns; the model takes 4"):
        loaded.predict(random.normal(size=(9, 5)))
    with pytest.raises(UsageError, match="codes has 4 columns; the model takes 2"):
        loaded.decode(random.normal(size=(9, 4)))
    bad = random.normal(size=(9, 4))
    bad[5, 1] = np.nan
    with pytest.raises(UsageError, match=r"X is nan at \[5, 1\]"):
        loaded.predict(bad)
    assert loaded.predict(np.zeros((0, 4))).shape == (0, 4)
    for X in (np.array([["a"] * 4]), bad + 1j):
        with pytest.raises(UsageError, match=r"^X "):
            loaded.predict(X)


def test_weights_of_another_name(autoencoder: Saved) -> None:
    with pytest.raises(UsageError, match="has the weights best, last, not 'first'"):
        model_file.load(autoencoder.path, "first")


def test_a_model_of_a_later_version(
    tmp_path: Path, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr(model_file, "FORMAT", model_file.FORMAT + 1)
        later.setattr(model_file, "__version__", "99.1.2")
        saved = Saved(tmp_path / "model.h5", random, None)
    with pytest.raises(UsageError, match=r"written by macmpi 99\.1\.2"):
        model_file.load(saved.path)


def not_models(folder: Path) -> dict[str, Path]:
    paths = {name: folder / f"{name}.h5" for name in ("missing", "empty", "text", "data")}
    paths["empty"].write_bytes(b"")
    paths["text"].write_text("not a model")
    paths["data"].write_bytes(files.image({"X": np.zeros((3, 2))}, {}))
    state = State(np.zeros(6), np.zeros((3, 2)), 1.0, MacState())
    return {**paths, "checkpoint": checkpoint.save(folder, state, {"config": "{}"}, 1)}


@pytest.mark.parametrize("name", ["missing", "empty", "text", "data", "checkpoint"])
def test_what_is_not_a_model_is_refused(name: str, tmp_path: Path) -> None:
    path = not_models(tmp_path)[name]
    with pytest.raises(UsageError, match="is not a model") as caught:
        model_file.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("locking", [None, True, False])
def test_a_model_is_read_while_somebody_looks_at_its_file(locking: bool | None, autoencoder: Saved) -> None:
    """In the same process, as in a notebook: HDF5 lets no two of its own handles differ in how they lock."""
    with h5py.File(autoencoder.path, "r", locking=locking):
        assert macmpi.load(autoencoder.path).chain == autoencoder.chain


def test_a_folder_is_told_from_a_file_that_is_missing(autoencoder: Saved) -> None:
    folder = autoencoder.path.parent
    with pytest.raises(UsageError) as caught:
        model_file.load(folder)
    assert str(caught.value) == f"{folder} is not a model: it is a folder; name {folder / 'model.h5'}"


GATES = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from macmpi.nets.layers.activation import Function
from macmpi.nets.layers.affine import Affine

@dataclass(frozen=True)
class Gate(Affine):
    kind: ClassVar[str] = "gate"

swish = Function(lambda a, out: np.multiply(a, 0.5, out=out), lambda a, b, out: out)
"""


@pytest.fixture
def gates(tmp_path: Path, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with a map within another and an activation of a package, which lies in the folder "site"."""
    site = tmp_path / "site"
    (site / "my_gates-1.2.dist-info").mkdir(parents=True)
    (site / "my_gates.py").write_text(GATES)
    for name, text in (
        ("METADATA", "Metadata-Version: 2.1\nName: my-gates\nVersion: 1.2\n"),
        ("entry_points.txt", "[macmpi.maps]\ngate = my_gates:Gate\n[macmpi.activations]\nswish = my_gates:swish\n"),
    ):
        (site / "my_gates-1.2.dist-info" / name).write_text(text)
    monkeypatch.syspath_prepend(site)
    maps = [{"kind": "gate", "n_in": 4, "n_out": 3}, {"kind": "activation", "name": "swish", "size": 3}]
    inner = {"kind": "carrying", "map": {"kind": "gate", "n_in": 2, "n_out": 1}, "carried": 1}
    chain = Chain(tuple(map(build, [*maps, inner])), (2,))
    weights = {"last": random.normal(size=sum(h * w for h, w in chain.block_shapes))}
    model_file.write(tmp_path / "gates.h5", Model.of(chain, weights, dataset(random, 4, 2)), {})
    assert model_file.load(tmp_path / "gates.h5").predict(np.zeros((2, 4))).shape == (2, 2)
    return tmp_path / "gates.h5"


def lacking(path: Path) -> str:
    with pytest.raises(UsageError) as refused:
        model_file.load(path)
    assert "damaged" not in str(refused.value)
    return str(refused.value)


def test_a_package_that_is_not_installed_is_named_with_the_remedy(gates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file that it has written; by the entry point alone where an older file does not say whose that is."""
    site = gates.parent / "site"
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(site)])
    said = "here: install my-gates 1.2, the package that gives it (an entry point of macmpi.maps)"
    assert lacking(gates) == f"{gates}: there is no kind of map 'gate' {said}"
    with h5py.File(gates, "r+") as file:
        del file.attrs[model_file.PACKAGES]
    assert "'gate' here: install the package that gives it (an entry point of macmpi.maps)" in lacking(gates)
    with h5py.File(gates, "r+") as file:
        specs = json.loads(file.attrs["maps"])
        specs[0]["kind"] = specs[2]["map"]["kind"] = "affine"
        file.attrs["maps"] = json.dumps(specs)
    assert "there is no activation 'swish' here" in lacking(gates)


def test_a_package_that_cannot_be_loaded_is_named(gates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "my_gates")
    (gates.parent / "site" / "my_gates.py").write_text("import a_library_that_is_gone\n")
    invalidate_caches()
    assert "cannot be loaded: No module named 'a_library_that_is_gone'; install that again" in lacking(gates)


def test_models_of_macmpi_s_own_parts_name_no_package(autoencoder: Saved) -> None:
    assert model_file.PACKAGES not in model_file.load(autoencoder.path).attributes


def test_a_bit_that_has_changed_in_the_weights_is_damage(autoencoder: Saved) -> None:
    with h5py.File(autoencoder.path) as file:
        (chunk,) = [file["weights/best"].id.get_chunk_info(0)]
    content = bytearray(autoencoder.path.read_bytes())
    content[chunk.byte_offset] ^= 1
    autoencoder.path.write_bytes(content)
    with pytest.raises(UsageError, match=r"it is damaged, or no model\.h5"):
        model_file.load(autoencoder.path)


def reshaped(name: str, change: Callable[[Array], Any]) -> Callable[[h5py.File], None]:
    def spoil(file: h5py.File) -> None:
        array = file[name][()]
        del file[name]
        file[name] = change(array)

    return spoil


def with_attribute(name: str, value: Any) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.modify(name, value)


def with_map(i: int, **changes: Any) -> Callable[[h5py.File], None]:
    def spoil(file: h5py.File) -> None:
        specs = json.loads(file.attrs["maps"])
        specs[i] |= changes
        file.attrs["maps"] = json.dumps(specs)

    return spoil


def with_number(array: Array, value: float) -> Array:
    array[1] = value
    return array


MISFITS: dict[str, tuple[Callable[[h5py.File], None], str]] = {
    "a weight more": (reshaped("weights/best", lambda W: np.append(W, 0.0)), "weights are not as many"),
    "a weight less": (reshaped("weights/best", lambda W: W[:-1]), "weights are not as many"),
    "weights as rows": (reshaped("weights/best", lambda W: W[None]), "weights are not as many"),
    "complex weights": (reshaped("weights/best", lambda W: W * 1j), "no floating-point numbers"),
    "weights as text": (reshaped("weights/best", lambda W: W.astype("S8")), "no floating-point numbers"),
    "nan among the weights": (reshaped("weights/best", lambda W: with_number(W, np.nan)), "not finite"),
    "scaling of 1 column": (reshaped("scaling/x_shift", lambda a: a[:1]), "scaling is of other columns"),
    "scaling of all": (reshaped("scaling/y_scale", lambda a: a[0]), "scaling is of other columns"),
    "scale of 0": (reshaped("scaling/x_scale", lambda a: with_number(a, 0.0)), "scaling holds no usable numbers"),
    "shift of nan": (reshaped("scaling/y_shift", lambda a: with_number(a, np.nan)), "scaling holds no usable numbers"),
    "scaling as text": (reshaped("scaling/x_shift", lambda a: a.astype("S8")), "scaling holds no usable numbers"),
    "no map": (with_attribute("maps", "[]"), "no usable sizes"),
    "maps that are none": (with_attribute("maps", "[5]"), "is not a model"),
    "an unknown activation": (with_map(1, name="sigmoidal"), "no activation 'sigmoidal'"),
    "an activation that is a list": (with_map(1, name=[]), "is not a model"),
    "an activation of another size": (with_map(1, size=6), "do not take what those before them give"),
    "a size that is text": (with_map(0, n_in="4"), "no usable sizes"),
    "a size below 1": (with_map(1, size=0), "no usable sizes"),
    "a size that is no number": (with_map(0, n_out=float("nan")), "its maps hold NaN"),
    "another key": (with_map(0, depth=3), "is not a model"),
    "sites beyond the maps": (with_attribute("sites", "[2, 4, 99]"), "sites are not between"),
    "sites backwards": (with_attribute("sites", "[4, 2]"), "sites are not between"),
    "sites of text": (with_attribute("sites", '["a"]'), "sites are not between"),
    "an autoencoder of other outputs": (with_attribute("autoencoder", True), "not as many as its inputs"),
    "three outputs as one": (with_attribute("one_dimensional", True), "more than one"),
    "a class more": (reshaped("classes", lambda c: np.append(c, 9.0)), "not as many as its outputs"),
    "classes as rows": (reshaped("classes", lambda c: c[:, None]), "not as many as its outputs"),
    "classes as complex numbers": (reshaped("classes", lambda c: c.astype("c16")), "neither numbers nor text"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_model_whose_parts_do_not_fit_is_refused_in_a_line(
    misfit: str, tmp_path: Path, random: np.random.Generator
) -> None:
    saved, (spoil, says) = Saved(tmp_path / "model.h5", random, 3, CLASSES), MISFITS[misfit]
    with h5py.File(saved.path, "a") as file:
        spoil(file)
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        model_file.load(saved.path)
    assert str(saved.path) in str(caught.value)
    assert "\n" not in str(caught.value)


# --- one dimension ----------------------------------------------------------------------------------------------------


def test_a_very_deep_net_can_be_saved(tmp_path: Path, random: np.random.Generator) -> None:
    """Its description is longer than the 64 KiB that an HDF5 header takes."""
    chain = build_chain(config.Model(hidden=[2] * 1200, activation="sigmoid"), 2, 2)
    weights = 0.1 * random.normal(size=sum(h * w for h, w in chain.block_shapes))
    unit = Scaling(np.zeros(2), np.ones(2))
    X = random.normal(size=(3, 2))
    model_file.write(tmp_path / "deep.h5", Model.of(chain, {"last": weights}, Dataset(X, X, X, X, unit, unit, "")), {})
    loaded = model_file.load(tmp_path / "deep.h5")
    assert_array_equal(loaded.predict(X), chain.forward(block_views(weights, chain.block_shapes), X))


@pytest.mark.parametrize("targets", [None, 3])
def test_weights_for_other_scaling_are_the_same_function_of_the_data(targets: int | None) -> None:
    """Another run may scale its data otherwise: the net that it starts from predicts what the model predicts."""
    random = np.random.default_rng(4)
    chain, old, new = net(4, targets or 4), dataset(random, 4, targets), dataset(random, 4, targets)
    weights = tuple(random.normal(size=shape) for shape in chain.block_shapes)
    given = model.Model(chain, flat_of(weights), old.scaling_x, old.scaling_y, targets is None)
    flat = given.weights_for(chain, new)
    taken = model.Model(chain, {"last": flat}, new.scaling_x, new.scaling_y, targets is None)
    X = random.normal(size=(6, 4))
    assert_allclose(taken.predict(X), given.predict(X), rtol=1e-10, atol=1e-10)
    same = given.weights_for(chain, old)
    assert_array_equal(same, flat_of(weights)["last"])


IMAGES: dict[str, Any] = {
    "hidden": [{"channels": 2, "stride": 2}, 4],
    "activation": "tanh",
    "image": [4, 4],
    "readout": {"channels": 1, "image": [2, 2, 1]},
}


def of_images(**keys: Any) -> Chain:
    return build_chain(config.validate({"model": {**IMAGES, **keys}}, "this test").model, 16, 4)


def uniform(shift: float, scale: float, size: int) -> Scaling:
    return Scaling(np.full(size, shift), np.full(size, scale))


@pytest.mark.parametrize(("shift", "targets"), [(0.0, (3.0, 2.0)), (1.0, (-1.0, 1.0))])
def test_weights_of_images_hold_another_scaling_where_pixels_share_it(
    shift: float, targets: tuple[float, float], random: np.random.Generator
) -> None:
    """Zeros around an image stay zeros, so that inputs may not be moved; targets may."""
    chain = of_images()
    weights = tuple(random.normal(size=shape) for shape in chain.block_shapes)
    given = model.Model(chain, flat_of(weights), uniform(shift, 4.0, 16), uniform(0.5, 3.0, 4), False)
    data = replace(dataset(random, 16, 4), scaling_x=uniform(shift, 2.5, 16), scaling_y=uniform(*targets, 4))
    flat = given.weights_for(chain, data)
    taken = model.Model(chain, {"last": flat}, data.scaling_x, data.scaling_y, False)
    X = shift + random.normal(size=(6, 16))
    assert_allclose(taken.predict(X), given.predict(X), rtol=1e-10, atol=1e-10)
    same = replace(data, scaling_x=given.scaling_x, scaling_y=given.scaling_y)
    assert_array_equal(given.weights_for(chain, same), flat_of(weights)["last"])
    for other in (
        {"scaling_x": uniform(shift + 1.0, 2.5, 16)},
        {"scaling_x": scaling(random, 16)},
        {"scaling_y": scaling(random, 4)},
    ):
        with pytest.raises(UsageError, match=r"its weights \(convolution\) keep to the scaling"):
            given.weights_for(chain, replace(data, **other))


def test_nets_that_differ_in_one_layer_are_told_apart(random: np.random.Generator) -> None:
    chain, data = of_images(), dataset(random, 16, 4)
    weights = tuple(random.normal(size=shape) for shape in chain.block_shapes)
    given = model.Model(chain, flat_of(weights), data.scaling_x, data.scaling_y, False)
    other = of_images(hidden=[{"channels": 2, "stride": 2, "kernel": 5}, 4])
    with pytest.raises(
        UsageError, match=r"\(convolution with kernel 3\) than this config's \(convolution with kernel 5"
    ):
        given.weights_for(other, data)
    with pytest.raises(UsageError, match=r"another net \(16 .*\) than this config's \(16 .*\)"):
        given.weights_for(of_images(hidden=[4]), data)


def test_classes_that_are_text_come_back(tmp_path: Path, random: np.random.Generator) -> None:
    classes = np.array(["a b", "cat", "Übung"])
    Saved(tmp_path / "m.h5", random, 3, classes)
    found = macmpi.load(tmp_path / "m.h5")
    assert found.classes is not None
    assert found.classes.tolist() == classes.tolist()
    assert set(found.predict(random.normal(size=(50, 4))).tolist()) <= set(classes.tolist())


def test_weights_are_not_for_other_classes() -> None:
    random = np.random.default_rng(4)
    chain, data = net(4, 3), dataset(random, 4, 3)
    weights = tuple(random.normal(size=shape) for shape in chain.block_shapes)
    given = model.Model(chain, flat_of(weights), data.scaling_x, data.scaling_y, False, np.array([0, 1, 5]))
    with pytest.raises(UsageError, match="other classes"):
        given.weights_for(chain, replace(data, classes=np.array([0, 1, 2])))
    with pytest.raises(UsageError, match="other classes"):
        given.weights_for(chain, data)
    assert len(given.weights_for(chain, replace(data, classes=np.array([0, 1, 5])))) == sum(W.size for W in weights)
