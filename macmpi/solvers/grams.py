"""The units of a layer share the Gram of their inputs, or each its own inputs' part, to precondition or to solve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from macmpi.nets.design import at, gram_rows, weighed
from macmpi.nets.design import gram as gram_of
from macmpi.nets.layers.activation import function
from macmpi.nets.segment import Step
from macmpi.parallel.lapack import blas, lapack
from macmpi.reductions import ALONE, EVERY, OverPoints, Rows, SharedMatrix
from macmpi.solvers.cholesky import NORMAL, PRECONDITIONER, jitter, regular_factor, symmetric, whole
from macmpi.typing import Array

FASTER = 0.5
"""A product in single precision takes this share of the time in double."""

GRAM = 1.8
"""A Gram costs this a point, in units of its columns squared."""


@dataclass(frozen=True)
class LayerGram:
    """The regressions of a layer's units share the Gram G of its inputs A (N, D), and how units read these.

    G (D + 1, D + 1): [A, 1]^T [A, 1], of which the part from the diagonal on is known at least;
    ridge: of each unit's regression;
    dtype: of A;
    bias: units have biases; without them G is A^T A (D, D);
    activation: the name of the units' activation;
    sparse: each unit reads only some of the inputs.
    """

    G: Array
    ridge: float
    dtype: np.dtype
    bias: bool = True
    activation: str = "linear"
    sparse: bool = False


@dataclass(frozen=True)
class System:
    """The units of a layer share G = [A, 1]^T [A, 1] of its inputs A (N, D), or A^T A without biases.

    single: G and directions read the inputs in single precision: UnitProblem.rounded; double: G reads them in double.
    """

    single: bool = False
    double: ClassVar[bool] = False

    def sum(
        self,
        inputs: Rows,
        over_points: OverPoints,
        bias: bool = True,
        rows: slice | None = None,
        weights: Array | None = None,
    ) -> Array:
        """G in float64, a sum over points; or rows of it from the diagonal on, the rest 0.

        weights: of the inputs' rows, (N,).  Collective: where `over_points` is.
        """

        def part(points: slice) -> tuple[Array, ...]:
            A, w = inputs[points], at(weights, points)
            A = A.astype(np.float64, copy=False) if self.double else A
            return (gram_of(A, bias, w) if rows is None else gram_rows(A, rows, bias, w),)

        (G,) = over_points(part)
        return G

    @property
    def pace(self) -> float:
        """The time of a product with the inputs, as a share of that in double precision."""
        return FASTER if self.single else 1.0

    def cost(self, width: int, rows: slice | None = None) -> float:
        """Estimates `sum` in flops a point: a whole symmetric product, or the share of its half that the rows are."""
        held = width**2 if rows is None else 2.0 * (rows.stop - rows.start) * (width - rows.start)
        return self.pace * GRAM * held

    def factor(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Any:
        """L, lower, with L L^T = G + ridge I: made once for all units of the layer.

        shared_matrix: shares this work among ranks.  Collective: where it is.
        """
        L = regular_factor(gram.G, gram.ridge + jitter(gram.G, PRECONDITIONER, gram.dtype), shared_matrix)
        return L if whole(len(L)) else np.asfortranarray(np.tril(L))

    def prepare(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Any:
        """The factor, or of a sparse layer the factors for each set of inputs.  Collective: as `shared_matrix` is."""
        return Subsystems(self, gram) if gram.sparse else self.factor(gram, shared_matrix)


def metric_of(G: Array, added: Array | float) -> Array:
    """H, symmetric: G, known from the diagonal on at least, with `added` on the diagonal."""
    H = symmetric(G.T)
    H[np.diag_indices_from(H)] += added
    return H


class MetricSystem(System):
    """The units of a layer measure their steps in G plus ridge / steepest^2: a unit at its steepest has that."""

    def factor(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Array:
        G, ridge = gram.G, gram.ridge / function(gram.activation).steepest ** 2
        share = NORMAL if gram.activation == "linear" else PRECONDITIONER
        added = np.full(len(G), jitter(G, share, gram.dtype))
        added[: len(G) - gram.bias] += ridge
        return metric_of(G, added)

    def prepare(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Array:
        """The whole metric: weights that do not exist are held at 0, and the others have its submatrix."""
        return self.factor(gram)


KEPT = 2**24
"""Numbers of submatrices and their factors that are kept for the next units with the same inputs."""


class Subsystems:
    """The submatrices of a layer's Gram that belong to some of its columns, and their factors."""

    def __init__(self, system: System, gram: LayerGram) -> None:
        self._system, self._gram, self._size = system, gram, 0
        self._kept: dict[bytes, tuple[Array, Any]] = {}

    def units(self, marks: Array) -> list[Alike]:
        """Units by equal marks of what they read.  Cost: d^3 / 3 flops for d inputs that no unit before has read."""
        groups = []
        for rows in alike(marks):
            columns = np.flatnonzero(marks[rows[0]])
            groups.append(Alike((rows[:, None], columns), *self._of(columns)))
        return groups

    def _of(self, columns: Array) -> tuple[Array, Any]:
        """G of these columns, in their order, from the diagonal on at least, and its factor.  Collective: no."""
        kept = self._kept.get(columns.tobytes())
        if kept is None:
            G = self._gram.G[columns[:, None], columns]
            kept = G, self._system.factor(replace(self._gram, G=G))
            if self._size + 2 * G.size <= KEPT:
                self._kept[columns.tobytes()] = kept
                self._size += 2 * G.size
        return kept


