"""`python -m macmpi.report`: the pictures show the numbers of the runs, and what is missing is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal
from scalings import fit_scaling

import macmpi
from macmpi import UsageError, config, report, run
from macmpi.data.dataset import Dataset
from macmpi.data.loading import load
from macmpi.nets.build import build_chain
from macmpi.nets.losses import CrossEntropy, Squared
from macmpi.parallel.team import Team
from macmpi.results import figures, model, model_file, pictures
from macmpi.results.reading import Result, points, read
from macmpi.results.scores import levels
from macmpi.training import checkpoint
from macmpi.typing import Array

POSES, OBJECTS = 8, 6
SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)

NET = """
data = "coil"
[model]
hidden = [6, 2, 6]
[penalty]
mu0 = 10.0
mu_max = 1000.0
mu_every = 2
[run]
max_iterations = 6
"""

SELECT = """
data = "coil"
[model]
hidden = [20, 2, 20]
activation = ["rbf", "linear", "rbf"]
sites = ["none", "after", "none"]
width = [8.0, 2.0]
centres = "subset"
[start]
method = "pca"
[penalty]
mu0 = 1.0
mu_max = 5.0
factor = 5.0
mu_every = 5
ridge = 1e-3
ridge_scale = "objective"
[selection]
criterion = "aic"
epsilon2 = [0.5]
sizes = [[5, 10, 15], [], [5, 10, 15]]
every = 3
[run]
max_iterations = 8
"""


BITS = """
data = "coil"
[model]
hidden = [6]
activation = "binary"
[method]
name = "mac"
[run]
max_iterations = 3
"""


def write_coil(path: Path) -> None:
    """Blobs that go round: a loop of 8 poses for each of 6 objects, object 1 the duck and 4 the cat."""
    number, pose = (A.ravel() for A in np.mgrid[1 : OBJECTS + 1, 0:POSES])
    mixed = np.random.default_rng(4).permutation(len(number))
    number, pose = number[mixed].astype(np.uint8), pose[mixed].astype(np.uint8)
    angle, rows = 2.0 * np.pi * pose / POSES, np.arange(32.0)
    y, x = 16.0 + (4.0 + number) * np.sin(angle), 16.0 + (4.0 + number) * np.cos(angle)
    far = (rows[None, :, None] - y[:, None, None]) ** 2 + (rows[None, None, :] - x[:, None, None]) ** 2
    with h5py.File(path, "w") as file:
        file["images"], file["object"], file["pose"] = np.exp(-far / (8.0 + 6.0 * number[:, None, None])), number, pose


def train(folder: Path, text: str, *arguments: str) -> Path:
    """A run in this process, on one rank."""
    source = folder.parent / f"{folder.name}.toml"
    source.write_text(text)
    handlers = {name: signal.getsignal(name) for name in SIGNALS}
    try:
        assert run.run(Team(), [str(source), "--output", str(folder), *arguments]) == 0
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the runs "net", "seed" (another start), "select", "wide" (a code of 3), "classes" and "bits"."""
    folder = tmp_path_factory.mktemp("runs")
    write_coil(folder / "coil20.h5")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MACMPI_DATA", str(folder))
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            patch.setenv(name, os.environ.get(name, "1"))
        train(folder / "net", NET)
        train(folder / "seed", NET, "--set", "start.seed=1", "--iterations", "4")
        train(folder / "select", SELECT)
        train(folder / "wide", NET, "--set", "model.hidden=[6, 3, 6]", "--set", 'model.sites=["after","none","after"]')
        train(folder / "bits", BITS)
        train(folder / "classes", NET, "--set", 'model.loss="cross_entropy"', "--set", "model.hidden=[4]")
        yield folder


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    """The run "net", to be damaged."""
    return Path(shutil.copytree(runs / "net", tmp_path / "net"))


def result(path: Path) -> Result:
    return read(path, path.name)


def curve(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "curve.jsonl").read_text().splitlines()]


def values(path: Path, key: str, *phases: str) -> list[float]:
    return [record[key] for record in curve(path) if not phases or record["phase"] in phases]


def drawn(*paths: Path) -> Iterator[pictures.Picture]:
    return pictures.draw([result(path) for path in paths])


def picture_of(name: str, *paths: Path) -> pictures.Picture:
    """A picture of some runs; those behind it are not drawn."""
    return next(picture for picture in drawn(*paths) if picture.name == name)


