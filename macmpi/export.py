"""`python -m macmpi.export MODEL.h5 --to onnx`: writes a trained net as an ONNX file, for programs without macmpi.

The graph holds the scaling of the data and the maps of the net, each of which adds its own nodes.  It is compared with
the model at random points before the file is written.  It is built with onnx.helper alone: a net here is a chain of a
dozen operators, so nothing is gained by onnxscript, which traces Python functions and brings three more packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import NumericalError, UsageError, __version__, many
from macmpi.data.scaling import Scaling, Tails
from macmpi.files import check_output, write_output
from macmpi.nets.graph import Graph
from macmpi.nets.layers import KINDS, Map
from macmpi.nets.layers.activation import FUNCTIONS, function
from macmpi.parallel.command import Namespace, by_one_process
from macmpi.parallel.streams import stream
from macmpi.results.model import Model
from macmpi.results.model_file import load
from macmpi.typing import Array

OPSET, IR = 17, 8
"""The versions of the operators and of the file format, which ONNX 1.12, onnxruntime 1.12 and onnx2torch 1.5 read."""

LARGEST = 2**31 - 2**20
"""The largest number of bytes of weights that an ONNX file can hold, next to its graph."""

LINKS = {"sigmoid": "Sigmoid", "exp": "Exp"}
"""The ONNX operator of each link but the identity."""

SQUARED = 1e150
"""Numbers are cut off here before they are squared in float64: far below it sqrt(x^2 + 1) is already |x|."""


def _asinh(g: Graph, X: str) -> str:
    """Adds nodes for asinh(x) = sign(x) log(|x| + sqrt(x^2 + 1)), since onnxruntime has no Asinh in float64.

    If x^2 would overflow, the root is taken as |x|.
    """
    if g.dtype == np.float32:
        return g.node("Asinh", X)
    size = g.node("Min", g.node("Abs", X), g.constant(SQUARED))
    root = g.node("Sqrt", g.node("Add", g.node("Mul", size, size), g.constant(1.0)))
    far = g.node("Max", g.node("Abs", X), root)
    return g.node("Mul", g.node("Sign", X), g.node("Log", g.node("Add", g.node("Abs", X), far)))


def _sinh(g: Graph, X: str, columns: Array) -> str:
    """Adds nodes for sinh(x) = (exp(x) - exp(-x)) / 2 in some columns, since onnxruntime has no Sinh in float64.

    columns (D,), bool: the others become 0, because sinh might overflow in them.
    """
    X = g.node("Where", g.constant(columns), X, g.constant(0.0))
    if g.dtype == np.float32:
        return g.node("Sinh", X)
    both = g.node("Sub", g.node("Exp", X), g.node("Exp", g.node("Neg", X)))
    return g.node("Mul", both, g.constant(0.5))


def _tails(g: Graph, X: str, tails: Tails, undo: bool) -> str:
    """Adds nodes that map the columns with long tails by `Tails`, or back with `undo`; others are unchanged."""
    long = g.constant(tails.long)
    width, centre = g.constant(np.where(tails.long, tails.width, 1.0)), g.constant(tails.centre)
    if not undo:
        once = g.node("Where", long, _asinh(g, g.node("Div", g.node("Sub", X, centre), width)), X)
        return once if tails.twice is None else g.node("Where", g.constant(tails.twice), _asinh(g, once), once)
    if tails.twice is not None:
        X = g.node("Where", g.constant(tails.twice), _sinh(g, X, tails.twice), X)
    return g.node("Where", long, g.node("Add", g.node("Mul", _sinh(g, X, tails.long), width), centre), X)


def scaled(g: Graph, X: str, scaling: Scaling) -> str:
    X = X if scaling.tails is None else _tails(g, X, scaling.tails, undo=False)
    X = g.node("Div", g.node("Sub", X, g.constant(scaling.shift)), g.constant(scaling.scale))
    if scaling.limit == np.inf:
        return X
    return g.node("Min", g.node("Max", X, g.constant(-scaling.limit)), g.constant(scaling.limit))


def unscaled(g: Graph, F: str, scaling: Scaling) -> str:
    F = g.node("Add", g.node("Mul", F, g.constant(scaling.scale)), g.constant(scaling.shift))
    return F if scaling.tails is None else _tails(g, F, scaling.tails, undo=True)


# --- maps -------------------------------------------------------------------------------------------------------------


def forward(g: Graph, model: Model, X: str, A: str, maps: slice) -> str:
    """Adds the nodes of consecutive maps of the net to the graph, and returns the name of their outputs.

    X: the name of the scaled data, of which some maps read columns.
    A: the name of the inputs of the first of these maps.
    maps: their places in the net.
    """
    whole = model.chain.whole
    for i in range(len(whole.maps))[maps]:
        b = whole.blocks[i]
        if (read := whole.read(i)) is not None:
            side = g.columns(X, *read)
            A = side if i == 0 else g.node("Concat", A, side, axis=1)
        A = whole.maps[i].export(g, A, None if b is None else model.weights[b])
    return A


def check_kinds(model: Model) -> None:
    """Raises UsageError if a layer or an activation of another package has no `export`, and names it."""
    maps = [m.own for m in model.chain.maps]
    kinds = {m.kind for m in maps if type(m).export is Map.export}
    functions = {m.trained_as for m in maps if m.kind == "activation" and function(m.trained_as).export is None}
    for what, foreign, known in (("layers of the kind", kinds, KINDS), ("activations", functions, FUNCTIONS)):
        if foreign:
            raise UsageError(
                f"{what} {', '.join(map(repr, sorted(foreign)))} of this net cannot be exported, only these: "
                f"{', '.join(known)}; it stays usable by macmpi.load"
            )


# --- the file ---------------------------------------------------------------------------------------------------------


def written(model: Model, precision: str, decoder: bool = False) -> tuple[bytes, list[str]]:
    """Builds the ONNX file of a net, or of its decoder alone, and returns it with the names of its outputs.

    The input is X (N, D), or codes (N, H) for a decoder.  The outputs are predictions, (N, L) or (N,) like the targets;
    for a classifier label (N,) and probabilities (N, classes); and codes (N, H) if the net has a hidden layer.
    Raises UsageError.
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
    tensor, said = onnx.helper.make_tensor_value_info, f"{model.sizes} {model.task}"
    inputs, results = [tensor(name, g.number, ["N", columns])], [tensor(*output) for output in outputs.values()]
    graph = onnx.helper.make_graph(g.nodes, "macmpi", inputs, results, list(g.constants.values()), doc_string=said)
    versions = [onnx.helper.make_opsetid("", OPSET)]
    made_by = {"producer_name": "macmpi", "producer_version": __version__}
    file = onnx.helper.make_model(graph, opset_imports=versions, ir_version=IR, **made_by)
    if model.columns and not decoder:
        onnx.helper.set_model_props(file, {"columns": json.dumps(list(model.columns.names))})
    onnx.checker.check_model(file, full_check=True)
    return file.SerializeToString(), list(outputs)


