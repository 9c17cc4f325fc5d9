"""Candidates of a selection: costs and errors, all candidates of a regression by one Gram of the largest one.

In the W-step, centres and ridges are candidates.  With the Gram G of the inputs Phi and R^T R = G + D, D the ridge on
the diagonal, the first M inputs have

    min over W of 1/2 ||T - Phi W^T||^2 + 1/2 sum_h w_h D w_h^T = 1/2 ||T||^2 - 1/2 ||(R^-T Phi^T T)_1..M||^2,

reached at W^T = R_M^-1 (R^-T Phi^T T)_1..M, and tr(G_M (G_M + D_M)^-1) = M - tr(D_M R_M^-1 R_M^-T) effective weights an
output: the leading blocks of R and of R^-1 are those of the first M inputs.

Of dense layers some of the units are, inputs of the next layer: these are eliminated one after the other, an order of
which every prefix is a candidate.

    min over W of 1/2 ||T - [A, 1] W^T||^2 + ridge/2 ||V||^2,  W = [V, c]

Without input h the least value is higher by 1/2 ||v_h||^2 / (G^-1)_hh, G the Gram of the centred inputs plus ridge I.
The input that costs least goes first; G^-1 and V without it follow by a step of rank one.  So one inverse ranks all
inputs, and one Gram holds the weights that are best for each number of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from macmpi.half_steps.problems import WInputs, unit_targets
from macmpi.nets.design import adjoint
from macmpi.nets.design import gram as gram_of
from macmpi.parallel.lapack import by_transpose, factored, lapack, solved
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import FEWEST, STEP, ridges_of, widths_of
from macmpi.plan.work_lists import Exchange, Gram, Job, Layer, WorkList
from macmpi.reductions import ALONE, InPieces, LazyRows, OverPoints, Rows
from macmpi.solvers.closed_form import Factor, NormalEquations
from macmpi.solvers.grams import LayerGram
from macmpi.solvers.w_problem import UnitProblem, values
from macmpi.typing import Array

CRITERIA: dict[str, Callable[[int], float]] = {
    "aic": lambda n: 1.0,
    "bic": lambda n: 0.5 * math.log(n),
    "mdl": lambda n: 0.5 * max(math.log(n / (2.0 * math.pi)), 0.0),
}
"""A parameter costs this in units of epsilon^2 in addition to E1, half the sum of squares, for n points: half of what
it costs in addition to -2 log likelihood = sum of squares / epsilon^2."""

LEAST, ROUNDED = 1e-8, 1e-12
"""The ridge is at least these shares of the mean diagonal of the centred Gram, and of the largest of the other one."""


class Candidates(NamedTuple):
    """The regression of segment `segment`: what a linear layer reads, radial basis functions or what is before it.

    counts: candidates of its inputs, of centres several.  widths, ridges: candidates; () where there is nothing to
    choose.  layer: the hidden layer of radial basis functions, -1 of a dense one.  block: of the linear layer.  price:
    of a parameter, in the scale of E1; a centre has `own` of them, and each of its `outputs` a weight.
    """

    segment: int
    layer: int
    block: int
    counts: Array
    widths: tuple[float, ...]
    ridges: tuple[float, ...]
    price: float
    own: int
    outputs: int

    def cost(self, counts: Array, degrees: Array | float | None = None) -> Array:
        """C = price (own M + outputs M) of M inputs; where ridges are compared, the second M is the degrees."""
        if degrees is None:
            return self.price * (self.own + self.outputs) * counts
        return self.price * (self.own * counts + self.outputs * degrees)


def candidates_of(plan: Plan) -> list[Candidates]:
    """The regressions that a selection compares; numbers of centres up to the plan's own.  Collective: no."""
    keys, chain, found = plan.resolved.selection, plan.chain, list[Candidates]()
    ridges = ridges_of(plan.resolved)
    chosen = [k for k, segment in enumerate(chain.segments) if segment.leading or k in ridges]
    a_parameter, epsilons = CRITERIA[keys.criterion](plan.n_train), keys.epsilons(len(chosen))
    for k, epsilon2 in zip(chosen, epsilons, strict=True):
        segment, price, block = chain.segments[k], a_parameter * epsilon2, chain.segments[k].regressed[0]
        (units, inputs), layer, own, widths = chain.block_shapes[block], -1, 0, tuple[float, ...]()
        counts = np.array([inputs])
        if segment.leading:
            first = segment.maps[0]
            layer = next(i for i, m in enumerate(plan.hidden) if m is first)
            steps = keys.sizes[layer] if keys.sizes else np.arange(FEWEST, first.n_out, STEP)
            counts, own, widths = np.unique([*steps, first.n_out]), first.n_in, widths_of(plan.resolved, layer)
        found.append(Candidates(k, layer, block, counts, widths, ridges.get(k, ()), price, own, units))
    return found


