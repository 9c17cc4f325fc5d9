"""A net as nodes of an ONNX graph: the graph as it grows, the scaling of data, and for each kind of map a function."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.scaling import Scaling, Tails
from macmpi.nets.layers import Map
from macmpi.nets.layers.activation import LEAK
from macmpi.results.model import Model
from macmpi.typing import Array

SQUARED = 1e150
"""The square of a larger number may be too large for float64; sqrt(x^2 + 1) is x long before."""


@dataclass
class Graph:
    """A graph that grows: each method adds nodes or constants and gives the name of what they compute."""

    onnx: ModuleType
    dtype: np.dtype
    nodes: list[Any] = field(default_factory=list)
    constants: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """The output of one operator."""
        name = name or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, value: Any, as_it_is: bool = False) -> str:
        """An array or a number, one copy of each; numbers with a point become those of the graph's precision."""
        array = np.ascontiguousarray(value)
        array = array.astype(self.dtype) if array.dtype.kind == "f" and not as_it_is else array
        key = (array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key in self.constants:
            return str(self.constants[key].name)
        name = f"constant_{len(self.constants)}"
        if array.dtype.kind == "U":
            text = [word.encode() for word in array.ravel().tolist()]
            made = self.onnx.helper.make_tensor(name, self.onnx.TensorProto.STRING, array.shape, text)
        else:
            made = self.onnx.numpy_helper.from_array(array, name)
        self.constants[key] = made
        return name

    @property
    def number(self) -> int:
        """ONNX's word for the precision."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype))


def _asinh(g: Graph, X: str) -> str:
    """sign(x) log(|x| + sqrt(x^2 + 1)) in float64, of which onnxruntime has no Asinh; far away, where root is |x|."""
    if g.dtype == np.float32:
        return g.node("Asinh", X)
    size = g.node("Min", g.node("Abs", X), g.constant(SQUARED))
    root = g.node("Sqrt", g.node("Add", g.node("Mul", size, size), g.constant(1.0)))
    far = g.node("Max", g.node("Abs", X), root)
    return g.node("Mul", g.node("Sign", X), g.node("Log", g.node("Add", g.node("Abs", X), far)))


def _sinh(g: Graph, X: str) -> str:
    """(exp(x) - exp(-x)) / 2 in float64, of which onnxruntime has no Sinh."""
    if g.dtype == np.float32:
        return g.node("Sinh", X)
    both = g.node("Sub", g.node("Exp", X), g.node("Exp", g.node("Neg", X)))
    return g.node("Mul", both, g.constant(0.5))


def _tails(g: Graph, X: str, tails: Tails, undo: bool) -> str:
    """g(x), or its inverse, in the columns with long tails; the others as they are."""
    long = g.constant(tails.long)
    width, centre = g.constant(np.where(tails.long, tails.width, 1.0)), g.constant(tails.centre)
    if not undo:
        once = g.node("Where", long, _asinh(g, g.node("Div", g.node("Sub", X, centre), width)), X)
        return once if tails.twice is None else g.node("Where", g.constant(tails.twice), _asinh(g, once), once)
    if tails.twice is not None:
        X = g.node("Where", g.constant(tails.twice), _sinh_where(g, X, tails.twice), X)
    return g.node("Where", long, g.node("Add", g.node("Mul", _sinh_where(g, X, tails.long), width), centre), X)


def _sinh_where(g: Graph, X: str, columns: Array) -> str:
    """sinh in these columns (D,), 0 in the others, where it might be too large."""
    return _sinh(g, g.node("Where", g.constant(columns), X, g.constant(0.0)))


def scaled(g: Graph, X: str, scaling: Scaling) -> str:
    X = X if scaling.tails is None else _tails(g, X, scaling.tails, undo=False)
    X = g.node("Div", g.node("Sub", X, g.constant(scaling.shift)), g.constant(scaling.scale))
    if scaling.limit == np.inf:
        return X
    return g.node("Min", g.node("Max", X, g.constant(-scaling.limit)), g.constant(scaling.limit))


def unscaled(g: Graph, F: str, scaling: Scaling) -> str:
    F = g.node("Add", g.node("Mul", F, g.constant(scaling.scale)), g.constant(scaling.shift))
    return F if scaling.tails is None else _tails(g, F, scaling.tails, undo=True)


# --- the kinds of map -------------------------------------------------------------------------------------------------


Nodes = Callable[[Graph, str, Any, Any], str]
"""(graph, name of the inputs (n, n_in), map, weights) -> name of the outputs (n, n_out)."""


def forward(g: Graph, model: Model, X: str, A: str, maps: slice) -> str:
    """The nodes of some maps of a net; the name of their outputs.

    X: the scaled data, of which some maps read columns; A: the inputs of the first of the maps.
    """
    whole = model.chain.whole
    for i in range(len(whole.maps))[maps]:
        map_, b = whole.maps[i], whole.blocks[i]
        if (read := whole.read(i)) is not None:
            side = _columns(g, X, *read)
            A = side if i == 0 else g.node("Concat", A, side, axis=1)
        A = KINDS[_kind(map_)](g, A, map_, None if b is None else model.weights[b])
    return A


def _kind(map_: Map) -> str:
    return str(map_.spec()["kind"])


def check_kinds(model: Model) -> None:
    """Raises UsageError, by name, for other maps than those of KINDS and other activations than ACTIVATIONS."""
    maps = [inner for m in model.chain.maps for inner in (m, m.own)]
    kinds = {_kind(m) for m in maps}
    functions = {str(m.spec()["name"]) for m in maps if _kind(m) == "activation"}
    for what, used, known in (("layers of the kind", kinds, KINDS), ("activations", functions, ACTIVATIONS)):
        if foreign := sorted(used - known.keys()):
            raise UsageError(
                f"{what} {', '.join(map(repr, foreign))} of this net cannot be exported, only these: "
                f"{', '.join(known)}; it stays usable by macmpi.load"
            )


def _affine(g: Graph, A: str, map_: Any, W: Any) -> str:
    return g.node("Gemm", A, g.constant(W[:, :-1]), g.constant(W[:, -1]), transB=1)


def _columns(g: Graph, A: str, start: int, stop: int) -> str:
    return g.node("Slice", A, *(g.constant(np.array([i])) for i in (start, stop, 1)))


def _carrying(g: Graph, A: str, map_: Any, W: Any) -> str:
    n, inner = map_.map.n_in, map_.map
    found = KINDS[_kind(inner)](g, _columns(g, A, 0, n), inner, W)
    return g.node("Concat", found, _columns(g, A, n, n + map_.carried), axis=1)


def _numbered(map_: Any) -> Array:
    """One point whose numbers are their columns in [0, A]."""
    return np.arange(1.0, map_.n_in + 1.0)[None]


def _patches(g: Graph, A: str, index: Array) -> str:
    """The numbers of each patch of images, 0 around them: (n, n_in) -> (n, *index.shape).  index: columns of [0, A]."""
    return g.node("Gather", g.node("Pad", A, g.constant(np.array([0, 1, 0, 0]))), g.constant(index.astype(int)), axis=1)


def _flat(g: Graph, B: str, map_: Any) -> str:
    return g.node("Reshape", B, g.constant(np.array([-1, map_.n_out])))


def _convolution(g: Graph, A: str, map_: Any, W: Any) -> str:
    products = g.node("MatMul", _patches(g, A, map_.unfold(_numbered(map_))), g.constant(W[:, :-1].T))
    return _flat(g, g.node("Add", products, g.constant(W[:, -1])), map_)


def _pooled(g: Graph, A: str, map_: Any) -> str:
    """The numbers of each patch: (n, patches, size^2, channels)."""
    return _patches(g, A, map_.patches.cut(_numbered(map_)).reshape(-1, map_.size**2, map_.channels))


def _pooling(operator: str) -> Nodes:
    def of(g: Graph, A: str, map_: Any, W: Any) -> str:
        return _flat(g, g.node(operator, _pooled(g, A, map_), axes=[2], keepdims=0), map_)

    return of


def _sum_pooling(g: Graph, A: str, map_: Any, W: Any) -> str:
    """ReduceSum has its axes as an input."""
    return _flat(g, g.node("ReduceSum", _pooled(g, A, map_), g.constant(np.array([2])), keepdims=0), map_)


def _stack(g: Graph, A: str, map_: Any, W: Any) -> str:
    """It puts the numbers in another order."""
    return g.node("Gather", A, g.constant((map_.forward(W, _numbered(map_))[0] - 1.0).astype(int)), axis=1)


def _softmax(g: Graph, A: str, map_: Any, W: Any) -> str:
    if map_.groups == 1:
        return g.node("Softmax", A, axis=1)
    groups = g.constant(np.array([-1, map_.n_in // map_.groups]))
    return _flat(g, g.node("Softmax", g.node("Reshape", A, groups), axis=1), map_)


def _leaky_relu(g: Graph, A: str) -> str:
    """max(a, 0) + slope min(a, 0): onnxruntime has no LeakyRelu of float64."""
    zero = g.constant(0.0)
    return g.node("Add", g.node("Max", A, zero), g.node("Mul", g.node("Min", A, zero), g.constant(LEAK)))


ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "linear": lambda g, A: A,
    "sigmoid": lambda g, A: g.node("Sigmoid", A),
    "tanh": lambda g, A: g.node("Tanh", A),
    "relu": lambda g, A: g.node("Relu", A),
    "leaky_relu": _leaky_relu,
}


def _nearness(g: Graph, A: str, C: Array) -> tuple[str, str]:
    """(A less the middle of the centres C, -2 a^T c + ||c||^2): (n, D) -> (n, D), (n, centres).

    Distances are the same and more exact when points and centres are taken from the middle.
    """
    middle = C.mean(axis=0)
    A, C = g.node("Sub", A, g.constant(middle)), C - middle
    return A, g.node("Gemm", A, g.constant(C), g.constant(np.vecdot(C, C)), alpha=-2.0, transB=1)


def _basis(g: Graph, A: str, map_: Any, W: Any) -> str:
    A, near = _nearness(g, A, W)
    own = g.node("ReduceSum", g.node("Mul", A, A), g.constant(np.array([1])), keepdims=1)
    distances = g.node("Max", g.node("Add", near, own), g.constant(0.0))
    return g.node("Exp", g.node("Mul", distances, g.constant(-1.0 / map_.width**2)))


def _kernels(g: Graph, A: str, map_: Any, W: Any) -> str:
    found = _basis(g, A, map_.basis, W[:, : map_.n_in])
    return g.node("Gemm", found, g.constant(W[:, map_.n_in :]))


def _quantiser(g: Graph, A: str, map_: Any, W: Any) -> str:
    nearest = g.node("ArgMin", _nearness(g, A, W)[1], axis=1, keepdims=0)
    return g.node("Gather", g.constant(W), nearest, axis=0)


def _neighbours(g: Graph, A: str, map_: Any, W: Any) -> str:
    """The mean of the values of the nearest examples: TopK gives their distances, and behind these which they are."""
    _, near = _nearness(g, A, W[:, : map_.n_in])
    count, names = g.constant(np.array([min(map_.k, map_.examples)])), [f"{near}_nearest", f"{near}_which"]
    g.nodes.append(g.onnx.helper.make_node("TopK", [near, count], names, names[0], largest=0))
    values = g.node("Gather", g.constant(W[:, map_.n_in :]), names[1], axis=0)
    return g.node("ReduceMean", values, axes=[1], keepdims=0)


def _trees(g: Graph, A: str, map_: Any, W: Any) -> str:
    """All trees at once: the node of each point and tree, (n, trees), level by level from the roots."""
    trees, nodes, whole = len(W), map_.nodes, g.onnx.TensorProto.INT64
    columns = g.constant(np.clip(W[:, :nodes], 0, map_.n_in - 1).astype(int).ravel())
    thresholds = g.constant(W[:, nodes : 2 * nodes].ravel())
    first = np.arange(trees)[None]
    one, two, begins = g.constant(np.array(1)), g.constant(np.array(2)), g.constant(first * nodes)
    points = g.node("Slice", g.node("Shape", A), *(g.constant(np.array([i])) for i in (0, 1)))
    at = g.node("Expand", g.constant(0 * first), g.node("Concat", points, g.constant(np.array([trees])), axis=0))
    for _ in range(map_.depth):
        node = g.node("Add", at, begins)
        asked = g.node("GatherElements", A, g.node("Gather", columns, node), axis=1)
        above = g.node("Cast", g.node("Greater", asked, g.node("Gather", thresholds, node)), to=whole)
        at = g.node("Add", g.node("Add", g.node("Mul", at, two), one), above)
    leaf = g.node("Add", at, g.constant(first * (nodes + 1) - nodes))
    values = g.node("Gather", g.constant(W[:, 2 * nodes :].reshape(-1, map_.n_out)), leaf, axis=0)
    return g.node("ReduceSum", values, g.constant(np.array([1])), keepdims=0)


KINDS: dict[str, Nodes] = {
    "affine": _affine,
    "linear": lambda g, A, map_, W: g.node("Gemm", A, g.constant(W), transB=1),
    "transposed": lambda g, A, map_, W: g.node("Gemm", A, g.constant(W[:, :-1])),
    "shift": lambda g, A, map_, W: g.node("Add", A, g.constant(W[:, 0])),
    "masked": _affine,
    "convolution": _convolution,
    "grouped_convolution": _convolution,
    "transposed_convolution": _convolution,
    "average_pooling": _pooling("ReduceMean"),
    "max_pooling": _pooling("ReduceMax"),
    "sum_pooling": _sum_pooling,
    "activation": lambda g, A, map_, W: ACTIVATIONS[map_.name](g, A),
    "softmax": _softmax,
    "rbf": _basis,
    "quantiser": _quantiser,
    "binary": lambda g, A, map_, W: g.node("Cast", g.node("Greater", A, g.constant(0.0)), to=g.number),
    "carrying": _carrying,
    "copy": lambda g, A, map_, W: g.node("Concat", A, _columns(g, A, 0, map_.size), axis=1),
    "add": lambda g, A, map_, W: g.node("Add", *(_columns(g, A, i * map_.size, (i + 1) * map_.size) for i in (0, 1))),
    "stack": _stack,
    "trees": _trees,
    "kernels": _kernels,
    "nearest_neighbours": _neighbours,
    "first_state": lambda g, A, map_, W: g.node("Pad", A, g.constant(np.array([0, map_.units, 0, 0]))),
}
"""Kind of map -> its nodes."""
