"""A trained net as a list of steps in plain arrays, from which every format is written.

Scaling and tails come before the steps and after them; classes turn the outputs into labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.scaling import Scaling
from macmpi.nets.chain import Chain
from macmpi.nets.layers.activation import LEAK
from macmpi.results.model import Model
from macmpi.typing import Array

ACTIVATIONS = {"linear": "identity"} | {name: name for name in ("sigmoid", "tanh", "relu", "leaky_relu")}
"""Name of an activation -> the operation of its step."""

POOLING = {"max_pooling": "max", "average_pooling": "mean", "sum_pooling": "sum"}
"""Operation -> what it takes of each patch."""

OPERATIONS = (
    *("affine", "linear", "convolution", *POOLING, "softmax", "exp", "rbf", "quantiser", "binary", "copy", "add"),
    *("trees", "neighbours", "recurrent"),
    *ACTIVATIONS.values(),
)
"""Every format knows these."""


@dataclass(frozen=True)
class Step:
    """One map, or the link behind the last one: rows A (n, n_in) -> (n, n_out).

    arrays: "weight" (n_out, n_in) and "bias" (n_out,) of affine and linear steps; of convolutions "weight" (units,
    columns), "bias" (units,) and "index" (positions, columns), of pooling "index" (positions, size^2, channels): the
    columns of [0, A] that are in each patch; "centres" (units, n_in), taken from
    "middle" (n_in,), of radial basis functions and codebooks.  number: the width of radial basis functions, the slope
    of a leaky rectifier for numbers below 0, the groups of a softmax.  size: the columns that are copied, or added to
    others.  carried: columns behind the n_in that go on as they are, behind the n_out.

    Of trees "columns" and "thresholds" (trees, nodes) and "leaves" (trees, leaves, n_out), size their depth; of the
    `size` nearest neighbours their "values" (examples, n_out) too.  A recurrent step of `size` equal parts of its
    inputs has "weight" [V, U] and "bias" c, h_t = inner(V h_{t-1} + U x_t + c), h_0 = 0; it gives what is inside for
    the last t.
    """

    operation: str
    n_in: int
    n_out: int
    arrays: dict[str, Array] = field(default_factory=dict)
    number: float = 0.0
    size: int = 0
    carried: int = 0
    inner: Step | None = None


@dataclass(frozen=True)
class Net:
    """A net to be exported: steps[:code] encode, steps[code:] decode.

    code: 0 where the net has no code.  inputs, outputs: the scalings of the data.  classes: the label of each output of
    a classifier, or None.  one_dimensional: predictions are (N,).  dtype: of the arithmetic, float64 or float32.
    columns: names of the inputs, where a table became these; else none.
    """

    steps: tuple[Step, ...]
    code: int
    inputs: Scaling
    outputs: Scaling
    classes: Array | None
    one_dimensional: bool
    autoencoder: bool
    sizes: tuple[int, ...]
    dtype: np.dtype
    columns: tuple[str, ...] = ()

    @property
    def n_in(self) -> int:
        return self.steps[0].n_in + self.steps[0].carried

    @property
    def n_out(self) -> int:
        return self.steps[-1].n_out + self.steps[-1].carried

    @property
    def n_code(self) -> int:
        """The numbers of a code."""
        return self.steps[self.code].n_in + self.steps[self.code].carried if self.code else 0

    @property
    def title(self) -> str:
        """The net in a few words: "64-32-8-32-64 autoencoder"."""
        task = "classifier" if self.classes is not None else "autoencoder" if self.autoencoder else "regression"
        return f"{'-'.join(map(str, self.sizes))} {task}"

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the model that exported files have too."""
        probabilities = ("probabilities",) if self.classes is not None else ()
        return ("predict", *probabilities, *(("encode", "decode") if self.code else ()))


