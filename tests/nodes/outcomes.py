"""Cases that are tried several times on nodes of this machine, and the file that says how each of them ended."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "suites"
LIBRARIES = ("macmpi", "mpi4py", "mpich", "openmpi", "numpy", "h5py")


@dataclass(frozen=True)
class Case:
    """A promise, and a function that keeps it: it is given the cluster and a folder, and raises where it does not."""

    name: str
    promise: str
    check: Callable[[Any, Path], Any]


class Cases(list[Case]):
    """Cases in the order in which they are tried."""

    def case(self, name: str, promise: str) -> Callable[[Callable[[Any, Path], Any]], Callable[[Any, Path], Any]]:
        """Makes a case of a function."""

        def added(check: Callable[[Any, Path], Any]) -> Callable[[Any, Path], Any]:
            self.append(Case(name, promise, check))
            return check

        return added


def parsed(description: str) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this; no results are written")
    p.add_argument("--times", type=int, default=1, metavar="N", help="how often each case is tried (1)")
    p.add_argument("--keep", action="store_true", help="keep the folder of files, and name it")
    return p.parse_args()


@contextmanager
def folder(kept: bool) -> Iterator[Path]:
    """A folder for everything that is written."""
    if kept:
        made = Path(tempfile.mkdtemp(prefix="macmpi-nodes-"))
        print(f"files: {made}", flush=True)
        yield made
        return
    with tempfile.TemporaryDirectory(prefix="macmpi-nodes-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def tried(cases: Sequence[Case], times: int, cluster: Any, place: Path) -> list[dict[str, Any]]:
    """Each case as often as asked for, with a line for each; what became of them."""
    rows = []
    for case in cases:
        broken, notes = [], []
        for number in range(times):
            own = place / f"{re.sub(r'[^a-z0-9]+', '-', case.name.lower())}-{number}"
            own.mkdir()
            try:
                notes.append(case.check(cluster, own))
            except Exception as error:  # noqa: BLE001 - the other cases are tried all the same
                traceback.print_exc()
                broken.append(str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error))
        row = {"case": case.name, "promise": case.promise, "tried": times, "kept": times - len(broken)}
        rows.append(row | {name: what for name, what in (("broken", broken), ("found", notes and notes[-1])) if what})
        print(f"{'kept  ' if not broken else 'BROKEN'} {times - len(broken)}/{times}  {case.name}", flush=True)
        if "found" in rows[-1]:
            print(f"            {rows[-1]['found']}", flush=True)
    return rows


def versions(**others: str) -> dict[str, str]:
    """The libraries in use."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found | others


def write(name: str, command: str, what: str, rows: list[dict[str, Any]], used: dict[str, str]) -> Path:
    """The file of a command's last result: commit, date, machine, versions, and each case's outcome."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout.split("\n")
    dirty = any(line and " docs/suites/" not in line for line in changed)
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    head = {
        "command": command,
        "what": what,
        "commit": commit + "-dirty" * dirty,
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "versions": used,
        "cases": len(rows),
        "kept": sum(row["kept"] == row["tried"] for row in rows),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(head | {"outcomes": rows}, indent=1) + "\n")
    return path


def closed(name: str, command: str, what: str, rows: list[dict[str, Any]], used: dict[str, str], whole: bool) -> None:
    """Writes the file of a whole suite, and ends the program: exit code 1 where a promise was broken."""
    kept = sum(row["kept"] == row["tried"] for row in rows)
    print(f"{kept} of {len(rows)} cases kept", flush=True)
    if whole:
        print(f"results: {write(name, command, what, rows, used).relative_to(ROOT)}")
    sys.exit(0 if kept == len(rows) else 1)
