"""Alternating optimisation is the paper's baseline for an autoencoder of radial basis functions (section 4.3)."""

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
    """Is raised where an optimiser asks for a value and a gradient that are not known yet."""


def replayed(start: Array, known: Sequence[tuple[float, Array]], iterations: int) -> tuple[Array, bool]:
    """Repeats conjugate gradients from `start`, as far as the values and gradients are known.

    Returns the point where the next value and gradient are needed, and False; or, if all were known, the last point and
    True.  So the library's optimiser runs on one rank, although all ranks compute the function: each call repeats the
    same steps and takes one more.

    start: (n,).
    known: value and gradient (n,) at each point that the optimiser has visited, in order.
    Cost: operations on vectors, much less than a pass over all points.  Collective: no.
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
    """Minimises E1 over W (eq. 6) by fitting the decoder and the encoder in turn, as a method without a penalty.

    Decoder: at the codes f_2(f_1(x)) its trainer fits the centres, and least squares fit the linear layer.
    Encoder: its trainer fits the centres once, since its inputs never change.  Then `cg_iterations` steps of nonlinear
    conjugate gradients (Polak-Ribiere, PR+) lower E1 as a function of the encoder's linear layer, through the decoder.
    Collective: methods that say so.
    """

    cg_iterations: int = 10

    @property
    def text(self) -> MethodText:
        """Names the method and its CG iterations; columns of coordinates are not shown, since there is no penalty.

        Collective: no.
        """
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
        """Moves the encoder's linear layer by CG: rank 0 takes the steps, all ranks sum E1 and its gradient.

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
        """Computes E1 + ridge, a sum over points, and its gradient by the weights of the encoder's linear layer.

        block: the parameter block of that layer.
        flat: its weights, at which value and gradient are computed instead of the state's.
        Cost: two passes through the decoder.  Collective: yes.
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
