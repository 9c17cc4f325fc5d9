"""Launched runs of nets of radial basis functions: model selection, alternating optimisation, what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from launch.cases import assert_same_run, checkpoints, curve, snapshot, write_case
from launch.here import run_here
from launch.launching import ROOT, Outcome, run_program

import macmpi

pytestmark = pytest.mark.launch

ITERATIONS = {"architecture": 8, "alternating": 4}
Runs = Callable[[str, int], Path]


def launch(folder: Path, case: str, *arguments: object, output: str = "run", ranks: int = 0, code: int = 0) -> Outcome:
    """ranks = 0: in this process."""
    words = (f"{case}.toml", "--output", output, *arguments)
    if not ranks:
        return run_here(*words, cwd=folder, code=code)
    return run_program(*words, ranks=ranks, cwd=folder, code=code)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The run of a case on a number of ranks (0: in this process), each once."""
    done: dict[tuple[str, int], Path] = {}

    def run(case: str, ranks: int) -> Path:
        if (case, ranks) not in done:
            folder = tmp_path_factory.mktemp(f"{case}-{ranks}")
            write_case(folder, case)
            launch(folder, case, "--iterations", ITERATIONS[case], ranks=ranks)
            done[case, ranks] = folder / "run"
        return done[case, ranks]

    return run


# --- selection --------------------------------------------------------------------------------------------------------


def test_two_ranks_select_with_the_bits_of_one_process(runs: Runs) -> None:
    assert_same_run(runs("architecture", 0), runs("architecture", 2))


def test_the_curve_shows_what_was_selected_and_what_it_costs(runs: Runs) -> None:
    records = curve(runs("architecture", 2))
    phases = [record["phase"] for record in records]
    assert phases == ["start", *("iteration", "iteration", "selection") * 2, "iteration", "iteration", "postprocess"]
    assert records[3]["changed"] is True
    assert [r["iteration"] for r in records if "changed" in r] == [3, 6]
    assert all(r["centres"] == [40, 30] for r in records[:3])
    assert records[3]["centres"][0] < 40 or records[3]["centres"][1] < 30
    for before, after in pairwise(records):
        assert ("changed" in after and after["changed"]) == (before["centres"] != after["centres"])
    for record in records[1:9]:
        assert record["cost"] == pytest.approx(2.0 * 0.1 * (6 + 2) * sum(record["centres"]) / 61)
    assert [record["mu"] for record in records] == [1.0] * 6 + [5.0] * 4
    kept = {key: value for key, value in records[4].items() if key in ("phase", "changed")}
    assert kept == {"phase": "iteration"}


def test_the_model_has_the_selected_sizes_and_encodes_and_decodes(runs: Runs, tmp_path: Path) -> None:
    run = runs("architecture", 2)
    records, sizes = curve(run), curve(run)[-1]["centres"]
    data = run.parent / "points.npz"
    X = np.load(data)["X"]
    for weights in ("last", "best"):
        found = macmpi.load(str(run / "model.h5"), weights)
        assert [len(W) for W in found.weights] == [sizes[0], 2, sizes[1], 6]
    found = macmpi.load(str(run / "model.h5"))
    wrong = 0.5 * np.sum(((found.reconstruct(X) - X) / found.scaling_y.scale) ** 2, axis=1).mean()
    assert wrong == pytest.approx(records[-1]["E1_train"], rel=1e-9)

    def predict(source: Path, name: str, what: str) -> Any:
        arguments = (run / "model.h5", source, "--output", tmp_path / name, "--what", what)
        run_program(*arguments, program=("-m", "macmpi.predict"), cwd=tmp_path, code=0)
        return np.load(tmp_path / name)

    codes = predict(data, "codes.npy", "encode")
    assert codes.shape == (61, 2)
    np.testing.assert_allclose(predict(tmp_path / "codes.npy", "decoded.npy", "decode"), found.reconstruct(X))


def test_a_run_goes_on_over_a_selection_with_the_same_bits(runs: Runs, tmp_path: Path) -> None:
    """Cut right after the sizes changed, on other numbers of ranks."""
    write_case(tmp_path, "architecture")
    launch(tmp_path, "architecture", "--iterations", 3)
    with h5py.File(checkpoints(tmp_path / "run")[0]) as file:
        sizes = file["sizes"][()].tolist()
    assert sizes[::2] == curve(tmp_path / "run")[-1]["centres"]
    launch(tmp_path, "architecture", "--iterations", ITERATIONS["architecture"], "--resume", "auto", ranks=2)
    assert_same_run(tmp_path / "run", runs("architecture", 0), every_checkpoint=False)


def test_check_and_no_iterations(tmp_path: Path) -> None:
    write_case(tmp_path, "architecture")
    before = snapshot(tmp_path)
    out = launch(tmp_path, "architecture", "--check").out
    assert "6-40-2-30-6" in out
    assert snapshot(tmp_path) == before
    launch(tmp_path, "architecture", "--iterations", 0)
    assert [r["phase"] for r in curve(tmp_path / "run")] == ["start", "postprocess"]
    assert curve(tmp_path / "run")[-1]["centres"] == [40, 30]


# --- other starts and methods -----------------------------------------------------------------------------------------


def test_alternating_optimisation_alone_and_then_on_2_ranks_has_the_bits_of_one_process(
    runs: Runs, tmp_path: Path
) -> None:
    write_case(tmp_path, "alternating")
    launch(tmp_path, "alternating", "--iterations", 2)
    launch(tmp_path, "alternating", "--iterations", 4, "--resume", "auto", ranks=2)
    assert_same_run(tmp_path / "run", runs("alternating", 0), every_checkpoint=False)


@pytest.mark.long
@pytest.mark.coil
def test_coil_has_the_same_bits_on_1_and_2_ranks(tmp_path: Path) -> None:
    """With Grams wide enough to be cut into rows."""
    keys = (*("data.points=600", "model.hidden=[600,2,560]", "selection.every=2"),)
    settings = [part for key in keys for part in ("--set", key)]
    words = (ROOT / "run" / "coil_select.toml", *settings, "--iterations", 3, "--output")
    run_here(*words, "alone", cwd=tmp_path, code=0)
    run_program(*words, "launched", ranks=2, cwd=tmp_path, timeout=150.0, code=0)
    assert_same_run(tmp_path / "alone", tmp_path / "launched")
    assert curve(tmp_path / "alone")[2]["changed"] is True
