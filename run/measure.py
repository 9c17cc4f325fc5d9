"""Launches whose seconds are reported: interleaved, one BLAS thread a rank, after a warm-up that is thrown away."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from macmpi.estimate import dgemm_rate

PARTS = ("seconds", "seconds_z", "seconds_w", "seconds_comm", "seconds_wait")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """What is launched: `copies` runs side by side, each on `ranks` ranks, with some --set options."""

    ranks: int
    copies: int = 1
    settings: tuple[str, ...] = ()


def mpiexec(ranks: int, *command: str) -> list[str]:
    return [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks), sys.executable, *command]


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
            raise SystemExit(f"{config} on {kind.ranks} ranks ended with {process.returncode}\n{errors}")
    return np.stack([iterations(output / "curve.jsonl") for output in outputs])


@dataclass(frozen=True)
class Measured:
    """tables: (launches, iterations, PARTS), the first iteration left out; rates: dgemm flop/s beside each launch."""

    tables: np.ndarray
    rates: tuple[float, ...]

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
    """Each kind `repeats` times, in turns; before them one launch of the first, thrown away."""
    launch(config, kinds[0], 1, folder)
    tables: list[list[np.ndarray]] = [[] for _ in kinds]
    rates: list[list[float]] = [[] for _ in kinds]
    for _ in range(repeats):
        for kind, own, beside in zip(kinds, tables, rates, strict=True):
            beside.append(dgemm_rate(repeats=20))
            own.append(launch(config, kind, count, folder)[:, 1:])
    return [Measured(np.concatenate(own), tuple(r)) for own, r in zip(tables, rates, strict=True)]


def messages() -> tuple[float, float]:
    """alpha and beta of an exchange between 2 ranks, by relative least squares: alpha + beta bytes / 2."""
    done = subprocess.run(mpiexec(2, str(HERE / "messages.py")), check=True, capture_output=True, text=True)
    points = {int(count): seconds for count, seconds in json.loads(done.stdout).items()}
    seconds = np.array(list(points.values()))
    design = np.column_stack([np.ones(len(points)), np.array(list(points)) / 2.0]) / seconds[:, None]
    alpha, beta = np.linalg.lstsq(design, np.ones(len(points)), rcond=None)[0].tolist()
    return max(alpha, 0.0), max(beta, 0.0)
