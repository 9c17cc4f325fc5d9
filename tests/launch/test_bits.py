"""Runs have the bits of one process on any number of ranks, straight through or from one number to another.

They share two launches, on 2 and on 3 ranks, in this order.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import CASES, assert_same_run, checkpoints, curve, points, write_case, write_h5
from launch.here import run_here
from launch.launching import ROOT, run_program
from launch.one_by_one import NEXT, ONE_BY_ONE

import macmpi

pytestmark = pytest.mark.launch

ADAM = ("baseline.batch=7", "baseline.rate=0.05", "baseline.momentum=0.9")
IN_FILE = 'parallel.rows="file"'


@dataclass(frozen=True)
class Run:
    """A run of a case: the ranks (0: in this process) that take it to each of its iterations.

    settings: of each part, or of all; below: E1 at the end, as a share of that at the start; coordinates: the shape of
    those in the newest checkpoint.
    """

    case: str
    parts: dict[int, int]
    settings: tuple[str, ...] | dict[int, tuple[str, ...]] = ()
    below: float = 0.95
    coordinates: tuple[int, int] | None = None

    def words(self, ranks: int, output: str) -> list[str]:
        """The command line of a part, and of those before where they are not done."""
        settings = self.settings[ranks] if isinstance(self.settings, dict) else self.settings
        keys = [word for setting in settings for word in ("--set", setting)]
        words = [f"{self.case}.toml", "--output", output, "--resume", "auto", *keys]
        return [*words, "--iterations", str(self.parts[ranks])]


RUNS = {
    "autoencoder": Run("autoencoder", {2: 20}, below=0.7),
    "classifier": Run("classifier", {2: 10}, below=0.7),
    "regression": Run("regression", {3: 12}, below=0.7),
    "both": Run("regression", {0: 2, 3: 6}, ('model.sites="both"', "z_step.minibatches=2")),
    "wide": Run("wide", {3: 5}, below=0.7),
    "finishing": Run("finishing", {3: 1000}),
    "selection": Run("architecture", {2: 8}),
    "selection, cut where the sizes changed": Run("architecture", {0: 3, 2: 8}),
    "alternating": Run("alternating", {0: 2, 2: 4}),
    "adam": Run("regression", {0: 3, 2: 7}, ('method.name="adam"', *ADAM), below=0.8),
    "cg": Run("regression", {0: 3, 3: 7}, ('method.name="cg"', *ADAM), below=0.8),
    "sharded": Run("sharded", {2: 2, 3: 4}, coordinates=(403 - 81, 19)),
    "ring": Run("ring", {0: 2, 3: 4}, coordinates=(403 - 81, 19)),
    "minibatches": Run("minibatches", {0: 2, 2: 4}, coordinates=(403, 0)),
    "auto_parts": Run("auto_parts", {0: 2, 2: 4, 3: 6}, coordinates=(403, 0)),
    "sharded_layers": Run("sharded_layers", {2: 2, 3: 4}, coordinates=(403, 18)),
    "sharded_halves": Run("sharded_halves", {2: 2, 3: 4}, coordinates=(403 - 81, 2)),
    "sharded_adam": Run("sharded_adam", {2: 2, 3: 4}, coordinates=(403, 0)),
    "bytes": Run("sharded", {0: 2, 2: 4, 3: 6}, {0: (IN_FILE,), 2: ('parallel.rows="memory"',), 3: (IN_FILE,)}),
}
"""bytes: rows of another type, scaled here, that are read again, or kept, as each part says."""

BYTES = np.clip(20.0 * points(1, 403, 9) + 100.0, 0.0, 255.0).astype(np.uint8)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which each run has its own, with all its parts done: "run"."""
    root = tmp_path_factory.mktemp("bits")
    for name, run in RUNS.items():
        (root / name).mkdir()
        write_case(root / name, run.case)
    write_h5(root / "bytes" / "points.h5", X=BYTES)
    for ranks in (0, 2, 3):
        parts = {name: run.words(ranks, "run") for name, run in RUNS.items() if ranks in run.parts}
        if ranks == 0:
            for name, words in parts.items():
                run_here(*words, cwd=root / name, code=0)
            continue
        listed = json.dumps([[str(root / name), *words] for name, words in parts.items()])
        said = run_program(listed, ranks=ranks, cwd=root, program=(ONE_BY_ONE,), code=0, timeout=200.0)
        assert said.left == []
        unread = "macmpi: not read, as other keys"  # of the baselines, which take the case of another method
        lines = [line for line in said.err.splitlines() if not line.startswith(unread)]
        (root / f"{ranks}.err").write_text("\n".join(lines))
        for name, text in zip(parts, said.out.split(NEXT), strict=False):
            (root / name / f"{ranks}.out").write_text(text)
    return root


