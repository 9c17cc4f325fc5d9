"""--check tries a few iterations where it can, and says what they took; else it predicts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launch.here import run_here
from launch.launching import run_program
from plans import plan_of

from macmpi import config
from macmpi.parallel import launchers
from macmpi.parallel.launchers import Memory
from macmpi.parallel.team import Team
from macmpi.training import trial
from macmpi.training.trial import TIMED, tried


@pytest.mark.parametrize("method", [*config.NESTED, "mac"])
def test_iterations_are_timed_and_nothing_is_written(method: str, table: Path) -> None:
    before = sorted(table.iterdir())
    out = run_here("points.toml", "--check", "--set", f"method.name={method}", cwd=table, code=0).out
    assert re.search(rf"^iteration +[\d.e-]+ s measured here, the median of {2 * TIMED}$", out, re.MULTILINE)
    assert sorted(table.iterdir()) == before


def test_ranks_try_them_together(table: Path) -> None:
    out = run_program("points.toml", "--check", ranks=2, cwd=table, code=0).out
    assert len(re.findall(r"^iteration +[\d.e-]+ s measured here", out, re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("data", "ranks"),
    [
        ("sharded", 0),
        ("node", 2),
    ],
)
def test_points_that_are_divided_or_shared_are_timed_as_they_lie(data: str, ranks: int, table: Path) -> None:
    words = ("points.toml", "--check", "--set", f"parallel.data={data}")
    out = (run_program(*words, ranks=ranks, cwd=table, code=0) if ranks else run_here(*words, cwd=table, code=0)).out
    assert re.search(r"^iteration +[\d.e-]+ s measured here", out, re.MULTILINE)


@pytest.mark.parametrize(("gigabytes", "enough"), [(1000.0, True), (0.1, False)])
def test_what_the_machine_has_is_said_and_warned_of(
    gigabytes: float, enough: bool, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "memory", lambda: Memory(gigabytes * 1e9, "Slurm's --mem allows"))
    found = run_here("points.toml", "--check", cwd=table, code=0)
    said = rf"about 0\.\d+ GB a node, and Slurm's --mem allows {gigabytes:,g} GB"
    assert re.search(rf"^machine +{said}$", found.out, re.MULTILINE)
    assert found.err == "" if enough else re.fullmatch(rf"macmpi: {said}: the run may be killed; use .*\n", found.err)


def test_another_start_is_timed_where_the_one_asked_for_needs_a_file(table: Path) -> None:
    run_here("points.toml", "--output", "first", "--iterations", 1, cwd=table, code=0)
    words = ("--set", "start.method=model", "--set", "start.model=first/model.h5")
    out = run_here("points.toml", "--check", *words, cwd=table, code=0).out
    assert re.search(r"^iteration +[\d.e-]+ s measured here", out, re.MULTILINE)


def test_what_would_take_long_is_predicted_and_the_points_are_not_shared(table: Path) -> None:
    given = config.Config(data=config.Data(str(table / "points.npz")), method=config.Method("stochastic"))
    plan = plan_of(given, 3, 1, 32, 8, 1)
    assert tried(plan, None, 2.0 * trial.BUDGET, Team()) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stochastic", "mac"])
def test_they_are_timed_at_the_start_and_where_a_run_is_later_on(
    name: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger minibatches, or a larger mu: what an iteration takes is between the two."""
    seen: list[tuple[int, float]] = []
    timed = trial._timed

    def noted(method: object, state: object, team: object, warm: int) -> list[float]:
        seen.append((state.iteration, state.mu))  # type: ignore[attr-defined]
        timed(method, state, team, warm)  # type: ignore[arg-type]
        return [2.0 + len(seen)]

    monkeypatch.setattr(trial, "_timed", noted)
    words = ("--set", f"method.name={name}", "--set", "penalty.mu0=0.5", "--set", "penalty.factor=3.0")
    out = run_here("points.toml", "--check", *words, cwd=table, code=0).out
    (first, second) = seen
    if name == "mac":
        assert (first[1], second[1]) == (0.5, 0.5 * 3.0**trial.LATER)
        assert "iteration    3.5 s measured" in out
    else:
        keys = config.Stochastic()
        grown = round(keys.grow_every * (keys.batch_max / keys.batch - 1.0))  # then minibatches are the largest
        assert (first[0], second[0]) == (0, grown)
        expected = 4.0 - grown / (2.0 * config.Run().max_iterations)
        assert float(out.split("iteration ")[1].split()[0]) == pytest.approx(expected, rel=0.02)