def _results(g: Graph, F: str, model: Model, decoder: bool) -> dict[str, tuple[str, int, list[Any]]]:
    """Adds the nodes of the outputs; returns the node's name, the type and the shape of each output, by its name.

    A decoder of a classifier gives the outputs before the softmax, as `Model.decode` does.
    """
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


# --- the comparison ---------------------------------------------------------------------------------------------------


POINTS = 256
"""The number of points of a comparison: half are uniform, half normal in the scaled inputs."""

TOLERANCE = 1e-5
"""The largest `difference` that is allowed of a net in float64."""

FARTHEST = 1e30
"""Numbers of a point are cut off here: columns with long tails may hold larger ones."""

Answers = dict[str, Array]
"""The answers of a net for some points, by name: predictions, or label and probabilities; codes."""

Runner = Callable[[Array], Answers]


def points_of(model: Model) -> Array:
    """Draws random points in the range of the data, (POINTS, D), none too large for single precision."""
    random = stream(0, "export")
    shape = POINTS // 2, model.chain.n_in
    drawn = np.concatenate([random.uniform(size=shape), random.normal(size=shape)])
    return np.clip(model.scaling_x.undo(drawn), -FARTHEST, FARTHEST)


def answers_of(model: Model, X: Array, decoder: bool = False) -> Answers:
    """Computes the model's own outputs for points X, or its decoder's outputs for codes X."""
    if decoder:
        return {"predictions": model.decode(X)}
    answers = {"predictions": model.predict(X)}
    if model.classes is not None:
        answers = {"label": answers["predictions"], "probabilities": model.probabilities(X)}
    return answers | ({"codes": model.encode(X)} if model.chain.layer_ends else {})


