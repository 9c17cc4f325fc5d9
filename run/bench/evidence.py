"""Benchmarks of several steps, each kept once it is done: what `make results` and `make paper` are made of.

A step is a program that is launched, and a function that reads what it left behind.  Its outcome is kept in
FOLDER/STEP.json with the command and the commit; a later call goes on from there, and makes again what another commit,
another machine or another command has left.  A benchmark is a list of steps; when all are done they are written to one
file, with commit, date, machine, BLAS kernel and versions of libraries.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import resource
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from programs import ROOT, give_up, mpiexec

from macmpi.console import duration
from macmpi.parallel.kernels import libraries, words

LIBRARIES = ("numpy", "scipy", "mpi4py", "h5py", "mpich", "openmpi", "scikit-learn", "torch")
THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Every rank computes with one thread of BLAS."""

OUTCOMES = ROOT / "runs" / "evidence"
"""Outcomes of single steps, of `make results` and `make paper` alike: they have some in common."""

MEASURED = ("macmpi", ":(glob)run/*.toml", "run/bench", "setup.cfg", "pyproject.toml")
"""Files that a measurement depends on, apart from libraries."""

Found = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One launch.

    command: its words, those of python first, from the root of the repository; read: of the folder that the program
    wrote to and what it printed; about: seconds that it takes on one quiet core, to say how much is left.
    """

    name: str
    command: tuple[str, ...]
    read: Callable[[Path, str], Found]
    about: float = 60.0
    ranks: int = 1


@dataclass(frozen=True)
class Benchmark:
    """Steps whose outcomes make one file.

    without: what other benchmarks need of the same steps, and this one leaves out of its file.
    """

    name: str
    steps: Sequence[Step]
    without: tuple[str, ...] = ()


@dataclass
class Folders:
    """kept: outcomes of single steps, and what their programs write; files: of whole benchmarks."""

    kept: Path
    files: Path
    done: dict[str, Found] = field(default_factory=dict)


def commit() -> str:
    """The last commit that changed what is measured, with "-dirty" where files of that differ from it."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", *MEASURED]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    last = git("log", "-1", "--abbrev=8", "--format=%h") or "unknown"
    return f"{last}{'-dirty' if git('status', '--porcelain') else ''}"


def where() -> Found:
    """The machine, its BLAS kernel, and the versions of what computes."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = {"processor": model, "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory)}
    return {"machine": machine, "blas": words(libraries()), "versions": versions}


def shown(command: Sequence[str], ranks: int) -> str:
    """A command as somebody would type it."""
    python = f"mpiexec -n {ranks} python" if ranks > 1 else "python"
    return f"{python} {shlex.join(command)}"


def carried_out(step: Step, folders: Folders, of: str, here: Found) -> Found:
    """The outcome of a step: kept, or made now, by one call at a time.  Raises SystemExit where its program fails."""
    with (folders.kept / f"{step.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _carried_out(step, folders, of, here)


def _carried_out(step: Step, folders: Folders, of: str, here: Found) -> Found:
    kept, command = folders.kept / f"{step.name}.json", shown(step.command, step.ranks)
    if kept.exists():
        found: Found = json.loads(kept.read_text())
        if (found["commit"], found["command"], found["where"]) == (of, command, here):
            return found
    output = begun(folders.kept / step.name, f"{of} {command}")
    launched = mpiexec(step.ranks, *step.command) if step.ranks > 1 else mpiexec(1, *step.command)[3:]
    launched = [word.replace("{OUTPUT}", str(output)) for word in launched]
    before, began, busy = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), os.getloadavg()[0]
    done = subprocess.run(launched, cwd=ROOT, capture_output=True, text=True, env=os.environ | THREADS, check=False)
    if done.returncode:
        give_up(launched, done.returncode, done.stderr or done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "commit": of,
        "where": here,
        "command": command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "ranks": step.ranks,
        "load_before": round(busy, 2),
        "seconds": round(time.perf_counter() - began, 2),
        "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        **step.read(output, done.stdout),
    }
    kept.write_text(json.dumps(found))
    return found


def begun(output: Path, by: str) -> Path:
    """The folder of a step's program; what another commit or command has left there is removed."""
    mark = output / "begun-by"
    if not mark.exists() or mark.read_text() != by:
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        mark.write_text(by)
    return output


def carry_out(benchmarks: Sequence[Benchmark], folders: Folders) -> None:
    """All steps, and a file for each benchmark as soon as its last step is done.  Says how far it is."""
    of, here = commit(), where()
    folders.kept.mkdir(parents=True, exist_ok=True)
    folders.files.mkdir(parents=True, exist_ok=True)
    steps = {step.name: step for benchmark in benchmarks for step in benchmark.steps}
    left, pace = sum(step.about for step in steps.values()), 1.0
    for benchmark in benchmarks:
        for step in benchmark.steps:
            if step.name in folders.done:
                continue
            number = len(folders.done) + 1
            print(
                f"[{number}/{len(steps)}] {benchmark.name}: {step.name}; left about {duration(left * pace)}", flush=True
            )
            began = time.perf_counter()
            found = folders.done[step.name] = carried_out(step, folders, of, here)
            took = time.perf_counter() - began
            left -= step.about
            pace = found["seconds"] / step.about if took > 1.0 else pace
        path = folders.files / f"{benchmark.name}.json"
        own = {
            s.name: {key: value for key, value in folders.done[s.name].items() if key not in benchmark.without}
            for s in benchmark.steps
        }
        path.write_text(written(own, benchmark.name, of, here))
        print(f"  {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}", flush=True)


def written(steps: dict[str, Found], name: str, of: str, here: Found) -> str:
    """The file of a benchmark: a line a step, so that a change can be read."""
    head = {"benchmark": name, "commit": of, "date": max(s["date"] for s in steps.values()), **here}
    lines = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
    common = ("commit", "where")
    kept = {key: {k: v for k, v in step.items() if k not in common} for key, step in steps.items()}
    rows = [f'  "{key}": {json.dumps(value)}' for key, value in kept.items()]
    return "{\n" + ",\n".join([*lines, ' "steps": {\n' + ",\n".join(rows) + "\n }"]) + "\n}\n"


def training(config: str, *settings: str, ranks: int = 1, iterations: int = 0) -> tuple[str, ...]:
    """The words of a launch of macmpi.run that writes to the step's folder, and goes on from what is there."""
    more = [word for setting in settings for word in ("--set", setting)]
    length = ["--iterations", str(iterations)] if iterations else []
    return ("-m", "macmpi.run", config, *length, *more, "--output", "{OUTPUT}/run", "--resume", "auto")


def only(known: Sequence[Benchmark], doc: str) -> list[Benchmark]:
    """The benchmarks that the command line names, or all."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help=", ".join(b.name for b in known))
    parser.add_argument("--list", action="store_true", help="what there is, and about how long it takes")
    args = parser.parse_args()
    if args.list:
        for benchmark in known:
            about = duration(sum(step.about for step in benchmark.steps))
            print(f"{benchmark.name:14s} about {about:>8} on a quiet core, {len(benchmark.steps)} steps")
        raise SystemExit(0)
    names = {b.name for b in known}
    if unknown := [name for name in args.only if name not in names]:
        parser.error(f"ONLY={unknown[0]}: there is no such benchmark; known: {', '.join(sorted(names))}")
    return [b for b in known if not args.only or b.name in args.only]
