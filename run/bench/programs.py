"""Programs that a benchmark launches: where one fails, what it said and its exit code are the benchmark's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn


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
