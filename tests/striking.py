"""Faults on demand: MACMPI_FAULT=rank:phase:iteration:kind strikes that rank where it comes to the phase.

For tests and developers: with tests/hook in PYTHONPATH `python -m macmpi.run` loads this module where the variable is
set.  It wraps the one function at which the phase begins, and the package knows nothing of it.  Iteration 0 is all that
comes before the first one, and the phases after the last one belong to the last.  A fault strikes once, from its
iteration on; a full disk stays full.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from macmpi import NumericalError, UsageError
from macmpi.console import say
from macmpi.parallel.team import Team

VARIABLE = "MACMPI_FAULT"

PLACES = {
    "read": "macmpi.config.reading:read_named",
    "plan": "macmpi.plan.plan:make_plan",
    "data": "macmpi.data.loading:share",
    "start": "macmpi.training.loop:start",
    "z": "macmpi.parallel.clock:Clock.__call__",
    "w": "macmpi.parallel.clock:Clock.__call__",
    "evaluate": "macmpi.half_steps.context:HalfStepContext.total",
    "record": "macmpi.training.record:Curve.add",
    "checkpoint": "macmpi.training.checkpoint:save",
    "write": "macmpi.files:write_through",
    "rename": "macmpi.files:rename",
    "postprocess": "macmpi.training.loop:Training.finish",
    "model": "macmpi.results.model_file:write",
}
"""Phase -> the function at which it begins, module:name.  "write" strikes when half of a file is written, "rename" when
it lies complete next to the old one; both also at start.h5 (iteration 0) and model.h5."""

FILES = frozenset({"read", "checkpoint", "write", "rename", "model"})
"""Phases of rank 0 alone."""

VERBS = {
    "from_root": "from_root",
    "all_or_raise": "all_or_raise",
    "share_memory": "share_memory",
    "array": "array",
    "fence": "fence",
    "share_array": "share_array",
    "gather_rows": "gather_rows",
    "gather_parts": "gather_parts",
    "gather_columns": "gather_columns",
    "shift_to_next": "shift_to_next",
    "max_over_ranks": "max_over_ranks",
    "barrier": "barrier",
    "exchange": "_finish",
}
"""Phase -> the verb of the team on coming to which the fault strikes; "exchange" with the request under way."""

ARRAYS = ("gather_rows", "gather_parts", "gather_columns", "shift_to_next", "share_array")
"""Verbs whose first argument is an array: the kind "nan" makes every number of it one, before it is exchanged."""

LIGHT = frozenset({"read", *VERBS})
"""Phases that begin before the number of threads is known, and so before NumPy may be imported."""


def _fail(error: BaseException) -> NoReturn:
    raise error


KINDS: dict[str, Callable[[], Any]] = {
    "exception": lambda: _fail(ValueError("the fault that MACMPI_FAULT asks for")),
    "memory": lambda: _fail(MemoryError("the fault that MACMPI_FAULT asks for")),
    "known": lambda: _fail(NumericalError("the fault that MACMPI_FAULT asks for")),
    "interrupt": lambda: _fail(KeyboardInterrupt("the fault that MACMPI_FAULT asks for")),
    "exit": lambda: sys.exit(0),
    "full": lambda: _fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    "nan": lambda: None,
} | {
    name: partial(signal.raise_signal, signal.Signals[f"SIG{name.upper()}"])
    for name in ("kill", "stop", "usr1", "term", "int")
}


@dataclass
class Fault:
    """A fault strikes a rank once, in a phase and iteration; `iteration_now` is kept by wrapping the loop's methods."""

    rank: int
    phase: str
    iteration: int
    kind: str
    iteration_now: int = 0
    struck: bool = False

    def arm(self, team: Team, light: bool) -> None:
        """Wrap the place of the fault on its rank, if it is one of the light ones or not.  Raises UsageError."""
        if self.rank >= team.size:
            error = UsageError(f"{VARIABLE}: there is no rank {self.rank} among {team.size}")
            error.agreed = True
            raise error
        if team.rank != self.rank:
            return
        if not light:
            self._count_iterations()
        if (self.phase in LIGHT) != light:
            return
        if self.phase in VERBS:
            self._wrap(team, VERBS[self.phase])
        else:
            self._wrap(*resolve(PLACES[self.phase]))

    def _wrap(self, owner: Any, name: str) -> None:
        whole = getattr(owner, name)

        def faulty(*arguments: Any, **named: Any) -> Any:
            if self.phase not in ("z", "w") or self.phase in arguments:
                if self.kind == "nan" and self._due:
                    arguments[0][...] = float("nan")
                if self.phase == "write" and self._due:
                    path, content = arguments
                    path.write_bytes(content[: len(content) // 2])
                self.strike()
            return whole(*arguments, **named)

        setattr(owner, name, faulty)

    def _count_iterations(self) -> None:
        from macmpi.training.loop import Training

        for name, ahead in (("iterate", 1), ("finish", 0)):
            self._note(Training, name, ahead)

    def _note(self, owner: Any, name: str, ahead: int) -> None:
        whole = getattr(owner, name)

        def noted(loop: Any, state: Any, *more: Any) -> Any:
            self.iteration_now = state.iteration + ahead
            return whole(loop, state, *more)

        setattr(owner, name, noted)

    @property
    def _due(self) -> bool:
        return self.iteration_now >= self.iteration and (not self.struck or self.kind == "full")

    def strike(self) -> None:
        """The fault, if it is time.  Its line gives the moment, from which the time to the end is counted."""
        if not self._due:
            return
        self.struck = True
        where = f"rank {self.rank} in {self.phase} of iteration {self.iteration_now}"
        say(f"fault: {self.kind} at {where}, {time.time():.3f}", error=True)
        KINDS[self.kind]()


def resolve(place: str) -> tuple[Any, str]:
    """The object that holds the function of a place, and its name there."""
    module, path = place.split(":")
    *owners, name = path.split(".")
    found: Any = import_module(module)
    for owner in owners:
        found = getattr(found, owner)
    return found, name


def arrange(text: str) -> None:
    """Lets the fault of a text arm itself once the program has a team, and again once it may import NumPy."""
    from macmpi.parallel import mpi
    from macmpi.training import request

    launch, plan = mpi.launch, request.plan_of
    armed = list[Fault]()

    def launched() -> Any:
        armed[:] = [parse(text)]
        team = launch()
        armed[0].arm(team, light=True)
        return team

    def planned(config: Any, sizes: Any, decisions: Any, team: Any) -> Any:
        armed[0].arm(team, light=False)
        return plan(config, sizes, decisions, team)

    mpi.launch, request.plan_of = launched, planned


def parse(text: str) -> Fault:
    """rank:phase:iteration:kind.  Raises UsageError."""
    parts = text.split(":")
    if len(parts) != 4 or not (parts[0].isdigit() and parts[2].isdigit()):
        raise UsageError(f"{VARIABLE}={text}: rank:phase:iteration:kind is needed, with numbers from 0 on")
    rank, phase, iteration, kind = int(parts[0]), parts[1], int(parts[2]), parts[3]
    for value, known, what in ((phase, {**PLACES, **VERBS}, "phases"), (kind, KINDS, "kinds")):
        if value not in known:
            raise UsageError(f"{VARIABLE}={text}: {value!r} is none of the {what} {', '.join(known)}")
    if kind == "nan" and phase not in ARRAYS:
        raise UsageError(f"{VARIABLE}={text}: 'nan' strikes arrays, in {' or '.join(ARRAYS)}")
    return Fault(rank, phase, iteration, kind)
