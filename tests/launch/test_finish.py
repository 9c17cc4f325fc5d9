"""Full MAC ends with steps of all points: the kept model is never worse for it, whenever and wherever it goes on."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import assert_same_run, checkpoints, curve, untimed, write_case
from launch.here import run_here

pytestmark = pytest.mark.launch

CASE = "finishing"


def run_in(folder: Path, *arguments: object, output: str = "run", code: int = 0) -> str:
    write_case(folder, CASE)
    return run_here(f"{CASE}.toml", "--output", output, *arguments, cwd=folder, code=code).out


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_in(folder)
    run_in(folder, "--set", "run.finish=false", output="alone")
    return folder


def kept(run: Path) -> float:
    with h5py.File(run / "model.h5") as file:
        return float(file.attrs["best_E1_val"])


def settled(folder: Path) -> int:
    """The iterations of full MAC alone."""
    return int(curve(folder / "alone")[-1]["iteration"])


def test_the_run_is_that_of_full_mac_and_then_goes_on(whole: Path) -> None:
    alone, longer = (curve(whole / name) for name in ("alone", "run"))
    count = settled(whole)
    assert untimed(longer)[: count + 1] == untimed(alone)[: count + 1]
    assert longer[-1]["iteration"] > count + 2
    turn, first = longer[count + 1 : count + 3]
    assert (turn["E1_train"], turn["E1_val"]) == pytest.approx((alone[-1]["E1_train"], alone[-1]["E1_val"]))
    assert first["E1_train"] < turn["E1_train"]
    behind = [record["iteration"] for record in longer if record.get("finish")]
    assert behind == list(range(count + 1, longer[-1]["iteration"] + 1))


def test_the_kept_model_is_the_best_of_both(whole: Path) -> None:
    assert kept(whole / "run") == min(record["E1_val"] for record in curve(whole / "run"))
    assert kept(whole / "run") <= kept(whole / "alone")


@pytest.mark.parametrize("further", [-1, 0, 1, 2])
def test_a_run_stopped_around_the_turn_goes_on_with_the_same_bits(further: int, whole: Path, tmp_path: Path) -> None:
    run_in(tmp_path, "--iterations", settled(whole) + further)
    run_in(tmp_path, "--resume", "auto")
    assert_same_run(tmp_path / "run", whole / "run", every_checkpoint=False)


def test_an_end_that_leaves_no_iterations_is_full_macs_own(whole: Path, tmp_path: Path) -> None:
    run_in(tmp_path, "--iterations", settled(whole))
    with h5py.File(checkpoints(tmp_path / "run")[0]) as file, h5py.File(checkpoints(whole / "alone")[0]) as other:
        np.testing.assert_array_equal(file["weights"][()], other["weights"][()])


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (("penalty.l1=0.1",), "penalty.l1"),
        (("penalty.mu_every=3",), "penalty.mu_every"),
        (("model.activation=quantise", "model.hidden=[4]"), "quantise"),
    ],
)
def test_what_steps_of_all_points_cannot_go_on_with_is_refused_or_left(
    keys: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    """Where it is asked for, with the key that switches it off; by "auto" the run ends without."""
    write_case(tmp_path, CASE)
    words = [word for key in keys for word in ("--set", key)]
    brief = (f"{CASE}.toml", "--output", "run", "--iterations", 1, *words)
    said = run_here(*brief, "--set", "run.finish=true", cwd=tmp_path, code=2).err
    assert "run.finish = true does not go with" in said
    assert named in said
    assert "run.finish = false" in said
    assert not (tmp_path / "run").exists()
    run_here(*brief, cwd=tmp_path, code=0)
