"""A method on ranks that are threads: states and errors of each, and the verbs that it has called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from plans import plan_of
from scalings import fit_scaling
from unit.crew import crew

from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.state import Errors, State


def data_of(n: int, columns: int = 6, n_val: int = 40) -> Dataset:
    """Correlated columns, to be reconstructed."""
    random = np.random.default_rng(2)
    X = random.normal(size=(n + n_val, columns)) @ random.normal(size=(columns, columns)) / 2.0
    unit = fit_scaling(X, "none")
    return Dataset(X[:n], X[:n], X[n:], X[n:], unit, unit, "")


def held_by(data: Dataset, plan: Plan, rank: int) -> Dataset:
    """The rows that a rank holds."""
    rows, rows_val = (points.held(rank).rows for points in (plan.work.train, plan.work.validation))
    X, X_val = data.X[rows], data.X_val[rows_val]
    Y, Y_val = (X, X_val) if data.autoencoder else (data.Y[rows], data.Y_val[rows_val])
    return replace(data, X=X, Y=Y, X_val=X_val, Y_val=Y_val)


class Played(NamedTuple):
    state: State[Any]
    errors: list[Errors]


def played(
    config: Config, data: Dataset, ranks: int, sweeps: int = 2, sweeping: Callable[[Team], None] | None = None
) -> list[Any]:
    """The method of a config on `ranks` ranks: what each has after some sweeps, each with its evaluation.

    sweeping: called on each rank before and behind each sweep.
    """

    def work(team: Team) -> Played:
        plan = plan_of(config, *data.sizes.counts, ranks)
        method = choose(plan, held_by(data, plan, team.rank), team)
        state = start(method, Origin())
        method.begin(state)
        errors = []
        for _ in range(sweeps):
            if sweeping:
                sweeping(team)
            method.sweep(state)
            if sweeping:
                sweeping(team)
            errors.append(method.evaluate(state))
        return Played(state, errors)

    return crew(ranks, work)
