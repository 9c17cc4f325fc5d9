"""Launches whose seconds are reported: interleaved, one BLAS thread a rank, after a warm-up that is thrown away.

A launch during which something else used the machine is repeated, within limits: see `measure`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from programs import give_up, mpiexec, output_of

from macmpi.plan.estimate import dgemm_rate

QUIET, TRIES = 0.05, 2
"""Share of a core that others may use during a launch, and how many times more launches are tried than are needed."""

PARTS = ("seconds", "seconds_z", "seconds_w", "seconds_comm", "seconds_wait")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """What is launched: `copies` runs side by side, each on `ranks` ranks, with some --set options."""

    ranks: int
    copies: int = 1
    settings: tuple[str, ...] = ()


def iterations(curve: Path) -> np.ndarray:
    """(iterations, PARTS): the seconds of each iteration."""
    records = [json.loads(line) for line in curve.read_text().splitlines()]
    swept = [r for r in records if r["iteration"] and r["phase"] != "postprocess"]
    table = np.array([[r[part] for part in PARTS] for r in swept])
    table[:, 0] = np.diff(table[:, 0], prepend=0.0)
    return table


def launch(config: Path, kind: Kind, count: int, folder: Path) -> np.ndarray:
    """(copies, iterations, PARTS) of one launch."""
    outputs = [folder / f"run-{kind.ranks}-{i}" for i in range(kind.copies)]
    running = []
    for output in outputs:
        shutil.rmtree(output, ignore_errors=True)
        words = ["-m", "macmpi.run", str(config), "--iterations", str(count), "--output", str(output)]
        words += [word for setting in kind.settings for word in ("--set", setting)]
        command = mpiexec(kind.ranks, *words)
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, errors = process.communicate()
        if process.returncode:
            give_up(command, process.returncode, errors)
    return np.stack([iterations(output / "curve.jsonl") for output in outputs])


def busy() -> tuple[float, float]:
    """Seconds for which the cores have worked, those taken by the machine's host among them; those of our launches."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


@dataclass(frozen=True)
class Measured:
    """tables: (launches, iterations, PARTS), the first iteration left out; rates: dgemm flop/s with each launch;
    others: the most cores that other work kept busy during one of them."""

    tables: np.ndarray
    rates: tuple[float, ...]
    others: float

    @property
    def parts(self) -> dict[str, float]:
        """Seconds an iteration: the mean over iterations of the medians over launches."""
        return dict(zip(PARTS, np.median(self.tables, axis=0).mean(axis=0).tolist(), strict=True))

    @property
    def seconds(self) -> float:
        return self.parts["seconds"]

    @property
    def spread(self) -> tuple[float, float]:
        """Of the launches, each the mean over its iterations: the fastest and the slowest."""
        means = self.tables[:, :, 0].mean(axis=1)
        return float(means.min()), float(means.max())

    @property
    def undisturbed(self) -> float:
        """The mean over iterations of the least seconds of each: what other work on the machine disturbed least."""
        return float(self.tables[:, :, 0].min(axis=0).mean())

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def measure(config: Path, kinds: Sequence[Kind], count: int, repeats: int, folder: Path) -> list[Measured]:
    """Each kind in turns until `repeats` launches of each were quiet, or `TRIES` times as many were tried: those during
    which others used the machine least are kept.  Before them one launch of the first kind, thrown away."""
    launch(config, kinds[0], 1, folder)
    tried: list[list[tuple[float, float, np.ndarray]]] = [[] for _ in kinds]
    for _ in range(TRIES * repeats):
        for kind, own in zip(kinds, tried, strict=True):
            if sum(others < QUIET for others, *_ in own) >= repeats:
                continue
            rate = dgemm_rate(repeats=20)
            (all_before, own_before), began = busy(), time.perf_counter()
            table = launch(config, kind, count, folder)[:, 1:]
            (all_after, own_after), took = busy(), time.perf_counter() - began
            own.append((max(all_after - all_before - (own_after - own_before), 0.0) / took, rate, table))
    kept = [sorted(own, key=lambda launched: launched[0])[:repeats] for own in tried]
    return [
        Measured(np.concatenate([t for *_, t in own]), tuple(rate for _, rate, _ in own), max(o for o, *_ in own))
        for own in kept
    ]


def messages() -> tuple[float, float]:
    """alpha and beta of an exchange between 2 ranks, by relative least squares: alpha + beta bytes / 2."""
    found = json.loads(output_of(mpiexec(2, HERE / "messages.py")))
    points = {int(count): seconds for count, seconds in found.items()}
    seconds = np.array(list(points.values()))
    design = np.column_stack([np.ones(len(points)), np.array(list(points)) / 2.0]) / seconds[:, None]
    alpha, beta = np.linalg.lstsq(design, np.ones(len(points)), rcond=None)[0].tolist()
    return max(alpha, 0.0), max(beta, 0.0)
