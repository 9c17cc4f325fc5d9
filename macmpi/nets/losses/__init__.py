"""Losses by point: what each declares, and the registry.

All values carry the paper's 1/2 and are sums over points; a record divides them by N.  To add one that is a sum over
outputs, write a subclass of ByOutput and add a row to LOSSES, or give it by an entry point (docs/extending/loss.md).
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
    """A factor B of a loss's curvature, B^T B, at one set of outputs: a dataclass of arrays.

    residual (n, L): q with B^T q = -gradient, so that near the outputs the loss is 1/2 ||q - B dF||^2 + constant.
    """

    residual: Array

    def times(self, dF: Array) -> Array:
        """B dF, row by row."""
        raise NotImplementedError

    def transposed(self, dF: Array) -> Array:
        """B^T dF, row by row; of a symmetric B `times`."""
        return self.times(dF)

    def normal(self, dF: Array) -> Array:
        """B^T B dF, row by row."""
        raise NotImplementedError

    def after(self, tangent: Tangent) -> Tangent:
        """B J for a tangent J of the outputs."""
        return compose([tangent, Tangent(self.times, self.transposed)])

    def astype(self, dtype: np.dtype | type, copy: bool = False) -> Self:
        """The root in a precision."""
        return self.__class__(*(part.astype(dtype, copy=copy) for part in vars(self).values()))


class Loss:
    """A loss of targets Y (n, L) and outputs F (n, L), never below 0 and convex in F, or nearly so.

    by_output -- it is a sum over outputs, a ByOutput; labels -- targets are classes, one-hot;
    unit_hessian -- B is the identity, of every point;
    curvature -- B^T B is its "hessian", a "majoriser" (the loss lies nowhere above 1/2 ||q - B dF||^2 + constant), or a
        "bound" of the Hessian at the outputs from above;
    stiffness -- about the largest eigenvalue of B^T B;
    link -- a key of LINKS: what it makes of outputs is the prediction;
    scaled -- targets may be shifted and scaled; where not, they are taken as they are;
    targets -- the targets that it takes, in words;
    missing -- targets may be NaN: such an output adds nothing to value, residual or B.
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
        """Tells which targets it takes, number by number; of NaN anything."""
        return np.ones(Y.shape, dtype=bool)

    def width(self, Y: Array) -> int:
        """The number of outputs that it compares with these targets."""
        return Y.shape[1]

    def value(self, Y: Array, F: Array) -> Array:
        """The loss of each row of outputs F (n, L) with targets Y: (n,)."""
        raise NotImplementedError

    def residual(self, Y: Array, F: Array) -> Array:
        """-gradient with respect to F: (n, L)."""
        raise NotImplementedError

    def with_residual(self, Y: Array, F: Array) -> tuple[Array, Array]:
        """Value and residual, the same numbers in one pass."""
        return self.value(Y, F), self.residual(Y, F)

    def root(self, Y: Array, F: Array) -> Root:
        """A factor of the curvature at these outputs."""
        raise NotImplementedError

    def congruence(self, Y: Array, F: Array, M: Array) -> Array:
        """Mean over rows of B M B^T, (L, L); may be M itself."""
        raise NotImplementedError

    def hessian(self, Y: Array, F: Array) -> Array:
        """Mean over rows of B^T B, (L, L)."""
        raise NotImplementedError


from macmpi.nets.losses.by_output import LINKS as LINKS  # noqa: E402
from macmpi.nets.losses.by_output import Absolute, Huber, Logistic, Poisson  # noqa: E402
from macmpi.nets.losses.by_output import ByOutput as ByOutput  # noqa: E402
from macmpi.nets.losses.by_output import Metric as Metric  # noqa: E402
from macmpi.nets.losses.by_output import Squared as Squared  # noqa: E402
from macmpi.nets.losses.by_output import dense as dense  # noqa: E402
from macmpi.nets.losses.by_output import metric as metric  # noqa: E402
from macmpi.nets.losses.by_output import times as times  # noqa: E402
from macmpi.nets.losses.cross_entropy import CrossEntropy as CrossEntropy  # noqa: E402
from macmpi.nets.losses.weighted import for_weights as for_weights  # noqa: E402
from macmpi.nets.losses.weighted import weighted as weighted  # noqa: E402

LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "cross_entropy": CrossEntropy(),
    "logistic": Logistic(),
    "poisson": Poisson(),
    "huber": Huber(),
    "absolute": Absolute(),
}

GROUP = "macmpi.losses"
"""Entry points by which other packages give losses: a name -> a Loss, a frozen dataclass."""


def loss_named(name: str) -> Loss:
    """A row of LOSSES, or another package's; "auto" is the squared error.  Raises KeyError.  Collective: no."""
    found: Loss = registered(LOSSES, GROUP, "squared" if name == "auto" else name)
    return found


def loss_of(config: Config, sizes: Sizes | None = None) -> Loss:
    """The loss of a config, with those numbers of [loss] that it has a field for, where they are given.

    sizes: of the data whose targets it is to compare.  Collective: no.
    """
    found: Any = loss_named(config.model.loss)
    own = {field.name for field in fields(found)}
    given = {name: value for name, value in vars(config.loss).items() if name in own and value}
    loss: Loss = replace(found, **given)
    return loss if sizes is None else for_weights(loss, sizes.weights)
