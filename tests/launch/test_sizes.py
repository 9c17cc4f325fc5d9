"""A run that selects the sizes of its dense layers, from its config to the files that it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from launch.here import run_here

import macmpi

CONFIG = """
data = "points.npz"
[model]
hidden = [7, 3, 6]
activation = "tanh"
[method]
name = "mac"
[selection]
criterion = "aic"
epsilon2 = 0.2
every = 2
sizes = [[3, 5], [], [2, 4]]
[run]
max_iterations = 5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five iterations."""
    path = tmp_path_factory.mktemp("sizes")
    random = np.random.default_rng(0)
    np.savez(path / "points.npz", X=np.tanh(random.normal(size=(90, 3)) @ random.normal(size=(3, 8))))
    (path / "run.toml").write_text(CONFIG)
    said = run_here("run.toml", "--output", "whole", cwd=path, code=0).out
    sizes = [8, *records(path / "whole")[-2]["units"], 8]
    assert f"another architecture: {'-'.join(map(str, sizes))}" in said
    return path


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]


def test_the_curve_says_the_sizes_and_what_they_cost(folder: Path) -> None:
    swept = records(folder / "whole")[1:-1]
    assert [r["phase"] for r in swept] == ["iteration", "selection", "iteration", "selection", "iteration"]
    assert swept[0]["units"] == [7, 3, 6]
    assert any(r["changed"] for r in swept if r["phase"] == "selection")
    for record in swept:
        sizes = [8, *record["units"], 8]
        weights = sum(b * (a + 1) for a, b in zip(sizes, sizes[1:], strict=False))  # noqa: RUF007
        assert record["cost"] == pytest.approx(0.2 * weights / 72, rel=1e-12)


def test_the_model_has_these_sizes(folder: Path) -> None:
    model = macmpi.load(folder / "whole" / "model.h5")
    units = records(folder / "whole")[-2]["units"]
    assert [W.shape[0] for W in model.weights] == [*units, 8]
    assert model.encode(np.zeros((2, 8))).shape == (2, min(units))


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_run_goes_on_with_the_sizes_that_it_has_chosen(cut: int, folder: Path) -> None:
    name = f"cut{cut}"
    run_here("run.toml", "--output", name, "--iterations", cut, cwd=folder, code=0)
    run_here("run.toml", "--output", name, "--resume", "auto", cwd=folder, code=0)
    with h5py.File(folder / "whole" / "model.h5") as whole, h5py.File(folder / name / "model.h5") as found:
        for kind in ("last", "best"):
            np.testing.assert_array_equal(found["weights"][kind], whole["weights"][kind])


def test_check_and_report_know_them(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    from macmpi.results import figures, pictures, reading

    assert "iteration" in run_here("run.toml", "--check", cwd=folder, code=0).out
    result = reading.read(folder / "whole", "whole")
    figure = figures.selection(result.records[1:-1])
    texts = {text.get_text() for text in figure.axes[0].texts}
    changed = [r["units"] for r in result.records if r.get("changed")]
    assert {f"({', '.join(map(str, units))})" for units in changed} <= texts
    assert "changed the sizes of layers" in pictures.selection(result, "picture").caption
