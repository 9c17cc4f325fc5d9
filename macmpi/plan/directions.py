"""Stochastic MAC damps each layer in a form that is chosen here; ranks get their directions and inverses here, too.

Each layer is damped by two shifts, or in the eigenvectors of its Gram and metric; wide Grams and metrics with shifts
are inverted in their leading eigenvectors alone.  Work is in counted flops or multiplications.  Inverses are counted in
one order everywhere: of G_1, M_1, G_2, M_2, ....  A Layout says where they lie in flat arrays.  The method, the cost
model and `--explain` read this (methods/stochastic, plan/cost.py, run.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from itertools import chain as joined
from typing import Any

from macmpi.nets.chain import Chain
from macmpi.nets.layers import is_plain
from macmpi.nets.losses import Loss
from macmpi.parallel import tiles
from macmpi.plan import tuned
from macmpi.plan.plan import Plan
from macmpi.state import block_views
from macmpi.typing import Array

# --- forms of curvature -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerForm:
    """Says in which form the curvature of a layer is damped, given by its Gram G (d, d) and its metric M (h, h).

    spectral: the layer is damped in the eigenvectors of both; otherwise each is shifted and inverted by itself.
    identity: M is the identity.
    crossed: M is the identity, and the shifts follow from the formula of layers that are damped in eigenvectors.
    ranks: for G and for M, the number of leading eigenvectors in the inverse; None: the whole matrix is inverted.
    why: the reason, for `--explain`.
    """

    spectral: bool = False
    identity: bool = False
    crossed: bool = False
    ranks: tuple[int | None, int | None] = (None, None)
    why: str = ""

    @property
    def words(self) -> str:
        """The form in words, for `--explain`."""
        if self.spectral:
            return "in the eigenvectors of G and M"
        G, M = (f"in {rank} leading eigenvectors" if rank else "whole" for rank in self.ranks)
        return f"by shifts, G {G}, M {'the identity' if self.identity else M}"


@dataclass(frozen=True)
class CurvatureForms:
    """Holds the form of each layer, counted as parameter blocks are.

    dense_autoencoder: the net is an autoencoder of dense layers: narrow ones are spectral, and a layer with an identity
        metric is damped by their formula.
    """

    layers: tuple[LayerForm, ...]
    dense_autoencoder: bool = False


def curvature_forms(chain: Chain, loss: Loss, autoencoder: bool, points: float) -> CurvatureForms:
    """Chooses each layer's form by counted flops.  points: the number in a minibatch.  Collective: no.

    Eigenvectors, leading ones or all of both matrices, are used only if all layers are dense and share no weights.
    """
    last, blocks = chain.whole.blocks[-1], [b for b in chain.whole.blocks if b is not None]
    bare = chain.maps[-1].parameter_shape is not None and loss.unit_hessian
    dense = all({"linear", "bias"} <= m.capabilities for m in chain.blocks) and len(blocks) == len(set(blocks))

    def form(k: int, h: int, d: int) -> LayerForm:
        identity = bare and k == last
        if not dense:
            return LayerForm(identity=identity, why="some layers are not dense, or share weights")
        why = _why_shifted(h, d, autoencoder, k == blocks[0], identity, points)
        if not why:
            return LayerForm(spectral=True, why="an autoencoder's layer that is cheap to turn into eigenvectors")
        G, M = (side // tuned.LOW_RANK_SHARE if side >= tuned.LOW_RANK_WIDE else None for side in (d, h))
        ranks = G, None if identity else M
        return LayerForm(identity=identity, crossed=identity and autoencoder, ranks=ranks, why=why)

    return CurvatureForms(tuple(form(k, *shape) for k, shape in enumerate(chain.block_shapes)), dense and autoencoder)


def _why_shifted(h: int, d: int, autoencoder: bool, first: bool, identity: bool, points: float) -> str:
    """Says why a dense layer (h, d) is damped by shifts; "" if it is damped in eigenvectors.

    Turning a layer into eigenvectors and back costs 4 h d (h + d) flops, passes of n points forth and back 6 n h d.

    first: whether it reads the data.
    identity: whether its metric is the identity.
    points: the number of points of a minibatch.
    """
    if identity:
        return "a linear output layer of the squared error"
    if not autoencoder:
        return "regressions and labels are damped by shifts"
    if first:
        return "it reads the inputs, whose directions of little variance are mostly noise"
    if 4 * (h + d) > tuned.SPECTRAL_TURNS * 6 * points:
        return "turning it into eigenvectors would take longer than passing a minibatch through it"
    return ""


def minibatches_of(plan: Plan, epoch: int) -> int:
    """Returns the number of minibatches of an epoch; each has at least one point of every part.  Collective: no.

    The minibatches of a stream also grow with the points of earlier pieces.
    """
    of, n, parts = plan.resolved, plan.n_train, plan.work.parts
    smallest = min(len(parts.points(b, b + 1)) for b in range(len(parts.blocks)))
    so_far = n + of.before // of.stochastic.grow_every
    return max(min(n // of.minibatch(so_far, epoch), smallest), 1)


def forms_of(plan: Plan) -> CurvatureForms:
    """Chooses the forms of a plan's layers, by the minibatches of its first epoch, or for a stream by `batch`.

    Collective: no.
    """
    of, keys = plan.resolved, plan.resolved.stochastic
    points = float(keys.batch) if keys.stream else plan.n_train / minibatches_of(plan, 0)
    return curvature_forms(plan.chain, of.loss, of.autoencoder, points)


def explained_forms(plan: Plan) -> list[str]:
    """Writes each layer's form and its reason as comments of a config; none for other methods.  Collective: no."""
    if plan.resolved.method.name != "stochastic":
        return []
    shapes = plan.chain.block_shapes
    lines = [
        f"# layer {k + 1}, {h} x {d}: {form.words}: {form.why}"
        for k, ((h, d), form) in enumerate(zip(shapes, forms_of(plan).layers, strict=True))
    ]
    return ["# curvature: G of a layer's inputs, M of its outputs", *lines]


