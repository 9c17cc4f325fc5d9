"""Accelerated MAC makes the coordinates feasible after each iteration, and may add a step of momentum.

After a Z-step and a W-step the coordinates become feasible, z_k = f_k(z_{k-1}): the next Z-step starts from what the
net computes, and E_Q = E1 of the iterate.

The W-step fits the output layer to z_K, but the net's error depends on f_K(... f_1(x)).  So the run shows and keeps the
iterate with an output layer that is fitted to f_K(... f_1(x)): W_{K+1} = argmin E1 + ridge (variable projection; Golub
& Pereyra 1973).  The half steps and the schedule continue from the iterate without this layer, since a Z-step that
begins with this layer hardly moves z_K, and so hardly moves the layers below.

With momentum, where the half steps have moved the weights from W_0 to W_1,

    W_2 = W_1 + x (W_1 - W_0) + y P,   P the move of the iteration before.

(x, y) minimises, in that plane, the Gauss-Newton model of E1 at W_1 over evenly spaced points; weights of W_1 that a
restraint has made 0 stay 0, and bounds hold.  W_2 is kept if E1(W_2) < E1(W_1); else shorter steps are tried, and if
none of them lowers E1, W_1 stays.  So the iterate never has a larger E1 than after the half steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from macmpi.half_steps.context import NetErrors
from macmpi.half_steps.w_step import fit
from macmpi.mac import Mac
from macmpi.nets.chain import with_data
from macmpi.solvers.descent import least_in_plane
from macmpi.state import AcceleratedState, Errors, MacState, Pause, State, block_views, never
from macmpi.typing import Array

SAMPLED, MOST_APART = 600, 8
"""The model of E1 is a sum over evenly spaced points of each tile: about SAMPLED in all, at least one in MOST_APART."""

LENGTHS = (1.0, 0.5, 0.25)
"""Shares of the model's step that are tried."""


