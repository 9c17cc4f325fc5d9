"""`python -m macmpi.report RUN --watch`: the page follows the run, and stays as it is once that has ended."""

from __future__ import annotations

import errno
import fcntl
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch.here import run_here

from macmpi import report
from macmpi.machine.lock import Lock, is_held
from macmpi.results import pictures, watching

ITERATIONS = 4


@pytest.fixture(autouse=True)
def rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of few pixels."""
    monkeypatch.setattr(pictures.Picture, "save", lambda picture, to: picture.figure.savefig(to, format="png", dpi=10))


@pytest.fixture
def trained(table: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run in the current folder."""
    run_here("points.toml", "--iterations", ITERATIONS, "--output", "run", cwd=table, code=0)
    monkeypatch.chdir(table)
    return Path("run")


def main(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["report", *map(str, words)])
    try:
        report.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def story(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], None]) -> list[float]:
    """Between two looks of the watch the next step happens, and no time passes.  The pauses that it wished for."""
    rest, pauses = list(steps), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        rest.pop(0)()

    monkeypatch.setattr(watching.time, "sleep", sleep)
    return pauses


def page() -> str:
    return Path("run/report/report.html").read_text()


def state() -> str:
    """The line that says how far the run is."""
    (found,) = re.findall(r'<p class="state">(.*?), updated \d\d:\d\d:\d\d</p>', page())
    return str(found)


def news() -> dict[str, Any]:
    """The news for pages that are open."""
    found = re.fullmatch(r"macmpi\((.*)\);\n", Path("run/report/live.js").read_text())
    assert found is not None
    return dict(json.loads(found[1]))


def test_the_page_follows_a_run_from_before_its_beginning_to_its_end(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished, lock, seen = Path("finished"), Lock(trained / "lock"), list[Any]()
    lines = (trained / "curve.jsonl").read_text().splitlines(keepends=True)
    trained.rename(finished)

    def begin() -> None:
        assert not trained.exists(), "nothing is created for a run that is not there"
        assert "run: waiting for its first record" in capsys.readouterr().out
        trained.mkdir()
        (trained / "config.toml").write_text((finished / "config.toml").read_text())
        lock.claim()

    def record(count: int, tail: str = "") -> Callable[[], None]:
        def step() -> None:
            seen.append((state(), page().count("<img"), news()["version"]))
            assert not news()["ended"]
            assert news()["body"] in page()
            assert "<script>" in page()
            (trained / "curve.jsonl").write_text("".join(lines[:count]) + tail)

        return step

    def end() -> None:
        record(len(lines))()
        for path in finished.iterdir():
            if path.is_file() and path.name not in ("curve.jsonl", "lock"):
                (trained / path.name).write_bytes(path.read_bytes())

    steps = begin, record(1), record(3, '{"iteration": 3, "ph'), record(3), end, lambda: lock.__exit__()
    pauses = story(monkeypatch, *steps)
    assert main(monkeypatch, "run", "--watch", "7") == 0
    states = [text for text, _, _ in seen]
    seconds = [json.loads(line)["seconds"] for line in lines]
    left = watching.duration((ITERATIONS - 2) * seconds[2] / 2)
    assert states[:2] == ["waiting for its first record", "running, iteration 0"]
    assert states[2:] == [f"running, iteration 2 of {ITERATIONS}, {left} left at most"] * 2
    assert [count for _, count, _ in seen] == [0, 1, 2, 2]
    assert seen[2] == seen[3], "without a new record nothing is drawn"
    assert len({version for _, _, version in seen}) == 3
    assert min(pauses) >= 7.0
    assert "<script" not in page()
    assert news()["ended"]
    assert news()["body"] in page()
    assert page().count("<figure") == len(list(Path("run/report").glob("*.png"))) > 2
    assert {path.suffix for path in Path("run/report").iterdir()} == {".png", ".html", ".js"}


def test_a_run_that_has_ended_is_drawn_once(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story(monkeypatch)
    assert main(monkeypatch, "run", "--watch") == 0
    assert "<script" not in page()
    assert not Path("run/report/live.js").exists()


def test_ctrl_c_ends_the_watch_and_leaves_a_page_that_stays(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with Lock(trained / "lock") as lock:
        lock.claim()
        story(monkeypatch, interrupt)
        assert main(monkeypatch, "run", "--watch") == 0
    assert "<script" not in page()
    assert "The watch ended at" in page()
    assert state() == "running, all iterations are done: the model is made"
    assert news()["ended"]


def test_a_run_that_ends_without_a_record_is_said_to(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (trained / "curve.jsonl").unlink()
    lock = Lock(trained / "lock")
    lock.claim()
    story(monkeypatch, lambda: lock.__exit__())
    assert main(monkeypatch, "run", "--watch") == 2
    assert state() == "ended without a record"
    assert "<script" not in page()
    assert "run is not a run" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "says"), [("0", "no number of seconds"), ("run", "runs go before --watch")])
def test_seconds_that_are_none(
    word: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(monkeypatch, "run", "--watch", word) == 2
    assert says in capsys.readouterr().err


def test_a_lock_is_held_while_somebody_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    with Lock(path) as lock:
        lock.claim()
        assert is_held(path)
        assert is_held(path), "looking changes nothing"
        (tmp_path / "link").symlink_to(path)
        assert not is_held(tmp_path / "link")
    assert not is_held(path)

    def without_locks(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    assert not is_held(path), "its holder has given it back"
    path.write_text('{"host": "elsewhere", "pid": 1}')
    assert is_held(path)
