"""A net as an ONNX graph, built by onnx.helper: scaling, tails, steps, labels and codes inside.

onnx.helper is what every builder of graphs ends in.  A net here is a chain of a dozen operators, so nothing is gained
by onnxscript, which traces Python functions into graphs and brings three more packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from macmpi import UsageError, __version__
from macmpi.export.net import Net, Step
from macmpi.export.onnx_graph import Graph, scaled, unscaled

OPSET, IR = 21, 10
"""The version of the operators and of the file: ONNX 1.16 and onnxruntime 1.18, of 2024, and later ones read them."""

LARGEST = 2**31 - 2**20
"""Bytes of weights that one ONNX file can hold, next to its graph."""


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
    codes = A = name if decoder else scaled(g, name, net.inputs)
    for i, step in enumerate(net.steps[net.code if decoder else 0 :], start=net.code if decoder else 0):
        A = _step(g, A, step)
        codes = A if i + 1 == net.code else codes
    outputs = _results(g, unscaled(g, A, net.outputs), net, decoder)
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


def _neighbours(g: Graph, A: str, step: Step) -> str:
    _, near = _nearness(g, A, step)
    nearest = f"nearest_{len(g.nodes)}"
    g.nodes.append(
        g.onnx.helper.make_node(
            "TopK", [near, g.constant(np.array([step.size]))], [f"{nearest}_distances", nearest], nearest, largest=0
        )
    )
    values = g.node("Gather", g.constant(step.arrays["values"]), nearest, axis=0)
    return g.node("ReduceMean", values, g.constant(np.array([1])), keepdims=0)


def _trees(g: Graph, A: str, step: Step) -> str:
    """All trees at once: the node of each point and tree, (n, trees), level by level from the roots."""
    trees, leaves, n_out = step.arrays["leaves"].shape
    columns, thresholds = (g.constant(step.arrays[name].ravel()) for name in ("columns", "thresholds"))
    columns = g.node("Cast", columns, to=g.onnx.TensorProto.INT64)
    first = np.arange(trees)[None]
    one, two, begins = g.constant(np.array(1)), g.constant(np.array(2)), g.constant(first * (leaves - 1))
    points = g.node("Slice", g.node("Shape", A), *(g.constant(np.array([i])) for i in (0, 1)))
    at = g.node("Expand", g.constant(0 * first), g.node("Concat", points, g.constant(np.array([trees])), axis=0))
    for _ in range(step.size):
        node = g.node("Add", at, begins)
        asked = g.node("GatherElements", A, g.node("Gather", columns, node), axis=1)
        above = g.node(
            "Cast", g.node("Greater", asked, g.node("Gather", thresholds, node)), to=g.onnx.TensorProto.INT64
        )
        at = g.node("Add", g.node("Add", g.node("Mul", at, two), one), above)
    leaf = g.node("Add", at, g.constant(first * leaves - (leaves - 1)))
    values = g.node("Gather", g.constant(step.arrays["leaves"].reshape(-1, n_out)), leaf, axis=0)
    return g.node("ReduceSum", values, g.constant(np.array([1])), keepdims=0)


def _recurrent(g: Graph, X: str, step: Step) -> str:
    """All steps one after the other, which read the same weights."""
    weight, inputs = step.arrays["weight"], step.n_in // step.size
    V, U, bias = (g.constant(a) for a in (weight[:, : step.n_out].T, weight[:, step.n_out :], step.arrays["bias"]))
    H = A = ""
    for t in range(step.size):
        A = g.node("Gemm", _columns(g, X, t * inputs, (t + 1) * inputs), U, bias, transB=1)
        A = g.node("Add", A, g.node("MatMul", H, V)) if H else A
        H = A if step.inner is None else STEPS[step.inner.operation](g, A, step.inner)
    return A


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
    "trees": _trees,
    "neighbours": _neighbours,
    "recurrent": _recurrent,
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
