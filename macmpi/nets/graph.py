"""The graph of a net in ONNX as it grows: each map adds the nodes of what it computes.  It is handed `onnx` itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from macmpi.typing import Array


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
        """The number by which ONNX names the graph's precision."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype))

    def columns(self, A: str, start: int, stop: int) -> str:
        """A[:, start:stop]."""
        return self.node("Slice", A, *(self.constant(np.array([i])) for i in (start, stop, 1)))

    def rows(self, B: str, width: int) -> str:
        """B (...) as rows of `width` numbers."""
        return self.node("Reshape", B, self.constant(np.array([-1, width])))

    def gathered(self, A: str, index: Array) -> str:
        """The numbers of A (n, d) at these columns of [0, A]: (n, *index.shape)."""
        padded = self.node("Pad", A, self.constant(np.array([0, 1, 0, 0])))
        return self.node("Gather", padded, self.constant(index.astype(int)), axis=1)

    def nearness(self, A: str, C: Array) -> tuple[str, str]:
        """A less the middle of the centres C, and -2 a^T c + ||c||^2: (n, D) -> (n, D), (n, centres).

        Distances are the same and more exact when points and centres are taken from the middle.
        """
        middle = C.mean(axis=0)
        A, C = self.node("Sub", A, self.constant(middle)), C - middle
        return A, self.node("Gemm", A, self.constant(C), self.constant(np.vecdot(C, C)), alpha=-2.0, transB=1)


def numbered(n_in: int) -> Array:
    """One point whose numbers are their columns in [0, A]: (1, n_in).  Collective: no."""
    return np.arange(1.0, n_in + 1.0)[None]
