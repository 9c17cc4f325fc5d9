"""`python -m macmpi.predict`: a trained net on a file of points."""

from __future__ import annotations

import io
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
from macmpi.data.dataset import Dataset
from macmpi.nets.chain import Chain
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.codes import Binary, OneHot
from macmpi.predict import main
from macmpi.results.model import Model
from macmpi.results.model_file import write

X = np.random.default_rng(3).uniform(-5, 20, (7, 4))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    chain = Chain((Affine(4, 2), Activation("tanh", 2), Affine(2, 4)), (2,))
    flat = random.normal(size=sum(h * d for h, d in chain.block_shapes))
    scaling = fit_scaling(X, "standard")
    data = Dataset(X, X, X, X, scaling, scaling, "")
    path = tmp_path_factory.mktemp("model") / "model.h5"
    write(path, Model.of(chain, {"last": flat, "best": 2.0 * flat}, data), {})
    return path


def predict(*arguments: object, largest: int = -1) -> subprocess.CompletedProcess[str]:
    """In this process, or in one of its own where no file may be written of more than `largest` bytes."""
    words = ["macmpi.predict", *map(str, arguments)]
    if largest >= 0:
        command = [*small_files(largest), sys.executable, "-m", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", words)
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def read(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        return np.load(path)["Y"]
    with h5py.File(path) as file:
        return file["Y"][()]


@pytest.mark.parametrize(("source", "target"), [(".npy", ".h5"), (".npz", ".npy"), (".h5", ".npz")])
def test_every_format_in_and_out_gives_what_the_model_gives(
    model: Path, tmp_path: Path, source: str, target: str
) -> None:
    points, output = tmp_path / f"points{source}", tmp_path / f"out{target}"
    if source == ".npy":
        np.save(points, X)
    elif source == ".npz":
        np.savez(points, X=X)
    else:
        with h5py.File(points, "w") as file:
            file["X"] = X
    done = predict(model, points, "--output", output, "--what", "encode")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(read(output), macmpi.load(str(model)).encode(X))


@pytest.mark.parametrize("what", ["predict", "probabilities"])
def test_a_classifiers_labels_and_probabilities(what: str, tmp_path: Path) -> None:
    chain = Chain((Affine(4, 2), Activation("tanh", 2), Affine(2, 3)), ())
    flat = np.random.default_rng(1).normal(size=sum(h * d for h, d in chain.block_shapes))
    scaling, Y = fit_scaling(X, "standard"), np.eye(3)[[0, 1, 2, 0, 1, 2, 0]]
    data = Dataset(X, Y, X, Y, scaling, fit_scaling(Y, "none"), "", np.array([-3.0, 0.0, 7.0]))
    write(tmp_path / "model.h5", Model.of(chain, {"last": flat}, data), {})
    np.save(tmp_path / "x.npy", X)
    done = predict(tmp_path / "model.h5", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--what", what)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(read(tmp_path / "y.npy"), getattr(macmpi.load(str(tmp_path / "model.h5")), what)(X))


@pytest.mark.parametrize("target", [".npy", ".npz", ".h5", ".csv"])
def test_bits_come_eight_to_a_byte(target: str, tmp_path: Path) -> None:
    """The first layer of bits, whatever its place among the layers' sizes; the last byte is filled with zeros."""
    chain = Chain((Affine(4, 11), Binary(11), Affine(11, 3), Activation("tanh", 3), Affine(3, 4)), (2,))
    flat = np.random.default_rng(1).normal(size=sum(h * d for h, d in chain.block_shapes))
    scaling = fit_scaling(X, "standard")
    write(tmp_path / "model.h5", Model.of(chain, {"last": flat}, Dataset(X, X, X, X, scaling, scaling, "")), {})
    np.save(tmp_path / "x.npy", X)
    done = predict(tmp_path / "model.h5", tmp_path / "x.npy", "--output", tmp_path / f"y{target}", "--what", "bits")
    assert done.returncode == 0, done.stderr
    W = flat[: 11 * 5].reshape(11, 5)
    expected = np.packbits(scaling.apply(X) @ W[:, :-1].T + W[:, -1] > 0.0, axis=1)
    if target == ".csv":
        assert (tmp_path / "y.csv").read_text().splitlines()[0].replace('"', "") == "byte_1,byte_2"
        found = np.loadtxt(tmp_path / "y.csv", delimiter=",", skiprows=1)
    else:
        found = read(tmp_path / f"y{target}")
        assert found.dtype == np.uint8
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("words", [3, 4])
def test_words_count_as_the_bits_of_their_numbers(words: int) -> None:
    """So they are the code of a net whose next layer has fewer units than they, but more than they have bits."""
    H = 3 * words
    chain = Chain((Affine(4, H), OneHot(H, words), Affine(H, 7), Activation("tanh", 7), Affine(7, 4)), (2,))
    flat = np.random.default_rng(1).normal(size=sum(h * d for h, d in chain.block_shapes))
    scaling = fit_scaling(X, "standard")
    model = Model.of(chain, {"last": flat}, Dataset(X, X, X, X, scaling, scaling, ""))
    codes = model.encode(X)
    assert np.array_equal(model.decode(codes), model.predict(X))
    one, two, three = codes.reshape(len(X), 3, words).argmax(axis=2).T
    assert codes.sum() == 3 * len(X)
    assert np.array_equal(model.bits(X), ((one << 6) + (two << 4) + (three << 2))[:, None])


def test_a_model_without_bits_says_so(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    done = predict(model, tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--what", "bits")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "use encode" in done.stderr


def test_what_a_model_cannot_do_ends_with_one_line(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    done = predict(model, tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--what", "probabilities")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "use predict" in done.stderr
    assert "x.npy" not in done.stderr


@pytest.mark.parametrize(
    ("points", "output", "said"),
    [
        ("x.npy", "y.txt", "y.txt"),
        ("none.npy", "y.npy", "none.npy"),
        ("narrow.npy", "y.npy", "narrow.npy: X has 3 columns; the model takes 4"),
    ],
)
def test_mistakes_end_with_one_line_and_write_nothing(
    model: Path, tmp_path: Path, points: str, output: str, said: str
) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "narrow.npy", X[:, :3])
    done = predict(model, tmp_path / points, "--output", tmp_path / output)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
@pytest.mark.parametrize("replaced", ["x.npz", "net.h5"])
def test_an_input_is_never_replaced(model: Path, tmp_path: Path, replaced: str, link: Any) -> None:
    np.savez(tmp_path / "x.npz", X=X)
    (tmp_path / "net.h5").write_bytes(model.read_bytes())
    before, output = (tmp_path / replaced).read_bytes(), tmp_path / replaced
    if link:
        output = tmp_path / f"link-{replaced}"
        link(tmp_path / replaced, output)
    done = predict(tmp_path / "net.h5", tmp_path / "x.npz", "--output", output)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert f"{output} is an input of this command" in done.stderr
    assert (tmp_path / replaced).read_bytes() == before


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5"])
def test_a_full_disk_is_named_and_leaves_the_file_of_before(model: Path, tmp_path: Path, suffix: str) -> None:
    np.save(tmp_path / "x.npy", X)
    output = tmp_path / f"y{suffix}"
    output.write_bytes(b"before")
    done = predict(model, tmp_path / "x.npy", "--output", output, "--overwrite", largest=64)
    assert (done.returncode, len(done.stderr.splitlines())) == (74, 1)
    assert f"{output} could not be written" in done.stderr
    assert "name another --output" in done.stderr
    assert output.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", output.name]


@pytest.mark.parametrize(("output", "said"), [("nodir/p.npz", "there is no folder"), ("folder.npz", "is a folder")])
def test_an_output_that_no_file_can_have_is_refused(model: Path, tmp_path: Path, output: str, said: str) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "folder.npz").mkdir()
    done = predict(model, tmp_path / "x.npy", "--output", tmp_path / output)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert f"--output {tmp_path / output}" in done.stderr
    assert said in done.stderr
