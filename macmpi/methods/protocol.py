"""The protocol of a training method: what the loop asks of each."""

from __future__ import annotations

from typing import Any, Protocol

from macmpi.account import Account
from macmpi.half_steps.parts import Parts
from macmpi.plan.plan import Plan
from macmpi.state import Errors, Pause, State, never
from macmpi.typing import Array


class Method(Protocol):
    """A way to train: its plan (which a selection changes), and a State moved from one iteration to the next.

    account: what the console says of the method.  start, start_at, start_from: the first State, from random weights
    (range 0: the method's own), given weights or given coordinates.  sweep: whether the iteration is complete; else
    `pause` has ended it in the middle, and the next sweep goes on from there.  notes: further keys for the record;
    "phase" if it is not "iteration".
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def parts(self) -> Parts: ...

    @property
    def account(self) -> Account: ...

    def start(self, range_: float, gradient_step: bool, seed: int) -> State[Any]: ...

    def start_at(self, weights: Array, gradient_step: bool) -> State[Any]: ...

    def start_from(self, codes: Array, seed: int, range_: float) -> State[Any]: ...

    def begin(self, state: State[Any]) -> None: ...

    def sweep(self, state: State[Any], pause: Pause = never) -> bool: ...

    def move_multipliers(self, state: State[Any]) -> None: ...

    def evaluate(self, state: State[Any], feasible: bool = False) -> Errors: ...

    def notes(self) -> dict[str, Any]: ...

    def finish(self, state: State[Any]) -> State[Any]: ...
