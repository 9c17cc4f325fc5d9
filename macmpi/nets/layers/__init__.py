"""Kinds of maps, of which chains are made, and the capabilities that each declares.

A map computes B (n, n_out) from points as rows, A (n, n_in), and its weights.  It is a function of these alone, and
draws no random numbers; random passes belong to a method (docs/extending/index.md: dropout).

To add a kind, write a file of this package.  Each class in it that has a `kind` is registered under this name; its
`export` adds the map to an ONNX graph.  The function `layer` of the file makes the maps of a layer of a config, and
refuses one that does not fit its place (`Place`).  A line of macmpi/config/model.py names the file for a word or a
table.  The contract tests then include the kind by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.nets.graph import Graph
from macmpi.reductions import EVERY
from macmpi.typing import Array

Shape = tuple[int, ...]
"""Height, width and channels of images; () for other numbers."""

KINDS: dict[str, Callable[..., Map]] = {}
"""For each kind of map in this package its class, or another function that makes it from the arguments of its spec."""


@dataclass(frozen=True)
class Tangent:
    """The derivative of a map at some points: a matrix J (n_out, n_in) for each of them.

    jvp: dA (n, n_in) -> dB (n, n_out), J dA in each row.
    vjp: dB (n, n_out) -> dA (n, n_in), J^T dB in each row.
    """

    jvp: Callable[[Array], Array]
    vjp: Callable[[Array], Array]


class Map:
    """A map of a chain.  This base has no weights, derivatives or activation; each kind defines those that it has.

    n_in, n_out, capabilities -- fields or properties of each kind.  The fields are the arguments that rebuild a map.
    capabilities -- some of
        "jacobian"         tangent, congruence and pullback exist (a Z-step through the map needs it);
        "weight_jacobian"  weight_jvp and weight_vjp exist (a W-step by regression needs it);
        "bias"             the last column of the weights holds the biases of the units;
        "centres"          the rows of the weights are points of the input space, which a trainer finds from the inputs;
        "units"            row h of the weights affects output h alone, at each position (the W-step separates by unit);
        "linear"           B = [A, 1] W^T: all units share one design matrix, and least squares is exact;
        "patches"          the same for each of `positions` patches of an input, [unfold(A), 1] W^T, position by
                           position; `matrix` is then the derivative, the same at every point;
        "elementwise"      B[n, h] depends on A[n, h] alone;
        "adds"             B = a + c, where the inputs are A = [a, c];
        "transposed"       B = A V: the weights [V, c] are those of an affine map the other way, and c is not read.
    own -- for a map that wraps another one and passes further columns on, the map inside; otherwise the map itself.
        positions, columns, multiplications, penalised, fan_in and connected are those of `own`.
    trained_as -- the name of the activation.Function under which the weights before this map are fitted; "" if they
        cannot be fitted under it.
    parameter_shape -- the shape of the weights, a row for each unit where there are "units"; None without weights.
    positions, columns -- the weights multiply `positions` rows of `columns` numbers of a point; 1 and n_in except for
        "patches".
    multiplications -- the number of multiplications by weights in a forward pass of one point.
    penalised -- which weights a ridge penalises, of their shape; all but the last column of a map with "bias".
    fitter -- the word of the fitter that finds the weights where the config names none; "" if a W-solver does.  Such
        weights begin at 0, and forward must work with them.
    run_length -- the length of runs of inputs and outputs that are each mapped by themselves; 1 for other maps.
    code -- the map itself if its outputs are a code, which a Z-step searches; otherwise None.
    memory -- the weights after this map that multiply the state of a recurrent layer begin as this multiple of the
        matrix `remembered`; 0 where they begin like all other weights.
    fan_in -- random weights begin within start.range / sqrt(fan_in); one number, or one for each unit, (h, 1).
    connected -- which weights exist, of their shape; the others are 0 and stay 0.  None if all exist.  A map without
        some weights is "linear" or has "patches", and has "units".  Other parts use `zero_missing`, or the view of the
        map's regression.
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
        """Sets W to 0, in place, where a weight does not exist, and returns it.

        W: the rows `units` of the weights, or another array of that shape.
        """
        if self.connected is not None:
            W *= self.connected[units]
        return W

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        """Computes the outputs B (n, n_out) for inputs A (n, n_in) and weights W, in `out` if it is given."""
        raise NotImplementedError

    def unfold(self, A: Array) -> Array:
        """Returns the rows that the weights multiply, position by position: (n positions, columns)."""
        return A

    def matrix(self, W: Any) -> Array:
        """Returns the derivative J (n_out, n_in) of a map for which it is the same at every point."""
        raise self._lacks("derivative that is the same at every point")

    def tangent(self, W: Any, A: Array, B: Array) -> Tangent:
        """Returns the tangent at A, where B = forward(W, A).  Maps that are "linear" read neither A nor B.

        Cost: each jvp or vjp costs as much as a forward pass.
        """
        raise self._lacks("derivative")

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        """Computes the change dB (n, n_out) of the outputs for a change dW of the weights."""
        raise self._lacks("derivative in weights")

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        """sum_n dB[n]^T dB/dW, of the weights' shape."""
        raise self._lacks("derivative in weights")

    def congruence(self, W: Any, A: Array, M: Array) -> Array:
        """Computes the mean over the rows of A of J M J^T, (n_out, n_out), for a symmetric M (n_in, n_in)."""
        raise self._lacks("derivative")

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        """Computes the mean over the rows of A of J^T M J, (n_in, n_in), for a symmetric M (n_out, n_out)."""
        raise self._lacks("derivative")

    def images(self, shape: Shape) -> Shape:
        """Returns the shape of its output images for input images of `shape`; () if its outputs are no images."""
        return ()

    def export(self, g: Graph, A: str, W: Any) -> str:
        """Adds the map to an ONNX graph.  A: the name of its inputs (n, n_in).  Returns the name of its outputs."""
        raise self._lacks("graph")

    def remembered(self, random: Any) -> Array:
        """Returns `memory` times a matrix (units, units) that keeps the length of a recurrent state.

        random: the random stream of which a kind may draw it.
        """
        raise self._lacks("memory")

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{self.kind} has no {what}")

    def spec(self) -> dict[str, Any]:
        """Returns {"kind": ..., **arguments}, of numbers and strings alone, from which `build` makes the map again."""
        return {"kind": self.kind, **vars(self)}


