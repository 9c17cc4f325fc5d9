"""Joint MAC moves weights and coordinates together, by damped Newton steps of E_Q with the coordinates eliminated.

A step solves, with H the Hessian of min over Z of E_Q + ridge and g its gradient (macmpi/solvers/arrow.py),

    (H + damping I) dW = -g

by conjugate gradients, preconditioned in each layer by the Kronecker product M_k (x) G_k of a metric and a Gram.  Where
CG meets a direction along which H is not positive, the curvature of the maps is left out of H (Gauss-Newton).  If this
step predicts a small decrease, the whole H is used with more damping, which leads away from saddle points.  The
coordinates move with W, then by a Z-step at the new weights.  The step is halved until E_Q + ridge falls, and the
damping follows the ratio of actual to predicted decrease (Levenberg; Marquardt).

At each mu this converges to a stationary point in few steps, and the system of the weights stays well conditioned for
large mu.  So the path of theorem B.3 can be followed until rounding ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from macmpi.half_steps.errors import ridge_gradient
from macmpi.half_steps.problems import ZInputs, prepare_z, z_problem
from macmpi.mac import Mac
from macmpi.nets.design import at, row_dots, total_of
from macmpi.nets.layers import Map
from macmpi.parallel.streams import stream
from macmpi.solvers.arrow import Arrow, arrow_of, settled
from macmpi.solvers.descent import conjugate_gradients
from macmpi.solvers.grams import inputs_gram
from macmpi.solvers.metrics import shared_metric
from macmpi.solvers.z_gauss_newton import GaussNewtonZ
from macmpi.state import JointState, MacState, Pause, State, block_views, never
from macmpi.typing import Array

FIRST, LEAST, MOST = 1e-2, 1e-7, 1e3
"""The damping at first, at least and at most, per unit of the points' weight."""

RAISED, LOWERED = 4.0, 0.2
"""The damping is multiplied by RAISED after a step that was halved, or that lowered E_Q + ridge by less than a quarter
of what the model predicts; by LOWERED after one that lowered it by more than three quarters of that."""

HALVINGS, ATTEMPTS = 4, 6
"""A step is halved at most HALVINGS times; then the damping is raised, for at most ATTEMPTS steps in all."""

MUCH = 1e-3
"""A step promises much if the slope along it is at least this share of E_Q + ridge."""

ITERATIONS, TOLERANCE = 200, 0.05
"""CG ends after ITERATIONS, or where its preconditioned residual has fallen to the share TOLERANCE."""

DRAWS = 4
"""The metrics M_k are made from this number of random vectors for each point."""

Z_STEPS = 3
"""The coordinates alone take this number of Gauss-Newton steps after mu has changed."""

ROUNDING = 64.0
"""E_Q + ridge may rise by this many units in the last place where the model predicts a fall of less than that."""