# --- directions -------------------------------------------------------------------------------------------------------

Sides = Sequence[tuple[bool, bool]]
"""For each layer: whether M^-1, and whether G^-1, is applied to the factors of a gradient, point by point."""

Job = tuple[int, slice]
"""A layer and some of its units."""

UNITS = 100
"""The directions of this number of a layer's units are one product."""

MOVED, JOINED, PASSED, BEGUN = 200.0, 50.0, 150.0, 7e5
"""Times in multiplications: to move a weight, its average and its last step; to join the sums of a slope; to pass over
a weight where an inverse is made of leading eigenvectors; and to begin a product."""

TURNED, TURNINGS = 2.5, 4
"""A direction in eigenvectors takes TURNED times as long as one by two inverses, and TURNINGS products."""


def sides_of(chain: Chain, layers: Sequence[LayerForm], points: float) -> Sides:
    """Chooses which inverses are applied to the factors of a minibatch's gradient, by counted flops.

    M^-1 costs 2 h^2 d flops on a gradient (h, d), and 2 h^2 n on its factor (n, h); G^-1 costs 2 d^2 h or 2 d^2 n.
    An identity metric needs no inverse.  No inverse is applied if layers or positions share weights, so that factors
    have many rows, or if the gradient is no product of factors (`is_plain`).

    points: n, the points of a minibatch.  Collective: no.
    """
    numbers, share = chain.whole.blocks, tuned.FACTORS_FEWER
    sides = list[tuple[bool, bool]]()
    for k, (map_, form, (h, d)) in enumerate(zip(chain.blocks, layers, chain.block_shapes, strict=True)):
        plain = is_plain(map_) and numbers.count(k) == 1 and not form.spectral
        sides.append((plain and not form.identity and points < share * d, plain and points < share * h))
    return sides


