"""`macmpi COMMAND`: the same as `python -m macmpi.COMMAND`, found by name, and nothing is loaded for it but that."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from launch.launching import environment, run_program

from macmpi import __main__ as commands
from macmpi.console import program
from macmpi.parallel.command import ACTIONS, ARGUMENTS, COMMANDS, ONE_OF, WEIGHTS, parser_of
from macmpi.results.model import PREFERRED, Model

BY_NAME, ROOT = ("-m", "macmpi"), Path(__file__).resolve().parents[2]


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["macmpi", *words])
    with pytest.raises(SystemExit) as end:
        commands.main()
    return int(end.value.code or 0)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_names_every_command(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *words) == 0
    out = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert f"\n  {name:12s}{text}\n" in out


def test_every_command_of_the_package_is_in_the_table_and_can_be_called() -> None:
    mains = {path.stem for path in (ROOT / "macmpi").glob("*.py") if "\n    main()\n" in path.read_text()}
    assert mains - {"__main__"} == COMMANDS.keys()
    for name in COMMANDS:
        assert callable(import_module(f"macmpi.{name}").main)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu"], "'rnu' is no command; did you mean run?"),
        (["my.toml"], "'my.toml' is no command; did you mean macmpi run my.toml?"),
        (["xyzzy"], "'xyzzy' is no command; known here: "),
        ([], "a command is needed"),
    ],
)
def test_what_is_no_command_is_refused(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *words) == 2
    done = capsys.readouterr()
    assert says in done.err
    assert done.out == ""


def test_an_argument_of_several_commands_is_said_once_and_every_row_is_of_a_command() -> None:
    rows = [(command, form.split()[0]) for commands, form, _, _ in ARGUMENTS for command in commands.split()]
    assert len(set(rows)) == len(rows)
    assert (
        {command for command, _ in rows} == COMMANDS.keys() == {parser_of(name).prog.split(".")[1] for name in COMMANDS}
    )
    assert {(name, argument) for name, own in ONE_OF.items() for argument in own} <= set(rows)
    assert len({(form, text) for _, form, text, _ in ARGUMENTS}) == len(ARGUMENTS)
    assert WEIGHTS == PREFERRED
    assert all(callable(getattr(Model, action)) for action in ACTIONS)


def test_a_command_within_prose_is_one_that_its_parser_takes() -> None:
    """Single capitals stand for numbers."""
    told, form = [], re.compile(rf"`(?:[^`]* )?(?:python -m macmpi\.|macmpi )({'|'.join(COMMANDS)}) ([^`>|]+)[^`]*`")
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        told += form.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    assert len(told) > 20
    for name, words in told:
        parser_of(name).parse_args(shlex.split(re.sub(r"\b[A-Z]\b", "2", words)))


def test_usage_names_the_command_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program("run") == parser_of("run").prog == "python -m macmpi.run"
    monkeypatch.setattr(sys, "argv", ["macmpi run", "my.toml"])
    assert program("predict") == "macmpi predict"


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("from macmpi.__main__ import unknown; unknown('rnu')", set()),
        ("import macmpi, numpy as np; macmpi.fit(np.eye(9), np.arange(9.0), max_time=1e-9)", {"numpy", "scipy"}),
    ],
)
def test_what_is_begun_often_loads_nothing_heavy(code: str, needed: set[str]) -> None:
    """An mpiexec starts many commands at once, and rank 0 alone is to import NumPy before a config is refused; a fit
    that is told nothing has no config to be refused."""
    heavy = {"numpy", "scipy", "h5py", "pydantic", "mpi4py", "matplotlib"}
    line = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    loaded = subprocess.run(line, check=True, env=environment(), capture_output=True, text=True).stdout.split()
    assert "macmpi.console" in loaded
    assert heavy.intersection(loaded) == needed


@pytest.mark.launch
def test_the_command_trains_as_the_module_does(table: Path) -> None:
    """The records agree but for the seconds that they took, and the id of the run."""
    curves = []
    for i, words in enumerate(((*BY_NAME, "run"), ("-m", "macmpi.run"))):
        run_program("points.toml", "--iterations", 2, "--output", f"r{i}", cwd=table, program=words, code=0)
        lines = (table / f"r{i}" / "curve.jsonl").read_text().splitlines()
        curves.append([[p for p in line.split(", ") if "seconds" not in p and '"run"' not in p] for line in lines])
    assert len(curves[0]) == 4
    assert curves[0] == curves[1]
