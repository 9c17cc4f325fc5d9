"""Runs of nets of radial basis functions whose sizes are selected: what is left behind."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import checkpoints, curve, snapshot, write_case
from launch.here import run_here

import macmpi


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight iterations; test_bits.py holds those of two ranks to the same bits."""
    folder = tmp_path_factory.mktemp("architecture")
    write_case(folder, "architecture")
    run_here("architecture.toml", "--output", "run", "--iterations", 8, cwd=folder, code=0)
    return folder / "run"


def test_the_curve_shows_what_was_selected_and_what_it_costs(run: Path) -> None:
    records = curve(run)
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


def test_the_model_has_the_selected_sizes_and_encodes_and_decodes(run: Path) -> None:
    records, sizes = curve(run), curve(run)[-1]["centres"]
    X = np.load(run.parent / "points.npz")["X"]
    for weights in ("last", "best"):
        found = macmpi.load(str(run / "model.h5"), weights)
        assert [len(W) for W in found.weights] == [sizes[0], 2, sizes[1], 6]
    found = macmpi.load(str(run / "model.h5"))
    wrong = 0.5 * np.sum(((found.reconstruct(X) - X) / found.scaling_y.scale) ** 2, axis=1).mean()
    assert wrong == pytest.approx(records[-1]["E1_train"], rel=1e-9)
    codes = found.encode(X)
    assert codes.shape == (61, 2)
    np.testing.assert_allclose(found.decode(codes), found.reconstruct(X))


def test_a_checkpoint_where_the_sizes_changed_has_those_of_the_curve(tmp_path: Path) -> None:
    write_case(tmp_path, "architecture")
    run_here("architecture.toml", "--output", "run", "--iterations", 3, cwd=tmp_path, code=0)
    with h5py.File(checkpoints(tmp_path / "run")[0]) as file:
        assert file["sizes"][()].tolist()[::2] == curve(tmp_path / "run")[-1]["centres"]


def test_check_and_no_iterations(tmp_path: Path) -> None:
    write_case(tmp_path, "architecture")
    before = snapshot(tmp_path)
    assert "6-40-2-30-6" in run_here("architecture.toml", "--check", cwd=tmp_path, code=0).out
    assert snapshot(tmp_path) == before
    run_here("architecture.toml", "--output", "run", "--iterations", 0, cwd=tmp_path, code=0)
    assert [r["phase"] for r in curve(tmp_path / "run")] == ["start", "postprocess"]
    assert curve(tmp_path / "run")[-1]["centres"] == [40, 30]
