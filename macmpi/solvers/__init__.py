"""Solvers of the two half steps: what each takes and gives, and the registry.

To add a solver, write one class in a file of this package and add a row to Z_SOLVERS or W_SOLVERS; the contract
tests then pick it up by themselves.  A solver is a frozen value: all that changes along a run (weights,
coordinates, mu) reaches it in the problem, so nothing in it can go stale.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from macmpi.reductions import ALONE, AT_ONCE, Average, InPieces, OverPoints, Rows
from macmpi.solvers.w_problem import LayerGram
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

SINGLE = 1e-4
"""Linear systems to be solved to a smaller share of their residual stay in double precision."""


class ZSolution(NamedTuple):
    """Z (n, sum H): new coordinates; errors (n,): the objective of eq. (4) there."""

    Z: Array
    errors: Array


class ZSolver(Protocol):
    """Solves the Z-problem of some points.

    needs -- capabilities that every map of the chain must declare;
    descends -- no point's objective rises;
    bits -- the coordinates stay 0 or 1.
    """

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def descends(self) -> bool: ...

    @property
    def bits(self) -> bool: ...

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Any:
        """Make what all points share from the Z-problem of a few of them; `average` takes means over these.

        Collective: where `average` is.
        """
        ...

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution: ...


class WSolver(Protocol):
    """Solves a W-problem: a loop of rounds, each one a sum over points.

    takes -- the kinds of problem that it solves: "units" (UnitProblem: the rows of a block apart, on different ranks),
        "segment" (SegmentProblem: all weights of a segment together);
    needs -- capabilities that the maps with the weights must declare;
    activations -- the activations it can train units under, or None for all elementwise ones;
    exact -- it ends in the minimum, whatever the start;
    descends -- no row's objective rises;
    by_sums -- it reads the points through sums over runs of them alone;
    rounds -- it reads inputs in single precision too, for directions and for `prepare`: Term.rounded.
    """

    @property
    def takes(self) -> frozenset[str]: ...

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def activations(self) -> frozenset[str] | None: ...

    @property
    def exact(self) -> bool: ...

    @property
    def descends(self) -> bool: ...

    @property
    def by_sums(self) -> bool: ...

    @property
    def rounds(self) -> bool: ...

    def prepare(self, inputs: Rows, over_points: OverPoints, bias: bool = True, rows: slice | None = None) -> Array:
        """Make what the units of a layer share from its inputs (N, D); float64, of shape shared_shape(D, bias).

        A sum over points, which ranks may take together.  rows: those rows of it alone, from the diagonal on.
        """
        ...

    def shared_shape(self, n_in: int, bias: bool = True) -> tuple[int, int]: ...

    def effort(self, n_in: int, units: int, points: int) -> float:
        """Estimate what `units` of n_in inputs cost together, in flops a point or what else takes as long.

        By it, and by `share_effort`, work is assigned.
        """
        ...

    def share_effort(self, width: int, points: int, rows: slice | None = None) -> float:
        """Estimate what `prepare` costs for `width` columns, on the same scale."""
        ...

    def local(self, gram: LayerGram, in_pieces: InPieces = ALONE) -> Any:
        """Make of what the units share what a rank needs once, for all units of the layer that it solves.

        in_pieces: shares this work among ranks.  Collective: where it is.
        """
        ...

    def solve(self, problem: Any, over_points: OverPoints) -> Array:
        """New weights, of the shape of problem.start; in float64."""
        ...


from macmpi.solvers.centres import TRAINERS as TRAINERS  # noqa: E402
from macmpi.solvers.centres import Trainer as Trainer  # noqa: E402
from macmpi.solvers.closed_form import ClosedForm  # noqa: E402
from macmpi.solvers.grams import Whitening as Whitening  # noqa: E402
from macmpi.solvers.w_descent import LBFGSW, ConjugateGradientW, GradientW  # noqa: E402
from macmpi.solvers.w_gauss_newton import GaussNewtonW  # noqa: E402
from macmpi.solvers.w_hessian_free import HessianFreeW  # noqa: E402
from macmpi.solvers.w_sgd import SGDW as SGDW  # noqa: E402
from macmpi.solvers.w_sgd import better as better  # noqa: E402
from macmpi.solvers.w_thresholded import Thresholded as Thresholded  # noqa: E402
from macmpi.solvers.z_alternating import AlternatingZ  # noqa: E402
from macmpi.solvers.z_binary import BinaryZ  # noqa: E402
from macmpi.solvers.z_gauss_newton import GaussNewtonZ  # noqa: E402

Z_SOLVERS: dict[str, type] = {
    "gauss_newton": GaussNewtonZ,
    "alternating": AlternatingZ,
    "binary": BinaryZ,
}
W_SOLVERS: dict[str, type] = {
    "gauss_newton": GaussNewtonW,
    "closed_form": ClosedForm,
    "hessian_free": HessianFreeW,
    "lbfgs": LBFGSW,
    "ncg": ConjugateGradientW,
    "gradient": GradientW,
    "sgd": SGDW,
}
