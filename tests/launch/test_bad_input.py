"""What cannot be run is refused with one message, exit code 2, and nothing created, on any number of ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from launch.cases import points, snapshot, write_case
from launch.here import run_here
from launch.launching import Outcome, run_program

import macmpi
from macmpi import UsageError
from macmpi import run as program
from macmpi.parallel.serial import Serial

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
        program.run(Serial(), [config, *map(str, arguments)])
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


def test_a_config_that_is_there_is_not_what_was_meant(folder: Path) -> None:
    message = refused(folder, "--set", "modell.hidden=[3]", ranks=2, config="digits_mac")
    assert "did you mean model?" in message
    assert "brings along" not in message


def test_12_ranks_give_the_message_once(folder: Path) -> None:
    message = refused(folder, "--set", "model.hiden=[3]", ranks=12)
    assert message.count("did you mean model.hidden?") == 1


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("model.hidden=7", "model.hidden"),
        ("model.hidden=[]", "model.hidden"),
        ("model.hidden=[2.5]", "model.hidden.0"),
        ("penalty.mu0=inf", "penalty.mu0"),
        ("penalty.mu_max=-1.0", "mu_max"),
        ("penalty=3", "[penalty]"),
        ("run.max_iterations=true", "run.max_iterations"),
        ("nonsense.key=1", "nonsense"),
        ("nonsense", "--set nonsense"),
        ("model.activation=[tanh]", "--set model.activation=[tanh]"),
    ],
)
def test_a_setting_that_does_not_fit(setting: str, named: str, folder: Path) -> None:
    assert named in refused_here("--set", setting)


@pytest.mark.parametrize(
    ("config", "content", "named"),
    [
        ("nowhere.toml", None, "No such file"),
        ("text.toml", b"hidden layers: three\n", "is not TOML"),
        ("bytes.toml", b"\xff\xfe\x00", "is not TOML"),
        (".", None, "cannot read the config"),
    ],
)
def test_a_config_that_cannot_be_read(config: str, content: bytes | None, named: str, folder: Path) -> None:
    if content is not None:
        (folder / config).write_bytes(content)
    message = refused_here(config=config)
    assert named in message
    assert config in message


# --- layers that trainers fit, the methods, model selection -----------------------------------------------------------


@pytest.fixture
def basis(folder: Path) -> Path:
    """With the config of a run that selects its numbers of centres; 61 points."""
    write_case(folder, "architecture")
    np.savez(folder / "short.npz", Z=np.zeros((60, 2)))
    np.savez(folder / "wide.npz", Z=np.zeros((61, 3)))
    np.savez(folder / "holes.npz", codes=np.full((61, 2), np.nan))
    (folder / "text.npz").write_text("1 2 3\n")
    return folder


FILE = "start.method='file'"
NO_SIZES = "selection.sizes=[]"
NONE = "selection.criterion='none'"
GREEDY = ("start.method='greedy'", "model.words=9")
OTHER = ("model.width=1.0", NONE, "start.method='uniform'")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["model.width=0.0"], ["model.width", "0"]),
        (["model.width=[1.0,-1.0]"], ["1 mistake", "model.width.1"]),
        (["model.width=[1.0,1.0,1.0]"], ["width has 3 entries but 2 hidden layers"]),
        (["model.centres='kmean'"], ["'kmean'", "did you mean 'kmeans'?"]),
        (["model.centres=['subset','subset','subset']"], ["centres has 3 entries but 2 hidden layers"]),
        (["model.activation=['rbf','linear','rbff']"], ["'rbff'", "did you mean 'rbf'?"]),
        (["model.words=0"], ["model.words"]),
        (["penalty.mu_every=-1"], ["penalty.mu_every"]),
        (["method.name='alternatin'"], ["method.name"]),
        (["selection.criterion='AIC'"], ["selection.criterion", "'aic'"]),
        (["selection.every=0", "selection.sizes=5"], ["2 mistakes", "selection.every"]),
        (["selection.epsilon2=[0.0]"], ["selection.epsilon2.0"]),
        (["start.width=0.0", "start.repulsion=-1.0"], ["2 mistakes", "start.width", "start.repulsion"]),
        ([FILE], ["coordinates"]),
        (["start.coordinates='short.npz'"], ["coordinates", "go together"]),
        ([NO_SIZES], ["starts with 30", "selection.sizes = [[20], [], [15]]"]),
        (["selection.epsilon2=[]"], ["selection.epsilon2", "0 given"]),
        (["selection.epsilon2=[0.1,0.1,0.1]"], ["selection.epsilon2", "3 given"]),
        (["model.centres='kmeans'"], ["nested sets", 'centres = "subset"']),
        (["penalty.metric='variance'"], ['needs penalty.metric = "identity"']),
        (["w_step.linear_solver='same'"], ['needs w_step.linear_solver = "closed_form"']),
        (["model.activation=['rbf','sigmoid','rbf']"], ["one linear layer", "segment 1"]),
        (
            [
                "model.hidden=[40,30,2]",
                "model.activation=['rbf','rbf','linear']",
                "model.sites=['none','none','after']",
                "selection.sizes=[[5],[5],[]]",
            ],
            ["one linear layer", "segment 1"],
        ),
        (["method.name='alternating'"], ["selection.criterion", 'method.name = "mac"']),
        (
            ["model.activation='sigmoid'", "model.sites='after'", *OTHER[::2], "selection.criterion='bic'", NO_SIZES],
            ["no layer"],
        ),
        (["model.hidden=[62,2,30]"], ["62 centres", "61 training points"]),
        (["model.centres='points'", NONE], ['"points"', "40 centres", "61 points"]),
        (["start.method='uniform'"], ["radial basis functions", "elastic_embedding"]),
        (["model.sites=['none','after','after']"], ["segment 2 (rbf)", "no weights"]),
        (["model.sites=['none','none','none']"], ["segment 1"]),
        ([FILE, "start.coordinates='no.npz'"], ["no.npz does not exist"]),
        ([FILE, "start.coordinates='text.npz'"], ["text.npz"]),
        ([FILE, "start.coordinates='points.npz'"], ["points.npz", "no dataset Z"]),
        ([FILE, "start.coordinates='short.npz'"], ["short.npz", "(60, 2)", "61 points"]),
        ([FILE, "start.coordinates='wide.npz'"], ["wide.npz", "(61, 3)"]),
        ([FILE, "start.coordinates='holes.npz'"], ["holes.npz", "nan at [0, 0]"]),
        (["method.name='alternating'", NONE, "penalty.method='augmented_lagrangian'"], ["penalty.method"]),
        (["method.name='alternating'", NONE, "model.activation=['rbf','tanh','rbf']"], ["linear code"]),
        (["z_step.solver='binary'", NONE], ['"binary" needs one site and bits']),
        (["model.activation='binary'", "model.sites='none'", *OTHER], ["without derivatives (binary)"]),
        (["model.activation=['rbf','binary','rbf']", "z_step.solver='gauss_newton'", NONE], ["are bits"]),
        (["model.activation=['quantise','relu','relu']", "model.words=62", *OTHER], ["62 centres", "61 training"]),
        (
            ["model.activation='quantise'", "model.sites='after'", "model.hidden=[3]", *OTHER[:2], *GREEDY],
            ["greedy", "derivatives"],
        ),
    ],
)
def test_what_does_not_go_together(settings: list[str], named: list[str], basis: Path) -> None:
    message = refused_here(*(part for s in settings for part in ("--set", s)), config="architecture.toml")
    for part in named:
        assert part in message


def test_the_same_on_two_ranks(basis: Path) -> None:
    message = refused(basis, "--set", "selection.sizes=[]", ranks=2, config="architecture.toml")
    assert "starts with 30" in message


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--iteration-count", 3], "--iteration-count"),
        (["--output", "points.npz"], "points.npz"),
    ],
)
def test_a_command_line_that_makes_no_sense(arguments: list[object], named: str, folder: Path) -> None:
    assert named in refused(folder, *arguments, ranks=2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--iterations", -1], "--iterations -1"),
        (["--resume", "nowhere.h5"], "--resume nowhere.h5"),
        (["--iterations", "many"], "'many'"),
        (["--iterations", 2.5], "'2.5'"),
        (["--max-time", "soon"], "'soon'"),
        (["--max-time", "nan"], "--max-time"),
        (["--output", "points.npz/run"], "points.npz/run"),
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
    assert f"{folder / 'points.npz'} does not exist" in refused(folder, ranks=2)


def test_data_of_an_unknown_name(folder: Path) -> None:
    message = refused_here("--set", 'data.source="ups"')
    assert '"ups"' in message
    assert '"usps"' in message


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


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"X": nan_at(30, 4), "X_val": X_VAL}, ["dataset X ", "nan at [30, 4]"]),
        ({"X": X, "X_val": -np.inf * X_VAL}, ["dataset X_val", "inf at [0, 0]", "99 such"]),
        ({"X": X[:1]}, ["dataset X ", "(1, 9)", "2 rows"]),
        ({"X": X[:, :0]}, ["dataset X ", "(37, 0)"]),
        ({"X": X, "Y": X[:-1]}, ["X has 37 rows but Y has 36"]),
        ({"X": X, "X_val": X_VAL[:, 1:]}, ["X has 9 columns but X_val has 8"]),
        ({"X": X, "Y": X, "X_val": X_VAL}, ["Y_val"]),
        ({"X": X, "Y_val": X_VAL}, ["Y_val"]),
        ({"X": X + 1j}, ["dataset X ", "complex128"]),
        ({"X": X.astype(str)}, ["dataset X ", "real numbers"]),
        ({"X": X.astype(object)}, ["points.npz", "cannot be read"]),
        ({"Y": X}, ["points.npz", "no dataset X"]),
        ({"X": np.ones((37, 9))}, ["constant"]),
    ],
)
def test_data_that_cannot_be_trained_on(arrays: dict[str, np.ndarray], named: list[str], folder: Path) -> None:
    with_points(**arrays)
    message = refused_here()
    for part in named:
        assert part in message
    assert len(message.splitlines()) == 1


def test_bad_data_on_two_ranks(folder: Path) -> None:
    with_points(X=nan_at(30, 4), X_val=X_VAL)
    message = refused(folder, ranks=2)
    assert "points.npz: dataset X is nan at [30, 4]" in message
    assert len(message.splitlines()) == 1


def test_more_points_wanted_than_there_are(folder: Path) -> None:
    assert "37 training points" in refused_here("--set", "data.points=38")


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[400] ^= 1
    path.write_bytes(content)


def something_else(path: Path) -> None:
    path.write_text("a,b,c\n" * 100)


@pytest.mark.parametrize("damage", [shortened, emptied, flipped, something_else])
@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_a_damaged_file(damage: Callable[[Path], None], suffix: str, folder: Path) -> None:
    path = folder / f"points.{suffix}"
    if suffix == "h5":
        import h5py

        with h5py.File(path, "w") as file:
            file.create_dataset("X", data=X, fletcher32=True, chunks=(37, 9))
    damage(path)
    if suffix == "h5" and damage is flipped:
        content = bytearray(path.read_bytes())
        content[-300] ^= 1  # among the numbers, which a checksum watches over
        path.write_bytes(content)
    message = refused_here("--set", f'data.source="points.{suffix}"')
    assert f"points.{suffix}" in message
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
    assert answered(folder, "--version", ranks=2).out.split() == ["macmpi", macmpi.__version__]


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
        ("run.threads=1000", rf"run.threads = 1000: this machine has {os.cpu_count()} cores"),
        ("baseline.batch=1000", r"baseline.batch = 1000: there are 37 training points; a minibatch is all of them"),
    ],
)
def test_more_than_there_is_of_is_said_in_one_line(setting: str, said: str, folder: Path) -> None:
    words = ("autoencoder.toml", "--check", "--set", 'method.name="sgd"', *USUAL)
    assert run_here(*words, cwd=folder, code=0).err == ""
    (line,) = run_here(*words, "--set", setting, cwd=folder, code=0).err.splitlines()
    assert line.startswith(f"macmpi: {said}")


def test_check_refuses_what_a_run_refuses(folder: Path) -> None:
    with_points(X=nan_at(0, 0), X_val=X_VAL)
    assert "nan at [0, 0]" in refused_here("--check")
