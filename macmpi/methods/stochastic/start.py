"""A stochastic run starts from wide random layers, a code of principal components, and a fitted output layer.

Only the code, the narrowest layer, is not random: random units in the code would lose most of the differences between
points, while a wide layer of random units loses little.

An autoencoder of dense layers, like a deep net of them, starts from layers that carry principal components or are
random.  With the net's inputs X, a layer's inputs A and the `scale` s of its activation, a layer is of one of two
kinds:

- It is no wider than its inputs: its pre-activations are the principal components C of X that fit through all layers up
to here, in random rotation R, P = s CARRIED C R / rms(C R).  P is small enough to pass the activation nearly
undistorted.  Least squares of P on A give the weights.
- It is wider: its weights are random, scaled so that its pre-activations have the standard deviation s SPREAD over the
points, as a mean over the units, and centred; its biases are random with deviation s SPREAD_BIASES.

Narrow layers lose nothing that principal components keep, however many layers there are; wide layers compute varied
features on the scale on which points differ.  Once the output layer is fitted (fit_output), the error begins well below
that of PCA if layers are wider after the code, and near it if all layers are narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.methods.embedding import principal_directions
from macmpi.nets.chain import Chain
from macmpi.nets.design import adjoint, gram
from macmpi.nets.layers import Map, is_dense, is_plain
from macmpi.nets.layers.activation import function, is_function
from macmpi.nets.losses import Loss
from macmpi.nets.losses.constant import start_targets
from macmpi.parallel.shared_work import TreeSum, over_parts
from macmpi.parallel.tiles import Tile, cut
from macmpi.plan import tuned
from macmpi.reductions import OverPoints, SharedMatrix
from macmpi.solvers.cholesky import jitter, regular_factor
from macmpi.solvers.grams import solve_rows
from macmpi.typing import Array

RUNS = 4
"""The fit of a layer is assigned to ranks in this number of groups of units."""


class Sample:
    """Is a sample of the training points from which a start is computed: X, Y, and the outputs of the first maps.

    The points are evenly spaced in each part, or along the running sum of their weights if they have weights.

    rows: this rank's points of each of its parts.
    weights (n,): the weights of the points that this rank holds; None if all are 1.
    shared_matrix: how ranks share work on matrices.
    over, roughly: compute sums over the sample of all ranks, in float64 and in the precision of the points.
    Collective: no, except `over`, `roughly`, and methods that say so.
    """

    def __init__(
        self, data: Dataset, rows: dict[int, Tile], tree: TreeSum, shared_matrix: SharedMatrix, weights: Array | None
    ) -> None:
        """Takes this rank's rows of the sample.  Collective: no."""
        share = -(-tuned.START_POINTS // tree.leaves)
        taken = {i: _spread(own, share, weights) for i, own in rows.items()}
        ends = np.cumsum([0, *map(len, taken.values())]).tolist()
        self._places = {i: slice(a, b) for i, a, b in zip(taken, ends, ends[1:], strict=False)}
        every = np.concatenate([*taken.values(), np.zeros(0, dtype=int)])
        self.X, self.Y = data.X[every], data.Y[every]
        self.shared_matrix, self._through, self._A = shared_matrix, 0, self.X
        self.over: OverPoints = over_parts(tree, lambda i: [self._places[i]])
        self.roughly = over_parts(tree, lambda i: [self._places[i]], self.X.dtype)

    def _by_part(self, make: Callable[[slice], Array], width: int) -> Array:
        """Computes make(rows) for all points, part by part: the bits do not depend on which parts a rank has."""
        found = np.empty((len(self.X), width), self.X.dtype)
        for own in self._places.values():
            found[own] = make(own)
        return found

    def through(self, chain: Chain, weights: list[Array], maps: int) -> Array:
        """Computes the outputs (n, n_out) of the net's first `maps` maps at the sample's points.

        The outputs are kept, and a later call continues from them: the weights of these maps must not have changed
        since.
        """
        if maps > self._through:
            further, before = chain.part(self._through, maps), self._A
            given = [W.astype(before.dtype, copy=False) for W in weights]
            self._A = self._by_part(lambda own: further.forward(given, before[own]), further.n_out)
            self._through = maps
        return self._A

    def mapped(self, V: Array, c: Array) -> Array:
        """Computes V x + c for V (h, D) and c (h,): (n, h), in the precision of the points."""
        V, c = V.astype(self.X.dtype, copy=False), c.astype(self.X.dtype, copy=False)
        return self._by_part(lambda own: self.X[own] @ V.T + c, len(V))

    def second_moments(self, A: Array, exact: bool = True) -> Array:
        """Averages [a, 1]^T [a, 1] over rows A (n, d) of all ranks: (d + 1, d + 1), float64.

        exact: whether the sum is also computed in float64.  Collective: yes.
        """
        A = np.asarray(A, np.float64) if exact else A
        (total,) = (self.over if exact else self.roughly)(lambda rows: (gram(A[rows]),))
        return np.asarray(total / total[-1, -1], np.float64)

    def fit(self, map_: Map, A: Array, T: Array, W: Array, less: float = 1.0) -> None:
        """Sets W = [V, c] to argmin sum_n ||t_n - W [a_n, 1]||^2 + less^2 START_RIDGE ||V||^2.

        Each rank solves for some units.

        A, T: inputs and targets of the map, one row for each point of the sample.
        less: the standard deviation of A as a share of the usual one.
        Collective: yes.  Cost: D^3 / 3 flops, and 2 D^2 h that the ranks share.
        """
        apart = min(T.shape[1] // len(W), tuned.START_APART)

        def part(rows: slice) -> tuple[Array, Array]:
            inputs = map_.unfold(A[rows][::apart])
            return gram(inputs), adjoint(T[rows][::apart].reshape(-1, len(W)), inputs)

        G, crossed = self.roughly(part)
        ridge = less**2 * tuned.START_RIDGE
        added = np.full(len(G), ridge + jitter(G, 0.0, A.dtype))
        added[-1] -= ridge
        lower = regular_factor(G, added)
        runs = [run.rows for run in cut(len(crossed), RUNS)]
        W[:] = self.shared_matrix.rows(runs, len(G), lambda i: solve_rows(lower, crossed[runs[i]]))


def _spread(own: Tile, count: int, weights: Array | None = None) -> Array:
    """Chooses at most `count` evenly spaced rows of a run, or with weights (N,) evenly along their running sum.

    Of weighted points there are always `count`, some of them several times.
    """
    if weights is not None and (sums := np.cumsum(weights[own.rows])).size and sums[-1] > 0.0:
        marks = np.arange(count) * (sums[-1] / count)
        return own.start + np.minimum(np.searchsorted(sums, marks, side="right"), len(own) - 1)
    count = min(count, len(own))
    return own.start + np.arange(count) * len(own) // count


def scale_random(chain: Chain, weights: list[Array], range_: float) -> None:
    """Scales uniform weights in place to a range.  Collective: no.

    range_: the range; 0 for the range that suits the next activation, or nets with tied layers.
    """
    tied = any("transposed" in m.capabilities for m in chain.maps)
    for block, W in enumerate(weights):
        W *= range_ or (tuned.START_RANGE_TIED if tied else _range(_after(chain, block)))


def _range(after: str) -> float:
    """Returns the range of random weights before an activation of this name."""
    return tuned.START_RANGES.get(after, tuned.START_RANGE)


def code_of(chain: Chain) -> int | None:
    """Finds the block of weights of the code, a layer that is narrower than all others, the inputs and the outputs.

    Returns None if there is no code, or if a layer is not dense, has no biases, or also reads the data.
    Collective: no.
    """
    sizes, narrowest = chain.layer_sizes, min(chain.layer_sizes)
    place = sizes.index(narrowest)
    alone = sizes.count(narrowest) == 1 and 0 < place < len(sizes) - 1
    dense = len(chain.blocks) == len(sizes) - 1 and all("bias" in m.capabilities for m in chain.blocks)
    block = chain.layer_blocks[place - 1] if place else None
    if block is None or not alone or not dense or any(chain.reads):
        return None
    return block if is_plain(chain.blocks[block]) else None


def slope(chain: Chain) -> float:
    """Computes the geometric mean of the hidden activations' steepest slopes; 1 if none is known.  Collective: no."""
    bent = [m.trained_as for m in chain.maps[:-1] if "elementwise" in m.own.capabilities]
    known = [function(name).steepest for name in bent if is_function(name)]
    return float(np.exp(np.mean(np.log(known)))) if known else 1.0


def principal_code(chain: Chain, block: int, weights: list[Array], sample: Sample) -> None:
    """Sets the code's units to principal directions of their inputs, the first with the deviation of START_SCALES.

    v_h = scale u_h / sqrt(l_1), c_h = -v_h^T mean, for directions u_h and variances l_h; before a rectifier c_h is
    larger by the unit's standard deviation, scale sqrt(l_h / l_1).
    Collective: yes.  Cost: n d^2 flops and an eigen-decomposition of (d, d).
    """
    W, after = weights[block], _after(chain, block)
    A = sample.through(chain, weights, chain.whole.blocks.index(block))
    found = components_of(sample.second_moments(A))
    if not found.variances[0] > 0.0:
        return
    scale = _scale(after) / np.sqrt(found.variances[0])
    W[:, :-1] = scale * found.directions[: len(W)]
    W[:, -1] = -W[:, :-1] @ found.mean
    if after == "relu":  # most points lie on the side that has a slope
        W[:, -1] += scale * np.sqrt(found.variances[: len(W)])


def fit_output(chain: Chain, weights: list[Array], loss: Loss, sample: Sample) -> None:
    """Fits the output layer in place, by least squares with a ridge, to the `start_targets` of the loss.

    For squared errors the targets themselves are fitted.
    sample: the points to which the layer is fitted (`Sample.fit`).  Collective: yes.
    """
    A = sample.through(chain, weights, len(chain.maps) - 1)
    Y = start_targets(loss, sample.Y, sample.over).astype(A.dtype, copy=False)
    sample.fit(chain.maps[-1], A, Y, weights[-1])


def _after(chain: Chain, block: int) -> str:
    """Names the activation that follows a block of weights, at its first place in the net; "" at the end."""
    place = chain.whole.blocks.index(block) + 1
    return chain.maps[place].trained_as if place < len(chain.maps) else ""


def _scale(after: str) -> float:
    """Returns the scale s of an activation's argument."""
    return tuned.START_SCALES.get(after, tuned.START_SCALE)


class Components(NamedTuple):
    """Holds mean (D,), variances (m,) and directions (m, D) of the leading principal components of the inputs."""

    mean: Array
    variances: Array
    directions: Array


def carries(chain: Chain, autoencoder: bool) -> bool:
    """Tells whether the layers start with principal components, as in autoencoders and deep nets.

    Deep nets have more than PASSED hidden layers; in these each random layer would lose a share of the differences
    between points.  If layers are added to skips, there must be more than DEEP of such layers.  Collective: no.
    """
    few = 0 < len(chain.added) <= tuned.DEEP
    return plain(chain) and not few and (autoencoder or len(chain.layer_sizes) - 2 > tuned.PASSED)


def plain(chain: Chain) -> bool:
    """Tells whether all layers are dense with their own weights, with only known activations or skips between them.

    Collective: no.
    """
    numbers, joins = chain.whole.blocks, ("copy", "add") if chain.added else ()
    dense = all(is_dense(m.own) for m in chain.blocks)
    alone = len([b for b in numbers if b is not None]) == len(chain.blocks) == len(chain.layer_sizes) - 1
    between = [m for m, block in zip(chain.maps, numbers, strict=True) if block is None and m.own.kind not in joins]
    known = all(is_function(m.trained_as) for m in between) and (bool(joins) or all(m.own is m for m in chain.maps))
    return dense and alone and known and not any(chain.reads) and chain.ends_affine


def share(chain: Chain) -> float:
    """Computes the share of the usual standard deviation that layers begin with: sqrt(DEEP / layers), at most 1.

    The distortion of a layer grows with the square of the deviation, and in a deep net the distortions of layers add
    up, unless skips go past them.  The first damping is multiplied by the square of this share, since each layer has
    less to change, with or without skips. The share is 1 for nets that are not `plain`.  Collective: no.
    """
    hidden = len(chain.layer_sizes) - 2
    return float((tuned.DEEP / hidden) ** 0.5) if hidden > tuned.DEEP and plain(chain) else 1.0


def start_layers(chain: Chain, weights: list[Array], sample: Sample) -> None:
    """Sets the first weights of all layers except the last, in place; layers that are added to skips stay random.

    If the inputs do not vary, nothing changes.

    weights: initially uniform within 1 / sqrt(fan-in), or within less in layers that are added to skips.
    Collective: yes.
    Cost: an eigen-decomposition (D, D), and n d^2 + d^3 / 3 flops for each layer that carries principal components.
    """
    of_X = sample.second_moments(sample.X)
    found = components_of(of_X)
    if not sample.shared_matrix.from_rank0(np.array([found.variances[0]]))[0] > 0.0:
        return
    kept, less = chain.n_in, 1.0 if chain.added else share(chain)
    for block, W in enumerate(weights[:-1]):
        place, after = chain.whole.blocks.index(block), _after(chain, block)
        if block in chain.added:
            W *= _range(after)
            continue
        width = W.shape[1] - 1
        A = sample.through(chain, weights, place)[:, :width]
        kept = min(kept, len(W))
        if len(W) > width:
            spread(W, of_X if block == 0 else sample.second_moments(A, exact=False), _scale(after))
        else:
            V, c = carrying(found, W[:, :kept], after, less if block + 2 < len(weights) else 1.0)
            if block == 0:
                W[:, :-1], W[:, -1] = V, c
            else:
                sample.fit(chain.maps[place].own, A, sample.mapped(V, c), W, less)


def components_of(G: Array) -> Components:
    """Computes all D principal components from G, the mean of [x, 1]^T [x, 1]; no variance is below 0."""
    mean = G[-1, :-1]
    variances, directions = principal_directions(G[:-1, :-1] - np.outer(mean, mean), len(mean))
    return Components(mean, np.maximum(variances, 0.0), directions)


def carrying(found: Components, drawn: Array, after: str, less: float = 1.0) -> tuple[Array, Array]:
    """Makes V (h, D) and c (h,) such that V x + c are the leading m components, rotated, before an activation.

    drawn: (h, m) random numbers, whose QR decomposition gives the rotation.
    after: the activation's name.
    less: the standard deviation as a share of the usual one.
    """
    m = drawn.shape[1]
    Q, _ = np.linalg.qr(np.asarray(drawn, np.float64))
    spreads = np.sqrt(Q**2 @ found.variances[:m])
    length = tuned.CARRIED * _scale(after) / np.sqrt(np.mean(spreads**2))
    V = less * length * (Q @ found.directions[:m])
    shift = tuned.SHIFT * length * spreads if after in tuned.ONE_SIDED else 0.0
    return V, shift - V @ found.mean


def spread(W: Array, G: Array, scale: float) -> None:
    """Scales and centres random units W = [V, c] of d inputs a, in place.

    Afterwards the deviation of V a is SPREAD scale, as a mean over units.  The mean of V a + c over points is
    SPREAD_BIASES scale u, where c was drawn as u / sqrt(3 d), with u of deviation 1.

    G: the mean of [a, 1]^T [a, 1].
    """
    V, mean = W[:, :-1].astype(np.float64), G[-1, :-1]
    drawn = W[:, -1] * np.sqrt(3.0 * V.shape[1])
    variances = ((V @ (G[:-1, :-1] - np.outer(mean, mean))) * V).sum(axis=1)
    deviation = float(np.sqrt(np.maximum(variances, 0.0)).mean())
    V *= tuned.SPREAD * scale / deviation if deviation > 0.0 else 1.0
    W[:, :-1], W[:, -1] = V, tuned.SPREAD_BIASES * scale * drawn - V @ mean
