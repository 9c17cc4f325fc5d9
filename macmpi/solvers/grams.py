"""Grams of a layer's inputs, which its units share as preconditioner or as normal equations.

The units of a sparse layer use the submatrices of the inputs that they read.
"""

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
"""The time of a product in single precision, as a share of the time in double precision."""

GRAM = 1.8
"""The cost of a Gram in flops a point, as a multiple of its number of columns squared."""


@dataclass(frozen=True)
class LayerGram:
    """The Gram of a layer's inputs A (N, D), and what else the regressions of its units have in common.

    G (D + 1, D + 1): [A, 1]^T [A, 1]; only its upper half must be known.
    ridge: the ridge of each unit's regression.
    dtype: the precision of A.
    bias: whether units have biases; without them G is A^T A (D, D).
    activation: the name of the units' activation.
    sparse: whether each unit reads only some of the inputs.
    """

    G: Array
    ridge: float
    dtype: np.dtype
    bias: bool = True
    activation: str = "linear"
    sparse: bool = False


@dataclass(frozen=True)
class System:
    """The linear system that the units of a layer share: G = [A, 1]^T [A, 1] of its inputs A (N, D), plus the ridge.

    Without biases G is A^T A.
    single: whether G and search directions read the inputs in single precision (UnitProblem.rounded).
    double: whether G is summed in double precision also for inputs in single precision.
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
        """Sums G over points, float64; or some rows of it from the diagonal on, the rest 0.

        bias: whether units have biases; rows: the rows of G, None for all.
        weights (N,): the weights of the rows of the inputs, or None.  Collective: if `over_points` is.
        """

        def part(points: slice) -> tuple[Array, ...]:
            A, w = inputs[points], at(weights, points)
            A = A.astype(np.float64, copy=False) if self.double else A
            return (gram_of(A, bias, w) if rows is None else gram_rows(A, rows, bias, w),)

        (G,) = over_points(part)
        return G

    @property
    def pace(self) -> float:
        """The time of a product with the inputs, as a share of the time in double precision: 1, or FASTER."""
        return FASTER if self.single else 1.0

    def cost(self, width: int, rows: slice | None = None) -> float:
        """Estimates the cost of `sum` in flops a point.

        width: the number of columns of G; rows: as in `sum`.  For all rows BLAS has a symmetric product; for some of
        them the cost is that of their part of the upper half.
        """
        held = width**2 if rows is None else 2.0 * (rows.stop - rows.start) * (width - rows.start)
        return self.pace * GRAM * held

    def factor(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Any:
        """Computes the lower triangular L with L L^T = G + ridge I, once for all units of the layer.

        shared_matrix: shares the work among ranks.  Collective: if `shared_matrix` is.
        """
        L = regular_factor(gram.G, gram.ridge + jitter(gram.G, PRECONDITIONER, gram.dtype), shared_matrix)
        return L if whole(len(L)) else np.asfortranarray(np.tril(L))

    def prepare(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Any:
        """Computes the factor; for a sparse layer, prepares the factors for each set of inputs.

        Collective: if `shared_matrix` is.
        """
        return Subsystems(self, gram) if gram.sparse else self.factor(gram, shared_matrix)


def metric_of(G: Array, added: Array | float) -> Array:
    """Returns the symmetric matrix G + diag(added), where only the upper half of G is read."""
    H = symmetric(G.T)
    H[np.diag_indices_from(H)] += added
    return H


class MetricSystem(System):
    """The metric G + ridge / steepest^2 I in which the units of a layer measure their steps.

    steepest is the largest slope of the activation: a unit whose slope is that everywhere has this curvature, except
    for a factor.  The diagonal of biases has no ridge.
    """

    def factor(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Array:
        G, ridge = gram.G, gram.ridge / function(gram.activation).steepest ** 2
        share = NORMAL if gram.activation == "linear" else PRECONDITIONER
        added = np.full(len(G), jitter(G, share, gram.dtype))
        added[: len(G) - gram.bias] += ridge
        return metric_of(G, added)

    def prepare(self, gram: LayerGram, shared_matrix: SharedMatrix = ALONE) -> Array:
        """Computes the metric, whole for sparse layers too: their missing weights are held at 0 by bounds."""
        return self.factor(gram)


KEPT = 2**24
"""The largest total size, in numbers, of submatrices and factors that are kept for further units."""


class Subsystems:
    """The submatrices of a layer's Gram for sets of its inputs, and their factors, which are computed when needed."""

    def __init__(self, system: System, gram: LayerGram) -> None:
        self._system, self._gram, self._size = system, gram, 0
        self._kept: dict[bytes, tuple[Array, Any]] = {}

    def units(self, marks: Array) -> list[Alike]:
        """Groups units that read the same inputs.  marks (w, D + 1), bool: the weights that each unit has.

        Cost: d^3 / 3 flops for each new set of d inputs.
        """
        groups = []
        for rows in alike(marks):
            columns = np.flatnonzero(marks[rows[0]])
            groups.append(Alike((rows[:, None], columns), *self._of(columns)))
        return groups

    def _of(self, columns: Array) -> tuple[Array, Any]:
        """Returns the submatrix of G for some columns, its upper half at least, and its factor.  Collective: no."""
        kept = self._kept.get(columns.tobytes())
        if kept is None:
            G = self._gram.G[columns[:, None], columns]
            kept = G, self._system.factor(replace(self._gram, G=G))
            if self._size + 2 * G.size <= KEPT:
                self._kept[columns.tobytes()] = kept
                self._size += 2 * G.size
        return kept


