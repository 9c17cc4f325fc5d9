"""The launched program has the same bits on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import CASES, assert_same_run, checkpoints, curve, write_case
from launch.here import run_here
from launch.launching import ROOT, Outcome, run_program

import macmpi

pytestmark = pytest.mark.launch

ITERATIONS = {"autoencoder": 20, "regression": 12, "wide": 5, "classifier": 10, "few": 8}
FEW = pytest.param("few", 12, marks=pytest.mark.long)
Runs = Callable[[str, int], tuple[Path, Outcome]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The run of a case on a number of ranks (0: in this process), each once."""
    done: dict[tuple[str, int], tuple[Path, Outcome]] = {}

    def run(case: str, ranks: int) -> tuple[Path, Outcome]:
        if (case, ranks) not in done:
            folder = tmp_path_factory.mktemp(f"{case}-{ranks}")
            config = write_case(folder, case)
            words = (config.name, "--iterations", ITERATIONS[case], "--output", "run")
            if ranks:
                outcome = run_program(*words, ranks=ranks, cwd=folder, code=0)
            else:
                outcome = run_here(*words, cwd=folder, code=0)
            done[case, ranks] = folder / "run", outcome
        return done[case, ranks]

    return run


@pytest.mark.parametrize(
    ("case", "ranks"),
    [("autoencoder", 2), ("regression", 3), ("wide", 3), FEW],
)
def test_any_number_of_ranks_has_the_bits_of_one_process(case: str, ranks: int, runs: Runs) -> None:
    """12 are more ranks than there are points, units and tiles."""
    assert ranks < 12 or CASES[case].rows < ranks
    (alone, _), (together, _) = runs(case, 0), runs(case, ranks)
    assert_same_run(alone, together)
    assert {record["ranks"] for record in curve(together)} == {ranks}
    texts = [(run / "config.toml").read_text().partition("\n")[2] for run in (alone, together)]  # but for the run's id
    assert texts[0] == texts[1]


def test_a_classifier_with_multipliers_and_mixed_sites_has_them_too(runs: Runs) -> None:
    assert_same_run(runs("classifier", 0)[0], runs("classifier", 2)[0])


def test_a_classifiers_curve_has_its_errors_and_its_multipliers(runs: Runs) -> None:
    folder, outcome = runs("classifier", 2)
    records = curve(folder)
    assert all(0.0 <= record[key] <= 1.0 for record in records for key in ("error_train", "error_val"))
    assert records[-1]["error_train"] < 0.5 * records[0]["error_train"]
    assert records[0]["multiplier"] == 0.0
    assert max(record["multiplier"] for record in records) > 0.0
    assert any(record["lagrangian"] != record["E_Q"] for record in records)
    assert "wrong val" in outcome.out
    X = np.load(folder.parent / "points.npz")
    found = macmpi.load(str(folder / "model.h5"), "last")
    for name, key in (("X", "error_train"), ("X_val", "error_val")):
        wrong = np.mean(found.predict(X[name]) != X[name.replace("X", "Y")])
        assert wrong == pytest.approx(records[-1][key])


@pytest.mark.parametrize("case", ["autoencoder", "regression", "wide", "classifier"])
def test_the_compared_runs_train(case: str, runs: Runs) -> None:
    """Equal bits of a run in which nothing moves would say little."""
    folder, _ = runs(case, 0)
    records = curve(folder)
    assert records[-1]["phase"] == "postprocess"
    assert records[-1]["E1_train"] < 0.7 * records[0]["E1_train"]
    assert len({record["mu"] for record in records}) > 1
    with h5py.File(checkpoints(folder)[0]) as file:
        Z = file["Z"][()]
    assert (Z.size == 0) is (case == "autoencoder")  # which goes on with steps of all points, without coordinates
    assert case == "autoencoder" or np.ptp(Z, axis=0).min() > 0.0


@pytest.mark.parametrize(("case", "ranks"), [("autoencoder", 2), FEW])
def test_rank_0_alone_prints(case: str, ranks: int, runs: Runs) -> None:
    folder, outcome = runs(case, ranks)
    lines = outcome.out.splitlines()
    assert sum("E1 val" in line for line in lines) == 1
    assert sum(line.startswith("macmpi:") for line in lines) == 1
    rows = [line for line in lines if line.split()[:1] and line.split()[0].isdigit()]
    assert len(rows) == len(curve(folder))
    idle = "11 of 12 ranks have no points and wait for the others: 5 points are 1 block," if case == "few" else ""
    assert idle in outcome.err
    assert len(outcome.err.splitlines()) == bool(idle)
    assert outcome.left == []


@pytest.mark.long
@pytest.mark.usps
def test_usps_has_the_same_bits_on_1_and_3_ranks(tmp_path: Path) -> None:
    words = (ROOT / "run" / "usps_mac.toml", "--set", "data.points=500", "--iterations", 2, "--output")
    run_here(*words, "alone", cwd=tmp_path, code=0)
    run_program(*words, "launched", ranks=3, cwd=tmp_path, timeout=150.0, code=0)
    assert_same_run(tmp_path / "alone", tmp_path / "launched")
