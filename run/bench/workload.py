"""One rank's iterations taken apart: seconds by what they are assigned by, and the flops of their matrix products.

The solvers' own methods are timed, so that the program that is traced is the program that runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import linalg
from settings import planned

from macmpi.half_steps.context import HalfStepContext
from macmpi.half_steps.w_step import Solving
from macmpi.methods.choose import Method, choose
from macmpi.methods.selection import Comparing, Selection
from macmpi.methods.starts import Origin, start
from macmpi.parallel.clock import Clock, now
from macmpi.parallel.points import Points
from macmpi.parallel.shared_work import Products
from macmpi.parallel.team import Team
from macmpi.plan.cost import Rates
from macmpi.plan.plan import Plan
from macmpi.reductions import SharedMatrix
from macmpi.solvers.grams import System
from macmpi.state import State
from macmpi.training.process import ready


class Tally:
    """Seconds by kind and key, those of a call inside another one not counted twice.

    "point" (all), "pass" (all, through the net between the half steps), "factor" (width of the inputs), "unit"
    (segment), "feature" (segment), "local" (what is made of Grams), "piece" (of large factors), "product" (those that
    ranks share in the Z-step); "z" and "w": what every rank does for itself.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, int], float] = defaultdict(float)
        self._inside = [0.0]

    @contextmanager
    def __call__(self, kind: str, key: int) -> Iterator[None]:
        began = now()
        self._inside.append(0.0)
        yield
        took = now() - began
        self.seconds[kind, key] += took - self._inside.pop()
        self._inside[-1] += took

    def of(self, kind: str) -> float:
        return sum(seconds for (name, _), seconds in self.seconds.items() if name == kind)


def begun(path: Path, settings: Sequence[str], counted: bool = False) -> tuple[Method, State, Clock]:
    """The method of a config and its first State, in this process, which keeps memory as the program does."""
    ready()
    plan, data = planned(path, settings)
    if counted:
        X = data.X.view(Counted)
        data = replace(data, X=X, Y=X if data.autoencoder else data.Y.view(Counted))
    team = Team()
    method = choose(plan, data, team)
    state = start(method, Origin())
    method.begin(state)
    return method, state, team.clock


@contextmanager
def timed(plan: Plan, tally: Tally) -> Iterator[None]:
    """Accounts what the plan's solvers, and the fits of a selection, take."""

    def wrap(owner: Any, name: str, kind: str, key: Callable[..., int]) -> Any:
        plain = getattr(owner, name)

        @wraps(plain)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with tally(kind, key(*args, **kwargs)):
                return plain(*args, **kwargs)

        return patch.object(owner, name, wrapper)

    with ExitStack() as stack:
        stack.enter_context(wrap(type(plan.resolved.z_solver), "prepare", "z", lambda *_: 0))
        stack.enter_context(wrap(type(plan.resolved.z_solver), "solve", "point", lambda *_: 0))
        for name in ("features", "_designed"):
            stack.enter_context(wrap(HalfStepContext, name, "feature", lambda parts, k, *_: k))
        stack.enter_context(wrap(Solving, "_factor", "local", lambda *_: 0))
        for owner, name in ((HalfStepContext, "total"), (HalfStepContext, "feasible")):
            stack.enter_context(wrap(owner, name, "pass", lambda *_: 0))
        stack.enter_context(wrap(Comparing, "root", "w", lambda *_: 0))
        stack.enter_context(wrap(SharedMatrix, "fill", "piece", lambda *_: 0))
        stack.enter_context(wrap(Products, "__call__", "product", lambda *_: 0))
        stack.enter_context(wrap(Comparing, "_features", "feature", lambda trial, k: k))
        stack.enter_context(wrap(Comparing, "objectives", "unit", lambda trial, job, *_: job.segment))
        for kind in {type(one) for own in plan.resolved.regressions.values() for one in (own.solver, own.plain)}:
            stack.enter_context(wrap(kind, "solve", "unit", lambda solver, problem, over_points: problem.key[2]))
        stack.enter_context(wrap(System, "sum", "factor", lambda system, inputs, *_: inputs.shape[1]))
        yield


