"""--check answers for ranks, nodes and points that are not at hand, without data, or refuses with a remedy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from launch.here import run_here
from plans import plan_of as planned_of

from macmpi import UsageError
from macmpi.config import Config, Method, Model, Parallel, Run
from macmpi.config.auto import Sizes
from macmpi.parallel.launchers import ranks_here
from macmpi.plan import estimate
from macmpi.plan.estimate import check_memory, least_bytes
from macmpi.plan.plan import Plan
from macmpi.training import trial
from macmpi.training.request import MachineQuestion, bytes_in

LARGE = ("--points", 10**8, "--columns", 256, "--memory", "256G")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(estimate, "steady_rate", lambda: 1e10)
    keys = 'method.name = "mac"\nmodel.hidden = [64, 16, 64]\nparallel.data = "sharded"\nrun.finish = false\n'
    (tmp_path / "net.toml").write_text(keys)
    return tmp_path


def test_a_thousand_ranks_on_paper(folder: Path) -> None:
    """Without data and without MPI, and nothing is written."""
    said = run_here("net.toml", "--check", "--ranks", 1024, "--nodes", 64, *LARGE, cwd=folder, code=0).out
    for text in (
        "80,000,000 training, 20,000,000 validation",
        "49,152 blocks",
        "64 of 16 ranks",
        "s predicted (mac), efficiency ",
        "10 GFLOP/s a core",
        "2 us a message",
    ):
        assert text in said
    assert [path.name for path in folder.iterdir()] == ["net.toml"]


@pytest.mark.parametrize(
    ("settings", "asked", "remedy"),
    [
        ((), ("--ranks", 64, *LARGE), "use more nodes (at least 2 for 64 ranks)"),
        (('parallel.data="replicated"',), ("--ranks", 64, "--nodes", 64, *LARGE), 'use parallel.data = "sharded"'),
        ((), (*LARGE[:4], "--memory", "100G", "--ranks", 2, "--nodes", 2), "more ranks and nodes (4 are enough"),
        (('parallel.data="replicated"',), ("--ranks", 9, "--points", 10**6, "--columns", 900, "--memory", "60G"),
         'parallel.data = "node"'),
    ],
)  # fmt: skip
def test_what_helps_where_a_node_has_too_little(
    settings: tuple[str, ...], asked: tuple[object, ...], remedy: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most ranks that are tried here are 64: a plan for a hundred thousand takes seconds."""
    monkeypatch.setattr(trial, "MOST_RANKS", 64)
    words = [word for setting in settings for word in ("--set", setting)]
    assert remedy in run_here("net.toml", "--check", *words, *asked, cwd=folder, code=2).err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ranks", 4), "no data are named"),
        (("--ranks", 0, *LARGE), "--ranks 0"),
        (("--ranks", 4, "--nodes", 5, *LARGE), "a node has at least a rank"),
        (("--ranks", 10**9, *LARGE), "--ranks 1000000000: plans are made for up to 131,072 ranks"),
        (("--points", 1, "--columns", 3), "--points 1"),
        (("--points", 10**23, "--columns", 3), "are at most"),
        (("--ranks", 10**23, *LARGE), "are at most"),
        (("--points", 100, "--columns", -3), "--columns -3"),
        (("--columns", 3, "--set", 'data.source="digits"'), "give both"),
        (("--points", 100, "--outputs", 3, "--set", 'data.source="digits"'), "--outputs goes with --columns"),
        (("--memory", "7X", *LARGE[:4]), "no amount of memory"),
        (("--points", 100, "--columns", 3, "--set", 'model.loss="cross_entropy"'), "the number of classes"),
    ],
)
def test_senseless_questions_are_refused(words: tuple[object, ...], says: str, folder: Path) -> None:
    assert says in run_here("net.toml", "--check", *words, cwd=folder, code=2).err


def test_ranks_are_for_a_check_alone(folder: Path) -> None:
    assert "--ranks goes with --check" in run_here("net.toml", "--ranks", 4, cwd=folder, code=2).err


def test_points_of_data_at_hand(folder: Path) -> None:
    """Columns as the data have them, as many rows as are asked for."""
    np.savez(folder / "points.npz", X=np.random.default_rng(0).normal(size=(50, 7)))
    words = ("--set", 'data.source="points.npz"', "--points", 10_000, "--ranks", 3)
    said = run_here("net.toml", "--check", *words, cwd=folder, code=0).out
    assert "7-64-16-64-7" in said
    assert "8,000 training" in said


@pytest.mark.parametrize(
    ("text", "value"), [("64G", 64 * 2**30), ("512M", 2**29), ("1.5T", 1.5 * 2**40), ("10", 10), ("2GiB", 2**31)]
)
def test_amounts_of_memory(text: str, value: float) -> None:
    assert bytes_in(text) == value


# --- memory of a node -------------------------------------------------------------------------------------------------


def plan_of(data: str, ranks: int) -> tuple[Config, Plan]:
    net, run = Model([64], "sigmoid", sites="after"), Run(finish=False)
    config = Config(model=net, method=Method("mac"), run=run, parallel=Parallel(data))  # type: ignore[arg-type]
    return config, planned_of(config, 500, 500, 10**6, 10**4, ranks)


@pytest.mark.parametrize("data", ["replicated", "node", "sharded"])
def test_the_least_number_of_nodes_is_the_least(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it names fits, and one less does not."""
    config, plan = plan_of(data, 64)
    monkeypatch.setattr(trial, "_data_of", lambda config, asked: (config, Sizes(500, 500, 10**6, 10**4, True)))
    memory = 1.01 * trial.bytes_of_node(plan, 13)
    with pytest.raises(UsageError, match="at least 13 for 64 ranks") as error:
        trial.answer(config, MachineQuestion(64, 2, memory=memory))
    assert "32 ranks on a node" in str(error.value)
    assert trial.bytes_of_node(plan, 12) > memory


def test_all_ranks_of_a_machine_are_compared_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of them alone; of points that a node has once, once."""
    _, plan = plan_of("replicated", 8)
    need = least_bytes(plan)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": int(5.5 * need / 4096)}.__getitem__)
    check_memory(plan, 5)
    with pytest.raises(UsageError, match=r"at most 5 ranks on a machine, so more machines, or parallel.data = "):
        check_memory(plan, 6)
    check_memory(plan_of("node", 8)[1], 8)
    check_memory(plan_of("sharded", 8)[1], 8)


def test_launchers_say_how_many_ranks_are_here() -> None:
    assert ranks_here({}) == 1
    assert ranks_here({"MPI_LOCALNRANKS": "4"}) == 4
    assert ranks_here({"OMPI_COMM_WORLD_LOCAL_SIZE": "3", "MPI_LOCALNRANKS": "x"}) == 3
