"""Stochastic MAC: minibatches whose coordinates stay feasible, so that none is kept from one to the next.

For each minibatch: coordinates z_k = f_k(z_{k-1}); Z-step and W-step each to first order, in the metrics of
curvature.py; then a step along that direction D and the last step P,

    W <- W + x D + y P,   (x, y) the minimum of the Gauss-Newton model of the minibatch in that plane;

the damping follows the ratio of actual to predicted decrease.  What a run shows and keeps is the running average of
the weights.  The points of a minibatch are dealt to ranks and their sums added up a tree of fixed parts; directions
are dealt by units, inverses by layers: the same bits on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from macmpi import tiles
from macmpi.chain import Tape
from macmpi.config import Stochastic as Keys
from macmpi.curvature import Layout, add_curvature, add_gradient, damped_inverses
from macmpi.data import Dataset
from macmpi.evaluation import Errors
from macmpi.layers import Array
from macmpi.mac import Mac
from macmpi.plan import Plan
from macmpi.record import Clock
from macmpi.regression import Made, Term, UnitProblem
from macmpi.solvers.closed_form import ClosedForm
from macmpi.state import State
from macmpi.streams import stream
from macmpi.sums import TreeSum, over_parts
from macmpi.team import AnyTeam
from macmpi.tiles import Tile

ADAPT, PATIENCE = 5, 0.95
"""Minibatches between two looks at the actual decrease; what the damping changes by, for each of them."""

SURGE, LEVEL = 3.0, 0.1
"""A loss so many times its running mean is a step gone wrong; the share of a new loss in that mean."""

LEAST = 32
"""Points of a minibatch of few points."""

FIRST = 3
"""The first minibatches, each with inverses of its own."""

RANGES, USUAL = {"sigmoid": 6.0}, 1.7
"""Range of random weights times sqrt(fan-in): wide where the slope at 0 is 1/4, else about Glorot and Bengio's."""

REFIT_POINTS, REFIT_RIDGE = 2000, 1.0
"""Points and ridge of the fit of the output layer that a run starts with."""


Drawn = dict[int, Array]
"""This rank's points of a minibatch, by part."""

Tapes = dict[int, tuple[Tape, Array]]
"""The net at the probed points of each part of this rank, and their targets."""


