"""The architecture is learned (sections 2.4 and 4.4): the W-step of some iterations chooses among candidates.

    min over W of E_Q(W, Z; mu) + C(W),   C(W) = c eps_1^2 |W_1| + ... + c eps_K^2 |W_K|

separates over the regressions between two sites, so each takes its own best candidate: the number of its centres and
their width.  If ridges are compared too, E_Q is taken without its ridge term, which a smaller ridge always lowers, and
|W| is the effective number of weights, tr(G (G + ridge I)^-1) for each output.

The candidates' centres are prefixes of one order of the points, so that one factor holds the errors of all of them.
With the Gram G of the inputs Phi, and R^T R = G + D, where D has the ridge on its diagonal, the first M inputs have

    min over W of 1/2 ||T - Phi W^T||^2 + 1/2 sum_h w_h D w_h^T = 1/2 ||T||^2 - 1/2 ||(R^-T Phi^T T)_1..M||^2,

reached at W^T = R_M^-1 (R^-T Phi^T T)_1..M, and for each output tr(G_M (G_M + D_M)^-1) = M - tr(D_M R_M^-1 R_M^-T)
effective weights: the leading blocks of R and of R^-1 are those of the first M inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.half_steps.context import HalfStepContext
from macmpi.half_steps.problems import WInputs, prepare_w, unit_targets
from macmpi.half_steps.w_step import Solving, carry_out, fit
from macmpi.mac import Mac
from macmpi.nets.design import adjoint
from macmpi.parallel.lapack import by_transpose, lapack
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import Candidates, candidates_of, widths_of
from macmpi.plan.work_lists import Exchange, Gram, Job, WorkList
from macmpi.reductions import ALONE, LazyRows, OverPoints, Rows, SharedMatrix
from macmpi.solvers.closed_form import Factor, NormalEquations
from macmpi.solvers.grams import LayerGram
from macmpi.solvers.w_problem import UnitProblem, values
from macmpi.state import Architecture, MacState, Pause, State, never
from macmpi.typing import Array


class Comparing(Solving):
    """Fits all candidates of a selection at one width; its methods do the tasks of a W-step's work list.

    A smaller candidate reads the first inputs of the largest one, whose Gram and factor therefore serve all.
    largest: the plan of the largest candidates.
    candidates: the candidates, by segment.
    ridges: by segment, the ridges that are compared, on the scale of a unit's own regression.
    features: by segment, the inputs of the regressions; None: computed with the centres of the largest candidate.
    Collective: methods that say so.
    """

    def __init__(
        self,
        largest: Plan,
        given: WInputs,
        work: WorkList,
        candidates: dict[int, Candidates],
        ridges: Mapping[int, Sequence[float]],
        features: dict[int, Rows] | None = None,
    ) -> None:
        super().__init__(given, plain=True, factors={})
        self.plan, self.candidates, self.ridges = largest, candidates, ridges
        team = given.parts.team
        self._rows = team.array((largest.offsets.grams[-1],), np.float64)
        by_rank = [work.jobs_of(rank) for rank in range(team.size if any(p.own for p in work.phases) else 1)]
        self._counts = [len(jobs) for jobs in by_rank]
        self._numbers = {job.place.start: i for i, job in enumerate(job for jobs in by_rank for job in jobs)}
        widest = max(self._columns(job.segment) for job in work.jobs)
        self._table = np.zeros((sum(self._counts), widest))
        self._grams: dict[int, Array] = {}
        self._roots: dict[tuple[int, float], Factor] = {}
        self._inverses: dict[tuple[int, float], Array] = {}
        self.features = features or {k: self._features(k) for k in work.features}

    def _columns(self, segment: int) -> int:
        own = self.candidates[segment]
        return 1 + len(self.ridges[segment]) * len(own.counts) * (2 if own.ridges else 1)

    def _features(self, segment: int) -> Rows:
        """Computes the inputs Phi (N, M) of a segment's largest candidate.  Collective: yes."""
        part, inputs = self.plan.chain.segments[segment], self.given.parts.inputs(segment, self.given.state)
        if not part.leading:
            return self.given.inputs[segment].design
        basis, points = part.maps[0], self.given.parts.points
        centres = self.plan.centres(part.parameter_blocks[0], points.at_hand(inputs), None)
        lazy = LazyRows(lambda rows: basis.forward(centres, inputs[rows]), (len(inputs), basis.n_out), inputs.dtype)
        return points.hold(lazy)

    def gram(self, gram: Gram, over_points: OverPoints) -> None:
        """Sums the Gram of the largest candidate, or some rows of it.  Collective: if `over_points` is."""
        k, rows = gram.segment, None if gram.rows is None else gram.rows.rows
        found = NormalEquations().sum(self.features[k], over_points, self.plan.chain.views[k].bias, rows)
        if rows is None:
            self._grams[k] = found
        else:
            self._rows[gram.place] = found.ravel()

    def factor(self, segment: int) -> None:
        """Makes the factor R of a large Gram for each ridge, all ranks together.  Collective: yes."""
        for ridge in self.ridges[segment]:
            self.root(segment, ridge, self.given.parts.shared_matrix)

    def root(self, segment: int, ridge: float, shared_matrix: SharedMatrix = ALONE) -> Factor:
        """Makes R^T and D for a ridge, once, as the W-step in closed form does.  Collective: as `shared_matrix` is."""
        if (segment, ridge) not in self._roots:
            plan = self.plan
            side = plan.offsets.sides[segment]
            rows = self._rows[plan.offsets.gram(segment)].reshape(side, side)
            gram = LayerGram(self._grams.get(segment, rows), ridge, plan.dtype, plan.chain.views[segment].bias)
            self._roots[segment, ridge] = NormalEquations().factor(gram, shared_matrix)
        return self._roots[segment, ridge]

    def inverse(self, segment: int, ridge: float) -> Array:
        """Inverts R, once for each segment and ridge.  Cost: M^3 / 3 flops.  Collective: no."""
        if (segment, ridge) not in self._inverses:
            self._inverses[segment, ridge] = np.triu(lapack.dtrtri(self.root(segment, ridge).lower.T, lower=0)[0])
        return self._inverses[segment, ridge]

    def degrees(self, segment: int, ridge: float) -> Array:
        """Computes tr(G_M (G_M + D_M)^-1) of the first M inputs, for the M of each candidate.  Collective: no."""
        counts = self.candidates[segment].counts
        S, added = self.inverse(segment, ridge), self.root(segment, ridge).added
        return np.clip(counts - np.cumsum(added @ (S * S))[counts - 1], 0.0, counts)

    def solve(self, job: Job) -> None:
        """Puts the objectives and effective numbers of weights of all candidates for some units into the table.

        Collective: if `over_points` is.
        """
        k, own = job.segment, self.candidates[job.segment]
        held = [self.degrees(k, ridge) for ridge in self.ridges[k]] if own.ridges else []
        self.entries(job)[:] = np.concatenate([self.objectives(job), *held])

    def entries(self, job: Job) -> Array:
        """Returns a job's row of the table, `objectives` and degrees; complete after the exchange.  Collective: no."""
        return self._table[self._numbers[job.place.start], : self._columns(job.segment)]

    def exchange(self, exchange: Exchange) -> None:
        """Gives all ranks the rows of Grams, or of the table, that each rank has computed.  Collective: yes."""
        team = self.given.parts.team
        if exchange.what == "weights" and exchange.parts:
            team.gather_rows(self._table, self._counts)
        elif exchange.what == "weights":
            team.share_array(self._table)
        elif exchange.parts:
            team.gather_parts(self._rows, exchange.parts)

    def objectives(self, job: Job) -> Array:
        """Computes 1/2 ||T - Phi W^T||^2 + ridge/2 ||V||^2 of a job's units, first with their present weights.

        The values of the best weights for each number of inputs follow, ridge by ridge.  The ridge term is left out if
        ridges are compared.  Collective: if `over_points` is.
        """
        assert job.units is not None
        k, rows, parts, state = job.segment, job.units.rows, self.given.parts, self.given.state
        own, bias = self.candidates[k], self.plan.chain.views[k].bias
        T, Phi = unit_targets(self.given, k, rows), self.features[k]

        def part(points: slice) -> tuple[Array, ...]:
            own = T[points]
            return adjoint(own, Phi[points], bias), np.einsum("nh,nh->", own, own, dtype=float)

        crossed, squares = parts.over_points(part)
        found = list[Array]()
        for ridge in self.ridges[k]:
            root = self.root(k, ridge)
            U = by_transpose(root.lower.T, crossed.T)
            gains = np.cumsum(np.einsum("mh,mh->m", U, U))[own.counts - 1]
            if own.ridges:
                gains = gains + _shrunk(self.inverse(k, ridge), U, root.added, own.counts)
            found.append(0.5 * (squares - gains))
        W = parts.weights(state)[self.plan.chain.segments[k].regressed[0]][rows]
        ridge = 0.0 if own.ridges else self.ridges[k][0]
        present = values(UnitProblem(self.given.inputs[k].design, T, ridge, W, "linear"), W, parts.over_points).sum()
        return np.concatenate([[present], *found])


