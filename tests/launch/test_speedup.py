"""speedup.py: its model accounts for every second of one rank, and the command measures, predicts and refuses."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from launch.launching import ROOT, environment, run_program

from macmpi.plan.cost import Machine, predict

MAC = """
data = "{data}"
[model]
hidden = [24, 6, 24]
[method]
name = "mac"
"""

SELECT = """
data = "{data}"
[model]
hidden = [40, 2, 40]
activation = ["rbf", "linear", "rbf"]
sites = ["none", "after", "none"]
width = [8.0, 2.0]
centres = "subset"
[start]
method = "pca"
[penalty]
ridge = 1e-3
ridge_scale = "objective"
[selection]
criterion = "aic"
epsilon2 = [0.02]
sizes = [[10, 20, 30], [], [10, 20, 30]]
every = 2
"""


@pytest.fixture
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    np.savez(tmp_path / "points.npz", X=np.tanh(random.normal(size=(300, 3)) @ random.normal(size=(3, 12))))
    path = tmp_path / "net.toml"
    path.write_text(getattr(request, "param", MAC).format(data=tmp_path / "points.npz"))
    return path


@pytest.mark.parametrize("config", [MAC, SELECT], indirect=True, ids=["mac", "selection"])
def test_the_model_of_one_rank_is_what_it_took(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second of a traced iteration is assigned to points, factors or units, or shared: none is lost or made.

    Of this process, since those in which others have the core may fall between a phase and its parts.
    """
    monkeypatch.syspath_prepend(ROOT / "run" / "bench")
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: time.process_time())
    from workload import trace

    traced = trace(config, [], 5)
    assert len(traced) == 4
    for work, plan, took in traced:
        assert predict(work, plan, Machine(1.0, 1.0)).total == pytest.approx(took)
        assert 0.0 < work.shared < took
        assert min(work.point, *work.unit) > 0.0
        assert predict(work, replace(plan, ranks=2), Machine(0.0, 0.0)).total < took
    assert [work.again for work, *_ in traced].count(True) == (2 if "selection" in config.read_text() else 0)


@pytest.fixture
def speedup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The command in this process."""
    monkeypatch.syspath_prepend(ROOT / "run" / "bench")
    import speedup as program

    for name, value in environment().items():
        monkeypatch.setenv(name, value)

    def call(*arguments: object) -> None:
        words = ["speedup.py", *arguments, "--output", tmp_path / "speedup"]
        monkeypatch.setattr(sys, "argv", [str(word) for word in words])
        program.main()

    return call


@pytest.mark.launch
def test_more_ranks_than_cores_are_not_measured(config: Path, tmp_path: Path) -> None:
    """The command as it is typed."""
    words = (ROOT / "run" / "bench" / "speedup.py", config, "--output", tmp_path / "speedup")
    many = ("--ranks", 1, len(os.sched_getaffinity(0)) + 1)
    outcome = run_program(*many, program=words, cwd=tmp_path)
    assert outcome.code == 2
    assert "cores" in outcome.err


CLUSTERS = {
    "": "alpha is missing",
    "alpha = 1e-6\nbeta = 1e-10\nnodes = 3": "unknown key nodes; known: alpha",
    "alpha = 1e-6\nbeta = -1.0": "beta = -1.0: a number not below 0",
    "alpha = 1e-6\nbeta = 1e-10\ncores = 1.5": "cores = 1.5: a whole number above 0",
}


def cluster_of(text: str, folder: Path) -> Path:
    path = folder / f"cluster{list(CLUSTERS).index(text)}.toml"
    path.write_text(text)
    return path


def test_no_value_that_holds_without_its_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster's file, nor the file that the page shows, nor that a step takes no time."""
    monkeypatch.syspath_prepend(ROOT / "run" / "bench")
    from speedup import check_cluster

    page = (ROOT / "docs" / "clusters.md").read_text()
    free = asdict(Machine(alpha=0.0, beta=0.0, meeting=0.0))
    for text in (page[page.index("alpha = 2e-6") :].split("```")[0], "\n".join(f"{k} = {v}" for k, v in free.items())):
        (tmp_path / "cluster.toml").write_text(text)
        check_cluster(tmp_path / "cluster.toml")


def test_what_cannot_be_measured_or_drawn_is_refused(
    config: Path, tmp_path: Path, speedup: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, one message, and nothing made."""
    mistakes = [
        ((), "which problems"),
        ((tmp_path / "nothing.toml",), "cannot read the config"),
        ((config, "--iterations", 1), "--iterations 1: at least 2"),
        ((config, "--ranks", 0, 1), "--ranks 0: at least 1"),
        ((config, "--ranks", 2), "1 is needed" if len(os.sched_getaffinity(0)) > 1 else "of 1 cores here"),
        ((config, "--cluster", tmp_path / "nothing.toml"), "--cluster"),
        *(((config, "--cluster", cluster_of(text, tmp_path)), says) for text, says in CLUSTERS.items()),
        (("--draw",), "holds no results"),
        ((config, "--draw"), "holds no result of net"),
        ((config, "--draw", "--weak"), "leave out one"),
    ]
    for words, says in mistakes:
        with pytest.raises(SystemExit) as end:
            speedup(*words, *(() if "--ranks" in words else ("--ranks", 1)))
        assert end.value.code == 2
        assert says in capsys.readouterr().err
    assert not (tmp_path / "speedup").exists()
    (tmp_path / "speedup").mkdir()
    (tmp_path / "speedup" / "net.json").write_text("{")
    with pytest.raises(SystemExit) as end:
        speedup(config, "--draw")
    assert end.value.code == 2