@dataclass(frozen=True)
class DirectionWork:
    """Counts the multiplications of directions, and assigns them to ranks.  Collective: no.

    shapes, layers: (h, d) and form of each layer.
    sides: the inverses that have been applied to the layers' gradients already.
    """

    shapes: Sequence[tuple[int, int]]
    layers: Sequence[LayerForm]
    sides: Sides

    def assigned(self, ranks: int) -> list[list[Job]]:
        """Assigns jobs to ranks in one of two ways: the one that keeps the busiest rank less busy.

        Either ranks take single groups of units, or layers whose units read the whole slope of their layer stay whole.
        """
        runs = [tiles.unit_tiles(h, h if self.layers[k].spectral else UNITS) for k, (h, _) in enumerate(self.shapes)]
        single = [[[(k, run.rows)] for run in own] for k, own in enumerate(runs)]
        kept = [own if self.reads_own_units(k) else [list(joined.from_iterable(own))] for k, own in enumerate(single)]
        ways = [self._by_cost(list(joined.from_iterable(groups)), ranks) for groups in (single, kept)]
        return min(ways, key=lambda owners: max(map(self.cost, owners)))

    def _by_cost(self, groups: Sequence[list[Job]], ranks: int) -> list[list[Job]]:
        """Assigns groups of jobs to ranks; each group stays together."""
        owners = tiles.assign_in_order([self.cost(group) for group in groups], ranks)
        return [list(joined.from_iterable(groups[i] for i in own)) for own in owners]

    def cost(self, jobs: Sequence[Job]) -> float:
        """Counts the multiplications of some jobs, and the time to join the sums that they read as multiplications."""
        sizes = [(k, self.shapes[k][1] * (units.stop - units.start)) for k, units in jobs]
        whole = {k for k, _ in sizes if not self.reads_own_units(k)}
        read = sum(h * d for h, d in (self.shapes[k] for k in whole)) + sum(n for k, n in sizes if k not in whole)
        begun = sum(TURNINGS if self.layers[k].spectral else 1 for k, _ in sizes)
        within = sum(self._within(k) * self.shapes[k][1] for k in whole)
        return BEGUN * begun + JOINED * read + within + sum(self._effort(k) * n for k, n in sizes)

    def _within(self, k: int) -> float:
        """Counts multiplications per column of a slope: its product with leading eigenvectors, shared by all units."""
        return float((self.layers[k].ranks[1] or 0) * self.shapes[k][0])

    def _effort(self, k: int) -> float:
        """Counts multiplications for each weight of layer k, without `_within`."""
        (h, d), (_, inputs) = self.shapes[k], self.sides[k]
        rank_of_inputs, rank_of_outputs = self.layers[k].ranks
        left = 0.0 if self.reads_own_units(k) else applied(rank_of_outputs, h) - self._within(k) / h
        right = 0.0 if inputs else applied(rank_of_inputs, d)
        return (TURNED if self.layers[k].spectral else 1.0) * (left + right) + MOVED

    @property
    def by_point(self) -> float:
        """The multiplications of the inverses that are applied point by point, for each point."""
        total = 0.0
        for (h, d), (outputs, inputs), form in zip(self.shapes, self.sides, self.layers, strict=True):
            total += outputs * h * applied(form.ranks[1], h) + inputs * d * applied(form.ranks[0], d)
        return total

    def reads_own_units(self, k: int) -> bool:
        """Tells whether the directions of a unit of layer k read only its own slope.

        This is so if M_k^-1 has been applied to the slope already, or is a multiple of the identity.
        """
        return self.sides[k][0] or self.layers[k].identity


def applied(rank: int | None, side: int) -> float:
    """Counts multiplications for each number of an array to which an inverse (side, side) is applied.

    rank: the number of its leading eigenvectors; None: it is a whole matrix.
    """
    return float(side) if rank is None else 2.0 * rank + PASSED


# --- inverses ---------------------------------------------------------------------------------------------------------

DECOMPOSED = 4.0
"""All eigenvectors of a matrix cost this many times as much as its inverse."""

DOUBLE = 2.0
"""An inverse in double precision, as a Gram has whose metric is the identity, costs this many times as much."""

SLOW = 400.0
"""Small matrices do not keep a core busy: inverting n rows takes the time of n^2 (n + SLOW) multiplications."""

