"""Contenders on one task: grids cut down by successive halving, winners run again in turn, seconds to each level.

A curve is a list of [seconds of training, E1 train, E1 validation, misclassified validation points, epoch].  What has
been run lies in a folder and is not run again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import get_ident
from typing import Any

from programs import give_up
from slices import Slices

Curve = list[list[float]]
SECONDS, TRAIN, VALIDATION, WRONG = range(4)
ROOT = Path(__file__).resolve().parent
AT_ONCE = 60.0
"""Seconds of training in one process of peers."""
PAUSED = 75
LOOK = 0.2
"""Seconds from one look at a run's curve to the next."""
RECORDS = 4
"""Records of an epoch of minibatches, where nothing else is asked for."""
CPU = "import time, macmpi.parallel.clock as r; r.now = time.process_time; from macmpi.run import main; main()"
"""macmpi by another clock."""


@dataclass(frozen=True)
class Candidate:
    """A config with settings; of a peer, which has the keys of an optimiser, they say where it starts."""

    config: str
    settings: tuple[str, ...] = ()
    peer: tuple[tuple[str, Any], ...] = ()
    ranks: int = 1

    def __str__(self) -> str:
        keys = [f"{k}={v}" for k, v in self.peer] + [s.split(".", 1)[-1] for s in self.settings]
        return " ".join(
            [*([] if self.peer else [Path(self.config).stem]), *keys, *(["2 ranks"] if self.ranks > 1 else [])]
        )


@dataclass(frozen=True)
class Pace:
    """seconds: of an epoch; error: E1 of some training points after a number of steps that no clock has a say in."""

    seconds: float
    error: float


@dataclass(frozen=True)
class Contender:
    """rungs: (seconds of each candidate, how many go on), the last of them those of the final runs; turns: how many."""

    name: str
    candidates: Sequence[Candidate]
    rungs: Sequence[tuple[float, int]]
    finalists: int = 3
    turns: int = 9