class Joint(Mac):
    """Trains by damped Newton steps in weights and coordinates together.  Collective: methods that say so."""

    def new_record(self, state: State[MacState]) -> JointState:
        """Makes MAC's record and adds the damping of the first step.  Collective: no."""
        return JointState(**vars(state.own), damping=FIRST)

    def sweep(self, state: State[Any], pause: Pause = never) -> bool:
        """Takes one step in weights and coordinates, or none if E_Q + ridge falls for no damping.  Collective: yes.

        Cost: a CG iteration takes 4 passes through the net, or 10 with the maps' curvature.  The rest takes about 40
            passes, and inverts three matrices for each point, with as many rows as the net has outputs or the last site
            has units.
        """
        if state.mu != state.mu_done:
            self._settle(state)
        system = System(self, state)
        error, resolution = system.error, ROUNDING * float(np.finfo(state.weights.dtype).eps) * system.error
        for _ in range(ATTEMPTS):
            step, slope, state.own.damping = system.step(state.own.damping)
            for length in 0.5 ** np.arange(HALVINGS + 1):
                moved = replace(state, weights=state.weights + (length * step).astype(state.weights.dtype))
                Z, after = self._followed(system, moved, length * step)
                predicted = system.falls + (length - 0.5 * length**2) * slope
                if after <= error + resolution * (predicted < resolution):
                    break
            else:
                state.own.damping = min(RAISED**2 * state.own.damping, MOST)
                continue
            state.weights[:] = moved.weights
            with self.parts.points.writing(state.Z):
                for rows, own in Z.items():
                    state.Z[rows : rows + len(own)] = own
            if predicted > resolution:
                share = (error - after) / predicted if length == 1.0 else 0.0
                by = RAISED if share < 0.25 else LOWERED if share > 0.75 else 1.0
                state.own.damping = min(max(by * state.own.damping, LEAST), MOST)
            break
        state.completed()
        return True

    def _settle(self, state: State[Any]) -> None:
        """Moves the coordinates by Z_STEPS Gauss-Newton steps at the present weights, after mu has changed.

        At coordinates that are best for another mu the Hessian would be of little use.  Collective: yes.
        """
        given, solver = prepare_z(self.parts, state), GaussNewtonZ(Z_STEPS, 1.0, direction="direct")
        with self.parts.points.writing(state.Z), self.team.clock("z"):
            for tile in self.plan.work.train.tiles_of(self.team.rank):
                state.Z[tile.rows] = solver.solve(z_problem(given, tile.rows), None).Z

    def _followed(self, system: System, state: State[Any], step: Array) -> tuple[dict[int, Array], float]:
        """Computes the coordinates after a step of the weights, and E_Q + ridge there; changes nothing.

        Coordinates move as the model couples them to the step, if that lowers their objective, and then by a Z-step;
        those that are nearly at their minimum take a whole Gauss-Newton step.

        state: with weights that have taken the step already; those of the system's own state have not.
        step (P,): of the weights.
        Returns {first row of a tile: Z of the tile} for this rank's tiles, and the value.  Collective: yes.
        """
        given = replace(system.given, weights=self.parts.weights(state))
        found, solver = dict[int, Array](), GaussNewtonZ(1, 1.0, direction="direct")
        changes = block_views(step.astype(state.weights.dtype), self.plan.chain.block_shapes)

        def part(rows: slice, out: Array) -> None:
            problem = z_problem(given, rows)
            moved = problem.Z + system.arrows[rows.start].coordinates(changes)
            with np.errstate(over="ignore", invalid="ignore"):  # a step may go too far; then it is not taken
                nearer = problem.values(moved) < problem.values(problem.Z)
            problem = replace(problem, Z=np.where(nearer[:, None], moved, problem.Z))
            problem = replace(problem, Z=solver.solve(problem, None).Z)
            Z = found[rows.start] = settled(problem)
            out[0] += total_of(problem.values(Z), at(self.data.weights, rows))

        with self.team.clock("z"):
            (error,) = self.parts.total(part, 1)
        return found, float(error) + self.shaping(state)

    def shaping(self, state: State[Any]) -> float:
        """Computes the ridge and the other penalties of the weights, scaled as in E_Q + ridge.  Collective: yes."""
        return self.team.from_root(lambda: self.parts.shaping_of(state, range(len(self.plan.chain.segments))))


