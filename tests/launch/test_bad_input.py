"""What cannot be run is refused with one message, exit code 2, and nothing created, on any number of ranks."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from launch.cases import points, snapshot, write_case
from launch.here import run_here
from launch.launching import Outcome, run_program

import macmpi
from macmpi import UsageError
from macmpi import run as program
from macmpi.parallel.team import Team

pytestmark = pytest.mark.launch

HANG = {2: 50.0, 12: 80.0}
"""Ten times the 5 s (2 ranks) and the 8 s (12 ranks) within which the message is promised."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a good config and good data to begin with."""
    write_case(tmp_path, "autoencoder")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(folder: Path, *arguments: object, ranks: int, config: str = "autoencoder.toml") -> str:
    """The message of a launch, after checking that there is one, and that nothing was created."""
    before = snapshot(folder)
    outcome = run_program(config, *arguments, ranks=ranks, cwd=folder, timeout=HANG[ranks], code=2)
    assert snapshot(folder) == before
    assert outcome.out == ""
    starts = re.findall(r"^(?:macmpi: |python -m macmpi.run: error: )", outcome.err, re.MULTILINE)
    assert len(starts) == 1, outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.left == []
    return outcome.err


def refused_here(*arguments: object, config: str = "autoencoder.toml") -> str:
    """The message, without a launch."""
    before = snapshot(Path.cwd())
    with pytest.raises(UsageError) as refusal:
        program.run(Team(), [config, *map(str, arguments)])
    assert snapshot(Path.cwd()) == before
    return str(refusal.value)


def with_points(**arrays: np.ndarray) -> None:
    np.savez("points.npz", **arrays)


# --- the config -------------------------------------------------------------------------------------------------------


def test_all_mistakes_of_a_config_in_one_message(folder: Path) -> None:
    (folder / "bad.toml").write_text(
        'data = "points.npz"\n[model]\nhidden = [7, 0]\nactivaton = "tanh"\n[penalty]\nmu0 = "ten"\n[pennalty]\n'
    )
    message = refused(folder, ranks=2, config="bad.toml")
    assert "4 mistakes in bad.toml" in message
    assert "model.hidden.1" in message
    assert "did you mean model.activation?" in message
    assert "penalty.mu0: " in message
    assert "'ten'" in message
    assert "did you mean penalty?" in message
    assert len(message.splitlines()) == 5


def test_what_does_not_go_together_is_refused_on_all_ranks(folder: Path) -> None:
    words = ('start.method="pca"', "model.tied=true")
    message = refused(folder, *(word for setting in words for word in ("--set", setting)), ranks=2)
    assert "does not go with" in message


def test_a_config_that_is_there_is_not_what_was_meant(folder: Path) -> None:
    message = refused_here("--set", "modell.hidden=[3]", config="digits_mac")
    assert "did you mean model?" in message
    assert "brings along" not in message


# --- the command line -------------------------------------------------------------------------------------------------


