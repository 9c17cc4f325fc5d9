"""Kinds of map, the pieces a chain is made of, and what each declares that it can do.

A map takes points as rows, A (n, n_in), and its weights, and gives B (n, n_out), a function of these alone: it draws
nothing at random, which is for the passes of a method (docs/extending/index.md: dropout).  To add a kind,
write a file of this package.  A class of a map that has a `kind` is found by it; its `export` adds what it computes to
a graph in ONNX; the file's `layer` makes the maps of a layer that a config asks for, and refuses what does not fit
(`Place`).  A line of macmpi/config/model.py names the file for a word or a table; the contract tests pick the kind up
by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.nets.graph import Graph as Graph
from macmpi.reductions import EVERY
from macmpi.typing import Array

Shape = tuple[int, ...]
"""Height, width and channels of images; () of other numbers."""

KINDS: dict[str, Callable[..., Map]] = {}
"""Kind of map -> its class, or what else makes it of the arguments of its spec: all kinds of this package."""


@dataclass(frozen=True)
class Tangent:
    """Derivative of a map at one set of points, J (n_out, n_in) for each row.

    jvp: dA (n, n_in) -> dB (n, n_out), row by row J dA.
    vjp: dB (n, n_out) -> dA (n, n_in), row by row J^T dB.
    """

    jvp: Callable[[Array], Array]
    vjp: Callable[[Array], Array]


class Map:
    """One map of a chain: a kind of map has no weights, no derivatives and no activation but those that it defines.

    n_in, n_out, capabilities -- fields or properties of each kind.  The fields are the arguments that rebuild a map.
    capabilities -- some of
        "jacobian"         tangent, congruence and pullback exist (a Z-step through the map needs it);
        "weight_jacobian"  weight_jvp and weight_vjp exist (a W-step by regression needs it);
        "bias"             the last column of the weights is the units' biases;
        "centres"          the weights are points of the input space, one a row: a trainer finds them from the inputs;
        "units"            row h of the weights affects output h alone, at each position (the W-step separates by unit);
        "linear"           B = [A, 1] W^T: all units share one design matrix, and least squares is exact;
        "patches"          that of each of `positions` patches of an input: [unfold(A), 1] W^T, position by position;
                           `matrix` is then the derivative, the same at every point;
        "elementwise"      B[n, h] depends on A[n, h] alone;
        "adds"             B = a + c of [a, c];
        "transposed"       B = A V: the weights [V, c] are those of an affine map the other way, and c is not read.
    own -- the map within, of one that passes other columns on behind those of another map; else the map itself.  It
        alone knows its weights: positions, columns, multiplications, penalised, fan_in and connected are asked of it.
    trained_as -- the name of the activation.Function under which the weights before this map are fitted; "" if they
        cannot be.
    parameter_shape -- shape of the weights, one row a unit where there are "units", or None when there are none.
    positions, columns -- the weights multiply that many rows of a point, of that many columns: 1, n_in; else "patches".
    multiplications -- by weights, in a forward of one point.
    penalised -- where a ridge holds, of the weights' shape; all but the last column of a map with "bias".
    fitter -- the word of the fitter that finds the weights where the config names none; "" where a W-solver does.  Its
        weights begin at 0, with which forward must give something.
    run_length -- inputs and outputs fall into runs of this length, each mapped by itself; 1 of other maps.
    code -- the map itself where it gives one, which a Z-step searches; None of other maps.
    memory -- the weights behind it that multiply the state of a recurrent layer begin as this share of the matrix that
        `remembered` gives; 0 where they begin like all others.
    fan_in -- random weights begin within start.range / sqrt(fan_in); one number, or one for each unit, (h, 1).
    connected -- where weights exist, of their shape: the others are 0 and stay 0; None where all do.  Such a map is
        "linear" or has "patches", and has "units".  Others ask `zero_missing`, or the view of the map's regression.
    """

    kind: ClassVar[str]
    fitter: str = ""
    memory: float = 0.0
    run_length: int = 1
    code: Code | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls) and cls.__module__.startswith(f"{__name__}."):
            KINDS[cls.kind] = cls

    if TYPE_CHECKING:

        @property
        def n_in(self) -> int: ...

        @property
        def n_out(self) -> int: ...

        @property
        def capabilities(self) -> frozenset[str]: ...

    @property
    def own(self) -> Map:
        return self

    @property
    def parameter_shape(self) -> tuple[int, int] | None:
        return None

    @property
    def trained_as(self) -> str:
        return ""

    @property
    def positions(self) -> int:
        return 1

    @property
    def columns(self) -> int:
        return self.n_in

    @property
    def multiplications(self) -> int:
        h, d = self.parameter_shape or (0, 0)
        return self.positions * h * d

    @property
    def penalised(self) -> Array:
        found = np.full(self.parameter_shape or (0, 0), not self.fitter)
        found[:, -1:] &= "bias" not in self.capabilities
        return found

    @property
    def fan_in(self) -> int | Array:
        return self.n_in

    @property
    def connected(self) -> Array | None:
        return None

    def zero_missing(self, W: Array, units: slice = EVERY) -> Array:
        """W, `units` of the weights or of something of their shape: in place 0 where a weight does not exist."""
        if self.connected is not None:
            W *= self.connected[units]
        return W

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        """The outputs B (n, n_out) for inputs A (n, n_in) and weights W; in `out` if it is given."""
        raise NotImplementedError

    def unfold(self, A: Array) -> Array:
        """The rows that the weights multiply, position by position: (n positions, columns)."""
        return A

    def matrix(self, W: Any) -> Array:
        """J (n_out, n_in) of a map whose derivative is the same at every point."""
        raise self._lacks("derivative that is the same at every point")

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        """The tangent at A, where B = forward(W, A).  That of a "linear" map, the same at every point, reads neither.

        Cost: one forward's product for each jvp or vjp.
        """
        raise self._lacks("derivative")

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        """dB (n, n_out) for a change dW of the weights."""
        raise self._lacks("derivative in weights")

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        """sum_n dB[n]^T dB/dW, of the weights' shape."""
        raise self._lacks("derivative in weights")

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        """Mean over the rows of A of J M J^T, for M (n_in, n_in) symmetric; (n_out, n_out)."""
        raise self._lacks("derivative")

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        """Mean over the rows of A of J^T M J, for M (n_out, n_out) symmetric; (n_in, n_in)."""
        raise self._lacks("derivative")

    def images(self, shape: Shape) -> Shape:
        """The shape of the images that it gives where it reads some of `shape`; () where it gives other numbers."""
        return ()

    def export(self, g: Graph, A: str, W: Any) -> str:
        """Adds what it computes to a graph: the name of its inputs (n, n_in) -> that of its outputs (n, n_out)."""
        raise self._lacks("graph")

    def remembered(self, random: Any) -> Array:
        """Weights of a state with which its length is kept, times `memory`: (units, units), of a random stream."""
        raise self._lacks("memory")

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{self.kind} has no {what}")

    def spec(self) -> dict[str, Any]:
        """{"kind": ..., **arguments} rebuilds the map; plain numbers and strings only."""
        return {"kind": self.kind, **vars(self)}