Kind = Map
"""Another name of Map, which other packages may use."""


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
    """A base for maps without some of the weights of their next base class; it sets their derivatives to 0."""

    def weight_jvp(self, W: Any, A: Array, dW: Array) -> Array:
        return super().weight_jvp(W, A, self.zero_missing(dW.copy()))

    def weight_vjp(self, W: Any, A: Array, dB: Array) -> Array:
        return self.zero_missing(super().weight_vjp(W, A, dB))


class SameSize(Map):
    """A base for maps with `size` inputs and as many outputs, and with a symmetric derivative if they have one."""

    size: int

    @property
    def n_in(self) -> int:
        return self.size

    @property
    def n_out(self) -> int:
        return self.size

    @property
    def runs(self) -> list[slice]:
        """The columns of each run of `run_length` numbers."""
        return [slice(first, first + self.run_length) for first in range(0, self.size, self.run_length)]

    def images(self, shape: Shape) -> Shape:
        return shape

    def pullback(self, W: Any, A: Array, M: Array) -> Array:
        return self.congruence(W, A, M)


@dataclass(frozen=True)
class Code(SameSize):
    """A base for maps whose outputs are a code of bits or words.

    Each run a of the inputs becomes the row v of the alphabet with the largest v . a, the first one of equals.  A row
    of the alphabet is 0 except for at most one 1.  So 2 v . z - ||v||^2 = 2 v . (z - 1/2), and the code nearest to
    coordinates z is that of the inputs z - 1/2.

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
        """The values that a run of outputs can have, as rows: (values, run_length)."""
        raise NotImplementedError

    def numbers(self, A: Array) -> Array:
        """Computes, for each run of A (n, size), the number of its row of the alphabet: (n, runs)."""
        raise NotImplementedError

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return self.alphabet.astype(A.dtype)[self.numbers(A)].reshape(A.shape)

    @property
    def n_bits(self) -> int:
        """The number of bits that a code needs for the numbers of all its runs."""
        return len(self.runs) * (len(self.alphabet) - 1).bit_length()

    def bits(self, B: Array) -> Array:
        """Writes the numbers of codes B (n, size) in binary, the highest bit first: (n, n_bits) bool."""
        shifts = np.arange(self.n_bits // len(self.runs))[::-1]
        return ((self.numbers(B)[:, :, None] >> shifts) & 1 > 0).reshape(len(B), self.n_bits)


GROUP = "macmpi.maps"
"""The group of entry points by which other packages add kinds of maps: a kind, and its class."""


def build(spec: dict[str, Any]) -> Map:
    """Makes the map of a spec.  Raises KeyError for an unknown kind.  Collective: no."""
    arguments = dict(spec)
    return registered(KINDS, GROUP, arguments.pop("kind"))(**arguments)


def is_plain(map_: Map) -> bool:
    """Tells whether a map is "linear" and all its weights exist, so that its gradient is Q^T [A, 1] or Q^T A.

    Q are the gradients of the loss by its outputs.
    """
    return "linear" in map_.capabilities and map_.connected is None


def is_dense(map_: Map) -> bool:
    """Tells whether a map is [A, 1] W^T, with biases, and all its weights exist."""
    return is_plain(map_) and "bias" in map_.capabilities


def is_basis(map_: Map) -> bool:
    """Tells whether a map is a layer of radial basis functions."""
    return "centres" in map_.capabilities and "jacobian" in map_.capabilities


def registered(table: Mapping[str, Any], group: str, name: str) -> Any:
    """Looks a name up in a table, or else among the entry points of a group, by which other packages add to it.

    Raises KeyError if neither has it, UsageError where its package cannot be loaded.
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


from macmpi.nets.layers.place import Built, Place  # noqa: E402

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
