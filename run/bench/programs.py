"""Programs that a benchmark launches: where one fails, what it said and its exit code are the benchmark's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """The sources of a commit in a folder, while the context lasts."""
    tree = folder / "old"
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
    try:
        yield tree
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=False)


def environment(tree: Path) -> dict[str, str]:
    """The variables under which Python imports macmpi from a tree of sources."""
    return os.environ | {"PYTHONPATH": str(tree)}


def mpiexec(ranks: int, *words: object) -> list[str]:
    """This Python's interpreter on some ranks."""
    return [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks), sys.executable, *map(str, words)]


def output_of(command: Sequence[str]) -> str:
    """What a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        give_up(command, done.returncode, done.stderr)
    return done.stdout


def give_up(command: Sequence[str], code: int, errors: str) -> NoReturn:
    print(f"{' '.join(command)}\nended with {code}\n{errors}", file=sys.stderr)
    raise SystemExit(code if code > 0 else 1)