def net_of(model: Model, precision: str) -> Net:
    """The steps of a model, arrays in the precision.  Raises UsageError for other maps than those of STEPS, by name."""
    numbers = model.chain.whole.blocks
    maps = [(m, None if b is None else model.weights[b]) for m, b in zip(model.chain.maps, numbers, strict=True)]
    specs = [m.spec() for m, _ in maps]
    kinds = [str(spec["kind"]) for spec in specs]
    functions = {str(spec["name"]) for spec in specs if spec["kind"] == "activation"}
    for what, used, known in (("layers of the kind", set(kinds), STEPS), ("activations", functions, ACTIVATIONS)):
        if foreign := sorted(used - known.keys()):
            raise UsageError(
                f"{what} {', '.join(map(repr, foreign))} cannot be exported, only these: {', '.join(known)}; "
                "a net with these stays usable by macmpi.load"
            )
    dtype = np.dtype(precision)
    own = [STEPS[kind](m, W) for kind, (m, W) in zip(kinds, maps, strict=True)]
    made = [[_cast(step, dtype) for step in (found if isinstance(found, tuple) else (found,))] for found in own]
    steps, code = _merged(_unrolled(model.chain, made), kinds, model.code if model.chain.layer_ends else 0)
    if model.classes is None and model.link != "identity":
        steps.append(Step(model.link, model.chain.n_out, model.chain.n_out))
    return Net(
        steps=tuple(steps),
        code=code,
        inputs=model.scaling_x,
        outputs=model.scaling_y,
        classes=None if model.classes is None else labels(model.classes),
        one_dimensional=model.one_dimensional,
        autoencoder=model.autoencoder,
        sizes=model.chain.layer_sizes,
        dtype=dtype,
        columns=tuple(model.columns.names) if model.columns else (),
    )


def labels(classes: Array) -> Array:
    """Labels as int64, float64, bool or text."""
    wide = {"i": np.int64, "u": np.uint64, "f": np.float64}.get(classes.dtype.kind)
    return classes if wide is None else classes.astype(wide)


def _cast(step: Step, dtype: np.dtype) -> Step:
    arrays = {name: np.ascontiguousarray(array, dtype) for name, array in step.arrays.items()}
    return replace(step, arrays=arrays)


def _affine(map_: Any, W: Any) -> Step:
    return Step("affine", map_.n_in, map_.n_out, {"weight": W[:, :-1], "bias": W[:, -1]})


def _transposed(map_: Any, W: Any) -> Step:
    weight = np.ascontiguousarray(W[:, :-1].T)
    return Step("affine", map_.n_in, map_.n_out, {"weight": weight, "bias": np.zeros(map_.n_out)})


def _shift(map_: Any, W: Any) -> Step:
    return Step("affine", map_.n_in, map_.n_out, {"weight": np.eye(map_.n_in), "bias": W[:, 0]})


def _unrolled(chain: Chain, steps: Sequence[list[Step]]) -> list[list[Step]]:
    """The steps of each map; those of a recurrent layer as one, at its first map, but for the last activation."""
    reading = [i for i, read in enumerate(chain.reads) if read is not None]
    if not reading:
        return list(steps)
    first, last = reading[0], reading[-1] if len(reading) > 1 else reading[0] + 1
    (affine,), (inner,) = steps[first + 1], steps[last + 1] if last + 1 < len(steps) else [None]
    one = replace(affine, operation="recurrent", n_in=chain.n_in, size=len(reading), inner=inner)
    return [*steps[:first], [one], *[[] for _ in range(last - first)], *steps[last + 1 :]]


def _merged(steps: Sequence[list[Step]], kinds: Sequence[str], code: int) -> tuple[list[Step], int]:
    """The steps with the biases of a tied layer in the step before them, and which of them begins behind the code."""
    found, begins = list[Step](), 0
    for i, (own, kind) in enumerate(zip(steps, kinds, strict=True)):
        if i == code:
            begins = len(found)
        elif kind == "shift" and found and found[-1].operation == "affine":
            last, (shift,) = found.pop(), own
            own = [replace(last, arrays={**last.arrays, "bias": last.arrays["bias"] + shift.arrays["bias"]})]
        found += own
    return found, begins


def _linear(map_: Any, W: Any) -> Step:
    return Step("linear", map_.n_in, map_.n_out, {"weight": W})


def _convolution(map_: Any, W: Any) -> Step:
    index = map_.unfold(_numbered(map_))
    return Step("convolution", map_.n_in, map_.n_out, {"weight": W[:, :-1], "bias": W[:, -1], "index": index})


