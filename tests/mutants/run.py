"""Breaks the package on purpose, one law at a time, and says which tests notice: make mutants.

Each mutant is a row of a .toml file here: a file of the package, a text in it, what it becomes, what is then wrong, and
the tests that must fail.  The package is changed in copies of the working tree alone.  A mutant is

    killed      its tests fail, or do not end
    survived    they pass: a law that nothing holds
    stale       the old text does not occur in its file as often as it should: the mutant must follow the code
    no test     its tests fail, or there are none, without it: what they say under it means nothing

The exit code is 0 if all were killed, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 600.0
"""Seconds that the tests of a mutant may take."""

KILLED, SURVIVED, STALE, UNTESTED = "killed", "survived", "stale", "no test"


@dataclass(frozen=True)
class Mutant:
    """One change of the package.

    file: in macmpi/; breaks: what is wrong under it; old: the text, which occurs `count` times; new: what it becomes;
    tests: what pytest is asked to run, after variables of its environment, NAME=value.
    """

    id: str
    file: str
    breaks: str
    old: str
    new: str
    tests: str
    count: int = 1

    def path(self, root: Path) -> Path:
        """Its file in a tree."""
        return root / "macmpi" / self.file

    def applied(self, text: str) -> str | None:
        """The text of its file with the change; None where it is stale."""
        return text.replace(self.old, self.new) if text.count(self.old) == self.count else None


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, the seconds that its tests took, and the last thing that they said."""

    id: str
    outcome: str
    seconds: float = 0.0
    said: str = ""


def mutants() -> list[Mutant]:
    """All of them, file by file."""
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.toml"))]
    return [Mutant(**row) for table in tables for row in table["mutant"]]


class Tree:
    """A copy of the working tree: what git knows, and what it does not ignore."""

    def __init__(self, root: Path) -> None:
        self.root, self._moment = root, int(time.time())
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)

    def write(self, path: Path, text: str) -> None:
        """Another text, of a moment of its own: bytecode is told apart by whole seconds."""
        path.write_text(text, encoding="utf-8")
        self._moment += 1
        os.utime(path, (self._moment, self._moment))

    @contextmanager
    def changed(self, mutant: Mutant, text: str) -> Iterator[None]:
        """The tree under a mutant, whose file has this text."""
        path = mutant.path(self.root)
        before = path.read_text(encoding="utf-8")
        self.write(path, text)
        try:
            yield
        finally:
            self.write(path, before)

    def tested(self, tests: str) -> tuple[int | None, str]:
        """The exit code of pytest, None where it did not end in time, and the last line that it printed."""
        words = shlex.split(tests)
        named = [word for word in words if word.partition("=")[0].isupper()]
        variables = dict(word.split("=", 1) for word in named)
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *words[len(named) :]]
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.root)} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, f"not ended after {LIMIT:g} s"
        told = [line for line in out.splitlines() if line.strip()]
        failed = [line for line in told if line.startswith(("FAILED", "ERROR"))]
        return process.returncode, (failed or told or [""])[-1]


Trees = SimpleQueue[Tree]


def in_a_tree(trees: Trees, work: Callable[[Tree], Any]) -> Any:
    """Does some work in a tree that no other has at that time."""
    tree = trees.get()
    try:
        return work(tree)
    finally:
        trees.put(tree)


def verdict(tree: Tree, mutant: Mutant, broken: dict[str, str]) -> Verdict:
    """broken: commands that do not pass without any mutant, and what they said."""
    path = mutant.path(tree.root)
    text = mutant.applied(path.read_text(encoding="utf-8")) if path.is_file() else None
    if text is None:
        return Verdict(mutant.id, STALE)
    if mutant.tests in broken:
        return Verdict(mutant.id, UNTESTED, said=broken[mutant.tests])
    began = time.monotonic()
    with tree.changed(mutant, text):
        code, said = tree.tested(mutant.tests)
    outcome = {0: SURVIVED, 1: KILLED, None: KILLED}.get(code, UNTESTED)
    return Verdict(mutant.id, outcome, round(time.monotonic() - began, 1), said)


def tried(chosen: list[Mutant], jobs: int) -> list[Verdict]:
    """The verdict on each, which is printed once it is known."""
    commands = list(dict.fromkeys(mutant.tests for mutant in chosen))
    by_id = {mutant.id: mutant for mutant in chosen}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees: Trees = SimpleQueue()
        for number in range(jobs):
            trees.put(Tree(Path(folder, str(number))))
        print(f"{len(commands)} commands without a mutant, {len(chosen)} mutants", flush=True)
        before = list(pool.map(lambda tests: in_a_tree(trees, lambda tree: tree.tested(tests)), commands))
        broken = {tests: said for tests, (code, said) in zip(commands, before, strict=True) if code != 0}
        found = []
        for each in pool.map(lambda mutant: in_a_tree(trees, lambda tree: verdict(tree, mutant, broken)), chosen):
            found.append(each)
            mutant = by_id[each.id]
            line = f"{each.id:4s} {each.outcome:9s} {each.seconds:6.1f} s"
            print(f"{line}  {mutant.file:34s} {mutant.breaks}", flush=True)
            if each.outcome != KILLED:
                print(f"     {mutant.tests}\n     {each.said}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="ID", help="these alone")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once, each in a copy of its own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what became of each, in a file")
    asked = parser.parse_args()
    known = mutants()
    if unknown := set(asked.only) - {mutant.id for mutant in known}:
        parser.error(f"there is no mutant {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in known if not asked.only or mutant.id in asked.only]
    found = tried(chosen, asked.jobs)
    counts = {word: sum(each.outcome == word for each in found) for word in (KILLED, SURVIVED, STALE, UNTESTED)}
    print(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    if asked.json:
        rows = [asdict(mutant) | asdict(each) for mutant, each in zip(chosen, found, strict=True)]
        asked.json.write_text(json.dumps({"counts": counts, "mutants": rows}, indent=1) + "\n", encoding="utf-8")
    return int(counts[KILLED] != len(found))


if __name__ == "__main__":
    sys.exit(main())
