"""A caller asks for a run, the command line or Python, and is given its outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    that start.method = "model" begins with, on rank 0, in the place of a file.
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


@dataclass(frozen=True)
class Outcome:
    """The end of a launch.  code: 0, or 75 of a run that was stopped.

    model: the net, with its history, where there is one; rank 0's alone.
    """

    code: int
    model: Model | None = None