def trace(path: Path, settings: Sequence[str], iterations: int) -> list[tuple[Rates, Plan, float]]:
    """For each iteration but the first: its work, the plan that it had (on one rank), its seconds."""
    method, state, clock = begun(path, settings)
    found = []
    for i in range(iterations):
        before, tally, began = method.plan, Tally(), now()
        clock.take()
        with timed(before, tally):
            method.sweep(state)
        took = now() - began
        selected = isinstance(method, Selection) and method.changed is not None
        plan = method.largest if isinstance(method, Selection) and selected else before
        if i:
            phases = clock.take()
            work = rates(plan, tally, phases["seconds_z"], phases["seconds_w"], took, selected)
            found.append((work, plan, took))
    return found


def rates(plan: Plan, tally: Tally, z: float, w: float, took: float, again: bool) -> Rates:
    """Seconds of an iteration divided by what the plan says that each thing costs.

    z, w, took: seconds of the half steps and of the iteration.  Time of a half step outside the calls that are
    timed belongs to its points and units; what is outside of both is shared.
    """
    tasks = plan.work.regressions(range(len(plan.chain.segments))) if again else plan.work.w_step
    width = [plan.chain.inputs(segment.regressed[0]) for segment in plan.chain.segments]
    made = sum(
        tally.seconds["feature", k] * (plan.chain.segments[k].core > 0 or own.single)
        for k, own in plan.resolved.regressions.items()
    )
    rest = (w - made - sum(map(tally.of, ("w", "factor", "local", "piece")))) / tally.of("unit")
    large = sum(gram.cost for gram in tasks.grams if plan.offsets.large(gram.segment))
    passes = tally.of("pass")

    def of_gram(k: int) -> float:
        cost = sum(gram.cost for gram in tasks.grams if again or width[gram.segment] == width[k])
        spent = tally.of("factor") if again else tally.seconds["factor", width[k]]
        pieces = tally.of("piece") / large if plan.offsets.large(k) and large else 0.0
        return (spent / cost if cost else 0.0) + pieces

    def of_segment(k: int) -> float:
        return rest * tally.seconds["unit", k] / sum(job.cost for job in tasks.jobs if job.segment == k)

    return Rates(
        point=(z - tally.of("z") + passes + made) / plan.n_train,
        factor=tuple(map(of_gram, range(len(width)))),
        unit=tuple(map(of_segment, range(len(width)))),
        shared=tally.of("z")
        + tally.of("w")
        + tally.of("local")
        + (0.0 if large else tally.of("piece"))
        + took
        - passes
        - z
        - w,
        again=again,
    )


class Counted(np.ndarray):
    """An array whose matrix products are counted, and those of what is made of it."""

    flops = 0.0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        if out is not None:
            options["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counted) else x for x in out)
        found = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            Counted.flops += 2.0 * np.size(found) * plain[0].shape[-1]
        if out is not None:
            return out[0]
        return found.view(Counted) if isinstance(found, np.ndarray) else found


SOLVES: dict[str, Callable[..., float]] = {
    "cho_factor": lambda A, *_: len(A) ** 3 / 3.0,
    "cho_solve": lambda factor, B, *_: 2.0 * math.prod(B.shape) * len(factor[0]),
    "solve_triangular": lambda A, B, *_: float(math.prod(B.shape) * len(A)),
}
"""Flops of SciPy's factorisations and solutions."""


def flops(path: Path, settings: Sequence[str], iterations: int) -> float:
    """Of matrix products and of solutions with triangular factors, an iteration, the first left out; neither factors
    nor what is done element by element are counted."""

    def wrap(owner: Any, name: str, cost: Callable[..., float]) -> Any:
        plain = getattr(owner, name)

        def wrapper(*args: Any, **options: Any) -> Any:
            Counted.flops += cost(*args)
            found = plain(*args, **options)
            return found.view(Counted) if isinstance(found, np.ndarray) else found

        return patch.object(owner, name, wrapper)

    with ExitStack() as stack:
        for name, cost in SOLVES.items():
            stack.enter_context(wrap(linalg, name, cost))
        stack.enter_context(wrap(linalg.blas, "dsymm", lambda alpha, A, B: 2.0 * B.size * len(A)))
        stack.enter_context(wrap(Points, "rows", lambda *_: 0.0))
        method, state, _ = begun(path, settings, counted=True)
        state.Z, state.weights = state.Z.view(Counted), state.weights.view(Counted)
        method.sweep(state)
        Counted.flops = 0.0
        for _ in range(iterations - 1):
            method.sweep(state)
    return Counted.flops / (iterations - 1)
