"""Whose files: a run replaces and removes what it has written, as the id inside tells, and nothing of anybody else."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from launch.cases import assert_same_content, assert_same_run, snapshot
from launch.here import run_here
from launch.launching import Outcome
from targets import rules_of
from unit.crew import crew

import macmpi
from macmpi import MacmpiError, UsageError, export, fetch, files, init, predict, report
from macmpi.config import Data
from macmpi.config.whole import KINDS, changes
from macmpi.data import loading
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import partition_points
from macmpi.results import pictures
from macmpi.training import launch, loop
from macmpi.training.run_directory import NAMES

COMMAND = ("c.toml", "--output", "run")
FLAGS = ((), ("--overwrite",), ("--resume", "auto"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a config, a run that has ended ("run"), and another one of the same config in "other"."""
    folder = tmp_path_factory.mktemp("made")
    np.savez(folder / "p.npz", X=np.random.default_rng(0).random((30, 4)))
    (folder / "c.toml").write_text('data = "p.npz"\nmethod.name = "mac"\nmodel.hidden = [2]\nrun.max_iterations = 1\n')
    for name in ("run", "other"):
        go(folder, output=name)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def go(folder: Path, *words: object, code: int | None = 0, output: str = "run", config: object = "c.toml") -> Outcome:
    return run_here(config, "--output", output, *words, cwd=folder, code=code)


# --- generated folders ------------------------------------------------------------------------------------------------

STATES: dict[str, Callable[[Path], object]] = {
    "none": shutil.rmtree,
    "finished": lambda run: None,
    "not finished": lambda run: (run / "model.h5").unlink(),
    "without checkpoints": lambda run: shutil.rmtree(run / "checkpoints"),
    "killed before the first": lambda run: (shutil.rmtree(run / "checkpoints"), (run / "model.h5").unlink()),
}
"""States of a run's own files."""

PLACES = (
    *(*NAMES, "lock", *(f"{name}.tmp" for name in NAMES)),
    *("checkpoints/iteration-000001.h5", "checkpoints/iteration-000009.h5", "checkpoints/iteration-99.h5"),
    *("checkpoints/iteration-000001.h5.tmp", "checkpoints/rows.tmp", "checkpoints/notes", "notes", "report/a.png"),
)


def hdf5(path: Path, other: Path) -> None:
    with h5py.File(path, "w") as file:
        file["X"] = np.arange(6.0)


def of_another_run(path: Path, other: Path) -> None:
    source = other / "checkpoints" if path.parent.name == "checkpoints" else other
    found = source / path.name
    shutil.copy(found if found.is_file() else other / "model.h5", path)


FOREIGN: dict[str, Callable[[Path, Path], object]] = {
    "text": lambda path, other: path.write_text("# mine\n[model]\nhidden = [2]\n"),
    "HDF5": hdf5,
    "another run's": of_another_run,
    "a folder": lambda path, other: (path.mkdir(), (path / "inside").write_text("mine")),
    "a link": lambda path, other: path.symlink_to(other.parent / "c.toml"),
}


def bytes_of(paths: list[Path]) -> dict[str, object]:
    """What lies there, links not followed."""
    found: dict[str, object] = {}
    for path in paths:
        found[str(path)] = os.readlink(path) if path.is_symlink() else snapshot(path) or path.read_bytes()
    return found


