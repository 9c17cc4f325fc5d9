"""The subproblems of a state one by one, as a half step would make them."""

from __future__ import annotations

from typing import Any

from macmpi.half_steps import problems
from macmpi.half_steps.problems import WInputs, layer_gram, prepare_w, z_inputs
from macmpi.mac import Mac
from macmpi.plan.work_lists import Job
from macmpi.solvers.z_problem import ZProblem
from macmpi.state import State


def z_problem(mac: Mac, rows: Any, state: State[Any]) -> ZProblem:
    """Eq. (4) for some points."""
    return problems.z_problem(z_inputs(mac.parts, state), rows)


def given(mac: Mac, state: State[Any]) -> WInputs:
    """What the regressions of a W-step are made of."""
    return prepare_w(mac.parts, mac.plan.work.regressions(range(len(mac.plan.chain.segments))), state)


def w_problem(mac: Mac, job: Job, state: State[Any]) -> Any:
    """The regression of a job, with what is made of its Gram."""
    inputs, k = given(mac, state), job.segment
    system = mac.plan.resolved.regressions[k].system
    return problems.w_problem(inputs, job, system.factor(layer_gram(inputs, k)) if system else None)
