"""The losses of a point: the properties that each declares, and the table of all losses.

Values contain the paper's 1/2.  They are summed over points; a record divides the sums by N.  To add a loss that is a
sum over outputs, write a subclass of ByOutput and add a row to LOSSES, or an entry point (docs/extending/loss.md).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from macmpi.config import Config
from macmpi.config.auto import Sizes
from macmpi.nets.layers import Tangent, registered
from macmpi.nets.segment import compose
from macmpi.typing import Array


class Root:
    """A factor B of the curvature B^T B of a loss, at some outputs F (n, L); a dataclass of arrays.

    residual (n, L): q with B^T q = -gradient, so that the loss at F + dF is about 1/2 ||q - B dF||^2 + constant.
    """

    residual: Array

    def times(self, dF: Array) -> Array:
        """Computes B dF, row by row."""
        raise NotImplementedError

    def transposed(self, dF: Array) -> Array:
        """Computes B^T dF, row by row, here for a symmetric B."""
        return self.times(dF)

    def normal(self, dF: Array) -> Array:
        """Computes B^T B dF, row by row."""
        raise NotImplementedError

    def after(self, tangent: Tangent) -> Tangent:
        """Returns the tangent B J, for a tangent J of the outputs."""
        return compose([tangent, Tangent(self.times, self.transposed)])

    def astype(self, dtype: np.dtype | type, copy: bool = False) -> Self:
        """Converts the arrays of the root to a precision."""
        return self.__class__(*(part.astype(dtype, copy=copy) for part in vars(self).values()))


class Loss:
    """A loss of targets Y (n, L) and outputs F (n, L) that is never below 0 and convex in F, or nearly so.

    by_output -- whether it is a sum over outputs, a ByOutput;
    labels -- whether targets are classes, one-hot;
    unit_hessian -- whether B is the identity at every point;
    curvature -- whether B^T B is the "hessian"; a "majoriser", so that the loss is nowhere above 1/2 ||q - B dF||^2 +
        constant; or a "bound", which is an upper bound of the Hessian at the outputs;
    stiffness -- about the largest eigenvalue of B^T B;
    link -- a key of LINKS, the function that turns outputs into predictions;
    scaled -- whether targets may be shifted and scaled;
    targets -- the targets that it admits, in words;
    missing -- whether targets may be NaN; such an output adds nothing to value, residual or B.
    """

    by_output: ClassVar[bool]
    labels: ClassVar[bool] = False
    curvature: ClassVar[str] = "hessian"
    link: ClassVar[str] = "identity"
    scaled: ClassVar[bool] = True
    targets: ClassVar[str] = "numbers"

    if TYPE_CHECKING:

        @property
        def missing(self) -> bool: ...

        @property
        def unit_hessian(self) -> bool: ...

        @property
        def stiffness(self) -> float: ...

    def admits(self, Y: Array) -> Array:
        """Returns which targets the loss admits, number by number; for NaN the answer has no meaning."""
        return np.ones(Y.shape, dtype=bool)

    def width(self, Y: Array) -> int:
        """Returns the number of outputs that belong to these targets."""
        return Y.shape[1]

    def value(self, Y: Array, F: Array) -> Array:
        """Computes the loss of each row of outputs F (n, L) with targets Y: (n,)."""
        raise NotImplementedError

    def residual(self, Y: Array, F: Array) -> Array:
        """Computes minus the gradient with respect to F: (n, L)."""
        raise NotImplementedError

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        """Computes `value` and `residual` in one pass; each has the same bits as by itself."""
        return self.value(Y, F), self.residual(Y, F)

    def root(self, Y: Array, F: Array) -> Root:
        """Computes the factor B of the curvature at these outputs."""
        raise NotImplementedError

    def congruence(self, Y: Array, F: Array, M: Array) -> Array:
        """Computes the mean over rows of B M B^T, (L, L); it may return M itself."""
        raise NotImplementedError

    def hessian(self, Y: Array, F: Array) -> Array:
        """Computes the mean over rows of B^T B: (L, L)."""
        raise NotImplementedError


from macmpi.nets.losses import by_output  # noqa: E402
from macmpi.nets.losses.by_output import LINKS, ByOutput, Metric, Squared, dense, metric, times  # noqa: E402
from macmpi.nets.losses.cross_entropy import CrossEntropy  # noqa: E402
from macmpi.nets.losses.weighted import for_weights, weighted  # noqa: E402

LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "cross_entropy": CrossEntropy(),
    "logistic": by_output.Logistic(),
    "poisson": by_output.Poisson(),
    "huber": by_output.Huber(),
    "absolute": by_output.Absolute(),
}

GROUP = "macmpi.losses"
"""The group of entry points by which other packages add losses: a name, and a Loss that is a frozen dataclass."""


def loss_named(name: str) -> Loss:
    """Returns a loss by its name, from LOSSES or another package; "auto" is the squared error.  Raises KeyError.

    Collective: no.
    """
    return registered(LOSSES, GROUP, "squared" if name == "auto" else name)


def loss_of(config: Config, sizes: Sizes | None = None) -> Loss:
    """Returns the loss of a config, with the values of those keys of [loss] that it has as fields.

    sizes: the sizes of the data; where each output of a point has its own weight, the loss is that of such targets.
    Collective: no.
    """
    found: Any = loss_named(config.model.loss)
    own = {field.name for field in fields(found)}
    given = {name: value for name, value in vars(config.loss).items() if name in own and value}
    loss: Loss = replace(found, **given)
    return loss if sizes is None else for_weights(loss, sizes.weights)
