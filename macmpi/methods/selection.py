"""Learning the architecture (sections 2.4 and 4.4): the W-step of some iterations chooses among candidates.

    min over W of E_Q(W, Z; mu) + C(W),   C(W) = c eps_1^2 |W_1| + ... + c eps_K^2 |W_K|

separates over the regressions between two sites, so each takes its best candidate by itself: the number of its centres
and their width.  The candidates' centres are prefixes of one order of the points, so that one factor holds the errors
of all of them (`candidates.py`).  Where ridges are compared too, E_Q counts without its ridge, which a smaller one
always lowers, and |W| is the effective number of weights, tr(G (G + ridge I)^-1) for each output.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.parts import Parts
from macmpi.half_steps.problems import WInputs, prepare_w
from macmpi.half_steps.w_step import carry_out, fit
from macmpi.mac import Mac
from macmpi.methods.candidates import Candidates, Comparing, candidates_of
from macmpi.parallel.clock import Clock
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import all_widths, width_places
from macmpi.state import Z_STEP, Architecture, MacState, Pause, State, never
from macmpi.typing import Array


class Best(NamedTuple):
    """The best candidate of a regression: whether it beats what is, its number of inputs, width, ridge and degrees.

    degrees: those of what is, where it stays; all are those of what is where there is nothing to choose.
    """

    moves: bool
    inputs: int
    width: float
    ridge: float
    degrees: float


class Selection(Mac):
    """MAC of which an iteration in `every` is a Z-step and a W-step with model selection.

    The incumbent, with its present weights, is among the candidates: a selection never raises E_Q + ridge + C; of
    regressions whose ridge is compared, the ridge apart.  Collective: where a method says so.
    """

    def __init__(self, plan: Plan, data: Dataset, team: Team, clock: Clock) -> None:
        super().__init__(plan, data, team, clock)
        self.begun, self.of = plan.begun, plan.begun.resolved
        self.largest = self.begun.resized(self.of.units)
        self.candidates = candidates_of(self.largest)
        self.changed: bool | None = None
        self._degrees = list[float]()

    def begin(self, state: State[MacState]) -> None:
        """Does as MAC does, and takes the degrees that a selection has left.  Collective: yes."""
        super().begin(state)
        self._degrees = [float(degrees) for degrees in state.own.degrees]

    def notes(self) -> dict[str, Any]:
        """For the record: C per point, the widths and ridges that are chosen, and what a selection did.

        Collective: no.
        """
        present = self._present()
        cost = sum(float(c.cost(self._count(c), d)) for c, d in zip(self.candidates, self._known(), strict=True))
        said: dict[str, Any] = {"cost": cost / self.plan.n_train}
        if any(len(c.widths) > 1 for c in self.candidates):
            said["widths"] = list(present.widths)
        if any(c.ridges for c in self.candidates):
            said["ridges"] = list(present.ridges)
        return said | ({} if self.changed is None else {"phase": "selection", "changed": self.changed})

    def _known(self) -> list[float | None]:
        """The degrees of each regression, before the first selection all its inputs; None where M itself counts."""
        all_inputs = [float(self._count(c)) for c in self.candidates if c.ridges]
        held = iter(self._degrees or all_inputs)
        return [next(held) if c.ridges else None for c in self.candidates]

    def _count(self, of: Candidates) -> Any:
        return np.array(self.plan.chain.block_shapes[of.block][1])

    def _present(self) -> Architecture:
        """The net as it is.  Collective: no."""
        of = self.plan.resolved
        return Architecture(tuple(of.units), tuple(all_widths(of)), tuple(of.shaping.ridges))

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """One iteration; `changed` then says whether it changed the architecture.  Collective: yes."""
        self.changed = None
        if (state.iteration + 1) % self.of.selection.every:
            return super().sweep(state, pause)
        if state.position == Z_STEP:
            self.z_step(state)
            if pause():
                return False
        self._select(state)
        state.completed()
        return True

    def _select(self, state: State[MacState]) -> None:
        """Each regression takes its best candidate, or stays; a W-step for the others.  Collective: yes."""
        found = self._best(state)
        present = self._present()
        units, widths, ridges = list(present.units), list(present.widths), list(present.ridges)
        for c, best in zip(self.candidates, found, strict=True):
            if best.moves and c.layer >= 0:
                units[c.layer] = best.inputs
                widths[width_places(self.of)[c.layer]] = best.width
            if best.moves and c.ridges:
                ridges[self.plan.resolved.shaping.layers.index(c.block)] = best.ridge
        chosen = Architecture(tuple(units), tuple(widths), tuple(ridges))
        kept = {c.segment for c, best in zip(self.candidates, found, strict=True) if not best.moves}
        self.changed = chosen != present
        if self.changed:
            self._become(chosen, present, kept, state)
        self._degrees = [best.degrees for c, best in zip(self.candidates, found, strict=True) if c.ridges]
        state.own.degrees = np.array(self._degrees)
        fit(self.parts, [k for k in range(len(self.plan.chain.segments)) if k not in kept], state)

    def _become(self, chosen: Architecture, present: Architecture, kept: set[int], state: State[MacState]) -> None:
        """The State of another architecture: what keeps its shape keeps its bits, the rest is 0.  Collective: yes.

        kept: the segments that stay as they are.
        """
        old, plan = self.plan, self.begun.resized(*self._asked(chosen))
        state.weights = _carried(state.weights, old.offsets.weights, plan.offsets.weights)
        state.own.grams = _carried(state.own.grams, old.offsets.grams, plan.offsets.grams)
        state.own.sizes = np.array(chosen.units)
        state.own.widths, state.own.ridges = (np.array(v) for v in self._asked(chosen)[1:])
        if chosen[:2] != present[:2]:
            state.history.forget()
        self.plan, self.parts = plan, Parts(plan, self.data, self.team, self.clock)
        if 0 in kept or not plan.chain.segments[0].leading:
            super().begin(state)

    def _asked(self, of: Architecture) -> Architecture:
        """Without the widths and ridges that nothing chooses, which the config gives.  Collective: no."""
        widths = of.widths if any(len(c.widths) > 1 for c in self.candidates) else ()
        return Architecture(of.units, widths, of.ridges if any(c.ridges for c in self.candidates) else ())

    def _best(self, state: State[MacState]) -> list[Best]:
        """The best candidate of each regression.  Collective: yes."""
        totals = self.totals(state)

        def chosen(c: Candidates, present: tuple[float, float]) -> Best:
            ridges = self._ridges(c, state.mu)
            table = np.stack([values for values, _ in totals[0][c.segment]])
            width, ridge, count = np.unravel_index(int(table.argmin()), table.shape)
            value, degrees = float(table[width, ridge, count]), totals[0][c.segment][width][1]
            moves = value < present[0]
            held = float(degrees[ridge, count]) if moves else present[1]
            return Best(moves, int(c.counts[count]), c.widths[width] if c.widths else 0.0, ridges[ridge], held)

        return self.team.from_root(lambda: [chosen(c, totals[1][c.segment]) for c in self.candidates])

    def _ridges(self, of: Candidates, mu: float) -> tuple[float, ...]:
        """The ridges that are compared at a mu, as penalty.ridge says them.  Collective: no."""
        shaping = self.plan.resolved.shaping
        if of.ridges and mu <= shaping.until_mu:
            return of.ridges
        return (shaping.ridges[shaping.layers.index(of.block)],)

    def totals(
        self, state: State[MacState]
    ) -> tuple[dict[int, list[tuple[Array, Array]]], dict[int, tuple[float, float]]]:
        """E_Q's part + C of every candidate (fitted) and of the incumbent (as it is), by segment.  Collective: yes.

        Of candidates, for each width, an array (ridges, counts) and the degrees of each; of the incumbent its value and
        degrees.  Cost: for all counts what one fit of the largest costs, for each width; for each ridge a factor and
        its inverse.
        """
        segments, mu = [c.segment for c in self.candidates], state.mu
        with self.clock("w"):
            given = prepare_w(self.parts, self.plan.work.regressions(segments), state)
        present = self._degrees_now(given, state)
        tried: dict[int, list[tuple[Array, Array]]] = {k: [] for k in segments}
        held: dict[int, tuple[float, float]] = {}
        for i in range(max(max(len(c.widths), 1) for c in self.candidates)):
            own = {c.segment: c for c in self.candidates if i < max(len(c.widths), 1)}
            for k, (now, values, degrees) in self._tried(self._of_width(i), own, given, mu).items():
                tried[k].append((values, degrees))
                if not i:
                    value = now + float(own[k].cost(self._count(own[k]), present.get(k)))
                    held[k] = value, float(present.get(k, self._count(own[k])))
        return tried, held

    def _tried(
        self, plan: Plan, own: dict[int, Candidates], given: WInputs, mu: float
    ) -> dict[int, tuple[float, Array, Array]]:
        """By segment, at one width: E_Q's part of what is; E_Q's part + C and degrees of candidates (ridges, counts).

        Collective: yes.
        """
        work, found = plan.work.regressions(list(own)), {}
        ridges = {k: [self._own(c, r, mu) for r in self._ridges(c, mu)] for k, c in own.items()}
        with self.clock("w"):
            trial = Comparing(plan, given, work, own, ridges)
        carry_out(work, trial, self.parts.points, self.team, self.clock)
        for k, c in own.items():
            jobs = sorted((j for j in work.jobs if j.segment == k), key=lambda job: job.place.start)
            shape = len(ridges[k]), len(c.counts)
            values = 1 + shape[0] * shape[1]
            total = sum((trial.found(job)[:values] for job in jobs), np.zeros(values))
            total *= self.plan.penalty_weight(k, mu)
            degrees = np.broadcast_to(c.counts.astype(float), shape)
            if c.ridges:
                degrees = trial.found(jobs[0])[values:].reshape(shape)
            costs = np.stack([c.cost(c.counts, d if c.ridges else None) for d in degrees])
            found[k] = float(total[0]), total[1:].reshape(shape) + costs, degrees
        return found

    def _degrees_now(self, given: WInputs, state: State[MacState]) -> dict[int, Any]:
        """The effective weights of an output of each regression whose ridge is compared, as it is.  Collective: yes."""
        chosen = {c.segment: c for c in self.candidates if c.ridges}
        if not chosen:
            return {}
        work, shaping = self.plan.work.regressions(list(chosen)), self.plan.resolved.shaping
        ridges = {k: [self._own(c, shaping.ridges[shaping.layers.index(c.block)], state.mu)] for k, c in chosen.items()}
        trial = Comparing(self.plan, given, work, {}, ridges, {k: own.design for k, own in given.inputs.items()})
        carry_out(work, trial, self.parts.points, self.team, self.clock)
        first = {job.segment: job for job in sorted(work.jobs, key=lambda job: job.place.start, reverse=True)}
        return {k: float(trial.found(first[k])[0]) for k in chosen}

    def _own(self, of: Candidates, ridge: float, mu: float) -> float:
        """A ridge as the regression of a unit has it.  Collective: no."""
        return self.plan.resolved.shaping.own(ridge, mu, of.segment == len(self.plan.chain.sites))

    def _of_width(self, number: int) -> Plan:
        """The plan of the largest candidates, with width `number` of each.  Collective: no."""
        widths = all_widths(self.of)
        for c in self.candidates:
            if c.widths:
                widths[width_places(self.of)[c.layer]] = c.widths[min(number, len(c.widths) - 1)]
        if widths == all_widths(self.of):
            return self.largest
        return self.begun.resized(self.of.units, widths)


def _carried(flat: Array, old: Sequence[int], new: Sequence[int]) -> Array:
    """The parts of a flat buffer that keep their size, 0 for the others.  old, new: the bounds of the parts."""
    found = np.zeros(new[-1], flat.dtype)
    for was, place in zip(pairwise(old), pairwise(new), strict=True):
        if was[1] - was[0] == place[1] - place[0]:
            found[slice(*place)] = flat[slice(*was)]
    return found
