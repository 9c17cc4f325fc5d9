"""The refit: the same training again, on training and validation points together, as long as validation chose.

Validation has said after how many iterations the net generalises best; what is left to gain are the points that were
held out.  They pay where points are few, or where the net knows its training points far better than others, so "auto"
asks for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi import many
from macmpi.console import decimals
from macmpi.data.dataset import Dataset, share_arrays
from macmpi.half_steps.errors import errors_of
from macmpi.methods.choose import Method, choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel.team import Team
from macmpi.plan.penalty import Progress
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Resolved
from macmpi.results.reference_errors import levels
from macmpi.state import State
from macmpi.training.best import Best
from macmpi.typing import Array

GAP = 2.0
""""auto" refits many points where the validation error of the best weights is this many times their training error."""


@dataclass(frozen=True)
class Refit:
    """Weights (flat) of the refit, and their E1 of all n points.

    better: than the E1 of the best weights before it, and than that of the best constant.
    """

    weights: Array
    iterations: int
    error: float
    n: int
    better: bool

    def __str__(self) -> str:
        name = f"refit on all {many(self.n, 'point')}"
        if not self.better:
            return f"{name:28s} no better there: the best weights stay"
        return f"{name:28s} E1       {decimals(self.error):>9}   after {many(self.iterations, 'iteration')}"


def iterations_of(of: Resolved, best: Best, errors: Array) -> int:
    """Counts the iterations of the refit of a run with these best weights; 0: none is wanted.  Collective: no (rank 0).

    They are those after which the validation error was least, as the mean over an iteration, the one before and the one
    after it: of a few points the least error by itself comes by chance.  errors: those of the run (`History`).
    """
    if best.constant or best.iteration == 0 or of.run.refit is False or not of.repeatable:
        return 0
    if of.run.refit == "auto" and not (of.gains and best.errors.validation >= GAP * best.errors.E_Q):
        return 0
    return max(int(np.argmin([np.mean(errors[max(i - 1, 0) : i + 2]) for i in range(len(errors))])), 1)


def joined(data: Dataset, team: Team) -> Dataset:
    """Training and validation points as training points, in the scaling of the training points.

    Cost: a copy of all points, one for the ranks of a node if they share memory.  Collective: yes.
    """
    pairs = [(data.X, data.X_val)] if data.autoencoder else [(data.X, data.X_val), (data.Y, data.Y_val)]
    if data.weights is not None or data.weights_val is not None:
        given = (data.weights, data.X), (data.weights_val, data.X_val)
        pairs.append(tuple(np.ones(len(A)) if w is None else w for w, A in given))  # type: ignore[arg-type]
    first = team.rank == 0 or not team.shares
    found = [np.concatenate(pair) for pair in pairs] if first else []
    found = share_arrays(team, found) if team.shares else found
    weights = None if data.weights is None and data.weights_val is None else found.pop()
    return replace(data, X=found[0], Y=found[-1], groups=None, order=None, weights=weights)


def refit(
    data: Dataset,
    first: Method,
    best: Best,
    iterations: int,
    stopped: Callable[[], bool],
    begun: State[Any] | None = None,
    keep: Callable[[State[Any]], Any] = lambda state: None,
) -> Refit | None:
    """Trains again on all points.

    None where it was stopped; `keep` is then given its state, and `begun` is that of one to go on with, on all ranks.
    stopped, keep: collective.  Cost: the iterations, on all points.  Collective: yes.
    """
    team, clock = first.parts.team, first.parts.clock
    whole = joined(data, team)
    method = choose(Plan(first.plan.resolved, len(whole.X), len(data.X_val), team.size), whole, team, clock)
    state = start(method, Origin()) if begun is None else begun
    method.begin(state)
    while state.iteration < iterations:
        if not method.sweep(state, stopped) or stopped():
            keep(state)
            return None
        state.mu = _next_mu(method, state)
    weights = state.result.copy()
    after, before = (_error(method, state, flat) for flat in (weights, best.weights))
    better = team.from_root(
        lambda: after < min(before, levels(method.plan.chain, whole, method.plan.resolved.loss)[0].value)
    )
    return Refit(weights, state.iteration, after, len(whole.X), better)


def _next_mu(method: Method, state: State[Any]) -> float:
    """mu of the next iteration, which the number of iterations alone decides."""
    progress = Progress(state.iteration, state.mu, np.inf, 0.0, best=state.iteration)
    return method.plan.resolved.schedule.decide(progress).mu


def _error(method: Method, state: State[Any], weights: Array) -> float:
    """E1 per point of all points.  Collective: yes."""
    return errors_of(method.parts, replace(state, weights=weights), feasible=True).E_Q
