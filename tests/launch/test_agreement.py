"""The launched program has the same bits on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import assert_same_run, checkpoints, curve, write_case
from launch.launching import ROOT, Outcome, run_program

pytestmark = pytest.mark.launch

ITERATIONS = {"autoencoder": 20, "regression": 12, "wide": 5, "few": 8}
Runs = Callable[[str, int], tuple[Path, Outcome]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The run of a case on a number of ranks (0: without mpiexec), each launched once."""
    done: dict[tuple[str, int], tuple[Path, Outcome]] = {}

    def run(case: str, ranks: int) -> tuple[Path, Outcome]:
        if (case, ranks) not in done:
            folder = tmp_path_factory.mktemp(f"{case}-{ranks}")
            config = write_case(folder, case)
            outcome = run_program(
                config.name, "--iterations", ITERATIONS[case], "--output", "run", ranks=ranks, cwd=folder, code=0
            )
            done[case, ranks] = folder / "run", outcome
        return done[case, ranks]

    return run


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("case", ["autoencoder", "regression", "wide"])
def test_any_number_of_ranks_has_the_bits_of_one_process(case: str, ranks: int, runs: Runs) -> None:
    (alone, _), (together, _) = runs(case, 0), runs(case, ranks)
    assert_same_run(alone, together)
    assert {record["ranks"] for record in curve(together)} == {ranks}
    assert (alone / "config.toml").read_text() == (together / "config.toml").read_text()


def test_more_ranks_than_points_units_and_tiles(runs: Runs) -> None:
    assert_same_run(runs("few", 0)[0], runs("few", 12)[0])


@pytest.mark.parametrize("case", ["autoencoder", "regression", "wide"])
def test_the_compared_runs_train(case: str, runs: Runs) -> None:
    """Equal bits of a run in which nothing moves would say little."""
    folder, _ = runs(case, 0)
    records = curve(folder)
    assert records[-1]["phase"] == "postprocess"
    assert records[-1]["E1_train"] < 0.7 * records[0]["E1_train"]
    assert len({record["mu"] for record in records}) > 1
    with h5py.File(checkpoints(folder)[0]) as file:
        assert np.ptp(file["Z"][()], axis=0).min() > 0.0


@pytest.mark.parametrize("ranks", [0, 12])
def test_rank_0_alone_prints(ranks: int, runs: Runs) -> None:
    folder, outcome = runs("autoencoder", ranks)
    lines = outcome.out.splitlines()
    assert sum("E1 val" in line for line in lines) == 1
    assert sum(line.startswith("macmpi:") for line in lines) == 1
    rows = [line for line in lines if line.split()[:1] and line.split()[0].isdigit()]
    assert len(rows) == len(curve(folder))
    assert outcome.err == ""
    assert outcome.left == []


@pytest.mark.usps
def test_usps_has_the_same_bits_on_1_2_and_5_ranks(tmp_path: Path) -> None:
    for ranks in (0, 2, 5):
        run_program(
            ROOT / "run" / "usps_mac.toml",
            *("--set", "data.points=1000", "--iterations", 2, "--output", f"run{ranks}"),
            ranks=ranks,
            cwd=tmp_path,
            timeout=150.0,
            code=0,
        )
    for ranks in (2, 5):
        assert_same_run(tmp_path / "run0", tmp_path / f"run{ranks}")