def names(*paths: Path) -> set[str]:
    return {picture.name for picture in drawn(*paths)}


def lines(figure: Figure, panel: int, label: str) -> Any:
    (line,) = [line for line in figure.axes[panel].lines if line.get_label() == label]
    return line


def coil() -> Dataset:
    return load(config.Data(source="coil"))


@pytest.fixture
def rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of few images and few pixels, where nobody looks at them."""
    monkeypatch.setattr(pictures, "COLUMNS", 4)
    monkeypatch.setattr(pictures, "DPI", 10)


def main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["report", *map(str, arguments)])
    try:
        report.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


# --- what a run leaves behind -----------------------------------------------------------------------------------------


def test_start_h5_is_the_net_of_the_first_record(runs: Path) -> None:
    data = coil()
    for name in ("net", "seed"):
        start = macmpi.load(str(runs / name / "start.h5"))
        error = 0.5 * np.square(data.X - start.reconstruct(data.X)).sum() / len(data.X)
        assert_allclose(error, curve(runs / name)[0]["E1_train"], rtol=1e-12)
        with pytest.raises(UsageError, match=r"has the weights last, not .best"):
            macmpi.load(str(runs / name / "start.h5"), "best")


def codes_in(path: Path) -> Array:
    with h5py.File(path) as file:
        return file["codes"][()]


def test_codes_are_the_coordinates_at_the_code(runs: Path) -> None:
    """At the start they are what the net computes; at the end those of the last checkpoint, between columns 6 and 8."""
    data = coil()
    start = macmpi.load(str(runs / "net" / "start.h5"))
    assert_allclose(codes_in(runs / "net" / "start.h5"), start.encode(data.X), rtol=1e-12)
    _, state, _ = checkpoint.newest(runs / "net" / "checkpoints") or pytest.fail("no checkpoint")
    assert_array_equal(codes_in(runs / "net" / "model.h5"), state.Z[:, 6:8])
    encoded = macmpi.load(str(runs / "net" / "model.h5")).encode(data.X)
    assert 0.0 < np.abs(encoded - state.Z[:, 6:8]).max() < 0.1


@pytest.mark.parametrize(("sites", "columns"), [("after", slice(4, 6)), (["none", "before", "after"], slice(0, 2))])
def test_the_codes_columns(sites: Any, columns: slice, random: np.random.Generator) -> None:
    chain = build_chain(config.Model([4, 2, 3], sites=sites, activation="sigmoid"), 5, 5)
    Z = random.normal(size=(7, sum(chain.site_sizes)))
    assert_array_equal(model.codes_of(chain, Z), Z[:, columns])


def test_without_a_site_at_the_code_there_are_no_codes(runs: Path) -> None:
    for name in ("start.h5", "model.h5"):
        with h5py.File(runs / "wide" / name) as file:
            assert "codes" not in file
    found = result(runs / "wide")
    assert found.end is not None
    assert_array_equal(found.end.codes, macmpi.load(str(runs / "wide" / "model.h5")).encode(coil().X))
    assert found.end.codes.shape[1] == 3


@pytest.mark.usefixtures("rough")
def test_a_start_that_cannot_be_written_is_a_warning(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = model_file.write

    def save(path: Path, *arguments: Any) -> None:
        if path.name == "start.h5":
            raise OSError(28, "No space left on device")
        whole(path, *arguments)

    monkeypatch.setattr(model_file, "write", save)
    folder = train(tmp_path / "full", NET)
    assert "start.h5 could not be written: No space left on device; training goes on" in capsys.readouterr().err
    assert not (folder / "start.h5").exists()
    assert values(folder, "E1_train") == values(runs / "net", "E1_train")
    found = result(folder)
    assert found.start is None
    assert ["start.h5" in line for line in found.missing] == [True]
    assert names(folder) == {"curves", "codes", "reconstructions", "seconds"}


# --- what to compare with ---------------------------------------------------------------------------------------------


def test_levels_are_the_errors_of_the_mean_and_of_principal_components(random: np.random.Generator) -> None:
    X, unit = random.normal(size=(30, 6)) @ random.normal(size=(6, 6)), fit_scaling(np.ones((1, 6)), "none")
    chain, data = build_chain(config.Model([4, 2, 5], activation="sigmoid"), 6, 6), Dataset(X, X, X, X, unit, unit, "")
    centred = X - X.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False) ** 2
    mean, pca = levels(chain, data, Squared())
    assert (mean.name, pca.name) == ("predict the mean", "PCA with 2 components")
    assert_allclose([mean.value, pca.value], [0.5 * values.sum() / 30, 0.5 * values[2:].sum() / 30])
    assert str(mean) == f"predict the mean             E1 train {mean.value:9.4f}"
    words = build_chain(config.Model([8], activation="argmax", words=4), 6, 6)
    assert levels(words, data, Squared())[1].name == "PCA with 4 components"  # as many as the words have bits


def test_levels_of_a_classifier(random: np.random.Generator) -> None:
    X, Y, unit = random.normal(size=(8, 2)), np.eye(2)[[0, 0, 0, 0, 0, 0, 1, 1]], fit_scaling(np.ones((1, 2)), "none")
    data = Dataset(X, Y, X, Y, unit, unit, "", np.arange(2))
    entropy, wrong = levels(build_chain(config.Model([3], activation="sigmoid"), 2, 2), data, CrossEntropy())
    assert_allclose(entropy.value, -0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert not entropy.share
    assert wrong.share
    assert wrong.value == 0.25
    assert str(wrong) == "predict the largest class    wrong train 25.00%"
    one = Dataset(X, Y[[0] * 8], X, Y, unit, unit, "", np.arange(2))  # as a piece of a stream may be
    assert str(levels(build_chain(config.Model([3], "tanh"), 2, 2), one, CrossEntropy())[0]).endswith(" 0.0000")


# --- learning curves --------------------------------------------------------------------------------------------------


def test_the_curves_are_those_of_the_records(runs: Path) -> None:
    paths = [runs / "net", runs / "seed"]
    figure = picture_of("curves", *paths).figure
    first = min(s for path in paths for s in values(path, "seconds") if s > 0.0)
    for path in paths:
        for label, key in (("training", "E1_train"), ("validation", "E1_val")):
            in_time, in_steps = (lines(figure, panel, f"{label}, {path.name}") for panel in (0, 1))
            assert_array_equal(in_steps.get_xdata(), values(path, "iteration"))
            assert_array_equal(in_time.get_xdata()[1:], values(path, "seconds")[1:])
            assert 0.4 * first < in_time.get_xdata()[0] < first
            for line in (in_time, in_steps):
                assert_array_equal(line.get_ydata(), values(path, key))
                assert (line.get_linestyle() == "--") is (key == "E1_val")
                assert (line.get_marker() == "o") is (key == "E1_train")
    colours = {lines(figure, 0, f"training, {path.name}").get_color() for path in paths}
    assert len(colours) == 2
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[1].get_xscale() == "linear"


# --- reconstructions --------------------------------------------------------------------------------------------------


def test_reconstructions_are_those_of_the_nets(runs: Path) -> None:
    picture, data = picture_of("reconstructions", runs / "net", runs / "seed"), coil()
    cells = np.array(picture.figure.axes, dtype=object).reshape(5, pictures.COLUMNS)
    images = np.array([[ax.images[0].get_array() for ax in row] for row in cells])
    labels = ["ground truth", "initial, net", "initial, seed", "net", "seed"]
    assert [row[0].get_ylabel().replace("\n", " ") for row in cells] == labels
    X = images[0].reshape(len(images[0]), -1)
    both, groups = np.vstack([data.X, data.X_val]), np.concatenate(data.groups or ())
    rows = [int(np.flatnonzero((both == x).all(axis=1))[0]) for x in X]
    assert [r >= len(data.X) for r in rows] == [False] * 5 + [True] * 3
    nets = (*(runs / n / "start.h5" for n in ("net", "seed")), *(runs / n / "model.h5" for n in ("net", "seed")))
    for line, path in zip(images[1:], nets, strict=True):
        assert_allclose(line.reshape(X.shape), macmpi.load(str(path)).reconstruct(X), rtol=1e-12)
    titles = [ax.get_title() for ax in cells[0]]
    assert titles == [f"{'held out' if r >= len(data.X) else 'training'}, {groups[r]}" for r in rows]
    assert len({groups[r] for r in rows[:5]}) == 5
    frames = [to_hex(ax.spines["left"].get_edgecolor()) for ax in cells[3]]
    assert frames == [frames[0]] * 5 + [frames[-1]] * 3
    assert frames[0] != frames[-1] == figures.RED
    assert len({ax.images[0].get_clim() for row in cells for ax in row}) == 1


# --- retrieval by bits ------------------------------------------------------------------------------------------------


def test_what_bits_find_is_what_comparing_all_pairs_finds(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hamming and Euclidean distances pair by pair, of a bounded number of points and queries, at the start and end."""
    for name, most in {"SEARCHED": 30, "ASKED": 5, "NEIGHBOURS": 2}.items():
        monkeypatch.setattr(pictures, name, most)
    data = coil()
    picture = picture_of("retrieval", runs / "bits")
    X, asked = (A[pictures.spread(None, len(A), most)] for A, most in ((data.X, 30), (data.X_val, 5)))
    for when, file in (("start", "start.h5"), ("end", "model.h5")):
        net = macmpi.load(str(runs / "bits" / file), None if when == "start" else "best")
        found, hits = np.zeros(7), np.zeros(7)
        for q in asked:
            far = [float(np.square(q - x).sum()) for x in X]
            codes = [net.encode(points(data, row[None]))[0] for row in (q, *X)]
            differ = [int((codes[0] != code).sum()) for code in codes[1:]]
            for r in range(7):
                inside = {n for n in range(len(X)) if differ[n] <= r}
                found[r] += len(inside) / len(asked)
                hits[r] += len(inside & set(np.argsort(far)[:2].tolist())) / len(asked)
        some = found > 0.0
        precise, recalled = (lines(picture.figure, panel, f"at the {when}") for panel in (0, 1))
        assert_allclose(precise.get_xdata(), hits[some] / 2.0)
        assert_allclose(precise.get_ydata(), hits[some] / found[some])
        assert_allclose(recalled.get_xdata(), found[some])
        assert_allclose(recalled.get_ydata(), hits[some] / 2.0)
        r = int(np.flatnonzero(found >= 2.0)[0])
        assert f"At the {when} {found[r]:.0f} points differ in at most {r} bit" in picture.caption
        assert f"precision {hits[r] / found[r]:.2f} and recall {hits[r] / 2.0:.2f}" in picture.caption
    assert f"5 of {len(data.X_val)} validation points ask for the 2 nearest" in picture.caption
    assert f"30 of {len(data.X)} training points" in picture.caption


