"""Baselines of the nested problem by gradients from backpropagation."""

from __future__ import annotations

from typing import ClassVar

from macmpi.account import COORDINATES, FLAT, Account
from macmpi.config import Baseline as Keys
from macmpi.data.dataset import Dataset
from macmpi.half_steps.evaluation import at
from macmpi.methods.nested import Nested
from macmpi.methods.stochastic.factors import add_gradient
from macmpi.nets.losses import weighted
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.state import Own, block_views
from macmpi.typing import Array


class Backprop(Nested[Own]):
    """A baseline sums E1 and its gradient over some points.  Collective: where a method says so.

    called, reads: the method's name, and the keys that it reads.
    """

    called: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock, keys: Keys) -> None:
        super().__init__(plan, data, team, clock)
        self.keys, self.size = keys, plan.offsets.weights[-1]

    @property
    def account(self) -> Account:
        """Its name and its keys; there is no Z-step.  Collective: no."""
        given = ", ".join(f"{name} {vars(self.keys)[name]:g}" for name in self.reads)
        remedy = "a smaller baseline.rate" if "rate" in self.reads else "a smaller start.range"
        stepped = f"a step ({remedy} may help)" if "rate" in self.reads else "a step"
        return Account(
            f"{self.called}: {given}" if given else self.called,
            "at the end",
            FLAT,
            COORDINATES | {"seconds_z"},
            stepped,
            remedy,
        )

    def add_gradient(self, weights: Array, rows: slice | Array, out: Array) -> None:
        """Adds the sums over points, as they weigh, of dE1/dW (flat) and of the losses to `out` (P + 1,).

        Collective: no.

        Cost: three passes through the net.
        """
        plan = self.plan
        shapes = plan.chain.block_shapes
        tape = plan.chain.whole.tape(block_views(weights, shapes), self.data.X[rows])
        loss = weighted(plan.resolved.loss, at(self.data.weights, rows))
        losses = add_gradient(loss, tape, self.data.Y[rows], block_views(out[:-1], shapes))
        out[-1] += losses.sum(dtype=float)
