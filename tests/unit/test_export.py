"""`python -m macmpi.export`: files that need no macmpi, what is said of them, and what is refused."""

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

import macmpi
from macmpi import config
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import fit_scaling, unscaled
from macmpi.export import __main__ as export
from macmpi.export import check, numpy_file, onnx_file
from macmpi.nets.build import build_chain
from macmpi.nets.chain import Chain
from macmpi.nets.layers import KINDS, SameSize
from macmpi.nets.layers.affine import Affine
from macmpi.results.model_file import save

X = np.random.default_rng(3).uniform(-5, 20, (7, 4))
CLASSES = np.array(["bee", "wasp", "ant"])
ENDINGS = {"numpy": "_numpy.py", "torch": "_torch.py", "onnx": ".onnx"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A classifier of three words."""
    random = np.random.default_rng(1)
    chain = build_chain(config.Model([5], "tanh"), 4, 3)
    flat = random.normal(size=sum(h * d for h, d in chain.block_shapes))
    data = Dataset(X, np.eye(3), X, np.eye(3), fit_scaling(X, "standard"), unscaled(3), "", CLASSES)
    path = tmp_path / "model.h5"
    save(path, chain, {"last": flat, "best": 2.0 * flat}, data, {})
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


def alone(code: str, folder: Path) -> str:
    """What an interpreter prints that has neither this folder nor macmpi on its path."""
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("weights", ["best", "last"])
def test_a_python_file_runs_without_macmpi(to: str, weights: str, model: Path) -> None:
    if to == "torch":
        pytest.importorskip("torch")
    done = exported(model, "--to", to, "--weights", weights)
    assert done.returncode == 0, done.stderr
    assert f"model{ENDINGS[to]}: 4-5-3 classifier, float64" in done.stdout
    assert "at 256 random points" in done.stdout
    numbers, net = model.with_name("X.npy"), "net = model_torch.load()" if to == "torch" else "net = model_numpy"
    np.save(numbers, X)
    code = (
        f"import numpy as np, model_{to}\n{net}\n"
        "assert 'macmpi' not in sys.modules\n"
        "X = np.load('X.npy')\nP = net.probabilities(X)\nP = P.detach().numpy() if hasattr(P, 'detach') else P\n"
        "np.savez('answers.npz', label=net.predict(X), P=P)"
    )
    alone(code, model.parent)
    answers, expected = np.load(model.with_name("answers.npz")), macmpi.load(str(model), weights)
    assert answers["label"].tolist() == expected.predict(X).tolist()
    assert check.difference(answers["P"], expected.probabilities(X)) <= check.TOLERANCE


def test_a_numpy_file_takes_what_a_model_takes(model: Path) -> None:
    """Lists, images and single points; what is no row of its numbers is refused."""
    assert exported(model, "--to", "numpy").returncode == 0
    scope: dict[str, Any] = {}
    exec(model.with_name("model_numpy.py").read_text(), scope)
    net, given = macmpi.load(str(model)), np.rint(X).astype(int)
    for points in (given, given.tolist(), given.reshape(7, 2, 2), given[3]):
        assert scope["predict"](points).tolist() == net.predict(points).tolist()
    codes = scope["encode"](X)
    assert check.difference(codes, net.encode(X)) <= check.TOLERANCE
    assert check.difference(scope["decode"](codes), net.decode(net.encode(X))) <= check.TOLERANCE
    for bad in (X[:, :3], np.where(X > 0, X, np.nan)):
        with pytest.raises(ValueError, match="columns; 4 of finite numbers are needed"):
            scope["predict"](bad)


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
    done = exported(model, "--to", "onnx", "--decoder")
    assert done.returncode == 0, done.stderr
    assert model.with_name("model_decoder.onnx").exists()


def test_files_name_the_columns_that_a_table_became(tmp_path: Path) -> None:
    pandas, onnx = pytest.importorskip("pandas"), pytest.importorskip("onnx")
    table = pandas.DataFrame({"size": np.linspace(0.0, 1.0, 40), "city": ["Rome", "Paris"] * 20})
    keys = {"method.name": "stochastic", "run.max_iterations": 1}
    path = tmp_path / "model.h5"
    macmpi.save(macmpi.fit(table, np.arange(40.0), hidden=[2], config=keys), path)
    for to in ENDINGS:
        assert exported(path, "--to", to).returncode == 0
    names = ["size", "city_Paris", "city_Rome"]
    for to in ("numpy", "torch"):
        assert f"COLUMNS = {names}\n" in path.with_name(f"model{ENDINGS[to]}").read_text()
    props = {p.key: p.value for p in onnx.load(path.with_name(f"model{ENDINGS['onnx']}")).metadata_props}
    assert json.loads(props["columns"]) == names


def test_the_file_is_the_same_every_time(model: Path) -> None:
    first, second = (model.with_name(name) for name in ("a.py", "b.py"))
    for path in (first, second):
        assert exported(model, "--to", "torch", "--output", path).returncode == 0
    assert first.read_bytes() == second.read_bytes()


def test_what_is_not_installed_checks_nothing_and_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    assert "not checked: torch is not installed" in exported(model, "--to", "torch").stdout
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        assert check.onnx_runner(b"", "float64") == (None, "onnxruntime is not installed")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "ONNX files are built by the package onnx" in (said := refused(model, "--to", "onnx"))
    assert "pip install onnx" in said
    assert not model.with_name("model.onnx").exists()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--to", "numpy", "--output", "net.txt"), "--output net.txt: .py is needed"),
        (("--to", "onnx", "--output", "net.py"), "--output net.py: .onnx is needed"),
        (("--to", "numpy", "--output", "nowhere/net.py"), "there is no folder nowhere"),
        (("--to", "torch", "--decoder"), "--decoder is of ONNX; the file of --to torch has decode"),
        (("--to", "numpy", "--weights", "refit"), "has the weights best, last, not refit"),
    ],
)
def test_what_cannot_be_written_is_refused(
    arguments: tuple[str, ...], says: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    assert says in refused(model, *arguments)
    assert os.listdir() == ["model.h5"]


def test_the_model_itself_is_not_replaced(model: Path) -> None:
    path = model.with_name("model.py")
    model.rename(path)
    assert "is an input of this command" in refused(path, "--to", "numpy", "--output", path)


def test_a_folder_is_no_output(model: Path) -> None:
    model.with_name("model_numpy.py").mkdir()
    assert "is a folder; name a file" in refused(model, "--to", "numpy")


def test_a_decoder_needs_a_code(model: Path) -> None:
    pytest.importorskip("onnx")
    data = Dataset(X, X, X, X, unscaled(4), unscaled(4), "")
    save(model, Chain((Affine(4, 4),), ()), {"last": np.ones(20)}, data, {})
    assert "--decoder: this net has no hidden layer" in refused(model, "--to", "onnx", "--decoder")


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
    save(model, Chain((Affine(4, 4), Doubling(4)), ()), {"last": np.ones(20)}, data, {})  # type: ignore[arg-type]
    assert macmpi.load(str(model)).predict(X).shape == (7, 4)
    for to in ENDINGS:
        assert f"{model}: layers of the kind 'doubling' cannot be exported" in refused(model, "--to", to)


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
    for to in ENDINGS:
        assert str(model) in refused(model, "--to", to)
    assert list(model.parent.glob("model_*")) == []


def test_labels_are_data_in_a_python_file(model: Path, tmp_path: Path) -> None:
    """Whatever they hold: quotes, lines, signs that turn the direction of writing."""
    names = ['""")\nraise SystemExit("""', "a\\'; import os #\n", "\u202e\x1b[2J{0}%s"]
    with h5py.File(model, "a") as file:
        del file["classes"]
        encoded = [name.encode() for name in names]
        file["classes"] = np.array(encoded, h5py.string_dtype("utf-8", max(map(len, encoded))))
    assert exported(model, "--to", "numpy").returncode == 0
    source = model.with_name("model_numpy.py").read_text(encoding="utf-8")
    assert "\u202e" not in source
    assert "\x1b" not in source
    scope: dict[str, Any] = {}
    exec(source, scope)
    assert scope["CLASSES"].tolist() == names


# --- what does not compute the model ----------------------------------------------------------------------------------


def test_a_file_that_computes_something_else_is_not_written(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(numpy_file.LINES, "tanh", lambda k, step: "np.tanh(A) + 1e-3")
    assert "the exported net is not that of macmpi" in refused(model, "--to", "numpy", code=70)
    assert not model.with_name("model_numpy.py").exists()
    done = exported(model, "--to", "numpy", "--precision", "float32")
    assert done.returncode == 0, done.stderr
    assert "beyond 1e-05, which --precision float64 keeps" in done.stdout


def test_a_difference_is_measured_in_the_units_of_the_data(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets in nanometres, written in metres."""
    Y = 1e-9 * X
    flat = np.random.default_rng(1).normal(size=5 * 5 + 6 * 4)
    chain = build_chain(config.Model([5], "tanh"), 4, 4)
    save(model, chain, {"last": flat}, Dataset(X, Y, X, Y, unscaled(4), fit_scaling(Y, "standard"), ""), {})
    assert exported(model, "--to", "numpy").returncode == 0
    monkeypatch.setitem(numpy_file.LINES, "tanh", lambda k, step: "np.tanh(A) + 1e-3")
    assert "the exported net is not that of macmpi" in refused(model, "--to", "numpy", code=70)


def test_an_onnx_file_that_computes_something_else_is_not_written(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(onnx_file.STEPS, "tanh", lambda g, A, step: g.node("Sigmoid", A))
    assert "the exported net is not that of macmpi" in refused(model, "--to", "onnx", code=70)
    assert not model.with_name("model.onnx").exists()


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
    assert check.difference(np.array(found), np.array(expected)) == pytest.approx(off)


def test_a_full_disk_is_named_and_the_file_before_stays(model: Path) -> None:
    path = model.with_name("model_numpy.py")
    path.write_text("before")
    done = exported(model, "--to", "numpy", largest=1000)
    assert done.returncode == 74, done.stderr
    assert f"{path} could not be written" in done.stderr
    assert path.read_text() == "before"
    assert sorted(os.listdir(model.parent)) == ["model.h5", "model_numpy.py"]
