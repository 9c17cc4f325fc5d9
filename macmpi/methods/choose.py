"""The methods that train: what the loop asks of each, what those without coordinates share, which one a plan names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from macmpi.account import Account
from macmpi.data.dataset import Dataset
from macmpi.half_steps.ends import random_start, start_at, start_from
from macmpi.half_steps.errors import errors_of
from macmpi.half_steps.parts import Parts
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import places
from macmpi.solvers import Table
from macmpi.state import Errors, Pause, RecordT, State, never
from macmpi.typing import Array

if TYPE_CHECKING:  # a run loads the module of its own method alone
    from macmpi.mac import Mac

Method: TypeAlias = "Mac | Nested[Any]"
"""A way to train: its plan (which a selection changes), and a State moved from one iteration to the next.

account: what the console says of the method.  start, start_at, start_from: the first State, from random weights (range
0: the method's own), given weights or given coordinates.  sweep: whether the iteration is complete; else `pause` has
ended it in the middle, and the next sweep goes on from there.  notes: further keys for the record; "phase" if it is not
"iteration".
"""


class Nested(Generic[RecordT]):
    """The nested problem, min over W of E1 (eq. 1): first States, errors and the end of a method without coordinates.

    Collective: where a method says so.
    """

    @property
    def account(self) -> Account:
        """The method, how it ends and how it fails, as the console says it.  Collective: no."""
        raise NotImplementedError

    def sweep(self, state: State[RecordT], pause: Pause = never) -> bool:
        """One iteration; False where `pause` has ended it in the middle.  Collective: yes."""
        raise NotImplementedError

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock) -> None:
        self.plan, self.data, self.team, self.clock = plan, data, team, clock
        self.parts = Parts(plan, data, team, clock)

    def weights(self, state: State[Any]) -> tuple[Array, ...]:
        """W_1, ..., W_{K+1} as views of the state's flat buffer.  Collective: no."""
        return self.parts.weights(state)

    def new_record(self, weights: Array) -> RecordT:
        """The method's own numbers before its first step from some weights (flat).  Collective: no."""
        raise NotImplementedError

    def start(self, range_: float, gradient_step: bool, seed: int) -> State[RecordT]:
        """Random weights (range 0: of `ends.RANGE`), one gradient step.  Collective: yes."""
        return self.start_at(random_start(self.parts, range_, seed), gradient_step)

    def start_at(self, weights: Array, gradient_step: bool) -> State[RecordT]:
        """The given weights (flat), one gradient step.  Collective: yes."""
        return self._owned(start_at(self.parts, weights, gradient_step))

    def start_from(self, codes: Array, seed: int, range_: float) -> State[RecordT]:
        """The weights of a W-step from random ones; codes: (N, 0).  Collective: yes."""
        return self._owned(start_from(self.parts, codes, seed, range_))

    def _owned(self, state: State[Any]) -> State[RecordT]:
        return state.owned_by(self.new_record(state.weights))

    def begin(self, state: State[RecordT]) -> None:
        """Does nothing: no part of a first State is missing.  Collective: no."""

    def move_multipliers(self, state: State[RecordT]) -> None:
        """Does nothing: there are no multipliers.  Collective: no."""

    def evaluate(self, state: State[RecordT], feasible: bool = False) -> Errors:
        """Errors of the weights that the run shows.  Collective: yes."""
        return errors_of(self.parts, replace(state, weights=state.result), feasible)

    def notes(self) -> dict[str, Any]:
        """No further keys.  Collective: no."""
        return {}

    def finish(self, state: State[RecordT]) -> State[RecordT]:
        """The weights that the run shows.  Collective: no."""
        return replace(state, weights=state.result.copy(), mu=state.mu_done or state.mu)


METHODS = Table(
    mac="macmpi.mac:Mac",
    accelerated="macmpi.methods.accelerated:Accelerated",
    joint="macmpi.methods.joint:Joint",
    selection="macmpi.methods.selection:Selection",
    units="macmpi.methods.unit_selection:UnitSelection",
    accelerated_units="macmpi.methods.unit_selection:AcceleratedUnitSelection",
    stochastic="macmpi.methods.stochastic.method:Stochastic",
    stream="macmpi.methods.stochastic.stream:Stream",
    all_points="macmpi.methods.stochastic.all_points:AllPoints",
    sgd="macmpi.methods.backprop:Sgd",
    adam="macmpi.methods.backprop:Adam",
    cg="macmpi.methods.backprop:ConjugateGradients",
    lbfgs="macmpi.methods.backprop:Lbfgs",
    alternating="macmpi.methods.alternating:Alternating",
)
"""The methods by the words of `method.name`, and variants of MAC; only that of a run is loaded, to start sooner."""


def choose(plan: Plan, data: Dataset, team: Team, clock: Clock) -> Method:
    """The method of a plan.  Collective: yes."""
    of = plan.resolved
    word: str = of.method.name
    accelerated = of.method.acceleration in ("feasible", "momentum")
    if word == "mac" and of.selection.criterion != "none":
        word = "selection" if not places(of) else "accelerated_units" if accelerated else "units"
    elif word == "mac" and accelerated:
        word = "accelerated"
    elif word == "mac" and of.method.acceleration == "joint":
        word = "joint"
    elif of.whole_steps:
        word = "all_points"
    elif word == "stochastic" and of.stochastic.stream:
        word = "stream"
    method: Method = METHODS[word](plan, data, team, clock)
    return method
