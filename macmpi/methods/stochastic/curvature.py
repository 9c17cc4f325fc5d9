"""The curvature that a stochastic run has gathered: Grams running on, and inverses of Grams and metrics.

Sums over points go up a tree of parts; inverses are assigned to ranks one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from macmpi.methods.stochastic.factors import Averages, Noted, OfSeen, Seen, metrics
from macmpi.methods.stochastic.inverses import Inverse, Layout, Spectrum, cross, decomposed, identity_shifts, shifts
from macmpi.methods.stochastic.schedule import Running
from macmpi.nets.design import gram
from macmpi.parallel import tiles
from macmpi.parallel.clock import Clock
from macmpi.parallel.shared_work import Products, Rows, Sum, TreeSum, Turns, commonly, over_parts
from macmpi.parallel.tiles import Tile
from macmpi.plan.directions import Damped, assign_inverses, inverse_flops
from macmpi.plan.plan import Plan
from macmpi.solvers.grams import by_row
from macmpi.state import block_views
from macmpi.typing import Array

MEMORY = 0.9
"""The share of running Grams that is left when a minibatch renews them."""

Tapes = dict[int, Seen]
"""Each part of this rank has seen this of a minibatch."""


class RunningCurvature:
    """Keeps state.own.grams, the Grams, and state.own.inverses, of Grams and metrics.

    rows: this rank's points of each of its parts.  What has come since the last `fold` stays with the parts, so that
    Grams travel only when they are inverted, on one node only where.  Eigenvectors are kept in the place of inverses,
    as `inverses.py` has it.  Collective: where a method says so.
    """

    def __init__(self, plan: Plan, damped: Damped, rows: dict[int, Tile], tree: TreeSum, clock: Clock) -> None:
        self.plan, self.damped, self.rows, self.sum = plan, damped, rows, tree
        team, self.clock = tree.team, clock
        layout = Layout(plan.chain.block_shapes, damped.low_rank, damped.identity)
        self.team, self.layout = team, layout
        self._inverses = Turns(team, plan.dtype.itemsize * layout.squares[-1].stop)
        bent = sum(m.n_out**2 for m in plan.chain.maps[1:] if "elementwise" in m.capabilities)
        self._slopes = TreeSum(tree.leaves, team, plan.dtype.itemsize * bent)
        self._products = Products(team, plan.dtype.itemsize * max(layout.sides) ** 2)
        once = plan.chain.whole.blocks.count(0) == 1
        self.settled = layout.grams[0].stop if plan.chain.maps[0].parameter_shape is not None and once else 0
        first = 1 if self.settled else 0
        self._noted = {i: Noted(first, [d for _, d in layout.shapes[first:]]) for i in rows}
        self._faded = 1.0
        self._applied: tuple[Array, Array, list[Inverse]] | None = None
        self.squares = assign_inverses(inverse_flops(layout.shapes, damped), team.size)
        self._paired = all(j ^ 1 in rank for rank in self.squares for j in rank)
        kept = [[layout.grams[j // 2] for j in rank if j % 2 == 0] for rank in self.squares]
        self._grams = [tiles.merged(g for g in rank if g.start >= self.settled) for rank in kept]

    def begin(self, state: Running, X: Array, weights: Array | None = None) -> None:
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

    def note(self, tapes: Tapes, probed: float, state: Running) -> None:
        """Adds a minibatch to the running Grams.  Collective: no."""
        rate = max(1.0 - MEMORY, 1.0 / (state.own.steps + 1))
        self._faded *= 1.0 - rate
        with self.clock("z"):
            for i, seen in tapes.items():
                self._noted[i].note(seen, rate / probed, 1.0 - rate)

    def share(self, state: Running) -> None:
        """From now on the ranks of a node have one copy of the Grams.  Collective: yes."""
        state.own.grams = commonly(self.team, state.own.grams)

    def fold(self, state: Running) -> None:
        """Adds what is new over all parts to the Grams that this rank inverts.  Collective: yes."""
        before = self.settled
        width = len(state.own.grams) - before
        new = self.sum.exchanged(lambda i, out: self._noted[i].put(out), width, self.plan.dtype, sets=True)
        for run in self._grams[self.team.rank]:
            grams, columns = state.own.grams[run], slice(run.start - before, run.stop - before)
            grams *= self._faded
            grams += new.part(columns, np.empty_like(grams))
        self._faded = 1.0

    def complete(self, state: Running) -> None:
        """All ranks have all of the Grams.  Collective: yes."""
        self.team.gather_parts(state.own.grams, self._grams)

    def factor(self, tapes: Tapes, probed: float, damping: float, state: Running, spectra: bool = True) -> None:
        """Damped inverses of all Grams and metrics, or their eigenvectors: each by one rank, then Allgatherv.

        spectra: eigenvectors are made again, too.  Collective: yes.
        """
        self.fold(state)
        if not self._paired:  # shifts take the traces of a Gram and of its metric
            self.complete(state)
        found, added = self._metrics(tapes, probed, state)
        last = self.layout.square_blocks(state.own.inverses)
        state.own.inverses = self._inverses.array(state.own.inverses.shape, state.own.inverses.dtype)
        squares, inverses = self.layout.square_blocks(state.own.inverses), self.inverses(state)
        grams = self.layout.gram_blocks(state.own.grams)
        pairs = {k: (grams[k] + added[k] if k in added else grams[k], M) for k, M in found.items()}
        with self.clock("w"):
            for j in self.squares[self.team.rank]:
                k, side = divmod(j, 2)
                if k not in self.damped.spectral:
                    shift = shifts(*pairs[k], damping)
                    if k in self.damped.identity and self.damped.dense:
                        shift = identity_shifts(shift, damping, cross(state.own.steps))
                    inverses[j].renew(pairs[k][side], shift[side], last[j])
                elif spectra:
                    state.own.spectra[self.layout.spectra[j]], squares[j][:] = decomposed(pairs[k][side])
                else:
                    squares[j][:] = last[j]
        self.team.gather_parts(state.own.inverses, [[self.layout.squares[j] for j in rank] for rank in self.squares])
        low_rank, spectral = self.damped.low_rank, self.damped.spectral
        if low_rank or (spectral and spectra):
            owned = ([j for j in rank if j in low_rank or j // 2 in spectral] for rank in self.squares)
            self.team.gather_parts(state.own.spectra, [[self.layout.spectra[j] for j in rank] for rank in owned])

    def inverses(self, state: Running) -> list[Inverse]:
        """Inverses to apply, of G_1, M_1, G_2, M_2, ....  Collective: no."""
        flat, spectra = state.own.inverses, state.own.spectra
        if self._applied is None or self._applied[0] is not flat or self._applied[1] is not spectra:
            self._applied = flat, spectra, self.layout.inverses(flat, spectra)
        return self._applied[2]

    def spectra(self, k: int, state: Running) -> list[Spectrum]:
        """Eigenvalues and eigenvectors of G_k and M_k, where the layer is damped in them.  Collective: no."""
        squares = self.layout.square_blocks(state.own.inverses)
        return [(state.own.spectra[self.layout.spectra[j]], squares[j]) for j in (2 * k, 2 * k + 1)]

    def _metrics(self, tapes: Tapes, probed: float, state: Running) -> tuple[dict[int, Array], dict[int, Array]]:
        """M_k, and what is added to Grams, of the layers k that this rank inverts.  Collective: yes."""
        chain = self.plan.chain
        kept = {j // 2 for j in self.squares[self.team.rank]}

        def put(of: OfSeen, i: int, out: Array) -> None:
            if share := tapes[i].count / probed:
                of(tapes[i], share, out)
            else:
                out.fill(0.0)

        def means(matrices: Sequence[tuple[OfSeen, int]]) -> list[Rows]:
            shapes = [(n, n) for _, n in matrices]
            *starts, width = accumulate((n * n for n, _ in shapes), initial=0)

            def add(i: int, out: Array) -> None:
                for (of, _), own in zip(matrices, block_views(out, shapes), strict=True):
                    put(of, i, own)

            total = self._slopes.exchanged(add, width, self.plan.dtype, sets=True)
            return [partial(_rows, total, start, n) for (_, n), start in zip(matrices, starts, strict=True)]

        def mean(of: OfSeen, n: int) -> Array:
            flat = self.sum(lambda i, out: put(of, i, out.reshape(n, n)), n * n, self.plan.dtype, sets=True)
            return flat.reshape(n, n)

        with self.clock("z"):
            none = np.zeros((0, chain.n_in), self.plan.dtype)  # of a rank that has none of the parts
            tape = next((seen.tape for seen in tapes.values()), None)
            tape = tape or chain.whole.tape(self.layout.blocks(state.weights), none)
            over = Averages(means, mean, self._products.weighted)
            return metrics(self.plan.resolved.loss, tape, over, kept)


def _rows(total: Sum, start: int, n: int, rows: slice) -> Array:
    """Some rows of the (n, n) matrix that begins at `start`."""
    first, stop, _ = rows.indices(n)
    place = slice(start + first * n, start + stop * n)
    return total.part(place, np.empty(place.stop - place.start, total.rows.dtype)).reshape(-1, n)
