"""A run that starts from the model of another one."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.cases import assert_same_run, curve, points, snapshot, write_case
from launch.here import run_here
from launch.launching import Outcome, run_program

import macmpi
from macmpi.results.card import scores_by_name
from macmpi.results.reading import read, scores_at

pytestmark = pytest.mark.launch

CASE = "autoencoder"


def again(folder: Path, *settings: str, output: str = "again", ranks: int = 0, code: int = 0) -> Outcome:
    """A run of two iterations from the model of the first.  ranks = 0: in this process."""
    keys = ('start.method="model"', 'start.model="first/model.h5"', "start.gradient_step=false", *settings)
    arguments = [part for key in keys for part in ("--set", key)]
    words = (f"{CASE}.toml", *arguments, "--iterations", 2, "--output", output)
    return run_program(*words, ranks=ranks, cwd=folder, code=code) if ranks else run_here(*words, cwd=folder, code=code)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the first run."""
    folder = tmp_path_factory.mktemp("first")
    write_case(folder, CASE)
    run_here(f"{CASE}.toml", "--iterations", 6, "--output", "first", cwd=folder, code=0)
    return folder


def weights(path: Path, name: str) -> np.ndarray:
    with h5py.File(path) as file:
        return file["weights"][name][()]


def test_it_begins_where_the_other_one_ended_with_a_mu_and_sites_of_its_own(first: Path) -> None:
    again(first, "penalty.mu0=123.0", 'model.sites="before"')
    begun, ended = curve(first / "again")[0], curve(first / "first")[-1]
    assert begun["phase"] == "start"
    assert begun["mu"] == 123.0
    for key in ("E1_train", "E1_val"):
        assert begun[key] == ended[key]


def test_more_points_are_no_obstacle_and_ranks_make_no_difference(first: Path) -> None:
    np.savez(first / "more.npz", X=points(1, 90, 9), X_val=points(2, 11, 9))
    more = 'data.source="more.npz"'
    for ranks in (0, 2):
        again(first, more, output=f"more-{ranks}", ranks=ranks)
    assert_same_run(first / "more-0", first / "more-2")
    run_here(f"{CASE}.toml", "--set", more, "--iterations", 0, "--output", "fresh", cwd=first, code=0)
    assert curve(first / "more-0")[0]["E1_train"] < 0.8 * curve(first / "fresh")[0]["E1_train"]


def test_a_resumed_run_needs_the_other_model_no_longer(first: Path) -> None:
    again(first, output="cut")
    model, away = first / "first" / "model.h5", first / "away.h5"
    model.rename(away)
    keys = ("--set", 'start.method="model"', "--set", 'start.model="first/model.h5"')
    arguments = (f"{CASE}.toml", *keys, "--set", "start.gradient_step=false", "--output", "cut", "--resume", "auto")
    try:
        run_here(*arguments, "--iterations", 3, cwd=first, code=0)
    finally:
        away.rename(model)
    assert curve(first / "cut")[-1]["iteration"] == 3


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("model.hidden=[7,4,7]", ["first/model.h5", "7 sigmoid 5 sigmoid 7", "7 sigmoid 4 sigmoid 7", "must agree"]),
        ('model.activation="tanh"', ["first/model.h5", "7 sigmoid 5 sigmoid 7", "7 tanh 5 tanh 7", "must agree"]),
        ('start.model="nowhere.h5"', ["nowhere.h5", "no such file"]),
        ('start.model="points.npz"', ["points.npz", "is not a model"]),
    ],
)
def test_another_net_is_refused(setting: str, named: list[str], first: Path) -> None:
    before = snapshot(first)
    outcome = again(first, setting, output="refused", code=2)
    assert outcome.err.count("macmpi: ") == 1
    for part in named:
        assert part in outcome.err
    assert snapshot(first) == before


@pytest.mark.parametrize("data", ["replicated", "sharded"])
def test_a_stream_of_files_goes_on_by_the_columns_of_the_first_one(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever later files hold: another order, gaps, other categories.  A fit to batches gives the same.

    --check says the same net, of this machine and of another; a report, which reads the file again, the same scores.
    """
    pd, random = pytest.importorskip("pandas"), np.random.default_rng(0)
    frames = [pd.DataFrame(random.normal(size=(60, 3)), columns=list("yab")) for _ in range(2)]
    frames = [frame.assign(city=random.choice(list("pqr")[: 3 - i], 60)) for i, frame in enumerate(frames)]
    frames[1] = frames[1][["city", "b", "y", "a"]].assign(b=frames[1].b.where(frames[1].b < 1.0))
    for i, frame in enumerate(frames):
        frame.to_parquet(tmp_path / f"{i}.parquet")
        goes_on = 'start.method = "model"\nstart.model = "run0/model.h5"\n' if i else ""
        text = f'data.source = "{i}.parquet"\ndata.target = "y"\nmodel.hidden = [4]\nparallel.data = "{data}"\n'
        (tmp_path / f"{i}.toml").write_text(f"{goes_on}{text}stochastic.stream = true\nstochastic.parts = 1\n")
        run_here(f"{i}.toml", "--output", f"run{i}", cwd=tmp_path, code=0)
        for words in ((), ("--ranks", 2)):
            assert "net          5-4-1" in run_here(f"{i}.toml", "--check", *words, cwd=tmp_path, code=0).out
    config = {"stochastic.parts": 1}
    ours, fit = macmpi.load(tmp_path / "run1/model.h5"), macmpi.fit(batches=frames, Y="y", hidden=[4], config=config)
    assert ours.columns == fit.columns and ours.points == fit.points == 120
    np.testing.assert_allclose(ours.predict(frames[1]), fit.predict(frames[1]), rtol=1e-9)
    if data == "replicated":
        monkeypatch.chdir(tmp_path)
        report = read(tmp_path / "run1", "run1")
        assert ours.card is not None and report.end is not None, report.missing
        assert scores_by_name(scores_at(report.end))["lines"] == list(ours.card.scores["lines"])


def test_a_stream_of_files_names_the_classes_that_its_first_one_lacks(tmp_path: Path) -> None:
    """Whichever file says only numbers, and so holds no text."""
    pd, random = pytest.importorskip("pandas"), np.random.default_rng(0)
    numbers = pd.DataFrame(random.normal(size=(40, 2)), columns=list("ab"))
    frames = [numbers.assign(y=random.choice(labels, 40)) for labels in (["1", "2"], ["1", "x"])]
    for i, frame in enumerate(frames):
        frame.to_csv(tmp_path / f"{i}.csv", index=False)
        goes_on = 'start.method = "model"\nstart.model = "run0/model.h5"\n' if i else ""
        text = f'{goes_on}data.source = "{i}.csv"\ndata.target = "y"\ndata.classes = ["x", "1", "2"]\n'
        (tmp_path / f"{i}.toml").write_text(f"{text}model.hidden = [4]\nstochastic.stream = true\n")
        run_here(f"{i}.toml", "--output", f"run{i}", cwd=tmp_path, code=0)
    ours, named = macmpi.load(tmp_path / "run1/model.h5"), ["1", "2", "x"]
    assert ours == macmpi.fit(batches=frames, Y="y", hidden=[4], classes=named)
    assert ours.classes is not None and ours.classes.tolist() == named
