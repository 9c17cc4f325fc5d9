"""`python -m macmpi.export MODEL.h5 --to onnx`: a trained net for programs without macmpi.

The scaling of its data and its maps, each of which adds its own nodes, become an ONNX graph, which is compared with its
model at random points before it is kept.  onnx.helper is what every builder of graphs ends in.  A net here is a chain
of a dozen operators, so nothing is gained by onnxscript, which traces Python functions into graphs and brings three
more packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
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
"""The version of the operators and of the file, which ONNX 1.12, onnxruntime 1.12 and onnx2torch 1.5 read."""

LARGEST = 2**31 - 2**20
"""Bytes of weights that one ONNX file can hold, next to its graph."""

LINKS = {"sigmoid": "Sigmoid", "exp": "Exp"}
"""Link, other than the identity -> its operator."""

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


def _sinh(g: Graph, X: str, columns: Array) -> str:
    """sinh in these columns (D,), 0 in the others, where it might be too large.

    (exp(x) - exp(-x)) / 2 in float64, of which onnxruntime has no Sinh.
    """
    X = g.node("Where", g.constant(columns), X, g.constant(0.0))
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
    """The nodes of some maps of a net; the name of their outputs.

    X: the scaled data, of which some maps read columns; A: the inputs of the first of the maps.
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
    """Raises UsageError, by name, for maps and for activations of other packages without `export`."""
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


# --- the comparison ---------------------------------------------------------------------------------------------------


POINTS = 256
"""Points of a comparison: half of them uniform, half normal in the scaled inputs."""

TOLERANCE = 1e-5
"""The largest difference of a net in float64, see `difference`."""

FARTHEST = 1e30
"""The largest number of a point, which numbers that stand for long tails might pass."""

Answers = dict[str, Array]
"""The answers of a net for some points, by name: predictions, or label and probabilities; codes."""

Runner = Callable[[Array], Answers]


@dataclass(frozen=True)
class Comparison:
    """The largest difference by name, and of labels the number that differ."""

    by: str
    differences: dict[str, float]
    labels: int = 0

    @property
    def largest(self) -> float:
        return max(self.differences.values(), default=0.0)

    def __str__(self) -> str:
        each = ", ".join(f"{name} {off:.1e}" for name, off in self.differences.items())
        other = f"; {many(self.labels, 'label')} of {POINTS} differ" if self.labels else ""
        return f"checked by {self.by} at {POINTS} random points: the largest difference to macmpi is {each}{other}"


def points_of(model: Model) -> Array:
    """Random points in the range of the data, (POINTS, D), none too large for single precision."""
    random = stream(0, "export")
    shape = POINTS // 2, model.chain.n_in
    drawn = np.concatenate([random.uniform(size=shape), random.normal(size=shape)])
    return np.clip(model.scaling_x.undo(drawn), -FARTHEST, FARTHEST)


def answers_of(model: Model, X: Array, decoder: bool = False) -> Answers:
    """The model's own answers, or those of its decoder to codes X."""
    if decoder:
        return {"predictions": model.decode(X)}
    answers = {"predictions": model.predict(X)}
    if model.classes is not None:
        answers = {"label": answers["predictions"], "probabilities": model.probabilities(X)}
    return answers | ({"codes": model.encode(X)} if model.chain.layer_ends else {})


def compare(model: Model, runner: Runner, by: str, decoder: bool = False) -> Comparison:
    """The largest differences of an exported net, or of a decoder alone, to its model.  Collective: no."""
    X = model.encode(points_of(model)) if decoder else points_of(model)
    answers, expected, units = runner(X), answers_of(model, X, decoder), {"predictions": unit_of(model)}
    label = expected.pop("label", None)
    differences = {name: difference(answers[name], array, units.get(name, 1.0)) for name, array in expected.items()}
    wrong = 0 if label is None else int(np.sum(answers["label"] != label))
    return Comparison(by, differences, wrong)


def unit_of(model: Model) -> Any:
    """A step of 1 in the scaled outputs, in the units of the data: (L,), or one number of targets (N,)."""
    L = model.chain.n_out
    unit = np.abs(np.subtract(*(model.scaling_y.undo(np.full((1, L), value))[0] for value in (1.0, 0.0))))
    return unit[0] if model.one_dimensional else unit


def difference(answer: Array, expected: Array, unit: Any = 1.0) -> float:
    """max |f - e| / max(unit, |e|); infinite where the shapes or what is not finite differ."""
    answer = np.asarray(answer, float)
    if answer.shape != expected.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        off = np.where(answer == expected, 0.0, np.abs(answer - expected) / np.maximum(unit, np.abs(expected)))
    return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))


def onnx_runner(content: bytes, precision: str) -> tuple[Runner | None, str]:
    """Computes an ONNX file, if onnxruntime is installed; and by what, or why not."""
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
    """Writes the file, once it is compared, and says what it is.  Raises UsageError, NumericalError, StorageError."""
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
        compared = compare(model, runner, by, args.decoder)
        if args.precision == "float64" and not compared.largest <= TOLERANCE:
            raise NumericalError(f"the exported net is not that of macmpi, and is not written: {compared}")
        lines.append(f"  {compared}")
        lines += [f"  beyond {TOLERANCE:g}, which --precision float64 keeps"] if compared.largest > TOLERANCE else []
    write_output(output, content)
    return "\n".join(lines)


def main() -> None:
    by_one_process("export", exported)


if __name__ == "__main__":
    main()