def test_the_nearest_images_are_those_of_the_nearest_bits(runs: Path) -> None:
    data, picture = coil(), picture_of("nearest", runs / "bits")
    cells = np.array(picture.figure.axes, dtype=object).reshape(1 + pictures.SHOWN, -1)
    net = macmpi.load(str(runs / "bits" / "model.h5"), "best")
    codes, groups = net.encode(points(data, data.X)), data.groups or pytest.fail("no groups")
    asked = pictures.spread(groups[1], len(data.X_val), pictures.COLUMNS)
    for column, q in zip(cells.T, asked, strict=True):
        query, *found = (ax.images[0].get_array().ravel() for ax in column)
        assert_allclose(query, points(data, data.X_val[q]))
        differ = np.abs(codes - net.encode(query[None])).sum(axis=1)
        rows = sorted(range(len(codes)), key=lambda n: (differ[n], n))[: pictures.SHOWN]
        assert_allclose(found, points(data, data.X[rows]))
        red = [to_hex(ax.spines["left"].get_edgecolor()) == figures.RED for ax in column]
        assert red == [False, *(groups[0][rows] != groups[1][q])]
        assert column[0].get_title() == str(groups[1][q])


@pytest.mark.usefixtures("rough")
@pytest.mark.parametrize("lacks", ["nothing", "bits", "validation", "images"])
def test_retrieval_is_of_bits_and_of_validation_points(lacks: str, runs: Path) -> None:
    found = result(runs / ("net" if lacks == "bits" else "bits"))
    of = found.data or pytest.fail("no data")
    if lacks == "validation":
        of = replace(of, X_val=of.X_val[:0], Y_val=of.Y_val[:0], groups=None)
    elif lacks == "images":
        of = replace(of, shape=None)
    found.start, found.end = (replace(net, data=of, held=net.encoded[:0]) for net in found.nets.values())
    drawn = [picture.name for picture in pictures.by_bits(found, "")]
    assert drawn == {"nothing": ["retrieval", "nearest"], "images": ["retrieval"]}.get(lacks, [])


