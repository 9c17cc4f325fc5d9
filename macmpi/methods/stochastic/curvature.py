"""A stochastic run keeps, for each layer, a running Gram G, and inverses or spectra of G and of the metric M.

Sums over points go up a tree of parts.  Each inverse or spectrum is assigned to one rank.  The damping of the inverses
is adapted in schedule.py (`Damping`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from macmpi.methods.stochastic.layers import GRAM, Amount, LayerCurvature, Shifted, Spectral, cross
from macmpi.methods.stochastic.schedule import Running
from macmpi.nets.design import at, gram
from macmpi.parallel import tiles
from macmpi.parallel.shared_work import DoubleBuffer, Products, RowMaker, Sum, TreeSum, share_on_node
from macmpi.plan import tuned
from macmpi.plan.directions import CurvatureForms, Layout, Pair, Sides, assign_inverses, inverse_flops
from macmpi.plan.plan import Plan
from macmpi.solvers.grams import by_row
from macmpi.solvers.metrics import Averages, OfSeen, Seen, metrics
from macmpi.state import block_views
from macmpi.typing import Array

Tapes = dict[int, Seen]
"""The net at a minibatch's points, for each part of this rank."""


class RunningCurvature:
    """Keeps the Grams (state.own.grams) and the inverses and spectra of Grams and metrics (own.inverses, own.spectra).

    Minibatches since the last `fold` stay in the Grams of the parts.  So Grams are exchanged only when they are
    inverted, and each Gram goes only to the rank that inverts it.

    rows: this rank's points of each of its parts.
    owned: for each rank the sides (layer, GRAM or METRIC) that it refreshes.
    Collective: methods that say so.
    """

    sides: Sides = ()
    """For each layer, whether the inverses of M and of G are applied to the factors of gradients at present."""

    def __init__(self, plan: Plan, forms: CurvatureForms, rows: dict[int, tiles.Tile], tree: TreeSum) -> None:
        self.plan, self.forms, self.rows, self.sum = plan, forms, rows, tree
        self.whole = plan.resolved.whole_steps
        self.team = tree.team
        shapes, item = plan.chain.block_shapes, plan.dtype.itemsize
        self.layout = layout = Layout(shapes, forms.layers)
        self._inverses = DoubleBuffer(self.team, item * layout.squares[-1][-1].stop)
        bent = sum(m.n_out**2 for m in plan.chain.maps[1:] if "elementwise" in m.capabilities)
        self._slopes = TreeSum(tree.leaves, self.team, item * bent)
        self._products = Products(self.team, item * max(max(shape) for shape in shapes) ** 2)
        once = plan.chain.whole.blocks.count(0) == 1
        first = 1 if plan.chain.maps[0].parameter_shape is not None and once else 0
        self.settled = layout.grams[0].stop if first else 0
        parts = [() if k < first else tuple(rows) for k in range(len(shapes))]
        self._layers: list[LayerCurvature] = [
            (Spectral if form.spectral else Shifted)(k, form, d, own)
            for k, (form, (_, d), own) in enumerate(zip(forms.layers, shapes, parts, strict=True))
        ]
        self._noting, self._faded = self._layers[first:], 1.0
        self._bound: tuple[Array, Array] | None = None
        assigned = assign_inverses(inverse_flops(shapes, forms.layers), self.team.size)
        self.owned = [[divmod(j, 2) for j in rank] for rank in assigned]
        self._paired = all((k, 1 - side) in rank for rank in self.owned for k, side in rank)
        kept = [[layout.grams[k] for k, side in rank if side == GRAM] for rank in self.owned]
        self._grams = [tiles.merged(g for g in rank if g.start >= self.settled) for rank in kept]

    def begin(self, state: Running, X: Array, weights: Array | None = None) -> None:
        """Begins with empty Grams, but sums the Gram of the net's inputs, which never change, over all points.

        weights: the weights of the points, with a mean of 1.  Collective: yes.
        """
        last = self.layout.grams[-1], self.layout.squares[-1][-1], self.layout.spectra[-1][-1]
        state.own.grams, state.own.inverses, state.own.spectra = (np.zeros(run.stop, self.plan.dtype) for run in last)
        if self.settled:
            unfold, G = self.plan.chain.maps[0].unfold, self.layout.gram_blocks(state.own.grams)[0]

            def add(i: int, out: Array) -> None:
                for number, chunk in enumerate(tiles.chunks_within(self.rows[i])):
                    A = unfold(X[chunk.rows])
                    w = by_row(at(weights, chunk.rows), len(A))
                    if number:
                        out += gram(A, weights=w).ravel()
                    else:  # into place: one Gram less at a time
                        gram(A, weights=w, out=out.reshape(G.shape))

            np.divide(self.sum(add, G.size).reshape(G.shape), self.plan.n_train, out=G)

    def note(self, tapes: Tapes, probed: float, state: Running) -> None:
        """Adds a minibatch to the running Grams of this rank's parts; a step on all points replaces the Grams.

        tapes: the net at the minibatch, by part.
        probed: the number of points of all ranks that enter the Grams.  Collective: no.
        """
        rate = 1.0 if self.whole else max(1.0 - tuned.GRAM_MEMORY, 1.0 / (state.own.steps + 1))
        self._faded *= 1.0 - rate
        with self.team.clock("z"):
            for i, seen in tapes.items():
                for layer in self._noting:
                    layer.note(i, seen, rate / probed, 1.0 - rate)

    def share(self, state: Running) -> None:
        """Moves the Grams to memory that the ranks of a node share.  Collective: yes."""
        state.own.grams = share_on_node(self.team, state.own.grams)

    def fold(self, state: Running) -> None:
        """Sums the minibatches since the last `fold` over all parts, and adds them to the Grams that this rank inverts.

        Collective: yes.
        """
        before = self.settled
        width = len(state.own.grams) - before
        shapes = [(layer.columns, layer.columns) for layer in self._noting]

        def put(i: int, out: Array) -> None:
            for layer, G in zip(self._noting, block_views(out, shapes), strict=True):
                layer.running[i].put(G)

        new = self.sum.exchanged(put, width, self.plan.dtype, sets=True)
        for run in self._grams[self.team.rank]:
            grams, columns = state.own.grams[run], slice(run.start - before, run.stop - before)
            grams *= self._faded
            grams += new.part(columns, np.empty_like(grams))
        self._faded = 1.0

    def complete(self, state: Running) -> None:
        """Gives all ranks all Grams; before this each rank has only the Grams that it inverts.  Collective: yes."""
        self.team.gather_parts(state.own.grams, self._grams)

    def refresh(self, tapes: Tapes, probed: float, damping: float, state: Running, eigenvectors: bool = True) -> None:
        """Folds the Grams, computes the metrics, and inverts both again, each on one rank.

        tapes: the net at the minibatch, by part.
        probed: the number of the minibatch's points, over all ranks, from which metrics are computed.
        damping: the damping of the inverses.
        eigenvectors: whether layers that are damped in eigenvectors also compute these again.
        Collective: yes, with one Allgatherv of the results, and one of spectra if there are any.
        """
        self.fold(state)
        if not self._paired:  # shifts depend on the traces of a Gram and of its metric
            self.complete(state)
        pairs, amount = self._pairs(tapes, probed, state), self.amount(damping, state)
        last = self.layout.square_blocks(state.own.inverses)
        state.own.inverses = self._inverses.array(state.own.inverses.shape, state.own.inverses.dtype)
        layers = self.layers(state)
        with self.team.clock("w"):
            for k, side in self.owned[self.team.rank]:
                layers[k].refresh(side, pairs[k], amount, last[k][side], eigenvectors)
        squares, spectra = self.layout.squares, self.layout.spectra
        self.team.gather_parts(state.own.inverses, [[squares[k][side] for k, side in rank] for rank in self.owned])
        forms = self.forms.layers
        changed = [[(k, side) for k, side in rank if forms[k].spectral or forms[k].ranks[side]] for rank in self.owned]
        if any(changed):
            self.team.gather_parts(state.own.spectra, [[spectra[k][side] for k, side in rank] for rank in changed])

    def amount(self, damping: float, state: Running) -> Amount:
        """Returns the damping and the present q of layers that are damped in eigenvectors (`cross`).

        Collective: no.
        """
        return Amount(damping, tuned.CROSS_LEAST if self.whole else cross(state.own.steps))

    def layers(self, state: Running) -> Sequence[LayerCurvature]:
        """Returns the curvature of each layer, bound to the inverses and spectra in the State.  Collective: no."""
        flat, spectra = state.own.inverses, state.own.spectra
        if self._bound is None or self._bound[0] is not flat or self._bound[1] is not spectra:
            self._bound = flat, spectra
            pairs = zip(self._layers, self.layout.square_blocks(flat), self.layout.spectra, strict=True)
            for layer, squares, (of_G, of_M) in pairs:
                layer.bind(squares, (spectra[of_G], spectra[of_M]))
        return self._layers

    def _pairs(self, tapes: Tapes, probed: float, state: Running) -> dict[int, Pair]:
        """Computes G and M of the layers that this rank refreshes.  Collective: yes."""
        chain, kept = self.plan.chain, {k for k, _ in self.owned[self.team.rank]}

        def put(of: OfSeen, i: int, out: Array) -> None:
            if share := tapes[i].count / probed:
                of(tapes[i], share, out)
            else:
                out.fill(0.0)

        def mean(of: OfSeen, n: int) -> Array:
            flat = self.sum(lambda i, out: put(of, i, out.reshape(n, n)), n * n, self.plan.dtype, sets=True)
            return flat.reshape(n, n)

        with self.team.clock("z"):
            none = np.zeros((0, chain.n_in), self.plan.dtype)  # for a rank without any part
            tape = next((seen.tape for seen in tapes.values()), None)
            tape = tape or chain.whole.tape(self.layout.blocks(state.weights), none)
            over = Averages(partial(self._means, put), mean, self._products.weighted)
            found, added = metrics(self.plan.resolved.loss, tape, over, kept)
        grams = self.layout.gram_blocks(state.own.grams)
        return {k: (grams[k] + added[k] if k in added else grams[k], M) for k, M in found.items()}

    def _means(
        self, put: Callable[[OfSeen, int, Array], None], matrices: Sequence[tuple[OfSeen, int]]
    ) -> list[RowMaker]:
        """Computes the means over the probed points of several (n, n) matrices, summed in one exchange.

        Returns for each mean a function that gives some of its rows, until the next sums are taken.

        put: put(of, i, out) writes part i's share of a matrix to `out`.
        matrices: for each the function that makes it, and its n.  Collective: yes.
        """
        shapes = [(n, n) for _, n in matrices]
        *starts, width = accumulate((n * n for n, _ in shapes), initial=0)

        def add(i: int, out: Array) -> None:
            for (of, _), own in zip(matrices, block_views(out, shapes), strict=True):
                put(of, i, own)

        total = self._slopes.exchanged(add, width, self.plan.dtype, sets=True)
        return [partial(_rows, total, start, n) for (_, n), start in zip(matrices, starts, strict=True)]


def _rows(total: Sum, start: int, n: int, rows: slice) -> Array:
    """Returns some rows of the (n, n) matrix that begins at `start` in a sum."""
    first, stop, _ = rows.indices(n)
    place = slice(start + first * n, start + stop * n)
    return total.part(place, np.empty(place.stop - place.start, total.rows.dtype)).reshape(-1, n)
