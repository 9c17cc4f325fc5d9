"""A net as one Python file of some 60 lines that needs NumPy alone; its arrays are text at the end of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from macmpi.data.scaling import Scaling
from macmpi.export.net import POOLING, Net, Step
from macmpi.export.source import head, names_lines, packed, usage
from macmpi.typing import Array

ROWS = '''
def rows(X, columns):
    """Points as rows of numbers: images (N, h, w) become (N, h w), one point (D,) becomes (1, D)."""
    X = np.asarray(X, DTYPE)
    X = X.reshape(len(X), -1) if X.ndim > 1 or columns == 1 else X.reshape(1, -1)
    if X.shape[1] != columns or not np.isfinite(X).all():
        raise ValueError(f"{X.shape[1]} columns; {columns} of finite numbers are needed")
    return X
'''

FUNCTIONS = {
    "sigmoid": """
def sigmoid(A):
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-A))
""",
    "softmax": """
def softmax(A):
    B = np.exp(A - A.max(axis=1, keepdims=True))
    return B / B.sum(axis=1, keepdims=True)
""",
    "patches": '''
def patches(A, index):
    """The numbers of each patch of images, 0 around them: (n, n_in) -> (n, *index.shape)."""
    return np.pad(A, ((0, 0), (1, 0)))[:, index.astype(int)]
''',
    "distances": '''
def distances(A, centres):
    """Squared distances of points and centres: (n, D), (m, D) -> (n, m)."""
    squares = (A * A).sum(axis=1)[:, None] + (centres * centres).sum(axis=1)
    return np.maximum(squares - 2.0 * (A @ centres.T), 0.0)
''',
    "trees": '''
def trees(A, columns, thresholds, leaves, depth):
    """The sum of the leaves in which a point ends: node i goes on to 2 i + 1, above its threshold to 2 i + 2."""
    F = np.zeros((len(A), leaves.shape[2]), A.dtype)
    for own, limits, values in zip(columns.astype(int), thresholds, leaves):
        at = np.zeros(len(A), int)
        for _ in range(depth):
            at = 2 * at + 1 + (A[np.arange(len(A)), own[at]] > limits[at])
        F += values[at - len(own)]
    return F
''',
    "recurrent": '''
def recurrent(X, weight, bias, steps, activation):
    """The last state, before its activation: each reads the state before it, at first 0, and its part of X."""
    H = np.zeros((len(X), len(bias)), X.dtype)
    for part in np.split(X, steps, axis=1):
        A = np.hstack([H, part]) @ weight.T + bias
        H = activation(A)
    return A
''',
}
"""Functions of the file, of which it has those that it uses."""


def _centred(name: str) -> str:
    return f'distances(A - W["middle{name}"], W["centres{name}"])'


def _pooled(of: str) -> Callable[[str, Step], str]:
    return lambda k, step: f'patches(A, W["index{k}"]).{of}(axis=2).reshape(len(A), {step.n_out})'


def _softmax(step: Step) -> str:
    each = step.n_in // int(step.number)
    return "softmax(A)" if each == step.n_in else f"softmax(A.reshape(-1, {each})).reshape(A.shape)"


def _inner(k: str, step: Step) -> str:
    return "A" if step.inner is None else LINES[step.inner.operation](k, step.inner)


LINES: dict[str, Callable[[str, Step], str]] = {
    "affine": lambda k, step: f'A @ W["weight{k}"].T + W["bias{k}"]',
    "linear": lambda k, step: f'A @ W["weight{k}"].T',
    "convolution": lambda k, step: (
        f'(patches(A, W["index{k}"]) @ W["weight{k}"].T + W["bias{k}"]).reshape(len(A), {step.n_out})'
    ),
    **{name: _pooled(of) for name, of in POOLING.items()},
    "rbf": lambda k, step: f"np.exp({_centred(k)} / {-(step.number**2)!r})",
    "quantiser": lambda k, step: f'(W["centres{k}"] + W["middle{k}"])[{_centred(k)}.argmin(axis=1)]',
    "binary": lambda k, step: "np.where(A > 0.0, 1.0, 0.0).astype(DTYPE)",
    "copy": lambda k, step: f"np.hstack([A, A[:, :{step.size}]])",
    "add": lambda k, step: f"A[:, :{step.size}] + A[:, {step.size}:]",
    "softmax": lambda k, step: _softmax(step),
    "identity": lambda k, step: "A",
    "trees": lambda k, step: f'trees(A, W["columns{k}"], W["thresholds{k}"], W["leaves{k}"], {step.size})',
    "neighbours": lambda k, step: (
        f'W["values{k}"][np.sort({_centred(k)}.argpartition({step.size - 1}, axis=1)[:, :{step.size}])].mean(axis=1)'
    ),
    "recurrent": lambda k, step: (
        f'recurrent(A, W["weight{k}"], W["bias{k}"], {step.size}, lambda A: {_inner(k, step)})'
    ),
    "exp": lambda k, step: "np.exp(A)",
    "sigmoid": lambda k, step: "sigmoid(A)",
    "tanh": lambda k, step: "np.tanh(A)",
    "relu": lambda k, step: "np.maximum(A, 0.0)",
    "leaky_relu": lambda k, step: f"np.maximum(A, 0.0) + {step.number!r} * np.minimum(A, 0.0)",
}
"""Operation -> the line of step number k, an expression in A."""


def written(net: Net) -> str:
    """The file.  It has predict, probabilities of a classifier, encode and decode, which take arrays."""
    encoder, decoder = (list(body(net, part)) for part in (slice(0, net.code), slice(net.code, None)))
    steps = "\n".join([*encoder, *decoder])
    used = [code for name, code in FUNCTIONS.items() if f"{name}(" in steps + "softmax(" * (net.classes is not None)]
    scaled, unscaled = tailed("x", net.inputs), untailed("y", net.outputs)
    parts = [
        head(net, "NumPy alone", usage(net, "import model_numpy as net  # the name of this file", "net")),
        "import base64\nimport io\n\nimport numpy as np\n",
        f'DTYPE = "{net.dtype.name}"',
        names_lines(net),
        ROWS,
        *used,
        function("scaled(X)", [*scaled, 'return (X - W["x_shift"]) / W["x_scale"]']),
        *([function("encode(X)", [f"A = scaled(rows(X, {net.n_in}))", *encoder, "return A"])] * bool(net.code)),
        function("outputs(A)", [*decoder, 'F = A * W["y_scale"] + W["y_shift"]', *unscaled, "return F"]),
        *methods(net),
        "\n" + packed(arrays_of(net), net.dtype),
        "W = dict(np.load(io.BytesIO(base64.b64decode(WEIGHTS))))\n",
    ]
    return "\n".join(parts)


def function(signature: str, lines: list[str]) -> str:
    """A function of these lines."""
    return "\n".join([f"\ndef {signature}:", *(f"    {line}" for line in lines), ""])


def methods(net: Net) -> Iterator[str]:
    """The functions that a user calls."""
    whole = "encode(X)" if net.code else f"scaled(rows(X, {net.n_in}))"
    shaped = "[:, 0]" if net.one_dimensional else ""
    if net.classes is None:
        yield function("predict(X)", [f"return outputs({whole}){shaped}"])
    else:
        yield function("predict(X)", [f"return CLASSES[outputs({whole}).argmax(axis=1)]"])
        yield function("probabilities(X)", [f"return softmax(outputs({whole}))"])
    if net.code:
        yield function("decode(codes)", [f"return outputs(rows(codes, {net.n_code})){shaped}"])


def arrays_of(net: Net) -> dict[str, Array]:
    """The arrays by their names in the file: of step k with its number behind, of the scalings with x_ and y_ before.

    Columns without long tails have the width 0 in a Tails, and 1 here.
    """
    found = {f"{name}{k}": array for k, step in enumerate(net.steps) for name, array in step.arrays.items()}
    for side, scaling in (("x", net.inputs), ("y", net.outputs)):
        found |= {f"{side}_{name}": array for name, array in scaling.arrays.items()}
        if scaling.tails is not None:
            tails = scaling.tails
            found |= {f"{side}_width": np.where(tails.long, tails.width, 1.0), f"{side}_long": tails.long.astype(float)}
    return found


def body(net: Net, part: slice) -> Iterator[str]:
    """The lines of some steps."""
    for k, step in list(enumerate(net.steps))[part]:
        if step.operation != "identity":
            made = LINES[step.operation](str(k), step)
            if step.carried:
                made = f"np.hstack([(lambda A: {made})(A[:, :{step.n_in}]), A[:, {step.n_in}:]])"
            yield f"A = {made}"


def tailed(side: str, scaling: Scaling) -> list[str]:
    """The lines that compress long tails, if there are any."""
    if scaling.tails is None:
        return []
    inside = f'np.arcsinh((X - W["{side}_centre"]) / W["{side}_width"])'
    again = [] if scaling.tails.again is None else [f'X = np.where(W["{side}_again"] > 0.0, np.arcsinh(X), X)']
    return [f'X = np.where(W["{side}_long"] > 0.0, {inside}, X)', *again]


def untailed(side: str, scaling: Scaling) -> list[str]:
    """The lines that stretch long tails again."""
    if scaling.tails is None:
        return []
    twice = f'W["{side}_again"]'
    again = [] if scaling.tails.again is None else [f"F = np.where({twice} > 0.0, np.sinh(F * {twice}), F)"]
    inside = f'np.sinh(F * W["{side}_long"]) * W["{side}_width"] + W["{side}_centre"]'
    return [*again, f'F = np.where(W["{side}_long"] > 0.0, {inside}, F)']