class System:
    """Is the Newton system of the weights at a state, with the coordinates eliminated (solvers/arrow.py).

    given: the data from which Z-problems are made.
    arrows: the quadratic model of each tile of this rank, by the tile's first row.
    slope (P,): minus the gradient of E_Q + ridge with respect to the weights.
    error: E_Q + ridge.
    falls: the decrease of the model if only the coordinates move.
    Collective: yes, to make one, and where a method says so.
    """

    def __init__(self, joint: Joint, state: State[Any]) -> None:
        self.joint, self.state, self.plan = joint, state, joint.plan
        self.blocks, self.shapes = self.plan.chain.blocks, self.plan.chain.block_shapes
        self.given: ZInputs = prepare_z(joint.parts, state)
        weights, P = joint.data.weights, len(state.weights)
        sides = [pair if _is_linear(map_) else (1, 1) for map_, pair in zip(self.blocks, self.shapes, strict=True)]
        forms = tuple((n, n) for pair in sides for n in pair)
        with joint.team.clock("z"):
            rows = [tile.rows for tile in self.plan.work.train.tiles_of(joint.team.rank)]
            self.arrows = {own.start: arrow_of(z_problem(self.given, own), at(weights, own)) for own in rows}

            def add(rows: slice, out: Array) -> None:
                arrow = self.arrows[rows.start]
                arrow.add_slope(block_views(out[:P], self.shapes))
                out[P : P + 2] += [total_of(found, arrow.weights) for found in (arrow.values, arrow.falls)]
                self._add_forms(arrow, rows, block_views(out[P + 2 :], forms))

            sums = joint.parts.total(add, P + 2 + sum(n * n for n, _ in forms))
        self.slope = sums[:P] - ridge_gradient(joint.parts, state)
        self.error, self.falls = float(sums[P]) + joint.shaping(state), float(sums[P + 1])
        with joint.team.clock("w"):
            ones = replace(state, weights=np.ones_like(state.weights))
            ridges = block_views(ridge_gradient(joint.parts, ones), self.shapes)
            self._ridges = [float(ridge.max()) for ridge in ridges]
            self._factors = [np.linalg.eigh(form) for form in block_views(sums[P + 2 :], forms)]

    def _add_forms(self, arrow: Arrow, rows: slice, forms: Sequence[Array]) -> None:
        """Adds a tile's share to the metric and the Gram of each parameter block, in place.

        forms: metric and Gram of block 0, of block 1, and so on; for maps that are not linear both are single
            numbers, (1, 1).
        Collective: no.
        """
        plan, rank = self.plan, self.joint.team.rank
        first = plan.work.train.held(rank).start + rows.start
        for i in range(DRAWS):
            for tape, U in arrow.draws(stream(plan.seed, "metrics", self.state.iteration, first, i)):
                for step, dF in tape.backwards(U):
                    assert step.W is not None and step.block is not None
                    D = dF[:, : step.map.own.n_out] / np.sqrt(DRAWS * plan.n_train)
                    squares = shared_metric(D.T @ D, len(step.W)) if _is_linear(step.map) else row_dots(D, D).sum()
                    forms[2 * step.block][:] += squares
        for tape in arrow.tapes:
            grams = tape.scales(lambda step: inputs_gram(step, arrow.weights))
            for block, G in zip(tape.blocks, grams, strict=True):
                forms[2 * block + 1][:] += G

    def step(self, damping: float) -> tuple[Array, float, float]:
        """Computes the step dW (P,) in float64, minus the slope of E_Q + ridge along it, and the damping that was used.

        If CG meets a direction along which H is not positive, the maps' curvature is left out of H.  If this step
        predicts a small decrease, the maps' curvature is put back and the damping is raised, until CG meets no such
        direction or the step predicts a large decrease.
        Collective: yes.
        """
        with self.joint.team.clock("w"):
            step, slope, bent = self._solved(damping, curved=True)
            if bent:
                step, slope, _ = self._solved(damping, curved=False)
            while bent and slope < MUCH * self.error and damping < MOST:
                damping *= RAISED
                step, slope, bent = self._solved(damping, curved=True)
        return step, slope, damping

    def _solved(self, damping: float, curved: bool) -> tuple[Array, float, bool]:
        """Computes dW by CG, minus the slope along it, and whether CG met a direction along which H is not positive.

        curved: whether H has the maps' curvature.  Collective: yes.
        """
        from_rank0, b, state = self.joint.parts.shared_matrix.from_rank0, self.slope, self.state
        added = damping * self.joint.parts.points.total_weight
        size = float(np.finfo(state.weights.dtype).eps) ** 0.5 * (1.0 + float(np.abs(state.weights).max()))
        least = np.inf

        def product(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
            nonlocal least
            share = size / max(float(np.abs(P).max()), float(np.finfo(float).tiny)) if curved else 0.0
            HP = self._product(P[0], share)[None] + added * P
            curvature = from_rank0(row_dots(P, HP))
            least = min(least, float(curvature[0]))
            return curvature, None if last else HP, P

        def precondition(R: Array) -> Array:
            return self._preconditioned(R[0], added)[None]

        start = np.zeros((1, len(b))), b[None].copy()
        found = conjugate_gradients(*start, product, precondition, ITERATIONS, TOLERANCE, from_rank0=from_rank0)
        step: Array = from_rank0(found[0])
        return step, float(from_rank0(np.array([step @ b]))[0]), least <= 0.0

    def _product(self, direction: Array, share: float) -> Array:
        """Multiplies a direction (P,) by the Hessian of E_Q + ridge.

        share: the share of the direction that a difference steps to find the maps' curvature; 0: leaves it out.
        Collective: yes.
        """
        changes = block_views(direction.astype(self.state.weights.dtype, copy=False), self.shapes)

        def add(rows: slice, out: Array) -> None:
            self.arrows[rows.start].add_product(changes, share, block_views(out, self.shapes))

        moved = replace(self.state, weights=direction)
        return self.joint.parts.total(add, len(direction)) + ridge_gradient(self.joint.parts, moved)

    def _preconditioned(self, R: Array, damping: float) -> Array:
        """Computes (M_k (x) G_k + ridge + damping)^-1 R for each layer; maps that are not linear have numbers M_k, G_k.

        R: (P,).  Collective: no.
        """
        out = np.empty_like(R)
        views = zip(block_views(R, self.shapes), block_views(out, self.shapes), self.blocks, self._ridges, strict=True)
        for (B, found, map_, ridge), M, G in zip(views, self._factors[::2], self._factors[1::2], strict=True):
            (m, Q), (g, V) = M, G
            scale = np.maximum(m, 0.0)[:, None] * np.maximum(g, 0.0) + ridge + damping
            found[:] = map_.own.zero_missing(Q @ ((Q.T @ B @ V) / scale) @ V.T if _is_linear(map_) else B / scale)
        return out


def _is_linear(map_: Map) -> bool:
    return "linear" in map_.own.capabilities
