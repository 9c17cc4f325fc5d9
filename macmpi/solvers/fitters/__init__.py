"""Fitters: any algorithm that fits one layer to inputs and targets, in place of a W-solver.

To add one, write a class in a file of this package and add a row with its place to FITTERS, or give it by an entry
point of the group "macmpi.fitters" (docs/extending/fitter.md); the contract tests pick it up.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from macmpi.nets.layers import Map
from macmpi.parallel.streams import Stream
from macmpi.solvers import Table
from macmpi.typing import Array


class Fitter(Protocol):
    """Fits the weights of one map to what its segment should give.

    kinds -- the kinds of map that it fits;
    targets -- what it can be fitted to, some of "numbers", "labels" (one-hot rows, the outputs are those of a
        classifier), "bits" (0 or 1, of units that are thresholded behind the map);
    descends -- it never raises the segment's error; others keep their old weights where they would;
    library -- the library that it imports, or "";
    handles -- what may be demanded of it (macmpi/demand.py), nothing where it does not say: WEIGHTED where `fit`, and
        `fit_rows`, take the weights of points too, as the keyword `weights` (N,).
    """

    @property
    def kinds(self) -> frozenset[str]: ...

    @property
    def targets(self) -> frozenset[str]: ...

    @property
    def descends(self) -> bool: ...

    @property
    def library(self) -> str: ...

    def fit(self, map: Map, inputs: Array, targets: Array, start: Array | None, random: Stream) -> Array:
        """Weights of map.parameter_shape for inputs (N, map.n_in) and targets (N, map.n_out).

        start: the present ones, or None at first.  random: the same stream each time.
        """
        ...


@runtime_checkable
class FitsRows(Protocol):
    """A fitter of rows of weights that do not depend on each other, as the trees of a forest: ranks share them."""

    def fit_rows(self, map: Map, rows: slice, inputs: Array, targets: Array, random: Stream) -> Array:
        """Some rows of the weights that `fit` gives from nothing."""
        ...


FITTERS = Table(
    forest="macmpi.solvers.fitters.by_scikit_learn:Forest",
    boosted="macmpi.solvers.fitters.by_scikit_learn:Boosted",
    kernel_ridge="macmpi.solvers.fitters.by_scikit_learn:KernelRidge",
    nearest_neighbours="macmpi.solvers.fitters.by_scikit_learn:Nearest",
    linear_svm="macmpi.solvers.fitters.by_scikit_learn:LinearSVM",
    logistic="macmpi.solvers.fitters.by_scikit_learn:Logistic",
)
