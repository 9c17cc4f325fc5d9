"""Learning the sizes of dense hidden layers while they train (section 2.4): units go where that lowers E1 + C(W).

    C(W) = c eps^2 |W|,   |W| all weights and biases

In some iterations, layer by layer from the last to the first, the units of a layer are ranked by what the regression
of the next layer loses without them (`solvers/elimination.py`).  Candidates are the first units of that order: the next
layer is fitted to its present pre-activations (the output layer to the targets, where that is exact), and a pass
through the rest of the net gives E1 + C of each.  That is an upper bound, since the other layers would follow: so the
best one, or else the next smaller size, is trained for an iteration, then smaller ones as long as E1 + C falls.

E_Q + C, which the paper compares, says too little of a hidden layer here: its errors weigh mu, whatever they do to the
outputs (docs/methods.md has figures).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from macmpi.config import Config
from macmpi.config.resized import resized
from macmpi.methods.around import Around
from macmpi.methods.selection import CRITERIA
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.resizable import Place, places
from macmpi.solvers.elimination import Kept, moments, prefixes, ranked
from macmpi.state import MacState, Pause, State, block_views, never
from macmpi.typing import Array

HOPELESS = 4.0
"""A candidate whose error would rise by more than this number of times what it saves is not trained: measured, the
other layers took back two thirds of the rise."""


class Net(NamedTuple):
    """A net of its own sizes: its Method, its State, and E1 + C per point."""

    method: Any
    state: State[MacState]
    value: float


@dataclass(frozen=True)
class Candidate:
    """Some units of a layer, the weights of the next one, and E1 + C per point; saved: of C."""

    place: Place
    kept: Kept
    value: float
    saved: float


class UnitSelection(Around):
    """A Method around MAC: behind an iteration in `every`, units are selected.  A selection never raises E1 + C.

    inside: makes MAC, or what is around it, of a plan.  Collective: where a method says so.
    """

    def __init__(self, config: Config, plan: Plan, inside: Callable[[Plan], Any]) -> None:
        super().__init__(inside(plan))
        self.config, self.inside, self.places = config, inside, places(config, plan.chain)
        self.price = CRITERIA[config.selection.criterion](plan.n_train) * config.selection.epsilons(1)[0]
        self.changed: bool | None = None
        self.trained = 0

    def notes(self) -> dict[str, Any]:
        """For the record: C per point, the sizes, what a selection did, and iterations of its nets.  Collective: no."""
        said = {"cost": self._cost(self.plan), "units": self._sizes}
        if self.changed is None:
            return said
        return said | {"phase": "selection", "changed": self.changed, "trained": self.trained}

    @property
    def _sizes(self) -> list[int]:
        """Units of each hidden layer."""
        found = list(self.config.model.units)
        for place in self.places:
            found[place.layer] = self.plan.chain.maps[place.at].n_out
        return found

    def _cost(self, plan: Plan) -> float:
        """C per point.  Collective: no."""
        return self.price * plan.offsets.weights[-1] / plan.n_train

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """One iteration; `changed` then says whether it changed the architecture.  Collective: yes."""
        self.changed, self.trained = None, 0
        if not self.mac.sweep(state, pause):
            return False
        if state.iteration % self.config.selection.every == 0:
            self._select(state)
        return True

    def _select(self, state: State[MacState]) -> None:
        """Each layer takes its best candidate, or stays as it is.  Collective: yes."""
        before = self.mac
        for place in reversed(self.places):
            self._choose(place, state)
        self.changed = self.mac is not before
        if self.changed:
            state.history.forget()
            state.history.e1_val = math.inf  # two nets' errors say nothing of whether one has settled

    def _choose(self, place: Place, state: State[MacState]) -> None:
        """Cost: a pass through the net for all candidates, and `iterations` of each one that is trained.

        Collective: yes.
        """
        now = self._value(self.mac, state)
        candidates = self._candidates(place, state) if math.isfinite(now) else []
        if not candidates:
            return
        first = int(np.argmin([c.value for c in candidates]))
        if candidates[first].value >= now:
            nearest, first = candidates[0], 0
            if not self.config.selection.iterations or nearest.value + nearest.saved - now > HOPELESS * nearest.saved:
                return
            now = min(now, self._trained(self._net(self._sizes, state.result, state)).value)
        best: Net | None = None
        for candidate in candidates[first:]:
            found = self._made(candidate, state)
            if best is not None and found.value >= best.value:
                break
            best = found
        if best is not None and best.value < now:
            self.mac = best.method
            state.weights, state.Z, state.own = best.state.weights, best.state.Z, best.state.own

    def _value(self, method: Any, state: State[MacState]) -> float:
        """E1 + C per point of the weights that a run shows, decided by rank 0's rounding.  Collective: yes."""
        shapes = method.plan.chain.block_shapes
        error = method.parts.evaluation.nested(block_views(state.result, shapes)).error
        value: float = self.team.from_root(lambda: error + self._cost(method.plan))
        return value

    def _weights(self, state: State[MacState]) -> tuple[Array, ...]:
        return block_views(state.result, self.plan.chain.block_shapes)

    def _candidates(self, place: Place, state: State[MacState]) -> list[Candidate]:
        """The smaller sizes of a layer, the largest first, each with its best units.  Collective: yes."""
        plan, parts, weights = self.plan, self.parts, self._weights(state)
        sizes = [size for size in place.sizes[::-1] if size < len(weights[place.block])]
        if not sizes:
            return []
        chain, loss, data = plan.chain, plan.choices.loss, self.data
        before, after = chain.part(0, place.end), chain.part(place.end, len(chain.maps))
        reads, dtype = after.part(0, 1), data.X.dtype
        A = parts.points.rows(lambda rows: before.forward(weights, data.X[rows]), before.n_out, dtype)
        T = data.Y
        if not (len(after.maps) == 1 and plan.choices.regressions[-1].solver.exact):
            T = parts.points.rows(lambda rows: reads.forward(weights, A[rows]), reads.n_out, dtype)
        ridge = plan.choices.shaping.ridge(place.block + 1, state.mu, len(after.weighted) == 1)
        sums = moments(A, T, ridge, parts.points.jointly)
        found = self.team.from_root(lambda: prefixes(sums, ranked(sums), sizes))
        others = [
            [*weights[: place.block + 1], kept.weights.astype(dtype), *weights[place.block + 2 :]] for kept in found
        ]

        def part(rows: slice) -> list[float]:
            outputs = (after.forward(W, A[rows][:, kept.inputs]) for W, kept in zip(others, found, strict=True))
            return [loss.value(data.Y[rows], F).sum(dtype=float) for F in outputs]

        errors = parts.evaluation.total(plan.work.train, part, len(sizes)) / plan.n_train
        errors = self.team.from_root(lambda: errors)
        row, read = (chain.block_shapes[place.block][1], chain.block_shapes[place.block + 1][0])
        saved = [self.price * (row + read) * (len(weights[place.block]) - size) / plan.n_train for size in sizes]
        return [
            Candidate(place, kept, float(error) + self._cost(plan) - less, less)
            for kept, error, less in zip(found, errors, saved, strict=True)
        ]

    def _made(self, candidate: Candidate, state: State[MacState]) -> Net:
        """The net of a candidate, trained where that lowers E1 + C.  Collective: yes."""
        place, kept, blocks = candidate.place, candidate.kept, list(self._weights(state))
        blocks[place.block : place.block + 2] = [blocks[place.block][kept.inputs], kept.weights]
        sizes = self._sizes
        sizes[place.layer] = len(kept.inputs)
        flat = np.concatenate([W.ravel() for W in blocks])
        trained = self._trained(self._net(sizes, flat, state))
        return trained if trained.value < candidate.value else self._net(sizes, flat, state)

    def _net(self, sizes: Sequence[int], weights: Array, state: State[MacState]) -> Net:
        """The net of some sizes and weights (flat), with feasible coordinates.  Collective: yes."""
        old = self.plan
        counts = old.chain.n_in, old.chain.n_out, old.n_train, old.n_val, old.ranks
        method = self.inside(make_plan(resized(self.config, sizes), *counts))
        made = method.parts.new_state(weights)
        method.parts.feasible(made)
        own = type(state.own)(sizes=np.array(sizes))
        made = replace(state, weights=made.weights, Z=made.Z, own=own, history=replace(state.history))
        method.begin(made)
        return Net(method, made, self._value(method, made))

    def _trained(self, net: Net) -> Net:
        """The net after some more iterations.  Collective: yes."""
        for _ in range(self.config.selection.iterations):
            net.method.sweep(net.state)
            self.trained += 1
        return net._replace(value=self._value(net.method, net.state))