Kind = Map
"""Map, for packages that know it by this name."""


class SameDerivative(Map):
    """A map whose derivative J = matrix(W) is the same at every point, and which is linear in its weights."""

    def matrix(self, W: Any) -> Array:
        unit = np.eye(self.n_in, dtype=W.dtype)
        return self.tangent(W, unit, unit).jvp(unit).T

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return self.forward(dW.astype(A.dtype, copy=False), A)

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        J = self.matrix(W)
        return Tangent(jvp=lambda dA: dA @ J.T, vjp=lambda dB: dB @ J)

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        J = self.matrix(W)
        return J @ M @ J.T

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        J = self.matrix(W)
        return J.T @ M @ J


class Sparse(Map):
    """A map without some of the weights of another class, its next base: no derivative has them."""

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return super().weight_jvp(W, A, self.zero_missing(dW.copy()))

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return self.zero_missing(super().weight_vjp(W, A, dB))


class SameSize(Map):
    """A map of `size` inputs to as many outputs, whose derivative is symmetric if it has one."""

    size: int

    @property
    def n_in(self) -> int:
        return self.size

    @property
    def n_out(self) -> int:
        return self.size

    @property
    def runs(self) -> list[slice]:
        """The columns of each run."""
        return [slice(first, first + self.run_length) for first in range(0, self.size, self.run_length)]

    def images(self, shape: Shape) -> Shape:
        return shape

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        return self.congruence(W, A, M)