def cases(seed: int, count: int) -> Iterator[tuple[str, dict[str, str], tuple[str, ...]]]:
    """A state, foreign files by their places, flags: drawn, with a single foreign file half the time."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        number = 1 if random.random() < 0.5 else int(random.integers(0, 6))
        places = random.choice(PLACES, number, replace=False).tolist()
        kinds = random.choice(list(FOREIGN), number).tolist()
        state, flags = random.choice(list(STATES)), FLAGS[random.integers(len(FLAGS))]
        foreign = dict(zip(places, kinds, strict=True))
        if state == "none" and foreign.get("config.toml") == foreign.get("provenance.json") == "another run's":
            foreign["config.toml"] = "text"  # else the folder holds that run
        yield str(state), foreign, flags


@pytest.mark.parametrize("seed", range(40))
def test_nothing_foreign_is_ever_replaced_or_removed(seed: int, made: Path, tmp_path: Path) -> None:
    """Refused, or ended with all that is somebody else's as it was; and the lock's own file may be a lock's."""
    for i, (state, foreign, flags) in enumerate(cases(seed, 5)):
        folder = Path(shutil.copytree(made, tmp_path / f"{i}"))
        run = folder / "run"
        STATES[state](run)
        paths = [run / name for name in foreign if not (name == "lock" and foreign[name] == "another run's")]
        for path, kind in zip(paths, (foreign[str(p.relative_to(run))] for p in paths), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            FOREIGN[kind](path, folder / "other")
        before, everything = bytes_of(paths), snapshot(folder)
        outcome = go(folder, *flags, code=None)
        assert bytes_of(paths) == before, (state, foreign, flags, outcome)
        assert outcome.code in (0, 2), (state, foreign, flags, outcome)
        in_the_way = [name for name in foreign if name in NAMES or name.endswith(("0001.h5", "0009.h5"))]
        if in_the_way and run / in_the_way[0] in paths:
            assert outcome.code == 2
            assert snapshot(folder) == everything
            assert "move it away, or name another folder with --output" in outcome.err


# --- the page's table -------------------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "run_directory.md"
HEAD = "| the folder holds | without an option | `--resume auto` | `--overwrite` |\n|---|---|---|---|\n"
ROWS = {
    cells[0]: cells[1:]
    for cells in (
        line.strip("| ").split(" | ") for line in PAGE.read_text().split(HEAD)[1].split("\n\n")[0].splitlines()
    )
}
AS_SAID: dict[str, tuple[Callable[[Path], object], tuple[object, ...]]] = {
    "nothing where a run writes": (shutil.rmtree, ()),
    "this run, not finished": (lambda run: None, ("--iterations", 2)),
    "this run, finished": (lambda run: None, ()),
    "a model, but no checkpoint and more to do": (
        lambda run: shutil.rmtree(run / "checkpoints"),
        ("--iterations", 2),
    ),
    "a run of another config or other data": (lambda run: None, ("--set", "model.hidden=[3]")),
    "somebody else's file where a run writes": (lambda run: (run / "curve.jsonl").write_text("mine"), ()),
}
"""What the first column of the table names, made of a finished run, and the words of the launch."""


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("row", ROWS)
def test_the_page_says_what_becomes_of_a_folder(row: str, flags: tuple[str, ...], place: Path) -> None:
    """Its words: refused; nothing is touched; begins (with iteration 0); goes on (behind it)."""
    make, words = AS_SAID[row]
    make(place / "run")
    before = snapshot(place)
    told = dict(zip(((), ("--resume", "auto"), ("--overwrite",)), ROWS[row], strict=True))[flags]
    outcome = go(place, *flags, *words, code=2 if told.startswith("refused") else 0)
    if told.startswith("refused") or "nothing is touched" in told:
        changed = {name for name, content in snapshot(place).items() if before.get(name) != content}
        assert changed <= {"run/lock"}, told
    else:
        began = "\n     0 " in outcome.out
        assert began == (not told.startswith("goes on")), (told, outcome.out)


# --- inputs within the folder -----------------------------------------------------------------------------------------


def test_a_checkpoint_whose_id_is_damaged_is_somebody_else_s_until_it_is_moved_away(place: Path) -> None:
    newest = place / "run" / "checkpoints" / "iteration-000001.h5"
    content = bytearray(newest.read_bytes())
    content[content.index(b"macmpi-run-") + 20] ^= 1
    newest.write_bytes(content)
    (place / "run" / "model.h5").unlink()
    outcome = go(place, "--resume", "auto", code=2)
    assert f"{newest.name} is no file of a run in this folder" in outcome.err
    assert newest.read_bytes() == content
    newest.unlink()
    go(place, "--resume", "auto")
    assert (place / "run" / "model.h5").exists()


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("link", [False, True])
def test_inputs_within_the_folder_stay_or_are_refused(flags: tuple[str, ...], link: bool, place: Path) -> None:
    if link:
        (place / "link").symlink_to(place / "run")
    folder = "link" if link else "run"
    model = ("--set", 'start.method="model"', "--set", f'start.model="{folder}/model.h5"')
    before = snapshot(place)
    outcome = go(place, *flags, *model, code=2)
    assert f"{folder}/model.h5 is an input of this run" in outcome.err
    assert snapshot(place) == before
    outcome = go(place, *flags, "--iterations", 3, config=f"{folder}/config.toml", code=2)
    assert f"{folder}/config.toml is an input of this run" in outcome.err
    assert snapshot(place) == before
    go(place, *flags, config=f"{folder}/config.toml", code=2 if not flags else 0)
    assert (place / "run" / "config.toml").read_bytes() == before["run/config.toml"]


@pytest.mark.parametrize("ranks", [None, 1])
def test_a_fit_keeps_the_config_that_it_was_given(
    ranks: int | None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "run" / "config.toml").write_text("# mine\n" + (place / "c.toml").read_text())
    before = snapshot(place)
    with pytest.raises(UsageError, match=r"run/config\.toml is (an input|no file)"):
        macmpi.fit(config="run/config.toml", output="run", overwrite=True, ranks=ranks, max_time=5.0)
    assert snapshot(place) == before


# --- a run that has ended ---------------------------------------------------------------------------------------------


def test_a_run_whose_checkpoints_are_gone_is_finished_and_nothing_else(place: Path) -> None:
    """Told by its model; with more to do, another config or other data it cannot go on, and begins nowhere."""
    shutil.rmtree(place / "run" / "checkpoints")
    before = snapshot(place)
    np.savez(place / "q.npz", X=np.random.default_rng(1).random((30, 4)))
    q = ("--set", 'data.source="q.npz"')
    assert "run is finished (1 iteration); another --output" in go(place, "--resume", "auto").out
    ways = {
        ("--iterations", "2"): "holds a model, but no checkpoint from which its run could go on: replace it with",
        ("--set", "start.seed=1"): "cannot resume run with another config: start.seed (was 0, is 1)",
        q: "the data have changed since",
        (*q, "--iterations", "2"): "holds a model, but no checkpoint",
    }
    for words, said in ways.items():
        assert said in go(place, "--resume", "auto", *words, code=2).err
    (place / "q.npz").unlink()
    assert snapshot(place) == before


def test_keys_of_the_result_are_refused_and_those_of_the_end_go_on(place: Path) -> None:
    others = {"max_iterations": "2", "refit": "false", "threads": "2", "checkpoint_minutes": "1.0"}
    others |= {"keep_checkpoints": "1", "deadline": "99.0", "finish": "false"}
    assert {f"run.{key}" for key in others} == {key for key in KINDS if key.startswith("run.")}
    for key, value in others.items():
        folder = Path(shutil.copytree(place, place.parent / key))
        words = ("--resume", "auto", "--set", f"run.{key}={value}")
        outcome = go(folder, *words, code=2 if changes(f"run.{key}") == "result" else 0)
        said = {"result": f"run.{key} (was ", "end": "model: run/model.h5", "nothing": "is finished"}
        assert said[changes(f"run.{key}")] in outcome.out + outcome.err
        if changes(f"run.{key}") == "end":
            assert "is finished" in go(folder, *words).out
        if changes(f"run.{key}") == "nothing":
            go(folder, "--set", f"run.{key}={value}", output="new")
            assert_same_content(folder / "new" / "model.h5", folder / "run" / "model.h5")


def test_data_that_another_run_is_scaled_by_are_those_of_the_start(place: Path) -> None:
    """A run that started from a model reads its data by that model's scaling, also when it goes on."""
    X = np.random.default_rng(0).random((30, 4))
    X[3] = 1e6
    np.savez(place / "tails.npz", X=X)
    shutil.copy(place / "run" / "model.h5", place / "from.h5")
    words = ("--set", 'start.method="model"', "--set", 'start.model="from.h5"')
    go(place, *words, output="new")
    go(place, "--set", 'data.source="tails.npz"', output="wild")
    shutil.copy(place / "wild" / "model.h5", place / "from.h5")
    assert (
        "start.model is not the model that"
        in go(place, *words, "--iterations", 2, "--resume", "auto", output="new", code=2).err
    )


# --- a refit ----------------------------------------------------------------------------------------------------------

REFIT = 'data = "p.npz"\nmethod.name = "stochastic"\nmodel.hidden = [2]\nrun.max_iterations = 4\nrun.refit = %s\n'


def test_a_refit_that_was_not_wanted_is_made_later(place: Path) -> None:
    for name, word in (("without", "false"), ("with", "true")):
        (place / f"{name}.toml").write_text(REFIT % word)
    go(place, config="with.toml", output="straight")
    go(place, config="without.toml", output="new")
    assert "refit on all 30 points" in go(place, "--resume", "auto", config="with.toml", output="new").out
    assert_same_content(place / "new" / "model.h5", place / "straight" / "model.h5")
    assert "is finished" in go(place, "--resume", "auto", config="with.toml", output="new").out


def test_a_refit_without_time_goes_on_where_it_was_stopped(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 75 each time, until it has ended with the bits of a run that had time; a model is whole or none.

    Where its state cannot be kept the last save has failed: no batch script shall begin it again and again.
    """
    (place / "c.toml").write_text(REFIT % "true")
    go(place, output="straight")
    late, refits = loop.Pace.is_late, []
    refit, replace_file = loop.end.refit, files.replace_file

    def noted(*arguments: Any) -> Any:
        refits.append(arguments[-2] and (arguments[-2].iteration, arguments[-2].position))
        with monkeypatch.context() as patch:
            patch.setattr(loop.Pace, "is_late", lambda pace: True)
            return refit(*arguments)

    def full(path: Path, *more: Any) -> None:
        if path.name == "refit.h5":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(path, *more)

    monkeypatch.setattr(loop.end, "refit", noted)
    with monkeypatch.context() as patch:
        patch.setattr(files, "replace_file", full)
        assert "--resume auto goes on from iteration 4" in go(place, output="new", code=74).err
    code, launches = 75, 0
    while code == 75:
        code, launches = go(place, "--resume", "auto", output="new", code=None).code, launches + 1
        assert (place / "new" / "model.h5").exists() is (code == 0)
    assert code == 0
    assert launches > 2
    begun = [at for at in refits if at is not None]
    assert begun == sorted(set(begun))
    assert len(begun) == launches - 1
    assert_same_run(place / "new", place / "straight")
    assert not (place / "new" / "checkpoints" / "refit.h5").exists()
    assert late is loop.Pace.is_late


def test_a_model_that_lacks_its_refit_is_not_the_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "c.toml").write_text(REFIT % "true")
    go(place, output="straight")
    with monkeypatch.context() as patch:
        patch.setattr(loop.Pace, "suffices", lambda pace, seconds: False)
        patch.setattr(loop.Pace, "is_late", lambda pace: False)
        outcome = go(place, "--when-stopped", "model", output="new")
    assert "no time is left for the refit on all points" in outcome.err
    assert (place / "new" / "model.h5").exists()
    assert "refit on all 30 points" in go(place, "--resume", "auto", output="new").out
    assert_same_run(place / "new", place / "straight")


# --- judged, then locked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("before", ["nothing", "foreign notes"])
def test_a_folder_that_another_run_has_used_meanwhile_is_left_alone(
    before: str, flags: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped once it had judged the folder: the other run is there, and whole, when it goes on."""
    loaded, run = launch.loaded, place / "new"
    if before != "nothing":
        run.mkdir()
        (run / "notes").write_text("mine")
    found: list[dict[str, bytes]] = []

    def slow(*arguments: Any) -> Any:
        if not found:
            found.append({})
            go(place, output="new")
            found.append(snapshot(run))
        return loaded(*arguments)

    monkeypatch.setattr(launch, "loaded", slow)
    said = go(place, *flags, output="new", code=2).err
    assert "another run has used new while this one read its data: start it again" in said
    assert {name: content for name, content in snapshot(run).items() if name != "lock"} == {
        name: content for name, content in found[1].items() if name != "lock"
    }


# --- what --check says ------------------------------------------------------------------------------------------------


def test_check_says_what_becomes_of_the_folder_and_leaves_it(place: Path) -> None:
    ways = {
        (): "run holds a run already: continue it with --resume auto",
        ("--resume", "auto"): "run: is finished (1 iteration)",
        ("--resume", "auto", "--iterations", "2"): "run: the run goes on after iteration 1",
        ("--overwrite",): "run: the run begins again",
    }
    before = snapshot(place)
    for words, said in ways.items():
        assert said in go(place, "--check", *words).out
    assert "new: the run begins\n" in go(place, "--check", output="new").out
    (place / "run" / "model.h5").write_text("mine")
    assert "run/model.h5 is no file of a run" in go(place, "--check", "--resume", "auto").out
    (place / "run" / "model.h5").write_bytes(before["run/model.h5"])
    assert snapshot(place) == before
    with (place / "run" / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "run is in use by the run of host" in go(place, "--check", "--resume", "auto").out
    np.savez(place / "p.npz", X=np.random.default_rng(1).random((30, 4)))
    assert "cannot resume run: the data have changed" in go(place, "--check", "--resume", "auto").out
    assert "run: the run begins again" in go(place, "--check", "--overwrite").out


def unlisted(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.parent / "nowhere")


IN_THE_WAY: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a file": ("new", lambda place: (place / "new").write_text("mine")),
    "a file above it": ("c.toml/deep/new", lambda place: None),
    "a link to nothing": ("new", lambda place: unlisted(place / "new")),
    "a file for the checkpoints": ("run", lambda place: (shutil.rmtree(place / "run"), (place / "run").mkdir())),
    "a folder for the lock": ("new", lambda place: (place / "new" / "lock").mkdir(parents=True)),
    "a link for the lock": ("run", lambda place: unlisted(place / "run" / "lock")),
    "a name too long": ("n" * 300, lambda place: None),
    "read-only": ("run", lambda place: None),
    "read-only above it": ("new/run", lambda place: None),
    "without files that have no names": ("new/run", lambda place: None),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_check_refuses_the_folder_that_a_run_refuses(case: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same words, and neither makes anything."""
    output, make = IN_THE_WAY[case]
    make(place)
    if case == "a file for the checkpoints":
        (place / "run" / "checkpoints").write_text("mine")
    opened, errors = os.open, {"without": errno.EOPNOTSUPP, "read": errno.EROFS}
    number = errors.get(case.split("-")[0].split()[0])

    def refused(path: Any, flags: int, *more: Any, **keys: Any) -> int:
        if number and flags & (os.O_TMPFILE if number == errno.EOPNOTSUPP else os.O_RDWR | os.O_WRONLY):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, flags, *more, **keys)

    before = snapshot(place)
    words = ("--resume", "auto", "--iterations", "2")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        patch.setattr(os, "access", lambda path, mode: number != errno.EOPNOTSUPP)
        checked = go(place, "--check", *words, output=output).out.splitlines()[-1]
        said = go(place, *words, output=output, code=2).err
    assert said == f"macmpi: {checked.removeprefix('output').strip()}\n"
    assert "name another folder with --output" in said
    assert snapshot(place) == before


def test_what_a_finished_run_has_left_need_not_be_writable(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "check_folder", lambda folder: 1 / 0)
    assert "run is finished" in go(place, "--resume", "auto").out


# --- sums of data -----------------------------------------------------------------------------------------------------


def arrays(random: np.random.Generator, kind: str) -> dict[str, Any]:
    n = int(random.integers(40, 400))
    found: dict[str, Any] = {"X": random.integers(-9, 99, (n, 3)).astype(float)}
    if kind == "labels":
        found["Y"] = random.integers(0, 3, n)
    if kind in ("numbers", "weights"):
        found["Y"] = random.normal(size=(n, 2))
    if kind == "weights":
        found["weights"] = random.integers(0, 4, n).astype(float)
    if random.random() < 0.5:
        found |= {f"{name}_val": A[: n // 4] for name, A in found.items()}
    return found


@pytest.mark.parametrize("kind", ["autoencoder", "numbers", "labels", "weights"])
@pytest.mark.parametrize("seed", range(3))
def test_data_have_one_sum_however_they_are_held(kind: str, seed: int, tmp_path: Path) -> None:
    """Of raw points: not of their type, their scale, or who holds them; each array and the split have a part in it."""
    held, labels = arrays(np.random.default_rng(seed), kind), kind == "labels"

    def sums(held: dict[str, Any], ranks: tuple[int, ...] = (1,), **keys: Any) -> set[str]:
        with h5py.File(tmp_path / "x.h5", "w") as file:
            for name, A in held.items():
                file[name] = A
        config = Data(source=str(tmp_path / "x.h5"), **keys)
        data, wanted = loading.load(config, rules_of(labels)), rules_of(labels, precision="float32")
        found = {data.sha256}
        for count in ranks:
            points = tuple(
                partition_points(len(A), count, placement=PLACEMENTS["sharded"]) for A in (data.X, data.X_val)
            )

            def load(team: Any, points: Any = points) -> None:
                found.add(loading.load_rows(config, wanted, data.classes, points, team).sha256)

            assert crew(count, load) == [None] * count
        return found

    one = sums(held, (1, 3))
    assert len(one) == 1
    assert sums(held | {"X": held["X"].astype(np.int32)}, scale="range") == one
    others = [sums(held | {name: A[::-1]}) for name, A in held.items()]
    others += [sums(held | {name: A / 256.0}) for name, A in held.items() if not name.startswith(("Y", "weights"))]
    others += [] if "X_val" in held else [sums(held, seed=1)]
    assert all(other.isdisjoint(one) for other in others)


def test_a_run_on_data_of_another_scale_is_another_run(place: Path) -> None:
    go(place, "--set", 'data.scale="range"', output="new")
    with np.load(place / "p.npz") as file:
        np.savez(place / "q.npz", X=file["X"] / 256.0)
    words = ("--set", 'data.scale="range"', "--set", 'data.source="q.npz"', "--resume", "auto")
    for more in ((), ("--iterations", 2)):
        assert "the data have changed since" in go(place, *words, *more, output="new", code=2).err


# --- other commands ---------------------------------------------------------------------------------------------------


def command(module: Any, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["command", *map(str, words)])
    try:
        module.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("kind", FOREIGN)
def test_no_command_replaces_a_foreign_file_unasked(kind: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(pictures, "draw", lambda results: [pictures.curves(results)])  # one is as good as all
    commands: dict[str, tuple[Any, tuple[str, ...]]] = {
        "y.npz": (predict, ("run/model.h5", "p.npz", "--output", "y.npz")),
        "run/model.onnx": (export, ("run/model.h5",)),
        "p.toml": (init, ("p.npz",)),
        "run/report/report.html": (report, ("run",)),
        "run/report/curves.png": (report, ("run",)),
    }
    for name, (module, words) in commands.items():
        shutil.rmtree(place / "run" / "report", ignore_errors=True)
        (place / name).parent.mkdir(exist_ok=True)
        FOREIGN[kind](place / name, place / "other")
        (place / f"{name}.tmp").write_text("mine")
        before = snapshot(place)
        assert command(module, monkeypatch, *words) == 2, name
        assert snapshot(place) == before
        shutil.rmtree(place / name) if kind == "a folder" else (place / name).unlink()
        assert command(module, monkeypatch, *words) == 0
        assert (place / f"{name}.tmp").read_text() == "mine"
        again = command(module, monkeypatch, *words)
        assert again == (0 if module is report else 2), name
        if module is not report:
            assert command(module, monkeypatch, *words, "--overwrite") == 0


def test_fetch_replaces_what_it_has_fetched_and_no_other_file(tmp_path: Path) -> None:
    path, images = tmp_path / "usps.h5", {"images": np.zeros((2, 3))}
    path.write_text("mine")
    with pytest.raises(MacmpiError, match=r"usps\.h5 is there already"):
        fetch._write(path, images, "https://a")
    assert path.read_text() == "mine"
    path.unlink()
    for _ in range(2):
        fetch._write(path, images, "https://a")
    assert files.run_of(path) == ""