class Accelerated(Mac):
    """Is MAC from feasible coordinates, with or without momentum.  Collective: methods that say so."""

    @cached_property
    def momentum(self) -> bool:
        """Tells whether each iteration tries a step in the plane of the last two moves.  Collective: no."""
        return self.plan.resolved.method.acceleration == "momentum"

    def new_record(self, state: State[MacState]) -> AcceleratedState:
        """Makes MAC's record, without weights to show and without a last move.  Collective: no."""
        return AcceleratedState(**vars(state.own))

    def begin(self, state: State[Any]) -> None:
        """Begins as MAC does; until an output layer is fitted, the run shows the weights of the iterate.

        Collective: yes.
        """
        super().begin(state)
        if not len(state.own.shown):
            state.own.shown = state.weights.copy()

    def sweep(self, state: State[Any], pause: Pause = never) -> bool:
        """Does one iteration: a Z-step, a W-step, a step in the plane of the last two moves, the output layer.

        Cost beyond MAC's, without momentum: two passes through the net and an exact W-step of the last segment.
        Collective: yes.
        """
        before = state.weights.copy()
        if not super().sweep(state, pause):
            return False
        if self.momentum:
            self._extrapolate(before, state)
        else:
            self.parts.feasible(state)
        self._fit_output(state)
        return True

    def _extrapolate(self, before: Array, state: State[AcceleratedState]) -> None:
        """Moves the weights to W_2 or W_1, whichever has the lower E1, and makes Z feasible.  Collective: yes.

        before (P,): the weights W_0.
        Cost: two passes through the net, and five with the points of the model.
        """
        plain = state.weights.copy()
        ways = [plain - before, *([state.own.move] if len(state.own.move) else [])]
        lengths = self.lengths(ways, state).astype(plain.dtype)
        step = sum(x * way for x, way in zip(lengths, ways, strict=True))
        error = self.parts.nested(self.parts.weights(state)).error
        for share in LENGTHS:
            state.weights[:] = self.parts.confined(plain + share * step, by=plain)
            self.parts.feasible(state)
            if self._nested([state.weights], state)[0].error < error:
                break
        else:
            state.weights[:] = plain
            self.parts.feasible(state)
        state.own.move = state.weights - before

    def lengths(self, ways: Sequence[Array], state: State[AcceleratedState]) -> Array:
        """Computes (x, y), the minimum of the damped Gauss-Newton model of E1 at the state's weights.  Collective: yes.

        The model is 1/2 x^T H x - b^T x with H_ij = sum_n (J w_i)^T B^T B (J w_j) and b_i = -sum_n gradient^T (J w_i),
        where each point's term is multiplied by its weight.

        ways: one or two directions w_i (P,).
        """
        plan, data, c = self.plan, self.data, len(ways)
        blocks, apart = [block_views(way, plan.chain.block_shapes) for way in ways], spacing(plan.n_train)

        def add(rows: slice, out: Array) -> None:
            probed = slice(rows.start, rows.stop, apart)
            Y, tape = data.Y[probed], plan.chain.whole.tape(self.parts.weights(state), data.X[probed])
            changes = [tape.weight_jvp(way) for way in blocks]
            loss = self.parts.loss_at(probed)
            residual, root = loss.residual(Y, tape.F), loss.root(Y, tape.F)
            curved = [root.normal(change) for change in changes]
            out[:] = [float(np.vdot(a, b)) for a in changes for b in (*curved, residual)]

        sums = self.parts.total(add, c * (c + 1)).reshape(c, c + 1)
        return self.team.from_root(lambda: least_in_plane(sums[:, :c], sums[:, c]))

    def _nested(
        self, flats: Sequence[Array], state: State[AcceleratedState], validation: bool = False
    ) -> list[NetErrors]:
        """Computes E1 per point, and misclassified points, of nets that differ in the last segment alone.

        flats: the weights (P,) of each net; Z is feasible for all.
        validation: whether the errors are at the validation points instead of the training points.
        Cost: a pass through the last segment for each net.  Collective: yes.
        """
        plan, last = self.plan, len(self.plan.chain.sites)
        segment, weights = plan.chain.segments[last], self.parts.weights(state)
        nets = [block_views(flat, plan.chain.block_shapes) for flat in flats]

        def outputs(rows: slice) -> Iterator[Array]:
            if validation:
                X = self.data.X_val[rows]
                A = with_data(segment, plan.chain.coordinates(weights, X)[-1], X)
            else:
                A = self.parts.inputs(last, state)[rows]
            yield from (segment.forward(own, A) for own in nets)

        return self.parts.errors(outputs, len(nets), validation)

    def _fit_output(self, state: State[AcceleratedState]) -> None:
        """Fits the last segment at feasible coordinates, and takes it into the weights to show if it lowers E1.

        The fit lowers E1 + ridge, and nearly always E1.  Collective: yes.
        """
        own = replace(state.own, grams=state.own.grams.copy())
        shown = replace(state, weights=state.weights.copy(), own=own)
        fit(self.parts, [len(self.plan.chain.sites)], shown)
        found, unfitted = self._nested([shown.weights, state.weights], state)
        state.own.shown = shown.weights if found.error < unfitted.error else state.weights.copy()

    def evaluate(self, state: State[Any], feasible: bool = False) -> Errors:
        """Computes the errors of the weights that are shown, and E_Q of the iterate, which is its E1.

        The schedule watches the validation error of the iterate.
        Cost: one pass through the net, and three through its last segment.  Collective: yes.
        """
        if not len(state.own.shown):
            return super().evaluate(state, feasible)
        flats = (state.weights, state.own.shown)
        (own, train), (watched, validation) = (self._nested(flats, state, which) for which in (False, True))
        zeros = self.parts.zeros(block_views(state.own.shown, self.plan.chain.block_shapes))
        errors = Errors(train.error, validation.error, own.error, 0.0, watched=watched.error, zeros=zeros)
        if self.plan.resolved.loss.labels:
            errors = errors._replace(wrong_train=train.wrong, wrong_validation=validation.wrong)
        return errors

    def finish(self, state: State[Any]) -> State[MacState]:
        """Ends as MAC does, from the iterate instead of the weights that are shown.  Collective: yes."""
        return super().finish(replace(state, own=replace(state.own, shown=np.empty(0))))


def spacing(n: int) -> int:
    """Returns s such that every s-th of n points is in the sum of E1's model.  Collective: no."""
    return min(max(n // SAMPLED, 1), MOST_APART)
