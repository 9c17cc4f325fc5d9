"""An exported net is compared with the model that it was made of, at random points, before it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from macmpi import NumericalError
from macmpi.parallel.streams import stream
from macmpi.results.model import Model
from macmpi.typing import Array

POINTS = 256
"""Points of a comparison: half of them uniform, half normal in the scaled inputs."""

TOLERANCE = 1e-5
"""The largest difference of a net in float64, see `difference`."""

LARGEST = 1e30
"""The largest number of a point, which numbers that stand for long tails might pass."""

Answers = dict[str, Array]
"""The answers of a net for some points, by name: predictions, or label and probabilities; codes."""

Runner = Callable[[Array], Answers]


@dataclass(frozen=True)
class Found:
    """The largest difference by name, and of labels the number that differ."""

    by: str
    differences: dict[str, float]
    labels: int = 0

    @property
    def largest(self) -> float:
        return max(self.differences.values(), default=0.0)

    def __str__(self) -> str:
        each = ", ".join(f"{name} {off:.1e}" for name, off in self.differences.items())
        other = f"; {self.labels} labels of {POINTS} differ" if self.labels else ""
        return f"checked by {self.by} at {POINTS} random points: the largest difference to macmpi is {each}{other}"


def points_of(model: Model) -> Array:
    """Random points in the range of the data, (POINTS, D), none too large for single precision."""
    random = stream(0, "export")
    shape = POINTS // 2, model.chain.n_in
    scaled = np.concatenate([random.uniform(size=shape), random.normal(size=shape)])
    return np.clip(model.scaling_x.undo(scaled), -LARGEST, LARGEST)


def answers_of(model: Model, X: Array, codes: bool) -> Answers:
    """The model's own answers.  codes: whether it has a code."""
    found = {"predictions": model.predict(X)}
    if model.classes is not None:
        found = {"label": found["predictions"], "probabilities": model.probabilities(X)}
    return found | ({"codes": model.encode(X)} if codes else {})


def compare(model: Model, runner: Runner, by: str, codes: bool, decoder: bool = False) -> Found:
    """The largest differences of an exported net, or of a decoder alone, to its model.  Collective: no."""
    X = points_of(model)
    if decoder:
        X = model.encode(X)
        expected = {"predictions": model.decode(X)}
    else:
        expected = answers_of(model, X, codes)
    found, units = runner(X), {"predictions": unit_of(model)}
    differences = {
        name: difference(found[name], array, units.get(name, 1.0))
        for name, array in expected.items()
        if name != "label"
    }
    wrong = int(np.sum(found["label"] != expected["label"])) if "label" in expected else 0
    return Found(by, differences, wrong)


def unit_of(model: Model) -> Any:
    """A step of 1 in the scaled outputs, in the units of the data: (L,), or one number of targets (N,)."""
    L = model.chain.n_out
    unit = np.abs(np.subtract(*(model.scaling_y.undo(np.full((1, L), scaled))[0] for scaled in (1.0, 0.0))))
    return unit[0] if model.one_dimensional else unit


def difference(found: Array, expected: Array, unit: Any = 1.0) -> float:
    """max |f - e| / max(unit, |e|); infinite where the shapes or what is not finite differ."""
    found = np.asarray(found, float)
    if found.shape != expected.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        off = np.where(found == expected, 0.0, np.abs(found - expected) / np.maximum(unit, np.abs(expected)))
    return float(np.where(np.isnan(off), np.inf, off).max(initial=0.0))


def ensure(found: Found, precision: str) -> None:
    """Raises NumericalError where a net in float64 is not the model."""
    if precision == "float64" and not found.largest <= TOLERANCE:
        raise NumericalError(f"the exported net is not that of macmpi, and is not written: {found}")


# --- the formats ------------------------------------------------------------------------------------------------------


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


def numpy_runner(content: bytes, precision: str) -> tuple[Runner | None, str]:
    """Computes a NumPy file."""
    scope = _executed(content)
    return _runner(scope, lambda answer: np.asarray(answer)), f"NumPy {np.__version__}"


def torch_runner(content: bytes, precision: str) -> tuple[Runner | None, str]:
    """Computes a torch file, if torch is installed; and by what, or why not."""
    if find_spec("torch") is None:
        return None, "torch is not installed"
    scope = _executed(content)
    net = scope["load"]()
    methods = {name: getattr(net, name) for name in dir(net) if name in METHODS.values()}

    def array(answer: Any) -> Array:
        return np.asarray(answer.detach() if hasattr(answer, "detach") else answer)

    return _runner(methods, array), f"torch {scope['torch'].__version__}"


METHODS = {"predictions": "predict", "label": "predict", "probabilities": "probabilities", "codes": "encode"}
"""Answer -> the method of a Python file that gives it."""


def _executed(content: bytes) -> dict[str, Any]:
    """The names that a Python file of this program defines: nothing of a model.h5 is code in it, all is data."""
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(compile(content, "exported", "exec"), scope)
    return scope


def _runner(methods: dict[str, Any], array: Callable[[Any], Array]) -> Runner:
    other = "predictions" if "probabilities" in methods else "label"
    used = {name: method for name, method in METHODS.items() if method in methods and name != other}
    return lambda X: {name: array(methods[method](X)) for name, method in used.items()}