def test_a_command_line_that_makes_no_sense(folder: Path) -> None:
    assert "--iteration-count" in refused(folder, "--iteration-count", 3, ranks=2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--iterations", -1], "--iterations -1"),
        (["--resume", "nowhere.h5"], "--resume nowhere.h5"),
        (["--iterations", "many"], "'many'"),
        (["--iterations", 2.5], "'2.5'"),
        (["--max-time", "soon"], "'soon'"),
        (["--max-time", "nan"], "--max-time"),
        (["--output", "points.npz/run"], "points.npz: Not a directory"),
        (["--output", "points.npz"], "points.npz"),
        (["other.toml"], "other.toml"),
    ],
)
def test_a_value_that_makes_no_sense(
    arguments: list[object], named: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused_here(*arguments)
    assert named in message + capsys.readouterr().err


# --- the data ---------------------------------------------------------------------------------------------------------


def test_missing_data(folder: Path) -> None:
    (folder / "points.npz").unlink()
    assert f"{folder / 'points.npz'} does not exist" in refused_here()


def test_a_missing_set_says_where_it_is_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACMPI_DATA", str(folder / "no"))
    message = refused_here("--set", 'data.source="usps"')
    assert str(folder / "no" / "usps.h5") in message
    assert "MACMPI_DATA" in message


def nan_at(row: int, column: int) -> np.ndarray:
    X = points(1, 37, 9)
    X[row, column] = np.nan
    return X


X, X_VAL = points(1, 37, 9), points(2, 11, 9)


def test_bad_data_on_two_ranks(folder: Path) -> None:
    with_points(X=nan_at(30, 4), X_val=X_VAL)
    message = refused(folder, ranks=2)
    assert "points.npz: dataset X is nan at [30, 4]" in message
    assert len(message.splitlines()) == 1


# --- questions --------------------------------------------------------------------------------------------------------


def answered(folder: Path, *arguments: object, ranks: int) -> Outcome:
    """ranks = 0: in this process."""
    before = snapshot(folder)
    if ranks:
        outcome = run_program(*arguments, ranks=ranks, cwd=folder, timeout=HANG[ranks], code=0)
    else:
        outcome = run_here(*arguments, cwd=folder, code=0)
    assert snapshot(folder) == before
    assert outcome.err == ""
    return outcome


def test_help_is_printed_once(folder: Path) -> None:
    out = answered(folder, "--help", ranks=2).out
    assert out.count("usage:") == 1
    for option in ("--set", "--output", "--resume", "--iterations", "--max-time", "--check", "CONFIG.toml"):
        assert option in out


def test_version_is_printed_once(folder: Path) -> None:
    assert answered(folder, "--version", ranks=0).out.split() == ["macmpi", macmpi.__version__]


@pytest.mark.parametrize("ranks", [0, 2])
def test_check_prints_sizes_and_creates_nothing(ranks: int, folder: Path) -> None:
    out = answered(folder, "autoencoder.toml", "--check", ranks=ranks).out
    assert out.count("9-7-5-7-9") == 1
    assert "37 training, 11 validation" in out
    assert len(re.findall(r"^ranks +" + str(max(ranks, 1)), out, re.MULTILINE)) == 1
    for line in ("tiles", "memory", "iteration"):
        assert re.search(rf"^{line} ", out, re.MULTILINE)


USUAL = ("--set", "penalty.tolerance=0.01", "--set", "penalty.mu_max=1e8")
"""The penalty's defaults, so that a method without one is given no key that it does not read."""


@pytest.mark.parametrize(
    ("data", "method", "ranks"),
    [
        ("node", "adam", 0),
        ("node", "cg", 0),
        ("node", "stochastic", 2),
        ("sharded", "stochastic", 0),
        ("sharded", "mac", 0),
    ],
)
def test_check_of_other_methods_and_kinds_of_data(data: str, method: str, ranks: int, folder: Path) -> None:
    words = ("--set", f'parallel.data="{data}"', "--set", f'method.name="{method}"', *USUAL)
    out = answered(folder, "autoencoder.toml", "--check", *words, ranks=ranks).out
    assert re.search(r"^iteration +[\d.e-]+ s measured here, the median of \d+$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "run.threads=1000",
            rf"run.threads = 1000: {len(os.sched_getaffinity(0))} cores may be used; more",
        ),
        ("baseline.batch=1000", r"baseline.batch = 1000: there are 37 training points; a minibatch is all of them"),
    ],
)
def test_more_than_there_is_of_is_said_in_one_line(setting: str, said: str, folder: Path) -> None:
    words = ("autoencoder.toml", "--check", "--set", 'method.name="sgd"', *USUAL)
    assert run_here(*words, cwd=folder, code=0).err == ""
    (line,) = run_here(*words, "--set", setting, cwd=folder, code=0).err.splitlines()
    assert line.startswith(f"macmpi: {said}")
