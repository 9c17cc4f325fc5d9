"""`python -m macmpi.export`: ONNX files, what is said of them, and what is refused."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from limits import small_files
from scalings import fit_scaling

import macmpi
from macmpi import config, export
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import unscaled
from macmpi.nets.build import build_chain
from macmpi.nets.chain import Chain
from macmpi.nets.graph import Graph
from macmpi.nets.layers import KINDS, SameSize
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.results.model import Model
from macmpi.results.model_file import write

X = np.random.default_rng(3).uniform(-5, 20, (7, 4))
CLASSES = np.array(["bee", "wasp", "ant"])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A classifier of three words."""
    random = np.random.default_rng(1)
    chain = build_chain(config.Model([5], "tanh"), 4, 3)
    flat = random.normal(size=sum(h * d for h, d in chain.block_shapes))
    data = Dataset(X, np.eye(3), X, np.eye(3), fit_scaling(X, "standard"), unscaled(3), "", CLASSES)
    path = tmp_path / "model.h5"
    write(path, Model.of(chain, {"last": flat, "best": 2.0 * flat}, data), {})
    return path


def exported(*arguments: object, largest: int = -1) -> subprocess.CompletedProcess[str]:
    """In this process, or in one of its own where no file may be written of more than `largest` bytes."""
    words = ["macmpi.export", *map(str, arguments)]
    if largest >= 0:
        command = [*small_files(largest), sys.executable, "-m", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", words)
        try:
            export.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def refused(*arguments: object, code: int = 2) -> str:
    """The message of a command that is refused: one line on standard error."""
    done = exported(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("macmpi: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_an_onnx_file_is_read_by_onnxruntime(model: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    done = exported(model, "--to", "onnx", "--precision", "float32")
    assert done.returncode == 0, done.stderr
    assert "outputs label, probabilities, codes" in done.stdout
    assert "checked by onnxruntime" in done.stdout
    session = runtime.InferenceSession(str(model.with_name("model.onnx")), providers=["CPUExecutionProvider"])
    (label,) = session.run(["label"], {"X": X.astype(np.float32)})
    assert label.tolist() == macmpi.load(str(model)).predict(X).tolist()
    done = exported(model, "--decoder")
    assert done.returncode == 0, done.stderr
    assert model.with_name("model_decoder.onnx").exists()


def test_a_file_names_the_columns_that_a_table_became(tmp_path: Path) -> None:
    pandas, onnx = pytest.importorskip("pandas"), pytest.importorskip("onnx")
    table = pandas.DataFrame({"size": np.linspace(0.0, 1.0, 40), "city": ["Rome", "Paris"] * 20})
    keys = {"method.name": "stochastic", "run.max_iterations": 1}
    path = tmp_path / "model.h5"
    macmpi.save(macmpi.fit(table, np.arange(40.0), hidden=[2], config=keys), path)
    assert exported(path).returncode == 0
    props = {p.key: p.value for p in onnx.load(path.with_name("model.onnx")).metadata_props}
    assert json.loads(props["columns"]) == ["size", "city_Paris", "city_Rome"]


def test_the_file_is_the_same_every_time_and_that_of_the_weights_asked_for(model: Path) -> None:
    pytest.importorskip("onnx")
    first, second, last = (model.with_name(name) for name in ("a.onnx", "b.onnx", "last.onnx"))
    for path in (first, second):
        assert exported(model, "--output", path).returncode == 0
    assert exported(model, "--weights", "last", "--output", last).returncode == 0
    assert first.read_bytes() != last.read_bytes()
    assert first.read_bytes() == second.read_bytes()


def test_what_is_not_installed_checks_nothing_and_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        assert export.onnx_runner(b"", "float64") == (None, "onnxruntime is not installed")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "ONNX files are built by the package onnx" in (said := refused(model))
    assert "pip install onnx" in said
    assert not model.with_name("model.onnx").exists()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--output", "net.py"), "--output net.py: a name that ends with .onnx is needed"),
        (("--output", "nowhere/net.onnx"), "there is no folder nowhere"),
        (("--weights", "refit"), "has the weights best, last, not 'refit'"),
    ],
)
def test_what_cannot_be_written_is_refused(
    arguments: tuple[str, ...], says: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    assert says in refused(model, *arguments)
    assert os.listdir() == ["model.h5"]


def test_a_decoder_needs_a_code(model: Path) -> None:
    pytest.importorskip("onnx")
    data = Dataset(X, X, X, X, unscaled(4), unscaled(4), "")
    write(model, Model.of(Chain((Affine(4, 4),), ()), {"last": np.ones(20)}, data), {})
    assert "--decoder: this net has no hidden layer" in refused(model, "--decoder")


class Doubling(SameSize):
    """A kind of another package."""

    kind = "doubling"
    capabilities: frozenset[str] = frozenset()

    def __init__(self, size: int) -> None:
        self.size = size

    def forward(self, W: Any, A: Any, out: Any = None) -> Any:
        return 2.0 * A


def test_a_net_with_a_layer_of_another_package_is_refused_by_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "doubling", Doubling)
    data = Dataset(X, X, X, X, unscaled(4), unscaled(4), "")
    chain = Chain((Affine(4, 4), Doubling(4)), ())  # type: ignore[arg-type]
    write(model, Model.of(chain, {"last": np.ones(20)}, data), {})
    assert macmpi.load(str(model)).predict(X).shape == (7, 4)
    assert "layers of the kind 'doubling' of this net cannot be exported" in refused(model)


@pytest.mark.parametrize("spoil", ["missing", "text", "nan", "maps"])
def test_files_that_are_no_models_are_refused(spoil: str, model: Path) -> None:
    if spoil == "missing":
        model.unlink()
    elif spoil == "text":
        model.write_text("not a model")
    else:
        with h5py.File(model, "a") as file:
            if spoil == "nan":
                file["weights/best"][0] = np.nan
            else:
                file.attrs["maps"] = '[{"kind": "__import__"}]'
    assert str(model) in refused(model)
    assert not model.with_name("model.onnx").exists()


# --- what does not compute the model ----------------------------------------------------------------------------------


def off(map_: Activation, g: Graph, A: str, W: Any) -> str:
    """The nodes of tanh(a) + 1e-3."""
    return g.node("Add", g.node("Tanh", A), g.constant(1e-3))


def test_a_file_that_computes_something_else_is_not_written(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(Activation, "export", off)
    assert "the exported net is not that of macmpi" in refused(model, code=70)
    assert not model.with_name("model.onnx").exists()
    done = exported(model, "--precision", "float32")
    assert done.returncode == 0, done.stderr
    assert "beyond 1e-05, which --precision float64 keeps" in done.stdout


@pytest.mark.parametrize(
    ("found", "expected", "off"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 200.0], [1.0, 100.0], 1.0),
        ([0.1, np.inf], [0.2, np.inf], 0.1),
        ([np.nan], [1.0], np.inf),
        ([np.inf], [1.0], np.inf),
        ([[1.0]], [1.0], np.inf),
    ],
)
def test_a_difference_is_relative_to_large_numbers_and_infinite_for_what_is_none(
    found: list[Any], expected: list[float], off: float
) -> None:
    assert export.difference(np.array(found), np.array(expected)) == pytest.approx(off)


def test_a_full_disk_is_named_and_the_file_before_stays(model: Path) -> None:
    pytest.importorskip("onnx")
    path = model.with_name("model.onnx")
    path.write_text("before")
    done = exported(model, "--overwrite", largest=1000)
    assert done.returncode == 74, done.stderr
    assert f"{path} could not be written" in done.stderr
    assert path.read_text() == "before"
    assert sorted(os.listdir(model.parent)) == ["model.h5", "model.onnx"]