@dataclass(frozen=True)
class Code(SameSize):
    """A map whose outputs are a code, of bits or of words, and which says all that others ask of it.

    b = the row v of an alphabet with the largest v . a, of equals the first, for each run a.  A row has at most one
    number that is not 0, a 1: so 2 v . z - ||v||^2 = 2 v . (z - 1/2), and the code nearest to z is that of z - 1/2.

    searched_by -- the word of the Z-solver that searches such coordinates, where the config names none.
    """

    size: int
    capabilities: ClassVar[frozenset[str]] = frozenset()
    searched_by: ClassVar[str] = "binary"

    @property
    def code(self) -> Code:  # type: ignore[override]
        return self

    @property
    def alphabet(self) -> Array:
        """The values that a run of outputs can have, one a row: (values, run_length)."""
        raise NotImplementedError

    def numbers(self, A: Array) -> Array:
        """The number of the row that each run of A (n, size) gives: (n, runs)."""
        raise NotImplementedError

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return self.alphabet.astype(A.dtype)[self.numbers(A)].reshape(A.shape)

    @property
    def n_bits(self) -> int:
        """The number of bits that say which rows of the alphabet its runs are."""
        return len(self.runs) * (len(self.alphabet) - 1).bit_length()

    def bits(self, B: Array) -> Array:
        """The numbers of a code B (n, size) in binary, the highest bit first, as truth values: (n, n_bits)."""
        shifts = np.arange(self.n_bits // len(self.runs))[::-1]
        return ((self.numbers(B)[:, :, None] >> shifts) & 1 > 0).reshape(len(B), self.n_bits)


GROUP = "macmpi.maps"
"""Entry points by which other packages give kinds of map: a kind -> the class."""


def build(spec: dict[str, Any]) -> Map:
    """The map of a spec.  Raises KeyError for an unknown kind.  Collective: no."""
    arguments = dict(spec)
    return registered(KINDS, GROUP, arguments.pop("kind"))(**arguments)


def is_plain(map_: Map) -> bool:
    """Tells whether all weights of a map exist, and its gradient is Q^T [A, 1] or Q^T A, Q those of the loss."""
    return "linear" in map_.capabilities and map_.connected is None


def is_dense(map_: Map) -> bool:
    """Tells whether a map is [A, 1] W^T and all its weights exist."""
    return is_plain(map_) and "bias" in map_.capabilities


def is_basis(map_: Map) -> bool:
    """Tells whether a map is a layer of radial basis functions."""
    return "centres" in map_.capabilities and "jacobian" in map_.capabilities


def registered(table: Mapping[str, Any], group: str, name: str) -> Any:
    """A row of a table, or what another package gives under that name by an entry point.

    Raises KeyError where there is none, UsageError where its package cannot be loaded.
    """
    if name in table:
        return table[name]
    from importlib import metadata

    for entry in metadata.entry_points(group=group, name=name):
        try:
            return entry.load()
        except (ImportError, AttributeError, OSError) as error:
            raise UsageError(
                f'"{name}" ({group}, {entry.value}) cannot be loaded: {error}; install that again'
            ) from None
    raise KeyError(name)


from macmpi.nets.layers.place import Built as Built  # noqa: E402
from macmpi.nets.layers.place import Place as Place  # noqa: E402

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
