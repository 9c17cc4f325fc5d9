"""Two runs in one folder, a folder with a finished run, small shared memory, odd places."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from faults.conftest import Tally
from faults.struck import CASE, ITERATIONS, OFTEN, assert_nothing_left, go_on
from faults.test_checkpoints import LONG, mounts, under_way
from launch.cases import assert_same_run, curve, snapshot, untimed, write_case
from launch.launching import LAUNCHER, launched, run_program
from limits import small_files
from striking import VARIABLE

pytestmark = pytest.mark.launch

__all__ = ["mounts"]

STOPPED, USAGE, STORAGE, INTERNAL = 75, 2, 74, 70
WORDS = (f"{CASE}.toml", "--output", "run", "--iterations", ITERATIONS, *OFTEN)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    write_case(folder, CASE)
    go_on(folder)
    return folder / "run"


@pytest.mark.parametrize("resume", ["auto", "no"])
@pytest.mark.parametrize("ranks", [0, 2])
def test_the_second_run_names_the_first(resume: str, ranks: int, tmp_path: Path, tally: Tally) -> None:
    tally.row("two runs in one folder; a finished run")
    write_case(tmp_path, "long")
    with launched(LONG, 2, tmp_path) as first:
        under_way(first, tmp_path)
        outcome = run_program(*LONG, "--resume", resume, ranks=ranks, cwd=tmp_path, code=USAGE)
        assert outcome.err.count("in use by the run of host") == 1
        pid = int(outcome.err.split("pid ")[1].split(",")[0])
        assert platform.node() in outcome.err
        assert pid in first.pids()
        first.process.send_signal(signal.SIGUSR1)
        assert first.outcome().code == STOPPED, "the first was not disturbed"
    run_program(*LONG, "--resume", "auto", "--max-time", 0.001, ranks=ranks, cwd=tmp_path, code=STOPPED)


def test_a_finished_run_says_how_to_go_on(straight: Path, tmp_path: Path, tally: Tally) -> None:
    tally.row("two runs in one folder; a finished run")
    write_case(tmp_path, CASE)
    shutil.copytree(straight, tmp_path / "run")
    before = snapshot(tmp_path)
    outcome = run_program(*WORDS, "--resume", "auto", ranks=2, cwd=tmp_path, code=0)
    assert "--iterations N with a larger N goes on" in outcome.out
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("megabytes", [16, 64])
def test_small_shared_memory(megabytes: int, mounts: Path, straight: Path, tally: Tally) -> None:
    tally.row("/dev/shm of 16 and 64 MB, 12 ranks")
    write_case(mounts, CASE)
    script = f'mount -t tmpfs -o size={megabytes}m none /dev/shm && exec "$@"'
    run_program(*WORDS, ranks=12, cwd=mounts, prefix=("unshare", "--mount", "sh", "-c", script, "sh"), code=0)
    assert_same_run(mounts / "run", straight)


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1", "nowhere.UTF-8", ""])
def test_locale(locale: str, straight: Path, tmp_path: Path, tally: Tally) -> None:
    """With a folder whose name no ASCII holds, and with Python's own UTF-8 mode off."""
    tally.row("locale, console, HOME, paths")
    folder = tmp_path / "Ordner mit Ümlaut и пробел"
    folder.mkdir()
    write_case(folder, CASE)
    env = {"LC_ALL": locale, "LANG": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    outcome = run_program(*WORDS, ranks=2, cwd=folder, env=env, code=0)
    assert outcome.err == ""
    assert_same_run(folder / "run", straight)


@pytest.mark.parametrize("name", ["no space", "tab\tand 'quotes'", "ядро", "-n"])
def test_names(name: str, straight: Path, tmp_path: Path, tally: Tally) -> None:
    """Of the config and of the output folder."""
    tally.row("locale, console, HOME, paths")
    write_case(tmp_path, CASE).rename(tmp_path / f"{name}.toml")
    words = ("--iterations", ITERATIONS, *OFTEN, f"--output={name}", "--", f"{name}.toml")
    run_program(*words, ranks=2, cwd=tmp_path, code=0)
    assert_same_run(tmp_path / name, straight)


@pytest.mark.parametrize("stream", ["out", "err", "both"])
def test_closed_console(stream: str, straight: Path, tmp_path: Path, tally: Tally) -> None:
    """Its reader is gone from the first line on; or standard output was never open."""
    tally.row("locale, console, HOME, paths")
    write_case(tmp_path, CASE)
    redirect = {"out": ">&-", "err": "2>&-", "both": ">&- 2>&-"}[stream]
    prefix = ("sh", "-c", f'exec "$@" {redirect}', "sh")
    run_program(*WORDS, ranks=0, cwd=tmp_path, prefix=prefix, code=0)
    assert_same_run(tmp_path / "run", straight)


BUFFERED = {"PYTHONUNBUFFERED": ""}
"""Python with its usual buffers, which it empties as it ends."""


@pytest.mark.parametrize(("limit", "code"), [("unlimited", 0), (str(28 * 1024), STORAGE)])
def test_full_console(limit: str, code: int, straight: Path, tmp_path: Path, tally: Tally) -> None:
    """Standard output and standard error on a full disk, on which checkpoints may be too large as well."""
    tally.row("standard output and error on a full disk")
    write_case(tmp_path, CASE)
    prefix = (*small_files(limit), "sh", "-c", 'exec "$@" >/dev/full 2>/dev/full', "sh")
    run_program(*WORDS, ranks=0, cwd=tmp_path, prefix=prefix, env=BUFFERED, code=code)
    assert untimed(curve(tmp_path / "run"))[: ITERATIONS + 1] == untimed(curve(straight))[: ITERATIONS + 1]


@pytest.mark.parametrize("kind", ["exception", "known"])
def test_a_rank_whose_last_words_nobody_hears(kind: str, tmp_path: Path, tally: Tally) -> None:
    """Its standard error is on a full disk: the others end at once all the same, and not at their deadline."""
    tally.row("standard output and error on a full disk")
    write_case(tmp_path, CASE)
    (tmp_path / "muted.py").write_text(MUTED)
    env = {VARIABLE: f"1:z:3:{kind}", **BUFFERED}
    outcome = run_program(*WORDS, ranks=3, cwd=tmp_path, program=("muted.py",), env=env, code=INTERNAL)
    assert "no answer" not in outcome.err
    assert_nothing_left(outcome)
    go_on(tmp_path)


MUTED = """
import os, runpy
if "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
runpy.run_module("macmpi.run", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_reader_that_leaves(ranks: int, straight: Path, tmp_path: Path, tally: Tally) -> None:
    """`| head -1`: the launcher, or the program, writes to a pipe that nobody reads."""
    tally.row("locale, console, HOME, paths")
    write_case(tmp_path, CASE)
    prefix = ("sh", "-c", '"$@" | head -n 1', "sh")
    outcome = run_program(*WORDS, ranks=ranks, cwd=tmp_path, prefix=prefix, code=0)
    assert len(outcome.out.splitlines()) == 1
    if ranks == 0 or not (tmp_path / "run" / "model.h5").exists():
        # mpiexec itself ends by SIGPIPE and takes its ranks along; the same command goes on
        go_on(tmp_path)
    assert untimed(curve(tmp_path / "run")) == untimed(curve(straight))


IDS, RIGHTS = ("--reuid=54321", "--regid=54321"), ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
STRANGER = ("setpriv", *IDS, "--clear-groups", *RIGHTS)
"""A user whom the system does not know, as in a container, and who may go wherever these tests are."""


@pytest.mark.parametrize("user", ["own", "unknown"])
@pytest.mark.parametrize("ranks", [0, 2])
def test_no_home(user: str, ranks: int, straight: Path, tmp_path: Path, tally: Tally) -> None:
    tally.row("locale, console, HOME, paths")
    write_case(tmp_path, CASE)
    prefix = (*(STRANGER if user == "unknown" else ()), "env", "-u", "HOME", "-u", "USER", "-u", "TERM")
    if user == "unknown" and subprocess.run([*STRANGER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may become a user whom nobody knows")
    outcome = run_program(*WORDS, ranks=ranks, cwd=tmp_path, prefix=prefix)
    if ranks and "HOME" in LAUNCHER.needs:
        assert outcome.code and not (tmp_path / "run").exists()
        return
    assert outcome.code == 0, outcome.err
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.parametrize(
    "words",
    [
        ("run", *WORDS, "--check"),
        ("run", *WORDS, "--explain"),
        ("doctor",),
        ("show", "{run}/model.h5"),
        ("predict", "{run}/model.h5", "points.npz", "--output", "out.npz"),
        ("export", "{run}/model.h5", "--output", "net.onnx"),
        ("init", "points.npz", "--output", "own.toml"),
    ],
    ids=lambda words: " ".join(words[:1] + words[-1:]),
)
def test_no_command_needs_a_home(words: tuple[object, ...], straight: Path, tmp_path: Path, tally: Tally) -> None:
    """Nor a user whom the system knows."""
    tally.row("locale, console, HOME, paths")
    if subprocess.run([*STRANGER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may become a user whom nobody knows")
    write_case(tmp_path, CASE)
    prefix = (*STRANGER, "env", "-u", "HOME", "-u", "USER", "-u", "XDG_CACHE_HOME")
    command = ("-m", f"macmpi.{words[0]}", *(str(word).format(run=straight) for word in words[1:]))
    run_program(cwd=tmp_path, program=command, prefix=prefix, code=0)


def test_max_time_auto(tmp_path: Path, straight: Path, tally: Tally) -> None:
    """A job of a batch system that ends in six seconds: stopped before that, and the same command goes on."""
    tally.row("--max-time auto")
    write_case(tmp_path, "long")
    began = float(subprocess.run(["date", "+%s.%N"], capture_output=True, text=True, check=True).stdout)
    end = int(began) + 6
    env = {"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": str(end)}
    outcome = run_program(*LONG, "--max-time", "auto", ranks=2, cwd=tmp_path, env=env, code=STOPPED)
    tally.seconds(os.stat(tmp_path / "run" / "curve.jsonl").st_mtime - began)
    assert os.stat(tmp_path / "run" / "curve.jsonl").st_mtime < end
    assert outcome.out.count("--resume auto goes on") == 1
    assert_nothing_left(outcome)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGCONT])
def test_a_run_stopped_before_its_lock_takes_nothing(
    end: signal.Signals, straight: Path, tmp_path: Path, tally: Tally
) -> None:
    """Once it has judged an empty folder it is stopped; another run has ended there when it dies, or goes on."""
    tally.row("two runs in one folder; a finished run")
    write_case(tmp_path, CASE)
    with launched(WORDS, 0, tmp_path, env={VARIABLE: "0:data:0:stop"}) as first:
        first.until(lambda: "fault: stop" in first.text()[1], "stop")
        run_program(*WORDS, cwd=tmp_path, code=0)
        before = snapshot(tmp_path)
        for pid in first.pids():
            os.kill(pid, end)
        outcome = first.outcome()
        if end == signal.SIGCONT:
            assert outcome.code == USAGE
            assert "another run has used run while this one read its data" in outcome.err
            before.pop("run/lock")
    assert {name: content for name, content in snapshot(tmp_path).items() if name in before} == before
    assert_same_run(tmp_path / "run", straight)