@pytest.mark.parametrize("name", RUNS)
def test_any_number_of_ranks_has_the_bits_of_one_process(name: str, root: Path) -> None:
    """One that is not stopped; and the run trains, so that something is compared."""
    run, folder = RUNS[name], root / name
    if name == "bytes":
        write_h5(folder / "points.h5", X=BYTES.astype(np.float64))
    run_here(*run.words(max(run.parts), "straight"), cwd=folder, code=0)
    assert_same_run(folder / "run", folder / "straight", every_checkpoint=len(run.parts) == 1)
    texts = [(folder / output / "config.toml").read_text().partition("\n")[2] for output in ("run", "straight")]
    assert texts[0] == texts[1], "but for the run's id"
    records = curve(folder / "run")
    assert records[-1]["phase"] == "postprocess"
    assert {record["ranks"] for record in records} == {max(ranks, 1) for ranks in run.parts}
    assert records[-1]["E1_train"] < run.below * records[0]["E1_train"]
    if run.coordinates:
        with h5py.File(checkpoints(folder / "run")[0]) as file, h5py.File(folder / "run" / "model.h5") as model:
            assert file["Z"].shape == run.coordinates
            assert "codes" not in model


@pytest.mark.parametrize("name", ["regression", "wide", "classifier"])
def test_coordinates_move(name: str, root: Path) -> None:
    """Equal bits of a run in which nothing moves would say little."""
    assert len({record["mu"] for record in curve(root / name / "run")}) > 1
    with h5py.File(checkpoints(root / name / "run")[0]) as file:
        assert np.ptp(file["Z"][()], axis=0).min() > 0.0


def test_a_classifiers_curve_has_its_errors_and_its_multipliers(root: Path) -> None:
    folder = root / "classifier"
    records = curve(folder / "run")
    assert all(0.0 <= record[key] <= 1.0 for record in records for key in ("error_train", "error_val"))
    assert records[-1]["error_train"] < 0.5 * records[0]["error_train"]
    assert records[0]["multiplier"] == 0.0
    assert max(record["multiplier"] for record in records) > 0.0
    assert any(record["lagrangian"] != record["E_Q"] for record in records)
    assert "wrong val" in (folder / "2.out").read_text()
    X, found = np.load(folder / "points.npz"), macmpi.load(folder / "run" / "model.h5", "last")
    for name, key in (("X", "error_train"), ("X_val", "error_val")):
        wrong = np.mean(found.predict(X[name]) != X[name.replace("X", "Y")])
        assert wrong == pytest.approx(records[-1][key])


def assert_printed_once(out: str, run: Path) -> None:
    lines = out.splitlines()
    assert sum("E1 val" in line for line in lines) == 1
    assert sum(line.startswith("macmpi:") for line in lines) == 1
    assert len([line for line in lines if line.split()[:1] and line.split()[0].isdigit()]) == len(curve(run))


def test_rank_0_alone_prints(root: Path) -> None:
    assert_printed_once((root / "autoencoder" / "2.out").read_text(), root / "autoencoder" / "run")
    assert (root / "2.err").read_text() == ""


def test_ranks_without_points_are_a_warning_with_the_remedy_and_no_refusal(root: Path, tmp_path: Path) -> None:
    """Minibatches are two parts here."""
    write_case(tmp_path, "auto_parts")
    check = run_here("auto_parts.toml", "--check", "--ranks", 1024, "--nodes", 64, cwd=tmp_path, code=0)
    assert re.search(r"^idle +1,022 of 1,024 ranks have no points .* stochastic.parts = 1024 would", check.out, re.M)
    said = (root / "3.err").read_text()
    assert re.fullmatch(r"macmpi: 1 of 3 ranks have no points .* stochastic.parts = 3 would.*", said)


# --- more ranks, more points ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_more_ranks_than_there_are_points_units_and_tiles(tmp_path: Path) -> None:
    assert CASES["few"].rows < 12
    write_case(tmp_path, "few")
    words = ("few.toml", "--iterations", 8, "--output")
    run_here(*words, "alone", cwd=tmp_path, code=0)
    outcome = run_program(*words, "together", ranks=12, cwd=tmp_path, code=0)
    assert_same_run(tmp_path / "alone", tmp_path / "together")
    assert_printed_once(outcome.out, tmp_path / "together")
    (line,) = outcome.err.splitlines()
    assert "11 of 12 ranks have no points and wait for the others: 5 points are 1 block," in line
    assert outcome.left == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "settings", "iterations", "ranks"),
    [
        pytest.param("usps_mac", ["data.points=500"], 2, 3, marks=pytest.mark.usps),
        pytest.param(
            *("coil_select", ["data.points=600", "model.hidden=[600,2,560]", "selection.every=2"], 3, 2),
            marks=pytest.mark.coil,
        ),
    ],
)
def test_runs_on_real_data_have_the_same_bits(
    config: str, settings: list[str], iterations: int, ranks: int, tmp_path: Path
) -> None:
    """COIL with Grams wide enough to be cut into rows."""
    keys = [word for setting in settings for word in ("--set", setting)]
    words = (ROOT / "run" / f"{config}.toml", *keys, "--iterations", iterations, "--output")
    run_here(*words, "alone", cwd=tmp_path, code=0)
    run_program(*words, "launched", ranks=ranks, cwd=tmp_path, timeout=150.0, code=0)
    assert_same_run(tmp_path / "alone", tmp_path / "launched")
    assert config != "coil_select" or curve(tmp_path / "alone")[2]["changed"] is True