PRODUCTS = 5.0
"""Renewing leading eigenvectors and their eigenvalues takes this many products with the matrix."""


def inverse_flops(shapes: Sequence[tuple[int, int]], layers: Sequence[LayerForm]) -> list[float]:
    """Counts the flops of each inverse, of G_1, M_1, G_2, ...; an identity M counts 1.

    shapes, layers: (h, d) and form of each layer.  Collective: no.
    """

    def flops(form: LayerForm, rank: int | None, side: int) -> float:
        if rank is not None:
            return 2.0 * PRODUCTS * side**2 * rank
        effort = DECOMPOSED if form.spectral else DOUBLE if form.identity else 1.0
        return 2.0 * effort * side**2 * (side + SLOW)

    costs = list[float]()
    for (h, d), form in zip(shapes, layers, strict=True):
        G, M = form.ranks
        costs += flops(form, G, d), 1.0 if form.identity else flops(form, M, h)
    return costs


def assign_inverses(costs: Sequence[float], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Assigns inverses to ranks: both of a layer to one rank, in order, if that is about as even as one by one.

    A rank then reads the inverses that it has computed itself.

    costs: the costs of the inverses of G_1, M_1, G_2, ....  Collective: no.
    """
    apart = tiles.assign_by_cost(costs, ranks)
    layers = tiles.assign_in_order([a + b for a, b in zip(costs[::2], costs[1::2], strict=True)], ranks)
    paired = tuple(tuple(j for k in rank for j in (2 * k, 2 * k + 1)) for rank in layers)
    busiest, least = (max(sum(costs[j] for j in rank) for rank in owners) for owners in (paired, apart))
    return paired if busiest <= (1.0 + tiles.IN_ORDER) * least else apart


# --- places -----------------------------------------------------------------------------------------------------------


Pair = tuple[Array, Array]
"""G (d, d) and M (h, h) of a layer, or an array for each: an inverse, eigenvectors or eigenvalues."""


class Layout:
    """Says where the layers' numbers lie in flat arrays: weights (h, d), d with the bias, Grams (d, d), and inverses.

    squares: for each layer two places, of arrays made from G and from M: inverses or eigenvectors (n, n), or r leading
        eigenvectors (n, r).
    spectra: for each of these the place of the eigenvalues (n,), or of LowRank.shares.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], layers: Sequence[LayerForm]) -> None:
        self.shapes = shapes
        self._grams = [(d, d) for _, d in shapes]
        ranks = [rank for form in layers for rank in form.ranks]
        self._squares = [(n, rank or n) for n, rank in zip([n for h, d in shapes for n in (d, h)], ranks, strict=True)]
        self.weights, self.grams = _runs(shapes), _runs(self._grams)
        self.squares = _by_layer(_runs(self._squares))
        self.spectra = _by_layer(_runs([(n, 1) for n, _ in self._squares]))

    def place(self, layer: int, rows: slice) -> slice:
        """Returns the place of some rows of a layer's weights."""
        start, d = self.weights[layer].start, self.shapes[layer][1]
        return slice(start + rows.start * d, start + rows.stop * d)

    def blocks(self, flat: Array) -> list[Array]:
        """Returns views (h, d) of each layer's weights, or of another array of their sizes."""
        return list(block_views(flat, self.shapes))

    def gram_blocks(self, flat: Array) -> list[Array]:
        """Returns views G_k (d, d) of each layer's Gram."""
        return list(block_views(flat, self._grams))

    def square_blocks(self, flat: Array) -> list[Pair]:
        """Returns, for G and M of each layer, views of the inverse or eigenvectors (n, n), or leading ones (n, r)."""
        return _by_layer(block_views(flat, self._squares))


def _runs(shapes: Sequence[tuple[int, int]]) -> list[slice]:
    return [slice(a, b) for a, b in pairwise(accumulate((h * d for h, d in shapes), initial=0))]


def _by_layer(sides: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs the entries of a list that has for each layer one of G and one of M."""
    return list(zip(sides[::2], sides[1::2], strict=True))