def inputs_gram(step: Step, weights: Array | None = None) -> Array:
    """Computes the Gram of the inputs of a linear map: of [A, 1], or of A without biases.

    For other maps it returns the sum over points of the mean square of their inputs: (1, 1).
    weights (n,): the weights of the points, or None.
    """
    if "linear" in step.map.own.capabilities:
        A = step.map.unfold(step.A)
        return gram_of(A, "bias" in step.map.own.capabilities, by_row(weights, len(A)))
    return np.full((1, 1), weighed(np.square(step.A, dtype=float), weights).sum() / step.map.n_in)


def by_row(weights: Array | None, rows: int) -> Array | None:
    """Repeats the weights of points (n,) for the rows of each point, which are one after the other: (rows,)."""
    return None if weights is None else np.repeat(weights, rows // max(len(weights), 1))


def solve_rows(lower: Array, right: Array) -> Array:
    """Computes B (L L^T)^-1 for the rows B (w, n) and a lower triangular L (n, n).  Cost: 2 n^2 w flops."""
    half = blas.dtrsm(1.0, lower, right, side=1, lower=1, trans_a=1)
    return blas.dtrsm(1.0, lower, half, side=1, lower=1, overwrite_b=1)


class Whitening:
    """phi = theta L and theta = phi L^-1, where L L^T is the Gram of the layer plus ridge; the identity without a Gram.

    In the coordinates phi the inputs are [A, 1] L^-T, whose Gram, with the ridge, is the identity.
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
        """Converts the gradient with respect to theta to the gradient with respect to phi."""
        return G if self._inverse is None else G @ self._inverse.T

    def features(self, A: Array) -> Array:
        """Computes the features [A, 1] L^-T, (n, D + 1) float64, so that [A, 1] theta^T = features phi^T."""
        assert self._inverse is not None
        return A @ self._inverse[:, :-1].T + self._inverse[:, -1]

    def shrink(self, phi: Array) -> Array:
        """Computes the gradient with respect to phi of 1/2 ||v||^2, where theta = [v, c]; the biases c do not count."""
        theta = self.back(phi)
        theta[:, -1] = 0.0
        return self.pull(theta)


def alike(marks: Array) -> list[Array]:
    """Groups the equal rows of a matrix of truth values, and returns the indices of each group's rows, ascending.

    Groups are in the order of their first rows.
    """
    groups: dict[bytes, list[int]] = {}
    for h, row in enumerate(np.packbits(marks, axis=1)):
        groups.setdefault(row.tobytes(), []).append(h)
    return [np.array(rows) for rows in groups.values()]


WHOLE = EVERY, EVERY


class Alike(NamedTuple):
    """Units of a layer that read the same inputs.

    places: the places of their weights in the matrix of all units; WHOLE where all units read all inputs.
    G: the Gram of these inputs.
    factor: the factor that a solver's system computed from G, or another object in its place.
    """

    places: tuple[Any, Any]
    G: Array
    factor: Any


def scattered(parts: Sequence[Alike], R: Array, made: Callable[[Alike, Array], Array]) -> Array:
    """Applies a function to the weights of each group of units; returns an array like R, 0 where weights do not exist.

    made: made(part, rows) computes an array like `rows`, which are the weights of R at `part.places`.
    """
    if parts[0].places is WHOLE:
        return made(parts[0], R)
    out = np.zeros_like(R)
    for part in parts:
        out[part.places] = made(part, R[part.places])
    return out


class UnitWhitening:
    """The whitening of each unit's weights by the Gram of the inputs that it reads; the identity without a Gram."""

    def __init__(self, parts: Sequence[Alike]) -> None:
        self._parts = [part._replace(factor=Whitening(part.factor)) for part in parts]

    def into(self, theta: Array) -> Array:
        return scattered(self._parts, theta, lambda part, rows: part.factor.into(rows))

    def back(self, phi: Array) -> Array:
        return scattered(self._parts, phi, lambda part, rows: part.factor.back(rows))

    def pull(self, G: Array) -> Array:
        return scattered(self._parts, G, lambda part, rows: part.factor.pull(rows))
