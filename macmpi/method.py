"""The protocol of a training method, and what the console says of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from macmpi.plan.plan import Plan
from macmpi.state import Errors, Pause, State, never

COORDINATES = frozenset({"mu", "E_Q", "constraint"})
"""Columns that mean nothing where there are no coordinates."""


FLAT = "the validation error falls no more"
"""Why a run without a penalty ends by itself."""


@dataclass(frozen=True)
class Account:
    """What the console says of a method: how it trains, which weights it ends with, what ends it before the last
    iteration; the columns that mean nothing of it; what moves weights, should they come to be no numbers; what may
    help where a run diverges."""

    how: str
    end: str = "after postprocessing"
    settled: str = "settled at the largest mu"
    without: frozenset[str] = frozenset()
    stepped: str = "the W-step"
    remedy: str = "a smaller start.range or a larger penalty.ridge"


class Method(Protocol):
    """A way to train: its plan (which a selection changes), and a State moved from one iteration to the next.

    mac: what makes the first State.  account: what the console says of the method.  sweep: whether the iteration is
    complete; else `pause` has ended it in the middle, and the next sweep goes on from there.  notes: keys for the
    record beside the errors; "phase" if it is not "iteration".
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def mac(self) -> Any: ...

    @property
    def account(self) -> Account: ...

    def begin(self, state: State) -> None: ...

    def sweep(self, state: State, pause: Pause = never) -> bool: ...

    def move_multipliers(self, state: State) -> None: ...

    def evaluate(self, state: State, feasible: bool = False) -> Errors: ...

    def notes(self) -> dict[str, Any]: ...

    def finish(self, state: State) -> State: ...
