"""The curvature that a stochastic run has gathered: Grams running on, and inverses of Grams and metrics.

Sums over points go up a tree of parts; inverses are assigned to ranks one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from macmpi.methods.stochastic import lowrank, spectral
from macmpi.methods.stochastic.factors import (
    Averages,
    OfSeen,
    Seen,
    metrics,
    shifted_inverse,
    shifts,
)
from macmpi.methods.stochastic.layout import Layout
from macmpi.methods.stochastic.lowrank import Inverse
from macmpi.methods.stochastic.noted import Noted
from macmpi.methods.stochastic.spectral import Spectrum
from macmpi.nets.design import gram
from macmpi.parallel import tiles
from macmpi.parallel.clock import Clock
from macmpi.parallel.shared_work import Products, Rows, Sum, TreeSum, Turns, commonly, over_parts
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Tile
from macmpi.plan.damped import Damped
from macmpi.plan.inverses import assign_inverses, inverse_flops
from macmpi.plan.plan import Plan
from macmpi.solvers.grams import by_row
from macmpi.state import State, StochasticState, block_views
from macmpi.typing import Array

MEMORY = 0.9
"""The share of running Grams that is left when a minibatch renews them."""

Tapes = dict[int, Seen]
"""Each part of this rank has seen this of a minibatch."""


class RunningCurvature:
    """Keeps state.own.grams, the Grams, and state.own.inverses, of Grams and metrics.

    rows: this rank's points of each of its parts.  What has come since the last `fold` stays with the parts, so that
    Grams travel only when they are inverted, on one node only where.  Where the metric is the identity the diagonal
    of its inverse alone is made.  Eigenvectors are kept in the place of inverses: all of layers that are damped in them
    (spectral.py), the leading ones of wide Grams and metrics (lowrank.py).  Collective: where a method says so.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        rows: dict[int, Tile],
        tree: TreeSum,
        team: Team,
        clock: Clock,
        damped: Damped,
    ) -> None:
        self.plan, self.layout, self.rows, self.sum = plan, layout, rows, tree
        self.team, self.clock = team, clock
        self._inverses = Turns(team, plan.dtype.itemsize * layout.squares[-1].stop)
        bent = sum(m.n_out**2 for m in plan.chain.maps[1:] if "elementwise" in m.capabilities)
        self._slopes = TreeSum(tree.leaves, team, plan.dtype.itemsize * bent)
        self._products = Products(team, plan.dtype.itemsize * max(layout.sides) ** 2)
        once = plan.chain.whole.blocks.count(0) == 1
        self.settled = layout.grams[0].stop if plan.chain.maps[0].parameter_shape is not None and once else 0
        first = 1 if self.settled else 0
        self._noted = {i: Noted(first, [d for _, d in layout.shapes[first:]], plan.dtype) for i in rows}
        self._faded = 1.0
        self._applied: tuple[Array, Array, list[Inverse]] | None = None
        self._identity, self.spectral, self._dense = damped.identity, damped.spectral, damped.dense
        self.squares = assign_inverses(inverse_flops(layout.shapes, damped), team.size)
        self._paired = all(j ^ 1 in rank for rank in self.squares for j in rank)
        kept = [[layout.grams[j // 2] for j in rank if j % 2 == 0] for rank in self.squares]
        self._grams = [tiles.merged(g for g in rank if g.start >= self.settled) for rank in kept]

    def begin(self, state: State[StochasticState], X: Array, weights: Array | None = None) -> None:
        """Begins with nothing but the Gram of inputs that never change: over all points.  Collective: yes.

        weights: of the points, of a mean of 1.
        """
        state.own.grams = np.zeros(self.layout.grams[-1].stop, self.plan.dtype)
        state.own.inverses = np.zeros(self.layout.squares[-1].stop, self.plan.dtype)
        state.own.spectra = np.zeros(self.layout.spectra[-1].stop, self.plan.dtype)
        if self.settled:
            over = over_parts(self.sum, lambda i: [t.rows for t in tiles.chunks_within(self.rows[i])])
            unfold = self.plan.chain.maps[0].unfold

            def part(rows: slice) -> tuple[Array, ...]:
                A = unfold(X[rows])
                return (gram(A, weights=by_row(None if weights is None else weights[rows], len(A))),)

            (total,) = over(part)
            self.layout.gram_blocks(state.own.grams)[0][:] = total / self.plan.n_train

    def note(self, tapes: Tapes, probed: float, state: State[StochasticState]) -> None:
        """Adds a minibatch to the running Grams.  Collective: no."""
        rate = max(1.0 - MEMORY, 1.0 / (state.own.steps + 1))
        self._faded *= 1.0 - rate
        with self.clock("z"):
            for i, seen in tapes.items():
                self._noted[i].note(seen, rate / probed, 1.0 - rate)

    def share(self, state: State[StochasticState]) -> None:
        """From now on the ranks of a node have one copy of the Grams.  Collective: yes."""
        state.own.grams = commonly(self.team, state.own.grams)

    def fold(self, state: State[StochasticState]) -> None:
        """Adds what is new over all parts to the Grams that this rank inverts.  Collective: yes."""

        def put(i: int, out: Array) -> None:
            self._noted[i].put(out)

        before = self.settled
        new = self.sum.exchanged(put, len(state.own.grams) - before, self.plan.dtype, sets=True)
        for run in self._grams[self.team.rank]:
            grams, columns = state.own.grams[run], slice(run.start - before, run.stop - before)
            grams *= self._faded
            grams += new.part(columns, np.empty_like(grams))
        self._faded = 1.0

    def complete(self, state: State[StochasticState]) -> None:
        """All ranks have all of the Grams.  Collective: yes."""
        self.team.gather_parts(state.own.grams, self._grams)

    def factor(
        self, tapes: Tapes, probed: float, damping: float, state: State[StochasticState], spectra: bool = True
    ) -> None:
        """Damped inverses of all Grams and metrics, or their eigenvectors: each by one rank, then Allgatherv.

        spectra: eigenvectors are made again, too.  Collective: yes.
        """
        self.fold(state)
        if not self._paired:  # shifts take the traces of a Gram and of its metric
            self.complete(state)
        found, added = self._metrics(tapes, probed, state)
        last = self.layout.square_blocks(state.own.inverses)
        state.own.inverses = self._inverses.array(state.own.inverses.shape, state.own.inverses.dtype)
        inverses, low_rank = self.layout.square_blocks(state.own.inverses), self.layout.low_rank
        grams = self.layout.gram_blocks(state.own.grams)
        pairs = {k: (grams[k] + added[k] if k in added else grams[k], M) for k, M in found.items()}
        with self.clock("w"):
            for j in self.squares[self.team.rank]:
                known, of = j // 2 in self._identity, pairs[j // 2][j % 2]
                shift = shifts(*pairs[j // 2], damping)
                if known and self._dense:
                    shift = spectral.identity_shifts(shift, damping, spectral.cross(state.own.steps))
                if j // 2 in self.spectral and not spectra:
                    inverses[j][:] = last[j]
                elif j // 2 in self.spectral:
                    state.own.spectra[self.layout.spectra[j]], inverses[j][:] = spectral.decomposed(of)
                elif j in low_rank:
                    values, inverses[j][:] = lowrank.leading(of, last[j], j)
                    own = state.own.spectra[self.layout.spectra[j]]
                    own[: len(values) + 1] = lowrank.shares(of, (values, inverses[j]), shift[j % 2])
                elif j % 2 and known:
                    inverses[j].fill(0.0)
                    np.fill_diagonal(inverses[j], 1.0 / (of[0, 0] + shift[1]))
                else:
                    inverses[j][:] = shifted_inverse(of, shift[j % 2], double=known)
        self.team.gather_parts(state.own.inverses, [[self.layout.squares[j] for j in rank] for rank in self.squares])
        if low_rank or (self.spectral and spectra):
            owned = ([j for j in rank if j in low_rank or j // 2 in self.spectral] for rank in self.squares)
            made = [[self.layout.spectra[j] for j in rank] for rank in owned]
            self.team.gather_parts(state.own.spectra, made)

    def inverses(self, state: State[StochasticState]) -> list[Inverse]:
        """Inverses to apply, of G_1, M_1, G_2, M_2, ....  Collective: no."""
        flat, spectra = state.own.inverses, state.own.spectra
        if self._applied is None or self._applied[0] is not flat or self._applied[1] is not spectra:
            self._applied = flat, spectra, self.layout.inverses(flat, spectra, self._identity)
        return self._applied[2]

    def spectra(self, k: int, state: State[StochasticState]) -> list[Spectrum]:
        """Eigenvalues and eigenvectors of G_k and M_k, where the layer is damped in them.  Collective: no."""
        squares = self.layout.square_blocks(state.own.inverses)
        return [(state.own.spectra[self.layout.spectra[j]], squares[j]) for j in (2 * k, 2 * k + 1)]

    def _metrics(
        self, tapes: Tapes, probed: float, state: State[StochasticState]
    ) -> tuple[dict[int, Array], dict[int, Array]]:
        """M_k, and what is added to Grams, of the layers k that this rank inverts.  Collective: yes."""
        chain = self.plan.chain
        kept = {j // 2 for j in self.squares[self.team.rank]}

        def put(of: OfSeen, i: int, out: Array) -> None:
            if share := tapes[i].count / probed:
                of(tapes[i], share, out)
            else:
                out.fill(0.0)

        def means(matrices: Sequence[tuple[OfSeen, int]]) -> list[Rows]:
            ends = np.cumsum([0, *(side * side for _, side in matrices)]).tolist()

            def add(i: int, out: Array) -> None:
                for (of, n), a, b in zip(matrices, ends, ends[1:], strict=False):
                    put(of, i, out[a:b].reshape(n, n))

            total = self._slopes.exchanged(add, ends[-1], self.plan.dtype, sets=True)
            return [partial(_rows, total, start, n) for (_, n), start in zip(matrices, ends, strict=False)]

        def mean(of: OfSeen, n: int) -> Array:
            flat = self.sum(lambda i, out: put(of, i, out.reshape(n, n)), n * n, self.plan.dtype, sets=True)
            return flat.reshape(n, n)

        with self.clock("z"):
            tape = next((seen.tape for seen in tapes.values()), None)
            if tape is None:  # of no points: this rank has none of the parts
                none = np.zeros((0, chain.n_in), self.plan.dtype)
                tape = chain.whole.tape(block_views(state.weights, chain.block_shapes), none)
            over = Averages(means, mean, self._products.weighted)
            return metrics(self.plan.resolved.loss, tape, over, kept)


def _rows(total: Sum, start: int, n: int, rows: slice) -> Array:
    """Some rows of the (n, n) matrix that begins at `start`."""
    first, stop, _ = rows.indices(n)
    place = slice(start + first * n, start + stop * n)
    return total.part(place, np.empty(place.stop - place.start, total.rows.dtype)).reshape(-1, n)
