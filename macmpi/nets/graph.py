"""Builds the ONNX graph of a net, to which each map adds the nodes that compute it.

The module `onnx` is an argument, so that nothing here imports it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from macmpi.typing import Array


@dataclass
class Graph:
    """An ONNX graph under construction.  Each method adds nodes or constants and returns the name of their output.

    dtype: the precision of the graph.
    """

    onnx: ModuleType
    dtype: np.dtype
    nodes: list[Any] = field(default_factory=list)
    constants: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Adds one operator.  name: the name of its output; "" for a new name."""
        name = name or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, value: Any, as_it_is: bool = False) -> str:
        """Adds an array or a number, once; floating-point numbers get the graph's precision unless as_it_is."""
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
        """The number by which ONNX denotes the graph's precision."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype))

    def columns(self, A: str, start: int, stop: int) -> str:
        """Adds A[:, start:stop]."""
        return self.node("Slice", A, *(self.constant(np.array([i])) for i in (start, stop, 1)))

    def rows(self, B: str, width: int) -> str:
        """Adds the reshaping of B to rows of `width` numbers."""
        return self.node("Reshape", B, self.constant(np.array([-1, width])))

    def gathered(self, A: str, index: Array) -> str:
        """Adds [0, A][:, index], (n, *index.shape), for A (n, d): an index 0 gives 0, and i + 1 column i of A."""
        padded = self.node("Pad", A, self.constant(np.array([0, 1, 0, 0])))
        return self.node("Gather", padded, self.constant(index.astype(int)), axis=1)

    def nearness(self, A: str, C: Array) -> tuple[str, str]:
        """Adds A - m and -2 (a - m)^T (c - m) + ||c - m||^2, for A (n, D) and centres C (M, D) with the mean m.

        The names are those of arrays (n, D) and (n, M).  Subtracting m does not change distances, but makes them more
        exact.
        """
        middle = C.mean(axis=0)
        A, C = self.node("Sub", A, self.constant(middle)), C - middle
        return A, self.node("Gemm", A, self.constant(C), self.constant(np.vecdot(C, C)), alpha=-2.0, transB=1)


def numbered(n_in: int) -> Array:
    """Returns one point (1, n_in) of the numbers 1, ..., n_in, the indices by which `Graph.gathered` finds its columns.

    Collective: no.
    """
    return np.arange(1.0, n_in + 1.0)[None]
