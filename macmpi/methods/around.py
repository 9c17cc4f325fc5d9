"""A Method around MAC: it holds one, and what it does not do in its own way MAC does."""

from __future__ import annotations

from typing import Any

from macmpi.account import Account
from macmpi.half_steps.parts import Parts
from macmpi.mac import Mac
from macmpi.plan.plan import Plan
from macmpi.state import Errors, MacState, Pause, State, never
from macmpi.typing import Array


class Around:
    """A Method that passes each call on to the MAC inside.  Collective: where a method of MAC is."""

    def __init__(self, mac: Mac) -> None:
        self.mac = mac
        self.data, self.team, self.clock = mac.data, mac.team, mac.clock

    @property
    def parts(self) -> Parts:
        """The parts of the MAC inside.  Collective: no."""
        return self.mac.parts

    @property
    def plan(self) -> Plan:
        """The plan of the MAC inside.  Collective: no."""
        return self.mac.plan

    @property
    def account(self) -> Account:
        """Passes on to MAC.  Collective: no."""
        return self.mac.account

    def start(self, range_: float, gradient_step: bool, seed: int) -> State[MacState]:
        """Passes on to MAC.  Collective: yes."""
        return self.mac.start(range_, gradient_step, seed)

    def start_at(self, weights: Array, gradient_step: bool) -> State[MacState]:
        """Passes on to MAC.  Collective: yes."""
        return self.mac.start_at(weights, gradient_step)

    def start_from(self, codes: Array, seed: int, range_: float) -> State[MacState]:
        """Passes on to MAC.  Collective: yes."""
        return self.mac.start_from(codes, seed, range_)

    def begin(self, state: State[Any]) -> None:
        """Passes on to MAC.  Collective: yes."""
        self.mac.begin(state)

    def sweep(self, state: State[Any], pause: Pause = never) -> bool:
        """Passes on to MAC.  Collective: yes."""
        return self.mac.sweep(state, pause)

    def move_multipliers(self, state: State[Any]) -> None:
        """Passes on to MAC.  Collective: yes."""
        self.mac.move_multipliers(state)

    def evaluate(self, state: State[Any], feasible: bool = False) -> Errors:
        """Passes on to MAC.  Collective: yes."""
        return self.mac.evaluate(state, feasible)

    def notes(self) -> dict[str, Any]:
        """Passes on to MAC.  Collective: no."""
        return self.mac.notes()

    def finish(self, state: State[Any]) -> State[Any]:
        """Passes on to MAC.  Collective: yes."""
        return self.mac.finish(state)