def _numbered(map_: Any) -> Array:
    """One point whose numbers are their columns in [0, A]."""
    return np.arange(1.0, map_.n_in + 1.0)[None]


def _pooling(map_: Any, W: Any) -> Step:
    index = map_.patches.cut(_numbered(map_)).reshape(-1, map_.size**2, map_.channels)
    return Step(map_.kind, map_.n_in, map_.n_out, {"index": index})


def _activation(map_: Any, W: Any) -> Step:
    slope = LEAK if map_.name == "leaky_relu" else 0.0
    return Step(ACTIVATIONS[map_.name], map_.n_in, map_.n_out, number=slope)


def _centred(operation: str, map_: Any, C: Any) -> Step:
    """Distances are the same and more exact when points and centres are taken from the middle of the centres."""
    middle = C.mean(axis=0)
    return Step(operation, map_.n_in, map_.n_out, {"centres": C - middle, "middle": middle})


def _basis(map_: Any, W: Any) -> Step:
    step = _centred("rbf", map_, W)
    return Step("rbf", step.n_in, step.n_out, step.arrays, float(map_.width))


def _stack(map_: Any, W: Any) -> Step:
    """The sums of patches of one number each, in another order."""
    index = map_.forward(W, _numbered(map_)).reshape(map_.pixels, 1, map_.first + map_.second)
    return Step("sum_pooling", map_.n_in, map_.n_out, {"index": index})


def _kernels(map_: Any, W: Any) -> tuple[Step, Step]:
    weights = {"weight": W[:, map_.n_in :].T}
    return _basis(map_.basis, W[:, : map_.n_in]), Step("linear", map_.examples, map_.n_out, weights)


def _neighbours(map_: Any, W: Any) -> Step:
    step = _centred("neighbours", map_, W[:, : map_.n_in])
    return replace(step, arrays={**step.arrays, "values": W[:, map_.n_in :]}, size=min(map_.k, map_.examples))


def _trees(map_: Any, W: Any) -> Step:
    nodes = map_.nodes
    arrays = {
        "columns": np.clip(W[:, :nodes], 0, map_.n_in - 1).astype(np.intp),
        "thresholds": W[:, nodes : 2 * nodes],
        "leaves": W[:, 2 * nodes :].reshape(len(W), nodes + 1, map_.n_out),
    }
    return Step("trees", map_.n_in, map_.n_out, arrays, size=map_.depth)


def _first_state(map_: Any, W: Any) -> Step:
    """[0, a], as it stands alone: a recurrent layer is one step (`_unrolled`)."""
    weight = np.vstack([np.zeros((map_.units, map_.n_in)), np.eye(map_.n_in)])
    return Step("linear", map_.n_in, map_.n_out, {"weight": weight})


def _carrying(map_: Any, W: Any) -> Step:
    step = STEPS[map_.map.kind](map_.map, W)
    assert isinstance(step, Step)
    return replace(step, carried=step.carried + map_.carried)


STEPS: dict[str, Callable[[Any, Any], Step | tuple[Step, ...]]] = {
    "affine": _affine,
    "linear": _linear,
    "transposed": _transposed,
    "shift": _shift,
    "masked": _affine,
    "convolution": _convolution,
    "transposed_convolution": _convolution,
    "average_pooling": _pooling,
    "max_pooling": _pooling,
    "sum_pooling": _pooling,
    "activation": _activation,
    "softmax": lambda map_, W: Step("softmax", map_.n_in, map_.n_out, number=map_.groups),
    "rbf": _basis,
    "quantiser": lambda map_, W: _centred("quantiser", map_, W),
    "binary": lambda map_, W: Step("binary", map_.n_in, map_.n_out),
    "carrying": _carrying,
    "copy": lambda map_, W: Step("copy", map_.n_in, map_.n_out, size=map_.size),
    "add": lambda map_, W: Step("add", map_.n_in, map_.n_out, size=map_.size),
    "stack": _stack,
    "trees": _trees,
    "kernels": _kernels,
    "nearest_neighbours": _neighbours,
    "first_state": _first_state,
}
"""Kind of map -> the step, or steps, of a map and its weights."""