class Stochastic(Mac):
    """Stochastic MAC as a Method: an iteration is an epoch.  Collective: where a method says so."""

    def __init__(self, plan: Plan, data: Dataset, team: AnyTeam, clock: Clock, keys: Keys) -> None:
        super().__init__(plan, data, team, clock)
        self.keys, self.layout = keys, Layout(plan.chain.block_shapes)
        self.parts = plan.parts
        self.sum = TreeSum(len(self.parts.blocks), team)
        self.rows = {b: Tile(own[0].start, own[-1].stop) for b, own in self.parts.blocks_of(team.rank)}
        self._orders: tuple[int, dict[int, Array]] = (-1, {})
        self._fresh = {i: np.zeros(self.layout.sizes[1], plan.dtype) for i in self.rows}
        self._faded = 1.0
        shapes = self.layout.shapes
        jobs = [(k, t.rows) for k, (h, _) in enumerate(shapes) for t in tiles.unit_tiles(h, tiles.EXACT_WIDTH)]
        costs = [float(sum(shapes[k]) * shapes[k][1]) * (rows.stop - rows.start) for k, rows in jobs]
        self.units = [[jobs[i] for i in rank] for rank in tiles.deal_by_cost(costs, team.size)]
        self.layers = tiles.deal_by_cost([float(h**3 + d**3) for h, d in shapes], team.size)

    @property
    def own_range(self) -> float:
        """0: by layer, see `RANGES`.  Collective: no."""
        return 0.0

    def _random(self, range_: float, seed: int) -> Array:
        """Random weights, flat: within range / sqrt(fan-in), or by the activation that follows."""
        flat, chain = super()._random(1.0, seed), self.plan.chain
        for i in range(len(chain.maps)):
            if (block := chain.whole.blocks[i]) is not None:
                after = chain.maps[i + 1].trained_as if i + 1 < len(chain.maps) else ""
                flat[self.layout.weights[block]] *= range_ or RANGES.get(after, USUAL)
        return flat

    def steps(self, epoch: int) -> int:
        """Minibatches of an epoch: at first of `batch` points, but of at most a twentieth of all (or `LEAST`); doubled
        every `grow_every` epochs.

        Collective: no.
        """
        first = min(self.keys.batch, max(self.plan.n_train // 20, LEAST))
        grown = first << min(epoch // self.keys.grow_every, 30)
        return max(self.plan.n_train // min(grown, self.keys.batch_max), 1)

    def start_at(self, weights: Array, gradient_step: bool) -> State:
        """The given weights (flat), the output layer fitted to some points (0 for labels).  Collective: no."""
        state = super().start_at(weights, False)
        self._fit_output(state)
        count, squares = self.layout.sizes
        state.average, state.momentum = state.weights.copy(), np.zeros(count, self.plan.dtype)
        state.statistics, state.inverses = np.zeros(squares, self.plan.dtype), np.zeros(squares, self.plan.dtype)
        state.damping = self.keys.damping
        return state

    def _fit_output(self, state: State) -> None:
        """From evenly spaced points of each part.  Collective: yes."""
        plan, data, weights = self.plan, self.data, self.weights(state)
        last = max(i for i, m in enumerate(plan.chain.maps) if m.parameter_shape is not None)
        W, below = weights[-1], plan.chain.part(0, last)
        if plan.loss.labels:
            W[:] = 0.0
        elif last + 1 == len(plan.chain.maps):
            share = -(-REFIT_POINTS // self.sum.leaves)
            rows = {i: _spread(own, share) for i, own in self.rows.items()}
            ends = dict(zip(rows, np.cumsum([len(r) for r in rows.values()]).tolist(), strict=True))
            over = over_parts(self.sum, lambda i: [slice(ends[i] - len(rows[i]), ends[i])])
            every = np.concatenate([*rows.values(), np.zeros(0, dtype=int)])
            A = Made(lambda some: below.forward(weights, data.X[every[some]]), (len(every), below.n_out), plan.dtype)
            solver = ClosedForm()
            problem = UnitProblem((Term(A, data.Y[every]),), "linear", REFIT_RIDGE, W, solver.prepare(A, over))
            W[:] = solver.solve(problem, over)

    def begin(self, state: State) -> None:
        """Nothing is missing.  Collective: no."""

    def sweep(self, state: State) -> None:
        """An epoch of minibatches, from number state.position on.  Collective: yes."""
        steps = self.steps(state.iteration)
        while state.position < steps:
            self.step({i: self._drawn(i, steps, state) for i in self.rows}, state)
            state.position += 1
        self._fold(state)
        state.position, state.iteration, state.mu_done = 0, state.iteration + 1, state.mu

    def _drawn(self, part: int, steps: int, state: State) -> Array:
        """What a part of the points gives to a minibatch: its share of an order drawn anew each epoch.

        Points stay with the rank that holds them, and each part has its place in every minibatch.
        """
        if self._orders[0] != state.iteration:
            self._orders = state.iteration, {}
        orders, own = self._orders[1], self.rows[part]
        if part not in orders:
            orders[part] = own.start + stream(self.plan.seed, "epoch", state.iteration, part).permutation(len(own))
        n = len(own)
        return orders[part][n * state.position // steps : n * (state.position + 1) // steps]

    def step(self, rows: Drawn, state: State) -> None:
        """One minibatch; rows: this rank's points of each of its parts.  Collective: yes."""
        keys, count = self.keys, self.layout.sizes[0]
        tapes: Tapes = {}
        with self.clock("z"):
            sums = self.sum(lambda i, out: self._look(i, rows, state, tapes, out), count + 3, self.plan.dtype)
        gradient, (loss, probed, n) = sums[:count], sums[count:].astype(float).tolist()
        loss /= n
        gradient /= n
        if state.steps and not loss <= SURGE * state.level:
            self._recover(state)
            return
        state.level = loss if state.steps == 0 else state.level + LEVEL * (loss - state.level)
        if state.steps % keys.curvature_every == 0 or state.steps < FIRST:
            self._note(tapes, probed, state)
        if state.steps % keys.factor_every == 0 or state.steps < FIRST:
            self._factor(state)
        ways = [self._direction(gradient, state)]
        if state.momentum.any():
            ways.append(state.momentum)
        lengths, predicted = self._plane(ways, gradient, tapes, probed, state.damping)
        state.momentum *= lengths[1] if len(ways) > 1 else 0.0
        ways[0] *= lengths[0]
        state.momentum += ways[0]
        state.weights += state.momentum
        state.steps += 1
        _towards(state.average, state.weights, max(1.0 - keys.averaging, 1.0 / state.steps))
        if state.steps % ADAPT == 0:
            self._adapt(rows, n, loss, predicted, state)

    def _look(self, i: int, rows: Drawn, state: State, tapes: Tapes, out: Array) -> None:
        """Adds part i's gradient, loss, and points probed and all; keeps a tape of the probed ones."""
        (count, _), loss, weights = self.layout.sizes, self.plan.loss, self.weights(state)
        own, gradient = rows[i], self.layout.blocks(out[:count])
        probed = min(self.keys.probed, len(own))
        for piece in (own[probed:], own[:probed]):
            if len(piece):
                tape, Y = self.plan.chain.whole.tape(weights, self.data.X[piece]), self.data.Y[piece]
                out[count] += add_gradient(loss, tape, Y, gradient)
        tapes[i] = tape, Y
        out[count + 1 :] += probed, len(own)

    def _note(self, tapes: Tapes, probed: float, state: State) -> None:
        """Adds a minibatch to the running Grams and metrics: what is new since the last `_fold`, each part by itself.

        Collective: no.
        """
        rate = max(1.0 - self.keys.memory, 1.0 / (state.steps + 1))
        self._faded *= 1.0 - rate
        with self.clock("z"):
            for i, (tape, Y) in tapes.items():
                random = stream(self.plan.seed, "probe", state.iteration, state.position, i)
                probe = random.standard_normal(Y.shape, dtype=np.float32).astype(self.plan.dtype, copy=False)
                self._fresh[i] *= 1.0 - rate
                add_curvature(self.plan.loss, tape, Y, probe, self.layout.pairs(self._fresh[i]), rate / probed)

    def _fold(self, state: State) -> None:
        """Running Grams and metrics over all parts: needed where they are inverted, and where a State must be whole.

        Collective: yes.
        """

        def add(i: int, out: Array) -> None:
            out += self._fresh[i]
            self._fresh[i][:] = 0.0

        state.statistics *= self._faded
        state.statistics += self.sum(add, self.layout.sizes[1], self.plan.dtype)
        self._faded = 1.0

    def _factor(self, state: State) -> None:
        """Damped inverses of all layers' statistics: each layer by one rank, then Allgatherv.  Collective: yes."""
        self._fold(state)
        statistics, inverses = self.layout.pairs(state.statistics), self.layout.pairs(state.inverses)
        with self.clock("w"):
            for k in self.layers[self.team.rank]:
                for out, found in zip(inverses[k], damped_inverses(*statistics[k], state.damping), strict=True):
                    out[:] = found
        places = self.layout.squares
        parts = [[place for k in rank for place in places[2 * k : 2 * k + 2]] for rank in self.layers]
        self.team.gather_parts(state.inverses, parts)

    def _direction(self, gradient: Array, state: State) -> Array:
        """D: each rank its units, then Allgatherv.  Collective: yes."""
        direction, slopes = np.empty_like(gradient), self.layout.blocks(gradient)
        inverses, found = self.layout.pairs(state.inverses), self.layout.blocks(direction)
        with self.clock("w"):
            for k, units in self.units[self.team.rank]:
                G, M = inverses[k]
                np.matmul(-(M[units] @ slopes[k]), G, out=found[k][units])
        self.team.gather_parts(direction, [[self.layout.place(k, units) for k, units in rank] for rank in self.units])
        return direction

    def _plane(
        self,
        ways: Sequence[Array],
        gradient: Array,
        tapes: Tapes,
        probed: float,
        damping: float,
    ) -> tuple[Array, float]:
        """The minimum of the damped Gauss-Newton model along `ways`, and the decrease it predicts.  Collective: yes.

        1/2 x^T H x - b^T x with H_ij = mean of (J w_i)^T B^T B (J w_j) + damping w_i^T w_j and b_i = -gradient^T w_i.
        """
        blocks = [self.layout.blocks(way) for way in ways]

        def add(i: int, out: Array) -> None:
            tape, Y = tapes[i]
            changes = [tape.weight_jvp(way) for way in blocks]
            root = self.plan.loss.root(Y, tape.F)
            out += [float(np.vdot(a, b)) for b in map(root.normal, changes) for a in changes]

        c = len(ways)
        with self.clock("z"):
            H = self.sum(add, c * c).reshape(c, c) / probed
        H = 0.5 * (H + H.T) + damping * np.array([[float(np.vdot(a, b)) for b in ways] for a in ways])
        b = np.array([-float(np.vdot(gradient, way)) for way in ways])
        scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-300))
        lengths = scale * np.linalg.lstsq(H * scale[:, None] * scale, b * scale, rcond=1e-6)[0]
        return lengths.astype(self.plan.dtype), 0.5 * float(b @ lengths)

    def _adapt(self, rows: Drawn, n: float, before: float, predicted: float, state: State) -> None:
        """The damping, from the decrease of this minibatch's loss against the predicted one.  Collective: yes."""
        weights, chain, loss = self.weights(state), self.plan.chain, self.plan.loss

        def add(i: int, out: Array) -> None:
            Y = self.data.Y[rows[i]]
            out += loss.value(Y, chain.forward(weights, self.data.X[rows[i]])).sum(dtype=float)

        with self.clock("z"):
            after = float(self.sum(add, 1)[0]) / n
        ratio = (before - after) / predicted if predicted > 0.0 else 0.0
        if ratio > 0.75:
            state.damping = max(state.damping * PATIENCE**ADAPT, self.keys.least_damping)
        elif not ratio >= 0.25:
            state.damping = min(state.damping / PATIENCE**ADAPT, 1e6)

    def _recover(self, state: State) -> None:
        """A step went wrong: back to the average, without momentum, with more damping."""
        state.weights[:] = state.average
        state.momentum = np.zeros_like(state.weights)
        state.damping, state.level = 10.0 * state.damping, 2.0 * state.level
        self._factor(state)

    def evaluate(self, state: State, feasible: bool = False) -> Errors:
        """Errors of the averaged weights.  Collective: yes."""
        return super().evaluate(replace(state, weights=state.result), feasible)

    def finish(self, state: State) -> State:
        """The averaged weights.  Collective: no."""
        return replace(state, weights=state.result.copy(), mu=state.mu_done or state.mu)


def _towards(mean: Array, value: Array, rate: float) -> None:
    """mean <- mean + rate (value - mean), in place."""
    change = value - mean
    change *= rate
    mean += change


def _spread(own: Tile, count: int) -> Array:
    """At most `count` evenly spaced rows of a run."""
    count = min(count, len(own))
    return own.start + np.arange(count) * len(own) // count
