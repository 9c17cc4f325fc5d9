"""An exported net is compared with the model that it was made of, at random points, before it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from macmpi import NumericalError, many
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
        other = f"; {many(self.labels, 'label')} of {POINTS} differ" if self.labels else ""
        return f"checked by {self.by} at {POINTS} random points: the largest difference to macmpi is {each}{other}"


def points_of(model: Model) -> Array:
    """Random points in the range of the data, (POINTS, D), none too large for single precision."""
    random = stream(0, "export")
    shape = POINTS // 2, model.chain.n_in
    scaled = np.concatenate([random.uniform(size=shape), random.normal(size=shape)])
    return np.clip(model.scaling_x.undo(scaled), -LARGEST, LARGEST)


def answers_of(model: Model, X: Array) -> Answers:
    """The model's own answers."""
    found = {"predictions": model.predict(X)}
    if model.classes is not None:
        found = {"label": found["predictions"], "probabilities": model.probabilities(X)}
    return found | ({"codes": model.encode(X)} if model.chain.layer_ends else {})


def compare(model: Model, runner: Runner, by: str, decoder: bool = False) -> Found:
    """The largest differences of an exported net, or of a decoder alone, to its model.  Collective: no."""
    X = points_of(model)
    if decoder:
        X = model.encode(X)
        expected = {"predictions": model.decode(X)}
    else:
        expected = answers_of(model, X)
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
