"""Learning the architecture (sections 2.4 and 4.4): the W-step of some iterations chooses how many centres a layer has.

    min over W of E_Q(W, Z; mu) + C(W),   C(W) = c eps_1^2 |W_1| + ... + c eps_K^2 |W_K|

separates over the nets of radial basis functions between two sites, so each takes its best candidate by itself.  The
candidates' centres are prefixes of one order of the points.  With the Gram G of all of them and R^T R = G + ridge I,
the least error of the first M centres is 1/2 ||T||^2 - 1/2 ||(R^-T Phi^T T)_1..M||^2: one factor and one forward
substitution give the errors of all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg

from macmpi.config import Config
from macmpi.mac import Mac
from macmpi.methods.around import Around
from macmpi.nets.design import adjoint
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.work_lists import Job, Share
from macmpi.reductions import ALONE, InPieces, OverPoints
from macmpi.solvers.w_problem import LayerGram, Term, UnitProblem, values
from macmpi.state import Z_STEP, MacState, Pause, State, never
from macmpi.typing import Array

CRITERIA: dict[str, Callable[[int], float]] = {
    "aic": lambda n: 2.0,
    "bic": lambda n: math.log(n),
    "mdl": lambda n: max(math.log(n / (2.0 * math.pi)), 0.0),
}
"""What a parameter costs beside the sum of squares, in units of epsilon^2, for n points."""


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
        self.largest = self._plan(config.model.hidden)
        self.bases = bases(config, self.largest)
        self.changed: bool | None = None

    def _plan(self, hidden: list[int]) -> Plan:
        old, model = self.mac.plan, replace(self.config.model, hidden=hidden)
        chain = old.chain
        return make_plan(replace(self.config, model=model), chain.n_in, chain.n_out, old.n_train, old.n_val, old.ranks)

    def notes(self) -> dict[str, Any]:
        """For the record: C per point, and what a selection did.  Collective: no."""
        cost = sum(b.price * self._centres(b) for b in self.bases) / self.plan.n_train
        return {"cost": cost} | ({} if self.changed is None else {"phase": "selection", "changed": self.changed})

    def _centres(self, basis: Basis) -> int:
        return self.plan.chain.segments[basis.segment].maps[0].n_out

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """One iteration; `changed` then says whether it changed the architecture, None without a selection.

        Collective: yes.
        """
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
        """Each basis takes its best candidate and its weights, or stays as it is; a W-step for the others.

        Collective: yes.
        """
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
        self.mac.fit([k for k in range(len(self.plan.chain.segments)) if k not in kept], state)

    def _resize(self, hidden: list[int], state: State[MacState]) -> None:
        """The State of another architecture: what keeps its shape keeps its bits, the rest is 0.  Collective: yes."""
        old, plan = self.plan, self._plan(hidden)
        state.weights = _carried(state.weights, old.weight_bounds, plan.weight_bounds)
        state.own.grams = _carried(state.own.grams, old.shared_bounds, plan.shared_bounds)
        state.own.sizes = np.array(hidden)
        state.history.best_weights, state.history.best_e1_val = np.empty(0), math.inf
        self.mac = Mac(plan, self.data, self.team, self.clock)
        if plan.shapes(0) == old.shapes(0):
            self.mac.begin(state)

    def _totals(self, state: State[MacState]) -> tuple[list[Array], list[float]]:
        """E_Q's part + C of every candidate (fitted) and of the incumbent (as it is), basis by basis.  Collective: yes.

        Cost: for all candidates of a basis together what one fit of the largest costs.
        """
        segments = [b.segment for b in self.bases]
        deal, trial = self.largest.deal(segments), Trial(self.largest, self.mac, state)
        with self.clock("w"):
            for k in segments:
                trial.features(k, together=True)
                self.mac.problems.features(k, state, together=True)
            for share in deal.summed:
                trial.make(share, self.mac.points.together)
            for share in deal.shares[self.team.rank]:
                trial.make(share, self.mac.over_points)
        self.team.gather_parts(trial.factors, deal.shared_parts)
        jobs = [job for rank in deal.jobs for job in rank]
        widest = max(len(b.candidates) for b in self.bases)
        table = np.zeros((len(jobs), widest + 1))
        first = sum(len(rank) for rank in deal.jobs[: self.team.rank])
        candidates = {b.segment: b.candidates for b in self.bases}
        with self.clock("w"):
            for k in (k for k in segments if self.largest.large(k)):
                trial.root(k, self.mac.fitting.in_pieces)
            for i, job in enumerate(deal.jobs[self.team.rank], start=first):
                found = trial.objectives(job, candidates[job.segment])
                table[i, : len(found)] = found
        self.team.gather_rows(table, [len(rank) for rank in deal.jobs])
        tried, present = [], []
        for basis in self.bases:
            rows = sorted((job.place.start, i) for i, job in enumerate(jobs) if job.segment == basis.segment)
            total = sum((table[i] for _, i in rows), np.zeros(widest + 1)) * self.plan.weight_of(
                basis.segment, state.mu
            )
            tried.append(total[1 : 1 + len(basis.candidates)] + basis.price * basis.candidates)
            present.append(float(total[0]) + basis.price * self._centres(basis))
        return tried, present


class Trial:
    """The fits of all candidates of a W-step with selection, at the centres of the largest.

    Collective: where a method says so.
    """

    def __init__(self, largest: Plan, mac: Mac, state: State[MacState]) -> None:
        self.plan, self.mac, self.state = largest, mac, state
        self.factors = mac.team.array((largest.shared_bounds[-1],), np.float64)
        self._grams: dict[int, Array] = {}
        self._features: dict[int, Array] = {}
        self._roots: dict[int, Array] = {}

    def features(self, segment: int, together: bool = False) -> Array:
        """Phi (N, M) of the largest candidate, made once.  Collective: where `together` is True."""
        if segment not in self._features:
            part, inputs = self.plan.chain.segments[segment], self.mac.problems.inputs(segment, self.state)
            block, basis = part.blocks[0], part.maps[0]
            assert block is not None
            centres = self.plan.centres(block, inputs, None)
            self._features[segment] = self.mac.points.rows(
                lambda rows: basis.forward(centres, inputs[rows]), basis.n_out, inputs.dtype, together
            )
        return self._features[segment]

    def make(self, share: Share, over_points: OverPoints) -> None:
        """The Gram of the largest candidate, or some rows of it.  Collective: where `over_points` is."""
        k, rows = share.segment, None if share.rows is None else share.rows.rows
        found = self.plan.w_solvers[k].prepare(self.features(k), over_points, False, rows)
        if rows is None:
            self._grams[k] = found
        else:
            self.factors[share.place] = found.ravel()

    def root(self, segment: int, in_pieces: InPieces = ALONE) -> Array:
        """R, upper triangular, with R^T R = G + ridge I: that of the W-step in closed form, made once.

        Collective: where `in_pieces` is.
        """
        if segment not in self._roots:
            plan, bounds = self.plan, self.plan.shared_bounds
            rows = self.factors[bounds[segment] : bounds[segment + 1]].reshape(plan.shared_shape(segment))
            G = self._grams.get(segment, rows)
            gram = LayerGram(G, plan.unit_ridge(segment, self.state.mu), plan.dtype, bias=False)
            factor = plan.w_solvers[segment].local(gram, in_pieces)
            self._roots[segment] = factor.cholesky[0].T
        return self._roots[segment]

    def objectives(self, job: Job, candidates: Array) -> Array:
        """1/2 ||T - Phi W^T||^2 + ridge/2 ||W||^2 of some units: as they are, then fitted with each candidate.

        Collective: no.
        """
        assert job.units is not None
        k, rows = job.segment, job.units.rows
        T, Phi = self.mac.problems.targets(k, self.state)[:, rows], self.features(k)
        (crossed,) = self.mac.over_points(lambda points: (adjoint(T[points], Phi[points], bias=False),))
        U = linalg.solve_triangular(self.root(k), crossed.T, trans=1, check_finite=False)
        gains = np.cumsum(np.einsum("mh,mh->m", U, U))[candidates - 1]
        now = self.mac.problems.features(k, self.state)
        block = self.plan.chain.segments[k].regressed[0]
        W = self.mac.weights(self.state)[block][rows]
        problem = UnitProblem(Term(now, T), "linear", self.plan.unit_ridge(k, self.state.mu), W, np.zeros((0, 0)))
        present = values(problem, W, self.mac.over_points).sum()
        return np.concatenate([[present], 0.5 * (np.einsum("nh,nh->", T, T, dtype=float) - gains)])


def _carried(flat: Array, old: list[int], new: list[int]) -> Array:
    """The parts of a flat buffer that keep their size, 0 for the others.  old, new: the bounds of the parts."""
    found = np.zeros(new[-1], flat.dtype)
    for was, place in zip(pairwise(old), pairwise(new), strict=True):
        if was[1] - was[0] == place[1] - place[0]:
            found[slice(*place)] = flat[slice(*was)]
    return found


def bases(config: Config, plan: Plan) -> list[Basis]:
    """The nets of radial basis functions of a plan, in order; candidates from the smallest to the plan's own number.

    Collective: no.
    """
    keys, found = config.selection, list[Basis]()
    a_parameter = CRITERIA[keys.criterion](plan.n_train)
    epsilons = keys.epsilons(len(plan.basis_sizes))
    for k, segment in enumerate(plan.chain.segments):
        if segment.leading:
            own = segment.maps[0]
            steps = np.arange(keys.smallest, own.n_out, keys.step)
            price = a_parameter * epsilons[len(found)] * (own.n_in + segment.n_out)
            found.append(
                Basis(k, next(i for i, m in enumerate(plan.hidden) if m is own), np.append(steps, own.n_out), price)
            )
    return found