@dataclass
class Contest:
    """folder: of results; python: the interpreter of the peers; pause: no new command after this time of the clock.

    clock: "wall", or "cpu", the processor's seconds of single processes, for machines that others use as well.
    records: of peers' epochs; turn: seconds in which all of those that run `in_slices` have had theirs, 0: alone;
    hold: a context for each process while it runs.
    """

    folder: Path
    python: str
    pause: float = math.inf
    clock: str = "wall"
    records: int = RECORDS
    turn: float = 0.0
    spent: Counter[str] = field(default_factory=Counter)
    hold: Callable[[subprocess.Popen[str]], AbstractContextManager[None]] = field(default=nullcontext)  # type: ignore[assignment]

    def curves(self, candidates: Sequence[Candidate], seconds: float, repeat: int = 0) -> list[Curve]:
        """Learning curves of each over a given number of seconds of training."""
        missing = [c for c in candidates if not self._path(c, seconds, repeat).exists()]
        for ranks in sorted({c.ranks for c in missing}):
            peers = [c for c in missing if c.peer and c.ranks == ranks]
            share = max(1, int(AT_ONCE / seconds))
            for some in (peers[i : i + share] for i in range(0, len(peers), share)):
                for c, curve in zip(some, self._peers(some, seconds, ranks), strict=True):
                    self._path(c, seconds, repeat).write_text(json.dumps(curve))
        for c in missing:
            if not c.peer:
                self._path(c, seconds, repeat).write_text(json.dumps(self._own(c, seconds)))
        return [json.loads(self._path(c, seconds, repeat).read_text()) for c in candidates]

    def in_slices(self, jobs: Sequence[tuple[Candidate, float]], repeat: int = 0) -> None:
        """Runs single processes, each for its seconds of training, on one core in turns of slices by these seconds.

        `curves` finds theirs afterwards.
        """
        for c, _ in jobs:
            if c.peer:
                self._task(c)
        missing = [(c, seconds) for c, seconds in jobs if not self._path(c, seconds, repeat).exists()]
        if missing:
            with Slices(self.turn) as slices, ThreadPoolExecutor(len(missing)) as threads:
                runs = (
                    threads.submit(replace(self, hold=partial(slices.hold, share=seconds)).curves, [c], seconds, repeat)
                    for c, seconds in missing
                )
                for run in list(runs):
                    run.result()

    def paces(self, candidates: Sequence[Candidate], threads: int, seconds: float, repeat: int = 0) -> list[Pace]:
        """What an epoch of each peer takes by the wall clock, from steps of some seconds; all have as many ranks."""
        path = self._named([*map(asdict, candidates), threads, seconds, repeat, "pace"])
        if not path.exists():
            ranks = candidates[0].ranks
            path.write_text(json.dumps(self._peers(candidates, seconds, ranks, paces=True, threads=threads)))
        return [Pace(**found) for found in json.loads(path.read_text())]

    def _path(self, c: Candidate, seconds: float, repeat: int) -> Path:
        key = [asdict(c), seconds, repeat, self.clock, self.records, *([self.turn] if self.turn else [])]
        return self._named(key)

    def _named(self, key: list[Any]) -> Path:
        text = json.dumps(key, sort_keys=True)
        text = text.replace(f"{self.folder}/", "")  # wherever the folder lies
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def _measure(
        self, command: Sequence[str], ends: Callable[[], bool] = lambda: False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """A command, which is told to stop once `ends`."""
        if time.monotonic() > self.pause:
            raise SystemExit(PAUSED)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=out, stderr=errors, env=os.environ | environment)
            told = False
            try:
                with self.hold(process):
                    while process.poll() is None:
                        if not told and ends():
                            process.terminate()
                            told = True
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(LOOK)
            finally:
                process.kill()  # nothing is left behind, whatever has ended this program
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(command, process.returncode, out.read(), errors.read())

    def _own(self, c: Candidate, seconds: float) -> Curve:
        output = self.folder / f"run-{os.getpid()}-{get_ident()}"
        subprocess.run(["rm", "-rf", str(output)], check=True)
        launcher = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(c.ranks)] if c.ranks > 1 else []
        module = ["-c", CPU] if self.clock == "cpu" and c.ranks == 1 else ["-m", "macmpi.run"]
        program = [sys.executable, *module, c.config, "--output", str(output)]
        limits = ["--iterations", "100000"]
        if c.ranks > 1:  # one rank is told to end; evaluation and the start-up count here, but not for the curve
            limits += ["--max-time", str(1.3 * seconds + 3.0)]
        settings = [word for s in c.settings for word in ("--set", s)]
        curve = output / "curve.jsonl"
        done = self._measure(
            [*launcher, *program, *limits, *settings], lambda: c.ranks == 1 and trained(curve) > seconds
        )
        if done.returncode not in (0, 75) and not curve.exists():
            give_up([*program, *settings], done.returncode, done.stderr)
        records = [json.loads(line) for line in curve.read_text().splitlines()]
        return [[r["seconds"], r["E1_train"], r["E1_val"], r.get("error_val", 0.0), r["iteration"]] for r in records]

    def _peers(self, some: Sequence[Candidate], seconds: float, ranks: int, **more: Any) -> list[Any]:
        task = self._task(some[0])
        rows = [dict(c.peer) | {"start": self._task(c)["start"]} for c in some]
        job = self.folder / f"job-{os.getpid()}-{get_ident()}.json"
        job.write_text(
            json.dumps(
                {**task, "seconds": seconds, "ranks": ranks, "clock": self.clock, "records": self.records}
                | {"candidates": rows}
                | more
            )
        )
        threads = {f"{name}_NUM_THREADS": str(more.get("threads", 1)) for name in ("OMP", "MKL", "OPENBLAS")}
        done = self._measure([self.python, str(ROOT / "peers.py"), str(job)], PYTHONPATH="", **threads)
        if done.returncode:
            give_up([self.python, "run/bench/peers.py"], done.returncode, done.stderr)
        found = json.loads(job.with_suffix(".out.json").read_text())
        (self.folder / "peers.json").write_text(json.dumps(found["facts"]))
        return list(found["curves"])

    def _task(self, c: Candidate) -> dict[str, Any]:
        """Data and start of a peer, written where they are not there."""
        from starts import write_task

        return write_task(self.folder, c.config, c.settings)

    def tune(self, contender: Contender, levels: Sequence[float]) -> list[Candidate]:
        """The winners of its grid: the lowest at the end of the last rung, then those soonest at the lowest levels.

        Only what a candidate has reached within the seconds of a rung counts.
        """
        alive, seen = list(contender.candidates), []
        for seconds, keep in contender.rungs:
            curves = dict(zip(alive, self.curves(alive, seconds), strict=True))
            self.spent[contender.name] += round(sum(curve[-1][SECONDS] for curve in curves.values()))
            seen.append(curves)
            ends = {c: lowest(within(curve, seconds)) for c, curve in curves.items()}
            alive = sorted(alive, key=ends.__getitem__)[:keep]
            best = [f"{ends[c]:.3f} ({c})" for c in alive[:3]]
            print(f"  {contender.name}: {len(curves)} x {seconds:g} s, lowest {'; '.join(best)}", flush=True)
        chosen = alive[:1]
        for level in sorted(levels):
            times = {c: reached(curve, level)[0] for curves in seen for c, curve in curves.items()}
            soonest = min(times, key=lambda c: times[c])
            if times[soonest] < math.inf and soonest not in chosen:
                chosen.append(soonest)
        return chosen[: contender.finalists]


def trained(curve: Path) -> float:
    """Seconds of training that a run has recorded so far."""
    *lines, _unfinished = curve.read_text().split("\n") if curve.exists() else [""]
    return float(json.loads(lines[-1])["seconds"]) if lines else 0.0


def within(curve: Curve, seconds: float) -> Curve:
    """The records of a time: an epoch that has begun is ended, which does not count."""
    return [r for r in curve if r[SECONDS] <= seconds]


def lowest(curve: Curve, column: int = TRAIN) -> float:
    """The least error."""
    return min((r[column] for r in curve if math.isfinite(r[column])), default=math.inf)


def reached(curve: Curve, level: float, column: int = TRAIN) -> tuple[float, float]:
    """Seconds until the error is at a level, and the validation error there; (inf, nan) if it never is."""
    return next(((r[SECONDS], r[VALIDATION]) for r in curve if r[column] <= level), (math.inf, math.nan))


def merged(turns: Sequence[Curve]) -> Curve:
    """One curve of several runs that do the same arithmetic: every iteration takes the median of its seconds."""
    longest = max(turns, key=len)
    steps = [[b[SECONDS] - a[SECONDS] for a, b in pairwise(curve)] for curve in turns]
    seconds, found = longest[0][SECONDS], [longest[0]]
    for i, record in enumerate(longest[1:]):
        seconds += statistics.median(s[i] for s in steps if i < len(s))
        found.append([seconds, *record[1:]])
    return found


def to_level(finalists: Sequence[Curve], level: float) -> tuple[float, float]:
    """Seconds and validation error of the finalist that is soonest at a level."""
    return min((reached(curve, level) for curve in finalists), key=lambda pair: pair[0])
