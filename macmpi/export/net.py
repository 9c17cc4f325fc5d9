"""A net as nodes of an ONNX graph: the scaling of its data, and its maps, each of which adds its own nodes."""

from __future__ import annotations

import numpy as np

from macmpi import UsageError
from macmpi.data.scaling import Scaling, Tails
from macmpi.nets.graph import Graph
from macmpi.nets.layers import KINDS, Map
from macmpi.nets.layers.activation import FUNCTIONS, function
from macmpi.results.model import Model
from macmpi.typing import Array

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