# --- selection and seconds --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("rough")
def test_each_run_has_the_pictures_that_it_can_have(runs: Path) -> None:
    assert names(runs / "classes") == {"curves", "codes", "outcome", "seconds"}
    both = {"curves", "codes-1", "codes-2", "reconstructions", "selection-2", "seconds"}
    assert names(runs / "net", runs / "select") == both


@pytest.mark.usefixtures("rough")
def test_the_outcome_of_a_classifier_is_its_confusion(runs: Path) -> None:
    found = result(runs / "classes")
    assert found.data is not None
    assert found.end is not None
    true = found.data.Y_val.argmax(axis=1)
    named = found.end.model.predict(points(found.data, found.data.X_val))
    assert found.data.classes is not None
    picture = picture_of("outcome", runs / "classes")
    (ax,) = picture.figure.axes
    shown = {text.get_position(): int(text.get_text()) for text in ax.texts}
    wanted: dict[tuple[int, int], int] = {}
    for row, label in zip(true.tolist(), named.tolist(), strict=True):
        place = (found.data.classes.tolist().index(label), row)
        wanted[place] = wanted.get(place, 0) + 1
    assert shown == wanted
    assert f"accuracy {np.mean(named == found.data.classes[true]):.2%}" in picture.caption


# --- the command and its page -----------------------------------------------------------------------------------------


