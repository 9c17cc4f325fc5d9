"""A net as an ONNX graph, built by onnx.helper: scaling, tails, maps, labels and codes inside.

onnx.helper is what every builder of graphs ends in.  A net here is a chain of a dozen operators, so nothing is gained
by onnxscript, which traces Python functions into graphs and brings three more packages.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from macmpi import UsageError, __version__
from macmpi.export.net import check_kinds, forward
from macmpi.export.onnx_graph import Graph, scaled, unscaled
from macmpi.results.model import Model

OPSET, IR = 17, 8
"""The version of the operators and of the file, which ONNX 1.12, onnxruntime 1.12 and onnx2torch 1.5 read."""

LARGEST = 2**31 - 2**20
"""Bytes of weights that one ONNX file can hold, next to its graph."""

LINKS = {"sigmoid": "Sigmoid", "exp": "Exp"}
"""Link, other than the identity -> its operator."""


def written(model: Model, precision: str, decoder: bool = False) -> tuple[bytes, list[str]]:
    """The file of a net, or of its decoder alone, and the names of its outputs.  Raises UsageError.

    The input is X (N, D) or codes (N, H); outputs are predictions (N, L), or (N,) where the targets were, or label (N,)
    and probabilities (N, classes), and codes (N, H) where the net has a code.
    """
    check_kinds(model)
    try:
        import onnx
    except ImportError as error:
        raise UsageError(f"ONNX files are built by the package onnx ({error}): pip install onnx") from None
    chain, has_code = model.chain, bool(model.chain.layer_ends)
    if decoder and not has_code:
        raise UsageError("--decoder: this net has no hidden layer, hence no code")
    g, code = Graph(onnx, np.dtype(precision)), model.code if has_code else 0
    n_code = chain.maps[code].n_in if has_code else 0
    name, columns = ("codes", n_code) if decoder else ("X", chain.n_in)
    X = name if decoder else scaled(g, name, model.scaling_x)
    codes = X if decoder else forward(g, model, X, X, slice(code))
    F = forward(g, model, X, codes, slice(code, None))
    outputs = _results(g, F, model, decoder)
    if has_code and not decoder:
        outputs["codes"] = (g.node("Identity", codes, name="codes"), g.number, ["N", n_code])
    if (size := sum(constant.ByteSize() for constant in g.constants.values())) > LARGEST:
        raise UsageError(f"the net has {size:,} bytes of weights; an ONNX file holds {LARGEST:,}")
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        g.nodes,
        "macmpi",
        [tensor(name, g.number, ["N", columns])],
        [tensor(*output) for output in outputs.values()],
        list(g.constants.values()),
        doc_string=f"{model.sizes} {model.task}",
    )
    versions = [onnx.helper.make_opsetid("", OPSET)]
    made_by = {"producer_name": "macmpi", "producer_version": __version__}
    file = onnx.helper.make_model(graph, opset_imports=versions, ir_version=IR, **made_by)
    if model.columns and not decoder:
        onnx.helper.set_model_props(file, {"columns": json.dumps(list(model.columns.names))})
    onnx.checker.check_model(file, full_check=True)
    return file.SerializeToString(), list(outputs)


def _results(g: Graph, F: str, model: Model, decoder: bool) -> dict[str, tuple[str, int, list[Any]]]:
    """The outputs: name, type and shape of each.  A decoder gives the outputs before the softmax, as `decode` does."""
    n_out = model.chain.n_out
    if model.classes is None and model.link in LINKS:
        F = g.node(LINKS[model.link], F)
    F = unscaled(g, F, model.scaling_y)
    if model.classes is None or decoder:
        if not model.one_dimensional:
            return {"predictions": (g.node("Identity", F, name="predictions"), g.number, ["N", n_out])}
        flat = g.node("Squeeze", F, g.constant(np.array([1])), name="predictions")
        return {"predictions": (flat, g.number, ["N"])}
    kept = model.classes.dtype
    classes = model.classes.astype({"i": np.int64, "u": np.int64, "f": np.float64}.get(kept.kind, kept))
    largest = g.node("ArgMax", F, axis=1, keepdims=0)
    label = g.node("Gather", g.constant(classes, as_it_is=True), largest, axis=0, name="label")
    text = classes.dtype.kind == "U"
    kind = g.onnx.TensorProto.STRING if text else g.onnx.helper.np_dtype_to_tensor_dtype(classes.dtype)
    probabilities = g.node("Softmax", F, axis=1, name="probabilities")
    return {"label": (label, int(kind), ["N"]), "probabilities": (probabilities, g.number, ["N", n_out])}
