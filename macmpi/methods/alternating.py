"""Alternating optimisation, the paper's baseline for an autoencoder of radial basis functions (section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from macmpi.half_steps.method import COORDINATES, MethodText
from macmpi.half_steps.w_step import fit
from macmpi.mac import Mac
from macmpi.nets.design import adjoint, apply
from macmpi.state import MacState, Pause, State, never
from macmpi.typing import Array


class Unknown(Exception):
    """A value and gradient are asked for that nobody has computed yet."""


def replayed(start: Array, known: Sequence[tuple[float, Array]], iterations: int) -> tuple[Array, bool]:
    """Conjugate gradients from `start` as far as values and gradients are known: where the next ones are asked for.

    Or the point at the end, and True.  The same steps are taken again each time, so that one rank alone takes them and
    the library may ask for what all ranks compute.  Cost: vectors only, little against a pass over all points.
    Collective: no.
    """
    replies = iter(known)

    from scipy.optimize import minimize

    def reply(flat: Array) -> tuple[float, Array]:
        value, gradient = next(replies, (None, None))
        if value is None or gradient is None:
            raise Unknown(flat.copy())
        return value, gradient

    options = {"maxiter": iterations, "gtol": 0.0}
    try:
        return minimize(reply, start, jac=True, method="CG", options=options).x, True
    except Unknown as asked:
        return asked.args[0], False


class Alternating(Mac):
    """min over W of E1 (eq. 6), the decoder and the encoder in turn: the same kind of Method as MAC, without penalty.

    Decoder: its centres by their trainer and its linear layer by least squares, at the codes f_2(f_1(x)).
    Encoder: its centres by their trainer (once: its inputs never change) and `cg_iterations` steps of nonlinear
    conjugate gradients (Polak-Ribiere, PR+) on E1 as a function of its linear layer, which the decoder nests.
    Collective: where a method says so.
    """

    cg_iterations: int = 10

    @property
    def text(self) -> MethodText:
        """Says of the run: its CG iterations; there is no penalty, so mu stays.  Collective: no."""
        return MethodText(f"alternating optimisation: cg_iterations {self.cg_iterations}", without=COORDINATES)

    def sweep(self, state: State[MacState], pause: Pause = never) -> bool:
        """Does one iteration: the decoder, then the encoder.  Collective: yes."""
        last = len(self.plan.chain.sites)
        self.parts.feasible(state)
        fit(self.parts, [last], state)
        self._fit_encoder(state)
        self.parts.feasible(state)
        state.completed()
        return True

    def _fit_encoder(self, state: State[MacState]) -> None:
        """Moves the encoder's linear layer by CG: rank 0 asks for E1 and its gradient, which all ranks sum.

        Collective: yes.
        """
        (block,) = self.plan.chain.segments[0].regressed
        W = self.parts.weights(state)[block]
        start, known = W.ravel().astype(np.float64), list[tuple[float, Array]]()
        while True:
            flat, found = self.team.from_root(lambda: replayed(start, known, self.cg_iterations))
            if found:
                break
            known.append(self._encoder_error(state, block, flat))
        W[:] = flat.reshape(W.shape)

    def _encoder_error(self, state: State[MacState], block: int, flat: Array) -> tuple[float, Array]:
        """Sums E1 over points, adds the ridge, for other weights of the encoder's linear layer; and their gradient.

        block, flat: the parameter block of that layer, and its weights.  Collective: yes.
        Cost: two passes through the decoder.
        """
        plan, chain, weights = self.plan, self.plan.chain, self.parts.weights(state)
        W: Array = flat.reshape(weights[block].shape)
        n_in, decoder = chain.inputs(block), chain.part(chain.sites[0], len(chain.maps))
        features, Y = self.parts.first(state).features, self.data.Y

        def add(rows: slice, out: Array) -> None:
            A = features[rows]
            F, tangent = decoder.linearise(weights, apply(A, W))
            own = self.parts.loss_at(rows)
            slope = adjoint(-tangent.vjp(own.residual(Y[rows], F)), A, W.shape[1] > n_in)
            out[:-1], out[-1] = slope.ravel(), own.value(Y[rows], F).sum()

        with self.team.clock("w"):
            sums = self.parts.total(add, W.size + 1)
        ridge = plan.unit_ridge(0, state.mu) * plan.penalty_weight(0, state.mu)
        V = W.copy()
        V[:, n_in:] = 0.0
        return sums[-1] + 0.5 * ridge * float(np.sum(V * V)), sums[:-1] + ridge * V.ravel()