def test_the_page_holds_its_pictures(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = Path(shutil.copytree(runs / "net", tmp_path / "_a<b>&$x$"))
    assert main(monkeypatch, odd, runs / "select", "--output", tmp_path / "out") == 0
    done = capsys.readouterr()
    assert done.err == ""
    written = [Path(line) for line in done.out.splitlines()]
    assert sorted(written) == sorted((tmp_path / "out").iterdir())
    assert len(written) == 7
    page = (tmp_path / "out" / "report.html").read_text()
    pngs = [path for path in written if path.suffix == ".png"]
    inside = [b64decode(text) for text in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]
    assert inside == [path.read_bytes() for path in pngs]
    for path in pngs:
        pixels = (255.0 * imread(path)[:, :, :3]).astype(int) @ [65536, 256, 1]
        assert min(pixels.shape) > 200
        assert len(np.unique(pixels)) > 10
    for outside in ("http:", "https:", "//", "<script", "<link", "@import", "url("):
        assert outside not in re.sub(r"base64,[^\"]+", "", page)
    assert page.count("src=") == page.count("<figure") == page.count("<figcaption>") == 6
    assert "_a&lt;b&gt;&amp;$x$" in page
    assert "<b>" not in page
    assert "color-scheme: light dark" in page
    assert "@media print" in page
    assert f"{curve(odd)[-1]['E1_val']:.4f}" in page


def test_the_settings_that_differ_are_named(runs: Path) -> None:
    found = report.differences([result(runs / name) for name in ("net", "seed")])
    assert found == [["start.seed", "0", "1"], ["run.max_iterations", "6", "4"]]
    assert report.differences([result(runs / "net")]) == []


@pytest.mark.parametrize("damage", ["no run", "no curve", "empty curve", "no record", "a file"])
def test_where_nothing_can_be_drawn(
    damage: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = {"no run": copy / "nowhere", "a file": copy / "config.toml"}.get(damage, copy)
    if damage == "no curve":
        (copy / "curve.jsonl").unlink()
    elif damage in ("empty curve", "no record"):
        (copy / "curve.jsonl").write_text("" if damage == "empty curve" else '{"iteration": 0}\n[]\nnull\n{\n')
    assert main(monkeypatch, path, "--output", copy / "out") == 2
    done = capsys.readouterr()
    assert done.err.startswith("macmpi: ")
    assert done.err.count("\n") == 1
    assert path.name in done.err
    assert not (copy / "out").exists()


@pytest.mark.usefixtures("rough")
def test_a_run_that_is_not_there_is_named_next_to_one_that_is(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, tmp_path / "gone", runs / "net", "--output", tmp_path / "out") == 0
    text = f"{tmp_path / 'gone'} is not a run: there is no such folder"
    assert text in capsys.readouterr().err
    assert text in (tmp_path / "out" / "report.html").read_text()
    assert not (tmp_path / "gone").exists()


@pytest.mark.usefixtures("rough")
def test_damaged_lines_are_left_out_and_counted(runs: Path, copy: Path) -> None:
    good = (copy / "curve.jsonl").read_bytes().splitlines(keepends=True)
    bad = b'\x00\xff\n{"iteration": 3\n{"iteration": "x", "phase": "iteration"}\n'
    (copy / "curve.jsonl").write_bytes(b"".join(good[:3]) + bad + b"".join(good[3:-1]) + good[-1][:30])
    found = result(copy)
    assert found.records == [{k: v for k, v in r.items() if k != "run"} for r in curve(runs / "net")[:-1]]
    assert f"4 damaged lines of {len(good) + 3} in curve.jsonl, left out" in found.missing
    line = lines(picture_of("curves", copy).figure, 1, "training, net")
    assert_array_equal(line.get_ydata(), values(runs / "net", "E1_train")[:-1])


@pytest.mark.usefixtures("rough")
def test_a_run_that_has_not_finished(runs: Path, copy: Path) -> None:
    lines = (copy / "curve.jsonl").read_text().splitlines(keepends=True)
    (copy / "curve.jsonl").write_text("".join(lines[:4]))
    earlier = result(copy)
    assert not earlier.finished
    assert "stops after iteration 3" in earlier.missing[0]
    assert "of an earlier end" in earlier.missing[0]
    (copy / "model.h5").unlink()
    found = result(copy)
    assert "earlier" not in found.missing[0]
    assert "model.h5" in found.missing[1]
    assert len(found.missing) == 2
    assert [ax.get_title() for ax in picture_of("codes", copy).figure.axes] == ["start"]
    assert report.row(found)[-1] == "no"
    assert report.row(result(runs / "net"))[-1] == "yes"


@pytest.mark.usefixtures("rough")
@pytest.mark.parametrize("damage", ["changed", "gone", "sharded", "no provenance", "no config", "other config"])
def test_without_its_data_a_run_has_its_curves(
    damage: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "they have changed since (data.source = 'coil')"
    if damage == "changed":
        facts = json.loads((copy / "provenance.json").read_text())
        facts["launches"].append({**facts["launches"][-1], "data_sha256": "0" * 64})
        (copy / "provenance.json").write_text(json.dumps(facts))
    elif damage == "gone":
        monkeypatch.setenv("MACMPI_DATA", str(copy / "nowhere"))
        says = "coil20.h5 does not exist"
    elif damage == "sharded":
        text = (copy / "config.toml").read_text()
        (copy / "config.toml").write_text(text.replace('data = "replicated"', 'data = "sharded"'))
        says = 'of a sharded run (parallel.data = "sharded") they are not read here'
    elif damage == "no provenance":
        (copy / "provenance.json").write_text("{}")
        says = "provenance.json does not say which they were"
    else:
        (copy / "config.toml").write_text("[model]\nhiden = [3]\n" if damage == "other config" else "[")
        says = "hiden" if damage == "other config" else "is not TOML"
    assert main(monkeypatch, copy, "--output", copy / "out") == 0
    assert "only the curves are drawn" in (err := capsys.readouterr().err)
    assert says in err
    assert sorted(path.name for path in (copy / "out").iterdir()) == ["curves.png", "report.html", "seconds.png"]
    page = (copy / "out" / "report.html").read_text()
    assert "only the curves are drawn" in page
    assert ("have changed" in page) is (damage == "changed")


@pytest.mark.usefixtures("rough")
@pytest.mark.parametrize("name", ["start.h5", "model.h5"])
@pytest.mark.parametrize("damage", ["cut", "codes", "other net"])
def test_a_net_that_cannot_be_read_is_missing(name: str, damage: str, copy: Path, runs: Path) -> None:
    if damage == "cut":
        (copy / name).write_bytes((copy / name).read_bytes()[:900])
    elif damage == "codes":
        with h5py.File(copy / name, "a") as file:
            del file["codes"]
            file["codes"] = np.zeros((3, 2))
    else:
        shutil.copy(runs / "classes" / "model.h5", copy / name)
    found = result(copy)
    assert (found.start is None, found.end is None) == (name == "start.h5", name == "model.h5")
    assert len(found.missing) == 1
    assert name in found.missing[0]
    kept = "end" if name == "start.h5" else "start"
    assert [ax.get_title() for ax in picture_of("codes", copy).figure.axes] == [kept]


def test_without_matplotlib_the_command_says_what_to_install(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("figures", "pictures"):
        monkeypatch.delitem(sys.modules, f"macmpi.results.{name}")
        monkeypatch.delattr(macmpi.results, name)
    assert main(monkeypatch, runs / "net", "--output", tmp_path / "out") == 2
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_where_the_report_cannot_be_written(
    runs: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, runs / "net", "--output", copy / "config.toml") == 2
    assert "config.toml" in capsys.readouterr().err