def compare(model: Model, runner: Runner, by: str, decoder: bool = False) -> tuple[float, str]:
    """Compares an exported net, or with `decoder` its decoder alone, with the model.  Collective: no.

    by: the program that computes the exported net.
    Returns the largest `difference` of all outputs, and words for the differences and the number of other labels.
    """
    X = model.encode(points_of(model)) if decoder else points_of(model)
    answers, expected, units = runner(X), answers_of(model, X, decoder), {"predictions": unit_of(model)}
    label = expected.pop("label", None)
    differences = {name: difference(answers[name], array, units.get(name, 1.0)) for name, array in expected.items()}
    said = ", ".join(f"{name} {off:.1e}" for name, off in differences.items())
    if wrong := 0 if label is None else int(np.sum(answers["label"] != label)):
        said += f"; {many(wrong, 'label')} of {POINTS} differ"
    text = f"checked by {by} at {POINTS} random points: the largest difference to macmpi is {said}"
    return max(differences.values(), default=0.0), text


def unit_of(model: Model) -> Any:
    """Returns how much an output changes, in the units of the data, where the scaled output changes by 1.

    (L,), or one number where the targets were (N,).
    """
    L = model.chain.n_out
    unit = np.abs(np.subtract(*(model.scaling_y.undo(np.full((1, L), value))[0] for value in (1.0, 0.0))))
    return unit[0] if model.one_dimensional else unit


def difference(answer: Array, expected: Array, unit: Any = 1.0) -> float:
    """max |f - e| / max(unit, |e|) of answer f and expected e.

    It is infinite where the shapes differ, a value is NaN, or an infinite value is not the same in both.
    """
    answer = np.asarray(answer, float)
    if answer.shape != expected.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        off = np.where(answer == expected, 0.0, np.abs(answer - expected) / np.maximum(unit, np.abs(expected)))
    return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))


def onnx_runner(content: bytes, precision: str) -> tuple[Runner | None, str]:
    """Returns a function that computes an ONNX file, and the name of its program; or None and the reason."""
    try:
        import onnxruntime
    except ImportError:
        return None, "onnxruntime is not installed"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    names = [output.name for output in session.get_outputs()]

    def run(X: Array) -> Answers:
        return dict(zip(names, session.run(names, {given.name: X.astype(precision)}), strict=True))

    return run, f"onnxruntime {onnxruntime.__version__}"


# --- the command ------------------------------------------------------------------------------------------------------


def exported(args: Namespace) -> str:
    """Builds the file, compares it with the model, writes it, and returns the lines to print.

    Raises UsageError, NumericalError and StorageError.
    """
    ending = "_decoder.onnx" if args.decoder else ".onnx"
    output: Path = args.output or args.model.with_name(args.model.stem + ending)
    check_output(output, (".onnx",), (args.model,), args.overwrite)
    model = load(args.model, args.weights)
    content, outputs = written(model, args.precision, args.decoder)
    lines = [
        f"{output}: {model.sizes} {model.task}, {args.precision}, {len(content):,} bytes; outputs {', '.join(outputs)}"
    ]
    runner, by = onnx_runner(content, args.precision)
    if runner is None:
        lines.append(f"  not checked: {by}")
    else:
        largest, compared = compare(model, runner, by, args.decoder)
        if args.precision == "float64" and not largest <= TOLERANCE:
            raise NumericalError(f"the exported net is not that of macmpi, and is not written: {compared}")
        lines.append(f"  {compared}")
        lines += [f"  beyond {TOLERANCE:g}, which --precision float64 keeps"] if largest > TOLERANCE else []
    write_output(output, content)
    return "\n".join(lines)


main = by_one_process("export", exported)


if __name__ == "__main__":
    main()
