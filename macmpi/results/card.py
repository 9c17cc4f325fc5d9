"""The model card says on which data a net was trained, how, on which machine, and how well.

model.h5 has it as an attribute, in JSON.  The datasets of model.h5 have what a run computes, which has the same bits on
any number of ranks.  So comparisons of two models compare the datasets, and leave out this attribute with its seconds,
its machine and its ranks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval

from macmpi.console import decimals
from macmpi.files import RUN
from macmpi.results.scores import Labels, Numbers
from macmpi.state import Errors

NAME = "card"
"""The name of the card's attribute of model.h5."""

MOST_RECORDS = 200
"""A card keeps at most this many records of a curve, evenly spaced from the first to the last, and the best one."""

MOST_OUTPUTS = 100
"""The most outputs or classes with scores of their own."""


NEEDED = ("iteration", "mu", "E1_train", "E1_val", "seconds")
"""The numbers without which a line of curve.jsonl is no record."""


class Finite:
    """Is the base of classes that are read from JSON and whose numbers must be finite."""

    __pydantic_config__: ClassVar[Any] = {"allow_inf_nan": False}


Count = Annotated[int, Interval(ge=0, le=2**53)]


@dataclass(frozen=True)
class About(Finite):
    """Describes the data: source as in the config, SHA-256 of the arrays, and the numbers of points and columns."""

    source: str
    sha256: str
    training_points: Count
    validation_points: Count
    inputs: Count
    outputs: Count


@dataclass(frozen=True)
class Training(Finite):
    """Describes the course of training.

    best_iteration: the iteration of the best weights; 0: the start.
    ended: why training ended.
    started, written: when the last launch began, and when the model was written.
    constant: whether the best weights predict the best constant, since no other weights were better; best_iteration is
        then 0.
    ridges: the ridges of each layer whose weights a regression fits, if a selection has chosen them.
    """

    method: str
    iterations: Count
    best_iteration: Count
    ended: str
    seconds: float
    ranks: Count
    threads: Count
    started: str
    written: str
    constant: bool = False
    ridges: tuple[float, ...] = ()


@dataclass(frozen=True)
class Error(Finite):
    """Holds E1 per point of some weights, on training points and (except for a refit) on validation points.

    wrong_training, wrong_validation: the shares of misclassified points.
    zeros: the share of weights that are exactly 0.
    """

    training: float | None = None
    validation: float | None = None
    wrong_training: float | None = None
    wrong_validation: float | None = None
    zeros: float | None = None

    @classmethod
    def of(cls, errors: Errors) -> Error:
        """Makes the errors of a card from the errors of a state."""
        wrong = errors.wrong_train, errors.wrong_validation
        return cls(errors.train, errors.validation, *wrong, errors.zeros)

    def __str__(self) -> str:
        of_train, of_validation = (self.training, self.wrong_training), (self.validation, self.wrong_validation)
        parts = []
        for name, (value, wrong) in (("train", of_train), ("validation", of_validation)):
            if value is not None:
                parts.append(f"{name} {decimals(value):>9}" + ("" if wrong is None else f" ({wrong:.2%} wrong)"))
        if self.zeros is not None:
            parts.append(f"{self.zeros:.1%} of the weights under l1 or group_lasso are 0")
        return "   ".join(parts) or "-"


@dataclass(frozen=True)
class Record(Finite):
    """Is one record of the learning curve."""

    iteration: Count
    phase: str
    seconds: float | None = None
    mu: float | None = None
    E1_train: float | None = None
    E1_val: float | None = None
    E_Q: float | None = None
    constraint: float | None = None
    error_train: float | None = None
    error_val: float | None = None
    zeros: float | None = None


@dataclass(frozen=True)
class Card(Finite):
    """Is a whole model card.  Its repr leaves the long parts out.

    errors: the errors by the name of the weights, "last", "best", "refit".
    config: the config as TOML.
    scores: the scores of the best weights at the validation points, by name, and as `lines` of text.
    machine: the provenance of the launch that wrote the model, by name: versions, host, arithmetic, command.
    """

    data: About
    training: Training
    errors: dict[str, Error]
    config: str = field(repr=False)
    scores: dict[str, Any] = field(default_factory=dict, repr=False)
    curve: tuple[Record, ...] = field(default=(), repr=False)
    machine: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> str:
        """Writes the card as one line of JSON, with `plain` values."""
        return json.dumps(plain(self), allow_nan=False)

    @staticmethod
    def of_json(text: str) -> Card:
        """Reads a card from JSON, without keys of later versions.  Raises ValueError, RecursionError."""
        return _adapter().validate_json(text)


@cache
def _adapter() -> Any:
    """Makes the reader of cards, once and only if one is read, since that takes longer than reading a model."""
    from pydantic import TypeAdapter

    return TypeAdapter(Card)


def record_in(line: str) -> dict[str, Any] | None:
    """Reads the record in a line of curve.jsonl, without the id of the run; returns None for a damaged line."""
    with suppress(ValueError, TypeError, LookupError, OverflowError):
        record = json.loads(line)
        numbers = [record[key] for key in NEEDED]
        known = isinstance(record["phase"], str) and all(isinstance(n, int | float) for n in numbers)
        if known and math.isfinite(record["seconds"]):
            return {key: value for key, value in record.items() if key != RUN}
    return None


def plain(value: Any) -> Any:
    """Converts a value for JSON: numbers that are not finite become null, and keys of None are left out."""
    if isinstance(value, Finite):
        return plain(vars(value))
    if isinstance(value, dict):
        return {str(key): plain(inside) for key, inside in value.items() if inside is not None}
    if isinstance(value, list | tuple):
        return [plain(inside) for inside in value]
    if isinstance(value, np.longdouble):  # its tolist() is itself
        return plain(float(value))
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def evenly(n: int, most: int) -> list[int]:
    """Chooses at most `most` evenly spaced places in n, with the first and the last."""
    return list(range(n)) if n <= most else [i * (n - 1) // (most - 1) for i in range(most)]


def thinned(records: Sequence[dict[str, Any]], best: int) -> tuple[Record, ...]:
    """Chooses at most MOST_RECORDS records of a curve, and the records of iteration `best`; leaves out timings."""
    kept, keys = {*evenly(len(records), MOST_RECORDS)}, Record.__dataclass_fields__.keys()
    return tuple(
        Record(**{key: record[key] for key in keys & record.keys()})
        for i, record in enumerate(records)
        if i in kept or record["iteration"] == best
    )


def scores_by_name(scores: Numbers | Labels) -> dict[str, Any]:
    """Collects scores by name: numbers, the lines that a run prints, and if not too many arrays by output or class."""
    if isinstance(scores, Numbers):
        each = {"rmse": scores.rmse, "mae": scores.mae, "r2_by_output": scores.r2}
        whole: dict[str, Any] = {"r2": scores.total}
    else:
        each = {"classes": scores.classes, "points": scores.counts, "right": scores.right}
        each |= {} if scores.confusion is None else {"confusion": scores.confusion}
        whole = {"accuracy": scores.accuracy, "balanced_accuracy": scores.balanced, "log_loss": scores.log_loss}
    few = all(len(array) <= MOST_OUTPUTS for array in each.values())
    return whole | {"lines": scores.lines()} | (each if few else {})
