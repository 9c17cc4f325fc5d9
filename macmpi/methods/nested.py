"""The nested problem, min over W of E1 (eq. 1), as a Method without coordinates: what such methods share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic

from macmpi.data.dataset import Dataset
from macmpi.half_steps.ends import random_start, start_at, start_from
from macmpi.half_steps.errors import errors_of
from macmpi.half_steps.parts import Parts
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.state import Errors, Own, State
from macmpi.typing import Array


class Nested(Generic[Own]):
    """First States, errors and the end of a method that keeps no coordinates.  Collective: where a method says so."""

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock) -> None:
        self.plan, self.data, self.team, self.clock = plan, data, team, clock
        self.parts = Parts(plan, data, team, clock)

    def weights(self, state: State[Any]) -> tuple[Array, ...]:
        """W_1, ..., W_{K+1} as views of the state's flat buffer.  Collective: no."""
        return self.parts.weights(state)

    def new_record(self, weights: Array) -> Own:
        """The method's own numbers before its first step from some weights (flat).  Collective: no."""
        raise NotImplementedError

    def start(self, range_: float, gradient_step: bool, seed: int) -> State[Own]:
        """Random weights (range 0: of `initial.RANGE`), one gradient step.  Collective: yes."""
        return self.start_at(random_start(self.parts, range_, seed), gradient_step)

    def start_at(self, weights: Array, gradient_step: bool) -> State[Own]:
        """The given weights (flat), one gradient step.  Collective: yes."""
        return self._owned(start_at(self.parts, weights, gradient_step))

    def start_from(self, codes: Array, seed: int, range_: float) -> State[Own]:
        """The weights of a W-step from random ones; codes: (N, 0).  Collective: yes."""
        return self._owned(start_from(self.parts, codes, seed, range_))

    def _owned(self, state: State[Any]) -> State[Own]:
        return state.owned_by(self.new_record(state.weights))

    def begin(self, state: State[Own]) -> None:
        """Does nothing: no part of a first State is missing.  Collective: no."""

    def move_multipliers(self, state: State[Own]) -> None:
        """Does nothing: there are no multipliers.  Collective: no."""

    def evaluate(self, state: State[Own], feasible: bool = False) -> Errors:
        """Errors of the weights that the run shows.  Collective: yes."""
        return errors_of(self.parts, replace(state, weights=state.result), feasible)

    def notes(self) -> dict[str, Any]:
        """No further keys.  Collective: no."""
        return {}

    def finish(self, state: State[Own]) -> State[Own]:
        """The weights that the run shows.  Collective: no."""
        return replace(state, weights=state.result.copy(), mu=state.mu_done or state.mu)
