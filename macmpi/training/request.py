"""A caller asks for a run, the command line or Python, and is given its outcome; or asks --check what it would take."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macmpi import UsageError
from macmpi.training.process import StopRequest, Wish

if TYPE_CHECKING:
    from macmpi.results.model import Model

Callback = Callable[[dict[str, Any]], Any]
"""It is given each record of the curve; what it answers, if that is true, asks for an end."""


@dataclass(frozen=True)
class Request:
    """A run, as it is asked for.

    began: when the caller was started, by `clock.now`; max_time: seconds from there.  output: the run directory; None:
    nothing is written.  resume, overwrite: as on the command line; command: its words, for provenance.  chosen: what
    stands for "auto", in words.  ends_with_model: a run that is stopped ends with the best model so far.  is_program:
    this process is the caller's alone.  listen: makes the wish to stop; callback: called on rank 0; start: the model
    that start.method = "model" begins with, on rank 0, in the place of a file.  inputs: files that were given, as the
    config, and which no run may replace.
    """

    began: float
    output: Path | None = None
    resume: str = "no"
    overwrite: bool = False
    max_time: float = float("inf")
    command: tuple[str, ...] = ()
    chosen: str = ""
    ends_with_model: bool = False
    is_program: bool = True
    listen: Callable[[], Wish] = StopRequest
    callback: Callback | None = None
    start: Model | None = None
    inputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The end of a launch.  code: 0, 70 of a run that has diverged, or 75 of one that was stopped.

    model: the net, with its history, where there is one; rank 0's alone.
    """

    code: int
    model: Model | None = None


MOST_RANKS = 2**17  # plans are made rank by rank, in some seconds for this number
MOST = 10**12  # rows, columns and outputs, of which products are numbers that NumPy counts in


@dataclass(frozen=True)
class MachineQuestion:
    """A question to --check: ranks, nodes and bytes of a node (0: as here), rows, columns, outputs (0: as the data)."""

    ranks: int = 0
    nodes: int = 1
    points: int = 0
    columns: int = 0
    outputs: int = 0
    memory: float = 0.0

    @property
    def without_data(self) -> bool:
        return bool(self.points and self.columns)


def machine_question(given: dict[str, int], memory: str | None, check: bool) -> MachineQuestion:
    """The question of the options that are given.  Raises UsageError where it makes no sense.  Collective: no."""
    asked = MachineQuestion(**given, memory=0.0 if memory is None else bytes_in(memory))
    name, value = min(given.items(), key=lambda item: item[1], default=("memory", 1))
    refusals = {
        f"--{name} goes with --check: a launch has the ranks that mpiexec starts": not check,
        f"--{name} {value}: a number from 1 on is needed": value < 1,
        f"--points, --columns and --outputs are at most {MOST:,}": max(given.values(), default=0) > MOST,
        f"--ranks {asked.ranks}: plans are made for up to {MOST_RANKS:,} ranks": asked.ranks > MOST_RANKS,
        f"--nodes {asked.nodes}: a node has at least a rank; more --ranks": asked.nodes > max(asked.ranks, 1),
        "--points 1: two rows are needed, one to train on and one to validate with": asked.points == 1,
        "--columns says what the data would be, and so does --points: give both": asked.columns and not asked.points,
        "--outputs goes with --columns and --points, of data not at hand": asked.outputs and not asked.columns,
    }
    for text in (text for text, wrong in refusals.items() if wrong):
        raise UsageError(text)
    return asked


def bytes_in(text: str) -> float:
    """Bytes of "64G", "512M", "1.5T" or a plain number.  Raises UsageError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise UsageError(f"--memory {text!r} is no amount of memory: 64G, 512M, 1.5T")
    return float(found[1]) * 1024.0 ** ["", "K", "M", "G", "T"].index(found[2].upper())