class Comparing:
    """The fits of all candidates, at the centres of the largest: the tasks of a work list.

    largest: the plan of the largest candidates, of some widths; candidates: by segment; ridges: of each regression, its
    own unit's.  features: what the regressions read, without which the centres of the largest candidate make it; of
    segments without candidates the degrees alone are found.  Collective: where a method says so.
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
        self.plan, self.given, self.candidates, self.ridges = largest, given, candidates, ridges
        team = given.parts.team
        self.factors = team.array((largest.offsets.grams[-1],), np.float64)
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
        if (own := self.candidates.get(segment)) is None:
            return 1
        return 1 + len(self.ridges[segment]) * len(own.counts) * (2 if own.ridges else 1)

    def _features(self, segment: int) -> Rows:
        """Phi (N, M) of the largest candidate.  Collective: yes."""
        part, inputs = self.plan.chain.segments[segment], self.given.parts.inputs(segment, self.given.state)
        if not part.leading:
            return self.given.inputs[segment].design
        basis, points = part.maps[0], self.given.parts.points
        centres = self.plan.centres(part.parameter_blocks[0], points.at_hand(inputs), None)
        lazy = LazyRows(lambda rows: basis.forward(centres, inputs[rows]), (len(inputs), basis.n_out), inputs.dtype)
        return points.hold(lazy)

    def gram(self, gram: Gram, over_points: OverPoints) -> None:
        """The Gram of the largest candidate, or some rows of it.  Collective: where `over_points` is."""
        k, rows = gram.segment, None if gram.rows is None else gram.rows.rows
        found = NormalEquations().sum(self.features[k], over_points, self.plan.chain.views[k].bias, rows)
        if rows is None:
            self._grams[k] = found
        else:
            self.factors[gram.place] = found.ravel()

    def factor(self, segment: int) -> None:
        """R of a large Gram for each ridge, in pieces.  Collective: yes."""
        for ridge in self.ridges[segment]:
            self.root(segment, ridge, self.given.parts.in_pieces)

    def root(self, segment: int, ridge: float, in_pieces: InPieces = ALONE) -> Factor:
        """R^T and D for a ridge: those of the W-step in closed form, made once.  Collective: where `in_pieces` is."""
        if (segment, ridge) not in self._roots:
            plan = self.plan
            side = plan.offsets.sides[segment]
            rows = self.factors[plan.offsets.gram(segment)].reshape(side, side)
            gram = LayerGram(self._grams.get(segment, rows), ridge, plan.dtype, plan.chain.views[segment].bias)
            self._roots[segment, ridge] = NormalEquations().factor(gram, in_pieces)
        return self._roots[segment, ridge]

    def inverse(self, segment: int, ridge: float) -> Array:
        """R^-1, made once.  Cost: M^3 / 3 flops.  Collective: no."""
        if (segment, ridge) not in self._inverses:
            self._inverses[segment, ridge] = np.triu(lapack.dtrtri(self.root(segment, ridge).lower.T, lower=0)[0])
        return self._inverses[segment, ridge]

    def degrees(self, segment: int, ridge: float, counts: Array) -> Array:
        """tr(G_M (G_M + D_M)^-1) of the first M inputs, for each M of `counts`.  Collective: no."""
        S, added = self.inverse(segment, ridge), self.root(segment, ridge).added
        held: Array = counts - np.cumsum(added @ (S * S))[counts - 1]
        return np.clip(held, 0.0, counts)

    def solve(self, job: Job) -> None:
        """The objectives of some units, and the degrees of each.  Collective: where no rank sums alone."""
        k = job.segment
        own = self.candidates.get(k)
        counts = np.array([self.plan.offsets.sides[k]]) if own is None else own.counts
        held = [self.degrees(k, ridge, counts) for ridge in self.ridges[k]] if own is None or own.ridges else []
        self.found(job)[:] = np.concatenate([*([] if own is None else [self.objectives(job)]), *held])

    def found(self, job: Job) -> Array:
        """Objectives of what is and of its segment's candidates, then degrees, once exchanged.  Collective: no."""
        return self._table[self._numbers[job.place.start], : self._columns(job.segment)]

    def tour(self, jobs: Sequence[Job]) -> None:
        """Nothing travels where architectures are selected.  Collective: no."""
        raise NotImplementedError

    def train(self, layer: Layer) -> None:
        """No layer is trained while candidates are compared.  Collective: no."""
        raise NotImplementedError

    def exchange(self, exchange: Exchange) -> None:
        """Rows of Grams, or the table of objectives.  Collective: yes."""
        team = self.given.parts.team
        if exchange.what == "weights" and exchange.parts:
            team.gather_rows(self._table, self._counts)
        elif exchange.what == "weights":
            team.share_array(self._table)
        elif exchange.parts:
            team.gather_parts(self.factors, exchange.parts)

    def objectives(self, job: Job) -> Array:
        """Objectives of units as they are, then of candidates: ridge by ridge, all numbers of inputs.

        Collective: where no rank sums alone.

        1/2 ||T - Phi W^T||^2 + ridge/2 ||V||^2; without the ridge where ridges are compared.
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
    """sum_h w_h D w_h^T at the best weights W^T = R_M^-1 U_M of the first M inputs, for each M of `counts`."""
    W, at, found = np.zeros_like(U), 0, list[float]()
    for count in counts:
        W[:count] += S[:count, at:count] @ U[at:count]
        at = count
        found.append(float(added[:count] @ np.einsum("mh,mh->m", W[:count], W[:count])))
    return np.array(found)


class Moments(NamedTuple):
    """Means of inputs A (N, D) and targets T (N, L); G = A^T A + ridge I and C = A^T T of the centred ones."""

    inputs: Array
    targets: Array
    gram: Array
    crossed: Array


class Kept(NamedTuple):
    """The inputs that are left, in increasing order, and the best weights of them, W (L, number of them + 1)."""

    inputs: Array
    weights: Array


def moments(A: Rows, T: Rows, ridge: float, over_points: OverPoints) -> Moments:
    """One sum over points.  Cost: N D (D + 2 L) flops.  Collective: where `over_points` is."""

    def part(rows: slice) -> tuple[Array, ...]:
        own, given = (B[rows].astype(np.float64, copy=False) for B in (A, T))
        return gram_of(own), adjoint(given, own)

    G, crossed = over_points(part)
    N, D = G[-1, -1], len(G) - 1
    a, t = G[-1, :D] / N, crossed[:, D] / N
    centred = G[:D, :D] - N * np.outer(a, a)
    least = LEAST * float(np.trace(centred)) / D + ROUNDED * max(float(np.diag(G)[:D].max()), 1.0)
    centred[np.diag_indices(D)] += max(ridge, least)
    return Moments(a, t, centred, (crossed[:, :D] - N * np.outer(t, a)).T)


def ranked(of: Moments) -> Array:
    """The inputs, those that are worth most first: the reverse of the order in which they go.  Cost: 2 D^3 flops."""
    left, order = np.arange(len(of.gram)), []
    inverse = solved(factored(of.gram), np.eye(len(left)))
    V = inverse @ of.crossed
    while len(left):
        diagonal = np.diag(inverse)
        h = int((np.einsum("hl,hl->h", V, V) / diagonal).argmin())
        share, v = inverse[:, h] / diagonal[h], V[h]
        V = np.delete(V - np.outer(share, v), h, axis=0)
        inverse = np.delete(np.delete(inverse - np.outer(share, inverse[h]), h, axis=0), h, axis=1)
        order.append(left[h])
        left = np.delete(left, h)
    return np.array(order[::-1])


def prefixes(of: Moments, order: Array, sizes: Sequence[int]) -> list[Kept]:
    """The best weights of the first inputs of an order, for each number of them.  Cost: D^3 / 3 flops each."""
    found = []
    for size in sizes:
        kept = np.sort(order[:size])
        V = solved(factored(of.gram[np.ix_(kept, kept)]), of.crossed[kept]).T
        found.append(Kept(kept, np.column_stack([V, of.targets - V @ of.inputs[kept]])))
    return found
