"""A kind of map is one file: what trains, saves, loads, exports and explains nets asks the map, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.here import run_here
from launch.test_extending import install
from numpy.testing import assert_array_equal
from pages import blocks_of_page

import macmpi
from macmpi import UsageError, export
from macmpi.nets.layers import KINDS, Map

PAGE = "docs/extending/image_layer.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the page's module and config; Python finds the package there, as if it were installed."""
    found = tmp_path_factory.mktemp("kind")
    project, settings = blocks_of_page(PAGE, "toml")
    install(project, found, blocks_of_page(PAGE, "python"))
    (found / "digits.toml").write_text(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(found)
        yield found


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    """The model of a short run of the page's config."""
    run_here("digits.toml", "--output", "run", "--iterations", "3", cwd=folder, code=0)
    return folder / "run" / "model.h5"


def test_it_is_no_kind_of_macmpi() -> None:
    assert "depthwise" not in KINDS


def test_it_trains(folder: Path, model: Path) -> None:
    errors = [json.loads(line)["E1_train"] for line in (model.parent / "curve.jsonl").read_text().splitlines()]
    assert errors[-1] < 0.5 * errors[0]


def test_it_is_saved_and_loaded(folder: Path, model: Path) -> None:
    with h5py.File(model) as file:
        specs = json.loads(file.attrs["maps"])
    assert {"kind": "depthwise", "height": 8, "width": 8, "channels": 4, "kernel": 3} in specs
    found = macmpi.load(str(model))
    (own,) = (m for m in found.chain.blocks if m.kind == "depthwise")
    assert own.parameter_shape == (4, 10)
    X = np.random.default_rng(0).uniform(0.0, 16.0, (5, 64))
    assert_array_equal(found.predict(X), macmpi.load(str(model)).predict(X))


def test_it_is_explained(folder: Path) -> None:
    said = run_here("digits.toml", "--output", "explained", "--explain", cwd=folder, code=0).out
    assert 'name = "mac"' in said and '"depthwise" is a layer of another package' in said


def test_it_is_exported(model: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    found = macmpi.load(str(model))
    runner, by = export.onnx_runner(export.written(found, "float64")[0], "float64")
    assert runner is not None
    assert export.compare(found, runner, by)[0] < export.TOLERANCE


def test_without_an_export_it_is_refused_by_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = macmpi.load(str(model))
    (own,) = (m for m in found.chain.blocks if m.kind == "depthwise")
    monkeypatch.setattr(type(own), "export", Map.export)
    with pytest.raises(UsageError, match="layers of the kind 'depthwise' of this net cannot be exported, only these: "):
        export.written(found, "float64")


@pytest.mark.parametrize("hidden", ["[256, 16]", "[{ channels = 4, kernel = 3 }, 200, 16]"])
def test_what_does_not_fit_is_refused_with_a_remedy(hidden: str, folder: Path) -> None:
    """Before anything is created."""
    words = '["tanh", "depthwise", "tanh"]' if "{" in hidden else '["depthwise", "tanh"]'
    settings = ("--set", f"model.hidden={hidden}", "--set", f"model.activation={words}")
    outcome = run_here("digits.toml", "--output", "refused", *settings, cwd=folder, code=2)
    assert "depthwise gives as many numbers as it reads of images; use hidden = " in outcome.err
    assert not (folder / "refused").exists()