def inputs_gram(step: Step, weights: Array | None = None) -> Array:
    """The Gram of [a, 1] of a linear map with biases, of a without; else the mean of a^2 over inputs, (1, 1).

    weights: of the points, (n,).
    """
    if "linear" in step.map.own.capabilities:
        A = step.map.unfold(step.A)
        return gram_of(A, "bias" in step.map.own.capabilities, by_row(weights, len(A)))
    squares = weighed(np.square(step.A, dtype=float), weights)
    return np.full((1, 1), squares.sum() / step.map.n_in)


def by_row(weights: Array | None, rows: int) -> Array | None:
    """The weights of points (n,) as those of their rows, as many of each point, one after the other: (rows,)."""
    return None if weights is None else np.repeat(weights, rows // max(len(weights), 1))


def solve_rows(lower: Array, right: Array) -> Array:
    """Rows B (L L^T)^-1 of B (w, n) for L (n, n) lower triangular.  Cost: 2 n^2 w flops."""
    half = blas.dtrsm(1.0, lower, right, side=1, lower=1, trans_a=1)
    return blas.dtrsm(1.0, lower, half, side=1, lower=1, overwrite_b=1)


class Whitening:
    """theta = phi L^-1 and back, with L L^T the layer's Gram plus ridge; the identity without a Gram.

    In phi the Gram of the inputs [A, 1] L^-T, the ridge included, is the identity.
    """

    def __init__(self, lower: Array | None) -> None:
        self._lower = lower
        self._inverse: Array | None = None
        if lower is not None:
            self._inverse, _ = lapack.dtrtri(lower, lower=1)

    def into(self, theta: Array) -> Array:
        return theta if self._lower is None else theta @ self._lower

    def back(self, phi: Array) -> Array:
        return phi if self._inverse is None else phi @ self._inverse

    def pull(self, G: Array) -> Array:
        """The gradient with respect to phi from that with respect to theta."""
        return G if self._inverse is None else G @ self._inverse.T

    def features(self, A: Array) -> Array:
        """[A, 1] L^-T, which phi multiplies: [A, 1] theta^T is these times phi^T; (n, D + 1), float64."""
        assert self._inverse is not None
        return A @ self._inverse[:, :-1].T + self._inverse[:, -1]

    def shrink(self, phi: Array) -> Array:
        """The gradient with respect to phi of 1/2 ||v||^2, theta = [v, c]: the biases c are left alone."""
        theta = self.back(phi)
        theta[:, -1] = 0.0
        return self.pull(theta)


def alike(marks: Array) -> list[Array]:
    """Groups the rows of a matrix of truth values that are the same: the indices of each group's rows, ascending.

    Groups are in the order of their first rows.
    """
    groups: dict[bytes, list[int]] = {}
    for h, row in enumerate(np.packbits(marks, axis=1)):
        groups.setdefault(row.tobytes(), []).append(h)
    return [np.array(rows) for rows in groups.values()]


WHOLE = EVERY, EVERY


class Alike(NamedTuple):
    """Units of a layer that read the same inputs.

    places: of their weights in a matrix of all units; WHOLE where all units read all inputs.
    G: the Gram of these inputs.
    factor: what a solver's system has made of G, or what else stands for it.
    """

    places: tuple[Any, Any]
    G: Array
    factor: Any


def scattered(parts: Sequence[Alike], R: Array, made: Callable[[Alike, Array], Array]) -> Array:
    """Applies `made` to the weights of each group of units: an array like R, 0 where no group has weights.

    made: made(part, rows) gives an array like `rows`, the weights of R at `part.places`.
    """
    if parts[0].places is WHOLE:
        return made(parts[0], R)
    out = np.zeros_like(R)
    for part in parts:
        out[part.places] = made(part, R[part.places])
    return out


class UnitWhitening:
    """The whitening of each unit's own weights, in the Gram of what it reads: none where units share no Gram."""

    def __init__(self, parts: Sequence[Alike]) -> None:
        self._parts = [part._replace(factor=Whitening(part.factor)) for part in parts]

    def into(self, theta: Array) -> Array:
        return scattered(self._parts, theta, lambda part, rows: part.factor.into(rows))

    def back(self, phi: Array) -> Array:
        return scattered(self._parts, phi, lambda part, rows: part.factor.back(rows))

    def pull(self, G: Array) -> Array:
        return scattered(self._parts, G, lambda part, rows: part.factor.pull(rows))
