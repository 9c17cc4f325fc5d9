"""A net as one Python file with a plain torch.nn.Module; its parameters are text at the end of the file."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from macmpi.data.scaling import Scaling
from macmpi.export.net import POOLING, Net, Step
from macmpi.export.source import head, names_lines, packed, usage
from macmpi.export.torch_modules import BASES, CLASSES
from macmpi.typing import Array


def _shape(step: Step) -> str:
    return ", ".join(map(str, step.arrays["index"].shape))


def _softmax(step: Step) -> str:
    if step.number == 1:
        return "nn.Softmax(dim=1)"
    shape = f"{int(step.number)}, {step.n_in // int(step.number)}"
    return f"nn.Sequential(nn.Unflatten(1, ({shape})), nn.Softmax(dim=2), nn.Flatten(1))"


def _inner(step: Step) -> str:
    return "nn.Identity()" if step.inner is None else MODULES[step.inner.operation](step.inner)


MODULES: dict[str, Callable[[Step], str]] = {
    "affine": lambda s: f"nn.Linear({s.n_in}, {s.n_out})",
    "linear": lambda s: f"nn.Linear({s.n_in}, {s.n_out}, bias=False)",
    "convolution": lambda s: f"Convolution({len(s.arrays['bias'])}, {_shape(s)})",
    **{name: lambda s, of=of: f'Pooling("{of}", {_shape(s)})' for name, of in POOLING.items()},  # type: ignore[misc]
    "rbf": lambda s: f"GaussianBasis({s.n_in}, {s.n_out}, {s.number!r})",
    "quantiser": lambda s: f"Codebook({s.n_in}, {len(s.arrays['centres'])})",
    "binary": lambda s: "Bits()",
    "trees": lambda s: f"Trees({', '.join(map(str, s.arrays['leaves'].shape))})",
    "neighbours": lambda s: f"Neighbours({s.n_in}, {', '.join(map(str, s.arrays['values'].shape))}, {s.size})",
    "recurrent": lambda s: f"Recurrent({s.n_in // s.size}, {s.n_out}, {s.size}, {_inner(s)})",
    "copy": lambda s: f"Copy({s.size})",
    "add": lambda s: f"Add({s.size})",
    "softmax": _softmax,
    "identity": lambda s: "nn.Identity()",
    "exp": lambda s: "Exp()",
    "sigmoid": lambda s: "nn.Sigmoid()",
    "tanh": lambda s: "nn.Tanh()",
    "relu": lambda s: "nn.ReLU()",
    "leaky_relu": lambda s: f"nn.LeakyReLU({s.number!r})",
}
"""Operation -> the module of a step."""

REST = '''
def load():
    """The trained net, in evaluation mode."""
    net = Net().to(DTYPE)
    arrays = np.load(io.BytesIO(base64.b64decode(WEIGHTS)))
    net.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return net.eval()

'''


def modules(net: Net) -> tuple[list[tuple[str, dict[str, Array]]], list[tuple[str, dict[str, Array]]]]:
    """Encoder and decoder: the call that makes each module, and the arrays of its state."""
    steps = [_carrying(step, MODULES[step.operation](step)) for step in net.steps]
    first = [*_tails("Compress", net.inputs), *_again("Again", net.inputs), _scale("Scale", net.inputs)]
    last = [_scale("Unscale", net.outputs), *_again("StretchAgain", net.outputs), *_tails("Stretch", net.outputs)]
    return [*first, *steps[: net.code]], [*steps[net.code :], *last]


def _carrying(step: Step, call: str) -> tuple[str, dict[str, Array]]:
    if not step.carried:
        return call, step.arrays
    return f"Carrying({call}, {step.n_in})", {f"module.{name}": array for name, array in step.arrays.items()}


def _scale(name: str, scaling: Scaling) -> tuple[str, dict[str, Array]]:
    return f"{name}({len(scaling.shift)})", {"shift": scaling.shift, "scale": scaling.scale}


def _tails(name: str, scaling: Scaling) -> list[tuple[str, dict[str, Array]]]:
    if (tails := scaling.tails) is None:
        return []
    width = np.where(tails.long, tails.width, 1.0)
    return [(f"{name}({len(width)})", {"centre": tails.centre, "width": width, "long": tails.long.astype(float)})]


def _again(name: str, scaling: Scaling) -> list[tuple[str, dict[str, Array]]]:
    if scaling.tails is None or scaling.tails.again is None:
        return []
    return [(f"{name}({len(scaling.shift)})", {"again": scaling.tails.again})]


def written(net: Net) -> str:
    """The file.  Its `load()` gives the module: forward, predict, encode, decode, probabilities of a classifier."""
    parts = dict(zip(("encoder", "decoder"), modules(net), strict=True))
    state = {
        f"{part}.{i}.{name}": array
        for part, every in parts.items()
        for i, (_, arrays) in enumerate(every)
        for name, array in arrays.items()
    }
    calls = {name for every in parts.values() for call, _ in every for name in re.findall(r"\b([A-Z]\w*)\(", call)}
    used = calls | {BASES[name] for name in calls & BASES.keys()}
    return "\n".join(
        [
            head(net, "torch and NumPy", usage(net, "net = model_torch.load()  # the name of this file", "net")),
            "import base64\nimport io\n\nimport numpy as np\nimport torch\nfrom torch import nn\n",
            f"DTYPE = torch.{net.dtype.name}",
            names_lines(net),
            *(code for name, code in CLASSES.items() if name in used),
            class_of(net, {part: [call for call, _ in every] for part, every in parts.items()}),
            REST,
            packed(state, net.dtype) + "\n",
        ]
    )


def class_of(net: Net, parts: dict[str, list[str]]) -> str:
    """The class Net."""
    answer = "CLASSES[self(X).argmax(1).cpu().numpy()]" if net.classes is not None else "self(X).cpu().numpy()"
    shaped = "[:, 0]" if net.one_dimensional else ""
    lines = ["", "class Net(nn.Module):", f'    """{net.title}.  Arrays and tensors go in."""']
    lines += ["", "    def __init__(self):", "        super().__init__()"]
    for part, calls in parts.items():
        lines += [f"        self.{part} = nn.Sequential(", *(f"            {call}," for call in calls), "        )"]
    lines += _method("rows", "X, columns", ROWS)
    lines += _method(
        "forward", "X", [f'"""{_given(net)}"""', f"return self.decoder(self.encoder(self.rows(X, {net.n_in})))"]
    )
    lines += ["", "    @torch.no_grad()", *_method("predict", "X", [f"return {answer}{shaped}"])[1:]]
    if net.classes is not None:
        lines += _method("probabilities", "X", ["return torch.softmax(self(X), 1)"])
    if net.code:
        lines += _method("encode", "X", [f"return self.encoder(self.rows(X, {net.n_in}))"])
        lines += _method("decode", "codes", [f"return self.decoder(self.rows(codes, {net.n_code})){shaped}"])
    return "\n".join([*lines, ""])


ROWS = [
    "like = next(self.buffers())",
    "X = torch.as_tensor(X, dtype=like.dtype, device=like.device)",
    "X = X.reshape(len(X), -1)",
    "if X.shape[1] != columns:",
    '    raise ValueError(f"{X.shape[1]} columns; {columns} are needed")',
    "return X",
]


def _given(net: Net) -> str:
    if net.classes is not None:
        return f"The numbers that a softmax turns into probabilities, (N, {net.n_out})."
    return f"Outputs in the units of the data, (N, {net.n_out})."


def _method(name: str, argument: str, body: list[str]) -> list[str]:
    return ["", f"    def {name}(self, {argument}):", *(f"        {line}" for line in body)]
