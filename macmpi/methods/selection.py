"""Learning the architecture (sections 2.4 and 4.4): the W-step of some iterations chooses how many centres a layer has.

    min over W of E_Q(W, Z; mu) + C(W),   C(W) = c eps_1^2 |W_1| + ... + c eps_K^2 |W_K|

separates over the nets of radial basis functions between two sites, so each takes its best candidate by itself.  The
candidates' centres are prefixes of one order of the points.  With the Gram G of all of them and R^T R = G + ridge I,
the least error of the first M centres is 1/2 ||T||^2 - 1/2 ||(R^-T Phi^T T)_1..M||^2: one factor and one forward
substitution give the errors of all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg

from macmpi.config import Config
from macmpi.config.resized import resized
from macmpi.half_steps.carry_out import carry_out
from macmpi.half_steps.w_problems import WInputs, prepare_w, targets
from macmpi.half_steps.w_step import fit
from macmpi.mac import Mac
from macmpi.methods.around import Around
from macmpi.nets.design import adjoint
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.work_lists import Exchange, Gram, Job, Layer, WorkList
from macmpi.reductions import ALONE, InPieces, OverPoints
from macmpi.solvers.closed_form import NormalEquations
from macmpi.solvers.w_problem import LayerGram, Term, UnitProblem, values
from macmpi.state import Z_STEP, MacState, Pause, State, never
from macmpi.typing import Array

CRITERIA: dict[str, Callable[[int], float]] = {
    "aic": lambda n: 2.0,
    "bic": lambda n: math.log(n),
    "mdl": lambda n: max(math.log(n / (2.0 * math.pi)), 0.0),
}
"""A parameter costs this in addition to the sum of squares, in units of epsilon^2, for n points."""


@dataclass(frozen=True)
class Basis:
    """A net of radial basis functions between two sites: segment `segment`, hidden layer `layer`, its candidates.

    price: what a centre costs, with its weights, in the scale of E1.
    """

    segment: int
    layer: int
    candidates: Array
    price: float


class Selection(Around):
    """A Method around MAC: an iteration in `every` is a Z-step and a W-step with model selection.

    The incumbent, with its present weights, is among the candidates: a selection never raises E_Q + ridge + C.
    Collective: where a method says so.
    """

    def __init__(self, config: Config, mac: Mac) -> None:
        super().__init__(mac)
        self.config = config
        self.largest = self._plan(config.model.units)
        self.bases = bases(config, self.largest)
        self.changed: bool | None = None

    def _plan(self, hidden: list[int]) -> Plan:
        old = self.mac.plan
        chain = old.chain
        return make_plan(resized(self.config, hidden), chain.n_in, chain.n_out, old.n_train, old.n_val, old.ranks)

    def notes(self) -> dict[str, Any]:
        """For the record: C per point, and what a selection did.  Collective: no."""
        cost = sum(b.price * self._centres(b) for b in self.bases) / self.plan.n_train
        return {"cost": cost} | ({} if self.changed is None else {"phase": "selection", "changed": self.changed})

    def _centres(self, basis: Basis) -> int:
        return self.plan.chain.segments[basis.segment].maps[0].n_out

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """One iteration; `changed` then says whether it changed the architecture.  Collective: yes."""
        self.changed = None
        if (state.iteration + 1) % self.config.selection.every:
            return self.mac.sweep(state, pause)
        if state.position == Z_STEP:
            self.mac.z_step(state)
            if pause():
                return False
        self._select(state)
        state.completed()
        return True

    def _select(self, state: State[MacState]) -> None:
        """Each basis takes its best candidate, or stays as it is; a W-step for the others.  Collective: yes."""
        totals = self._totals(state)
        tried, present = self.team.from_root(lambda: totals)
        best = [int(b.candidates[costs.argmin()]) for b, costs in zip(self.bases, tried, strict=True)]
        moves = [float(costs.min()) < now for costs, now in zip(tried, present, strict=True)]
        hidden = [layer.n_out for layer in self.plan.hidden]
        for basis, count, move in zip(self.bases, best, moves, strict=True):
            if move:
                hidden[basis.layer] = count
        self.changed = hidden != [layer.n_out for layer in self.plan.hidden]
        if self.changed:
            self._resize(hidden, state)
        kept = {b.segment for b, move in zip(self.bases, moves, strict=True) if not move}
        fit(self.parts, [k for k in range(len(self.plan.chain.segments)) if k not in kept], state)

    def _resize(self, hidden: list[int], state: State[MacState]) -> None:
        """The State of another architecture: what keeps its shape keeps its bits, the rest is 0.  Collective: yes."""
        old, plan = self.plan, self._plan(hidden)
        state.weights = _carried(state.weights, old.offsets.weights, plan.offsets.weights)
        state.own.grams = _carried(state.own.grams, old.offsets.grams, plan.offsets.grams)
        state.own.sizes = np.array(hidden)
        state.history.forget()
        self.mac = Mac(plan, self.data, self.team, self.clock)
        if plan.chain.regressed_shapes(0) == old.chain.regressed_shapes(0):
            self.mac.begin(state)

    def _totals(self, state: State[MacState]) -> tuple[list[Array], list[float]]:
        """E_Q's part + C of every candidate (fitted) and of the incumbent (as it is), basis by basis.  Collective: yes.

        Cost: for all candidates of a basis what one fit of the largest costs.
        """
        work = self.largest.work.regressions([b.segment for b in self.bases])
        with self.clock("w"):
            given = prepare_w(self.parts, self.plan.work.regressions([b.segment for b in self.bases]), state)
            trial = Comparing(self.largest, given, work, {b.segment: b.candidates for b in self.bases})
        carry_out(work, trial, self.parts.points, self.team, self.clock)
        tried, present = [], []
        for basis in self.bases:
            jobs = sorted((j for j in work.jobs if j.segment == basis.segment), key=lambda job: job.place.start)
            total = sum(map(trial.found, jobs), np.zeros(1 + len(basis.candidates)))
            total *= self.plan.weight_of(basis.segment, state.mu)
            tried.append(total[1:] + basis.price * basis.candidates)
            present.append(float(total[0]) + basis.price * self._centres(basis))
        return tried, present


class Comparing:
    """The fits of all candidates of a W-step with selection, at the centres of the largest: the tasks of a work list.

    candidates: of each segment.  Collective: where a method says so.
    """

    def __init__(self, largest: Plan, given: WInputs, work: WorkList, candidates: dict[int, Array]) -> None:
        self.plan, self.given, self.candidates = largest, given, candidates
        team = given.parts.team
        self.factors = team.array((largest.offsets.grams[-1],), np.float64)
        by_rank = [work.jobs_of(rank) for rank in range(team.size)]
        self._counts = [len(jobs) for jobs in by_rank]
        self._numbers = {job.place.start: i for i, job in enumerate(job for jobs in by_rank for job in jobs)}
        self._table = np.zeros((sum(self._counts), 1 + max(map(len, candidates.values()))))
        self._grams: dict[int, Array] = {}
        self._roots: dict[int, Array] = {}
        self.features = {k: self._features(k) for k in work.features}

    def _features(self, segment: int) -> Array:
        """Phi (N, M) of the largest candidate.  Collective: yes."""
        part, inputs = self.plan.chain.segments[segment], self.given.parts.inputs(segment, self.given.state)
        block, basis = part.blocks[0], part.maps[0]
        assert block is not None
        centres = self.plan.centres(block, inputs, None)
        return self.given.parts.points.rows(
            lambda rows: basis.forward(centres, inputs[rows]), basis.n_out, inputs.dtype
        )

    def gram(self, gram: Gram, over_points: OverPoints) -> None:
        """The Gram of the largest candidate, or some rows of it.  Collective: where `over_points` is."""
        k, rows = gram.segment, None if gram.rows is None else gram.rows.rows
        found = NormalEquations().sum(self.features[k], over_points, False, rows)
        if rows is None:
            self._grams[k] = found
        else:
            self.factors[gram.place] = found.ravel()

    def factor(self, segment: int) -> None:
        """R of a large Gram, in pieces.  Collective: yes."""
        self.root(segment, self.given.parts.in_pieces)

    def root(self, segment: int, in_pieces: InPieces = ALONE) -> Array:
        """R, upper triangular, with R^T R = G + ridge I: that of the W-step in closed form, made once.

        Collective: where `in_pieces` is.
        """
        if segment not in self._roots:
            plan = self.plan
            rows = self.factors[plan.offsets.gram(segment)].reshape(plan.offsets.gram_shapes[segment])
            G = self._grams.get(segment, rows)
            gram = LayerGram(G, plan.unit_ridge(segment, self.given.state.mu), plan.dtype, bias=False)
            self._roots[segment] = NormalEquations().factor(gram, in_pieces).lower.T
        return self._roots[segment]

    def solve(self, job: Job) -> None:
        """The objectives of some units.  Collective: no."""
        self.found(job)[:] = self.objectives(job, self.candidates[job.segment])

    def found(self, job: Job) -> Array:
        """The objectives of what is and of its segment's candidates, once they have been exchanged.  Collective: no."""
        return self._table[self._numbers[job.place.start], : 1 + len(self.candidates[job.segment])]

    def tour(self, jobs: Sequence[Job]) -> None:
        """Nothing travels where architectures are selected.  Collective: no."""
        raise NotImplementedError

    def train(self, layer: Layer) -> None:
        """No layer is trained while candidates are compared.  Collective: no."""
        raise NotImplementedError

    def exchange(self, exchange: Exchange) -> None:
        """Rows of Grams, or the table of objectives.  Collective: yes."""
        if exchange.what == "weights":
            self.given.parts.team.gather_rows(self._table, self._counts)
        elif exchange.parts:
            self.given.parts.team.gather_parts(self.factors, exchange.parts)

    def objectives(self, job: Job, candidates: Array) -> Array:
        """1/2 ||T - Phi W^T||^2 + ridge/2 ||W||^2 of units as they are, then for each candidate.  Collective: no."""
        assert job.units is not None
        k, rows, parts, state = job.segment, job.units.rows, self.given.parts, self.given.state
        T, Phi = targets(self.given, k, rows), self.features[k]
        (crossed,) = parts.over_points(lambda points: (adjoint(T[points], Phi[points], bias=False),))
        U = linalg.solve_triangular(self.root(k), crossed.T, trans=1, check_finite=False)
        gains = np.cumsum(np.einsum("mh,mh->m", U, U))[candidates - 1]
        W = parts.weights(state)[self.plan.chain.segments[k].regressed[0]][rows]
        term, ridge = Term(self.given.features[k], T), self.plan.unit_ridge(k, state.mu)
        present = values(UnitProblem(term, "linear", ridge, W), W, parts.over_points).sum()
        return np.concatenate([[present], 0.5 * (np.einsum("nh,nh->", T, T, dtype=float) - gains)])


def _carried(flat: Array, old: Sequence[int], new: Sequence[int]) -> Array:
    """The parts of a flat buffer that keep their size, 0 for the others.  old, new: the bounds of the parts."""
    found = np.zeros(new[-1], flat.dtype)
    for was, place in zip(pairwise(old), pairwise(new), strict=True):
        if was[1] - was[0] == place[1] - place[0]:
            found[slice(*place)] = flat[slice(*was)]
    return found


def bases(config: Config, plan: Plan) -> list[Basis]:
    """The nets of radial basis functions; candidates up to the plan's own number.  Collective: no."""
    keys, found = config.selection, list[Basis]()
    a_parameter = CRITERIA[keys.criterion](plan.n_train)
    epsilons = keys.epsilons(len(plan.basis_sizes))
    for k, segment in enumerate(plan.chain.segments):
        if segment.leading:
            own = segment.maps[0]
            price = a_parameter * epsilons[len(found)] * (own.n_in + segment.n_out)
            layer = next(i for i, m in enumerate(plan.hidden) if m is own)
            steps = keys.sizes[layer] if keys.sizes else np.arange(keys.smallest, own.n_out, keys.step)
            found.append(Basis(k, layer, np.unique([*steps, own.n_out]), price))
    return found
