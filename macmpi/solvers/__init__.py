"""Solvers of the two half steps: what each takes and gives, and the registry.

To add a solver, write one class in a file of this package and add a row to Z_SOLVERS or W_SOLVERS; the contract
tests then pick it up by themselves.  A solver is a frozen value: all that changes along a run (weights,
coordinates, mu) reaches it in the problem, so nothing in it can go stale.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from macmpi.layers import Array
from macmpi.objective import OverPoints, WProblem, ZProblem


class ZSolution(NamedTuple):
    """Z (n, sum H): new coordinates; errors (n,): the objective of eq. (4) there."""

    Z: Array
    errors: Array


class WSolution(NamedTuple):
    """W (w, D + 1): new weights; errors (w,): sum over points of (t - s(W [a; 1]))^2 there, without the ridge."""

    W: Array
    errors: Array


class ZSolver(Protocol):
    """Solves the Z-problem of some points.

    needs -- capabilities that every map of the chain must declare;
    descends -- no point's objective rises.
    """

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def descends(self) -> bool: ...

    def prepare(self, sample: ZProblem) -> Any:
        """What all points share, from the Z-problem of a few of them."""
        ...

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution: ...


class WSolver(Protocol):
    """Solves the W-problem of some units of a parameter block: a loop of rounds, each one a sum over points.

    needs -- capabilities that the map with the weights must declare;
    activations -- the activations it can train under, or None for all elementwise ones;
    by_unit -- the units of a block may be solved apart, on different ranks;
    descends -- no unit's objective rises.
    """

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def activations(self) -> frozenset[str] | None: ...

    @property
    def by_unit(self) -> bool: ...

    @property
    def descends(self) -> bool: ...

    def prepare(self, inputs: Array, over_points: OverPoints) -> Array:
        """What the units of a layer share, from the layer's inputs (N, D); shape shared_shape(D)."""
        ...

    def shared_shape(self, n_in: int) -> tuple[int, int]: ...

    def solve(self, problem: WProblem, over_points: OverPoints) -> WSolution: ...


from macmpi.solvers.closed_form import ClosedForm  # noqa: E402
from macmpi.solvers.w_gauss_newton import GaussNewtonW  # noqa: E402
from macmpi.solvers.z_gauss_newton import GaussNewtonZ  # noqa: E402

Z_SOLVERS: dict[str, type] = {"gauss_newton": GaussNewtonZ}
W_SOLVERS: dict[str, type] = {"gauss_newton": GaussNewtonW, "closed_form": ClosedForm}
