"""The graph of an ONNX file as it grows, and the scaling of its inputs and outputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from macmpi.data.scaling import Scaling, Tails
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
