"""A net as an ONNX graph, built by onnx.helper: scaling, tails, steps, labels and codes inside.

onnx.helper is what every builder of graphs ends in.  A net here is a chain of a dozen operators, so nothing is gained
by onnxscript, which traces Python functions into graphs and brings three more packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from macmpi import UsageError, __version__
from macmpi.data.scaling import Scaling, Tails
from macmpi.export.net import Net, Step
from macmpi.typing import Array

OPSET, IR = 21, 10
"""The version of the operators and of the file: ONNX 1.16 and onnxruntime 1.18, of 2024, and later ones read them."""

LARGEST = 2**31 - 2**20
"""Bytes of weights that one ONNX file can hold, next to its graph."""


@dataclass
class Graph:
    """A graph that grows: each method adds nodes or constants and gives the name of what they compute."""

    onnx: ModuleType
    dtype: np.dtype
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """The output of one operator."""
        name = name or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, value: Any, as_it_is: bool = False) -> str:
        """An array or a number; numbers with a point become those of the graph's precision."""
        array = np.asarray(value)
        array = array.astype(self.dtype) if array.dtype.kind == "f" and not as_it_is else array
        name = f"constant_{len(self.constants)}"
        if array.dtype.kind == "U":
            text = [word.encode() for word in array.ravel().tolist()]
            made = self.onnx.helper.make_tensor(name, self.onnx.TensorProto.STRING, array.shape, text)
        else:
            made = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.constants.append(made)
        return name

    @property
    def number(self) -> int:
        """ONNX's word for the precision."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype))


def written(net: Net, decoder: bool = False) -> tuple[bytes, list[str]]:
    """The file of a net, or of its decoder alone, and the names of its outputs.  Raises UsageError.

    The input is X (N, D) or codes (N, H); outputs are predictions (N, L), or (N,) where the targets were, or label (N,)
    and probabilities (N, classes), and codes (N, H) where the net has a code.
    """
    try:
        import onnx
    except ImportError as error:
        raise UsageError(f"ONNX files are built by the package onnx ({error}): pip install onnx") from None
    if (size := sum(a.nbytes for step in net.steps for a in step.arrays.values())) > LARGEST:
        raise UsageError(f"the net has {size:,} bytes of weights; an ONNX file holds {LARGEST:,}")
    g = Graph(onnx, net.dtype)
    name, columns = ("codes", net.n_code) if decoder else ("X", net.n_in)
    codes = A = name if decoder else _scaled(g, name, net.inputs)
    for i, step in enumerate(net.steps[net.code if decoder else 0 :], start=net.code if decoder else 0):
        A = _step(g, A, step)
        codes = A if i + 1 == net.code else codes
    outputs = _results(g, _unscaled(g, A, net.outputs), net, decoder)
    if net.code and not decoder:
        outputs["codes"] = (g.node("Identity", codes, name="codes"), g.number, ["N", net.n_code])
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        g.nodes,
        "macmpi",
        [tensor(name, g.number, ["N", columns])],
        [tensor(*output) for output in outputs.values()],
        g.constants,
        doc_string=net.title,
    )
    versions = [onnx.helper.make_opsetid("", OPSET)]
    made_by = {"producer_name": "macmpi", "producer_version": __version__}
    model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=IR, **made_by)
    if net.columns and not decoder:
        onnx.helper.set_model_props(model, {"columns": json.dumps(net.columns)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(), list(outputs)


def _results(g: Graph, F: str, net: Net, decoder: bool) -> dict[str, tuple[str, int, list[Any]]]:
    """The outputs: name, type and shape of each.  A decoder gives the outputs before the softmax, as `decode` does."""
    if net.classes is None or decoder:
        if not net.one_dimensional:
            return {"predictions": (g.node("Identity", F, name="predictions"), g.number, ["N", net.n_out])}
        flat = g.node("Squeeze", F, g.constant(np.array([1])), name="predictions")
        return {"predictions": (flat, g.number, ["N"])}
    largest = g.node("ArgMax", F, axis=1, keepdims=0)
    label = g.node("Gather", g.constant(net.classes, as_it_is=True), largest, axis=0, name="label")
    kinds = g.onnx.TensorProto
    text = net.classes.dtype.kind == "U"
    kind = kinds.STRING if text else g.onnx.helper.np_dtype_to_tensor_dtype(net.classes.dtype)
    probabilities = g.node("Softmax", F, axis=1, name="probabilities")
    return {
        "label": (label, int(kind), ["N"]),
        "probabilities": (probabilities, g.number, ["N", net.n_out]),
    }


# --- steps ------------------------------------------------------------------------------------------------------------


def _step(g: Graph, A: str, step: Step) -> str:
    if not step.carried:
        return STEPS[step.operation](g, A, step)
    found = STEPS[step.operation](g, _columns(g, A, 0, step.n_in), step)
    return g.node("Concat", found, _columns(g, A, step.n_in, step.n_in + step.carried), axis=1)


def _columns(g: Graph, A: str, start: int, stop: int) -> str:
    return g.node("Slice", A, *(g.constant(np.array([i])) for i in (start, stop, 1)))


def _copy(g: Graph, A: str, step: Step) -> str:
    return g.node("Concat", A, _columns(g, A, 0, step.size), axis=1)


def _add(g: Graph, A: str, step: Step) -> str:
    return g.node("Add", _columns(g, A, 0, step.size), _columns(g, A, step.size, 2 * step.size))


def _affine(g: Graph, A: str, step: Step) -> str:
    return g.node("Gemm", A, g.constant(step.arrays["weight"]), g.constant(step.arrays["bias"]), transB=1)


def _linear(g: Graph, A: str, step: Step) -> str:
    return g.node("Gemm", A, g.constant(step.arrays["weight"]), transB=1)


def _patches(g: Graph, A: str, step: Step) -> str:
    """The numbers of each patch of images, 0 around them: (n, n_in) -> (n, *index.shape)."""
    index = g.constant(step.arrays["index"].astype(np.int64))
    return g.node("Gather", g.node("Pad", A, g.constant(np.array([0, 1, 0, 0]))), index, axis=1)


def _flat(g: Graph, B: str, step: Step) -> str:
    return g.node("Reshape", B, g.constant(np.array([-1, step.n_out])))


def _convolution(g: Graph, A: str, step: Step) -> str:
    found = g.node("MatMul", _patches(g, A, step), g.constant(step.arrays["weight"].T))
    return _flat(g, g.node("Add", found, g.constant(step.arrays["bias"])), step)


def _pooling(operator: str) -> Callable[[Graph, str, Step], str]:
    def of(g: Graph, A: str, step: Step) -> str:
        return _flat(g, g.node(operator, _patches(g, A, step), g.constant(np.array([2])), keepdims=0), step)

    return of


def _softmax(g: Graph, A: str, step: Step) -> str:
    if step.number == 1:
        return g.node("Softmax", A, axis=1)
    groups = g.constant(np.array([-1, step.n_in // int(step.number)]))
    return _flat(g, g.node("Softmax", g.node("Reshape", A, groups), axis=1), step)


def _leaky_relu(g: Graph, A: str, step: Step) -> str:
    """max(a, 0) + slope min(a, 0): onnxruntime has no LeakyRelu of float64."""
    zero = g.constant(0.0)
    below = g.node("Mul", g.node("Min", A, zero), g.constant(step.number))
    return g.node("Add", g.node("Max", A, zero), below)


def _nearness(g: Graph, A: str, step: Step) -> tuple[str, str]:
    """A less the middle of the centres, and -2 a^T c + ||c||^2: (n, D) -> (n, D), (n, centres)."""
    C = step.arrays["centres"]
    A = g.node("Sub", A, g.constant(step.arrays["middle"]))
    squares = g.constant(np.vecdot(C, C))
    return A, g.node("Gemm", A, g.constant(C), squares, alpha=-2.0, transB=1)


def _rbf(g: Graph, A: str, step: Step) -> str:
    A, near = _nearness(g, A, step)
    own = g.node("ReduceSum", g.node("Mul", A, A), g.constant(np.array([1])), keepdims=1)
    distances = g.node("Max", g.node("Add", near, own), g.constant(0.0))
    return g.node("Exp", g.node("Mul", distances, g.constant(-1.0 / step.number**2)))


def _quantiser(g: Graph, A: str, step: Step) -> str:
    _, near = _nearness(g, A, step)
    nearest = g.node("ArgMin", near, axis=1, keepdims=0)
    return g.node("Gather", g.constant(step.arrays["centres"] + step.arrays["middle"]), nearest, axis=0)


def _binary(g: Graph, A: str, step: Step) -> str:
    return g.node("Cast", g.node("Greater", A, g.constant(0.0)), to=g.number)


STEPS: dict[str, Callable[[Graph, str, Step], str]] = {
    "affine": _affine,
    "linear": _linear,
    "convolution": _convolution,
    "max_pooling": _pooling("ReduceMax"),
    "average_pooling": _pooling("ReduceMean"),
    "sum_pooling": _pooling("ReduceSum"),
    "rbf": _rbf,
    "quantiser": _quantiser,
    "binary": _binary,
    "copy": _copy,
    "add": _add,
    "softmax": _softmax,
    "identity": lambda g, A, step: A,
    "exp": lambda g, A, step: g.node("Exp", A),
    "sigmoid": lambda g, A, step: g.node("Sigmoid", A),
    "tanh": lambda g, A, step: g.node("Tanh", A),
    "relu": lambda g, A, step: g.node("Relu", A),
    "leaky_relu": _leaky_relu,
}
"""Operation -> the nodes of a step."""


# --- scaling ----------------------------------------------------------------------------------------------------------

SQUARED = 1e150
"""The square of a larger number may be too large for float64; sqrt(x^2 + 1) is x long before."""


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


def _scaled(g: Graph, X: str, scaling: Scaling) -> str:
    X = X if scaling.tails is None else _tails(g, X, scaling.tails, undo=False)
    return g.node("Div", g.node("Sub", X, g.constant(scaling.shift)), g.constant(scaling.scale))


def _unscaled(g: Graph, F: str, scaling: Scaling) -> str:
    F = g.node("Add", g.node("Mul", F, g.constant(scaling.scale)), g.constant(scaling.shift))
    return F if scaling.tails is None else _tails(g, F, scaling.tails, undo=True)