def _shrunk(S: Array, U: Array, added: Array, counts: Array) -> Array:
    """Computes sum_h w_h D w_h^T at the best weights W^T = R_M^-1 U_M of the first M inputs, for each M of `counts`."""
    W, at, found = np.zeros_like(U), 0, list[float]()
    for count in counts:
        W[:count] += S[:count, at:count] @ U[at:count]
        at = count
        found.append(float(added[:count] @ np.einsum("mh,mh->m", W[:count], W[:count])))
    return np.array(found)


# --- the method -------------------------------------------------------------------------------------------------------


Totals: TypeAlias = tuple[dict[int, list[tuple[Array, Array]]], dict[int, tuple[float, float]]]
"""By segment, values and effective numbers of weights: of the candidates of each width, and of the regression now."""


class Best(NamedTuple):
    """Describes the best candidate of a regression.

    moves: whether the candidate is better than the present regression, which otherwise stays.
    inputs, width, ridge: the candidate's number of inputs; the width of its basis functions, 0 in a dense layer; its
        penalty.ridge.
    degrees: the effective number of weights of an output; that of the present regression, if it stays.
    """

    moves: bool
    inputs: int
    width: float
    ridge: float
    degrees: float


class Selection(Mac):
    """Is MAC whose W-step selects the model in every `every`-th iteration.

    The present regression with its weights is one of the candidates, so a selection never raises E_Q + ridge + C, or
    E_Q + C if ridges are compared.  Collective: methods that say so.
    """

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        super().__init__(plan, data, team)
        self.begun, self.of = plan.begun, plan.begun.resolved
        self.largest = self.begun.resized(self.of.units)
        self.candidates = candidates_of(self.largest.resolved, plan.n_train)
        self.changed: bool | None = None

    def notes(self, state: State[MacState]) -> dict[str, Any]:
        """Returns C per point, chosen widths and ridges, and what a selection did, for the curve.  Collective: no."""
        present = self._present()
        compared = [float(self._count(c)) for c in self.candidates if c.ridges]  # before the first selection all inputs
        known = iter(state.own.degrees.tolist() or compared)
        cost = sum(float(c.cost(self._count(c), next(known) if c.ridges else None)) for c in self.candidates)
        said: dict[str, Any] = {"cost": cost / self.plan.n_train}
        if any(len(c.widths) > 1 for c in self.candidates):
            said["widths"] = list(present.widths)
        if any(c.ridges for c in self.candidates):
            said["ridges"] = list(present.ridges)
        return said | ({} if self.changed is None else {"phase": "selection", "changed": self.changed})

    def _count(self, of: Candidates) -> Any:
        return np.array(self.plan.chain.block_shapes[of.block][1])

    def _present(self) -> Architecture:
        """Returns the units, widths and ridges of the present net.  Collective: no."""
        of = self.plan.resolved
        return Architecture(tuple(of.units), tuple(widths_of(of).values()), tuple(of.shaping.ridges.values()))

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """Does one iteration; `changed` then says whether it changed the architecture.  Collective: yes."""
        self.changed = None
        return super().sweep(state, pause)

    def last_w_step(self, state: State[MacState]) -> None:
        """Lets each regression take its best candidate or stay; fits regressions that do not stay.  Collective: yes."""
        if (state.iteration + 1) % self.of.selection.every:
            return super().last_w_step(state)
        found, present, of = self._best(state), self._present(), self.plan.resolved
        units, widths, ridges = list(of.units), widths_of(of), dict(of.shaping.ridges)
        for c, best in zip(self.candidates, found, strict=True):
            if best.moves and c.layer >= 0:
                units[c.layer] = best.inputs
                widths[c.layer] = best.width
            if best.moves and c.ridges:
                ridges[c.block] = best.ridge
        chosen = Architecture(tuple(units), tuple(widths.values()), tuple(ridges.values()))
        kept = {c.segment for c, best in zip(self.candidates, found, strict=True) if not best.moves}
        self.changed = chosen != present
        if self.changed:
            self._become(chosen, present, kept, state)
        state.own.degrees = np.array([best.degrees for c, best in zip(self.candidates, found, strict=True) if c.ridges])
        fit(self.parts, [k for k in range(len(self.plan.chain.segments)) if k not in kept], state)

    def _become(self, chosen: Architecture, present: Architecture, kept: set[int], state: State[MacState]) -> None:
        """Changes the state in place to another architecture: blocks of unchanged size stay, the others become 0.

        chosen, present: the architectures after and before.
        kept: the segments that stay as they are.  Collective: yes.
        """
        old, plan = self.plan, self.begun.resized(*self._asked(chosen))
        state.weights = _carried(state.weights, old.offsets.weights, plan.offsets.weights)
        state.own.grams = _carried(state.own.grams, old.offsets.grams, plan.offsets.grams)
        state.own.sizes = np.array(chosen.units)
        state.own.widths, state.own.ridges = (np.array(v) for v in self._asked(chosen)[1:])
        if chosen[:2] != present[:2]:
            state.history.forget()
        self.plan, self.parts = plan, HalfStepContext(plan, self.data, self.team)
        if 0 in kept or not plan.chain.segments[0].leading:
            super().begin(state)

    def _asked(self, of: Architecture) -> Architecture:
        """Removes from an architecture the widths or ridges that are not selected: these follow from the config.

        Collective: no.
        """
        widths = of.widths if any(len(c.widths) > 1 for c in self.candidates) else ()
        return Architecture(of.units, widths, of.ridges if any(c.ridges for c in self.candidates) else ())

    def _best(self, state: State[MacState]) -> list[Best]:
        """Returns the best candidate of each regression.  Collective: yes."""
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
        """Returns the ridges that are compared at a mu, in the units of penalty.ridge.  Collective: no."""
        return of.ridges if of.ridges and mu <= self.plan.resolved.shaping.until_mu else (self._ridge(of),)

    def _ridge(self, of: Candidates) -> float:
        """Returns the present ridge of a regression.  Collective: no."""
        return self.plan.resolved.shaping.ridges[of.block]

    def totals(self, state: State[MacState]) -> Totals:
        """Computes, by segment, its part of E_Q plus C, for all fitted candidates and for the present regression.

        Returns two dicts by segment: for each width, values and degrees (ridges, counts) of the candidates; and value
        and degrees of the present regression.
        Cost: for each width one fit of the largest candidate, and for each ridge a factor and its inverse.
        Collective: yes.
        """
        segments = [c.segment for c in self.candidates]
        with self.team.clock("w"):
            given = prepare_w(self.parts, self.plan.work.regressions(segments), state)
        present = self._degrees_now(given)
        tried: dict[int, list[tuple[Array, Array]]] = {k: [] for k in segments}
        held: dict[int, tuple[float, float]] = {}
        for i in range(max(max(len(c.widths), 1) for c in self.candidates)):
            own = {c.segment: c for c in self.candidates if i < max(len(c.widths), 1)}
            for k, (now, costs, degrees) in self._tried(self._of_width(i), own, given).items():
                tried[k].append((costs, degrees))
                if not i:
                    value = now + float(own[k].cost(self._count(own[k]), present.get(k)))
                    held[k] = value, float(present.get(k, self._count(own[k])))
        return tried, held

    def _tried(
        self, plan: Plan, own: dict[int, Candidates], given: WInputs, features: dict[int, Rows] | None = None
    ) -> dict[int, tuple[float, Array, Array]]:
        """Computes, by segment, E_Q's part of the regression as it is, and E_Q's part + C of candidates of one width.

        own: the candidates by segment.
        features: as in `Comparing`.
        Returns the value, a table (ridges, counts), and the degrees of each entry.  Collective: yes.
        """
        work, found, shaping = plan.work.regressions(list(own)), {}, self.plan.resolved.shaping
        mu, last = given.state.mu, len(self.plan.chain.sites)
        ridges = {k: [shaping.own(r, mu, k == last) for r in self._ridges(c, mu)] for k, c in own.items()}
        with self.team.clock("w"):
            trial = Comparing(plan, given, work, own, ridges, features)
        carry_out(work, trial)
        for k, c in own.items():
            jobs = sorted((j for j in work.jobs if j.segment == k), key=lambda job: job.place.start)
            shape = len(ridges[k]), len(c.counts)
            count = 1 + shape[0] * shape[1]
            total = sum((trial.entries(job)[:count] for job in jobs), np.zeros(count))
            total *= self.plan.penalty_weight(k, mu)
            degrees = np.broadcast_to(c.counts.astype(float), shape)
            if c.ridges:
                degrees = trial.entries(jobs[0])[count:].reshape(shape)
            costs = np.stack([c.cost(c.counts, d if c.ridges else None) for d in degrees])
            found[k] = float(total[0]), total[1:].reshape(shape) + costs, degrees
        return found

    def _degrees_now(self, given: WInputs) -> dict[int, float]:
        """Computes the present effective weights of an output, if ridges are compared, by segment.  Collective: yes."""
        compared = [c for c in self.candidates if c.ridges]
        present = {c.segment: c._replace(counts=self._count(c)[None], ridges=(self._ridge(c),)) for c in compared}
        features = {k: given.inputs[k].design for k in present}
        tried = self._tried(self.plan, present, given, features) if present else {}
        return {k: float(degrees[0, 0]) for k, (_, _, degrees) in tried.items()}

    def _of_width(self, number: int) -> Plan:
        """Makes the plan of the largest candidates with their width `number`, or their last one.  Collective: no."""
        widths = widths_of(self.of)
        for c in self.candidates:
            if c.widths:
                widths[c.layer] = c.widths[min(number, len(c.widths) - 1)]
        return self.largest if widths == widths_of(self.of) else self.begun.resized(self.of.units, [*widths.values()])


def _carried(flat: Array, old: Sequence[int], new: Sequence[int]) -> Array:
    """Copies the parts of a flat buffer that keep their size; others are 0.  old, new: the bounds of the parts."""
    found = np.zeros(new[-1], flat.dtype)
    for was, place in zip(pairwise(old), pairwise(new), strict=True):
        if was[1] - was[0] == place[1] - place[0]:
            found[slice(*place)] = flat[slice(*was)]
    return found
