"""The learning curve: clocks, the console table and curve.jsonl."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from macmpi import StorageError, files
from macmpi.console import decimals, duration, say, warn
from macmpi.plan.resolved import Resolved
from macmpi.results.card import record_in
from macmpi.state import Errors, Gradients, State

Column = tuple[str, str, Callable[[Any], str]]
"""A key of a record, its title, and its cell."""


def _nested(value: float) -> str:
    return f"{decimals(value):>9}"


COLUMNS: tuple[Column, ...] = (
    ("iteration", "iter", "{:>5d}".format),
    ("mu", "mu", "{:>7.0e}".format),
    ("E1_train", "E1 train", _nested),
    ("E1_val", "E1 val", _nested),
    ("error_val", "wrong val", "{:>9.2%}".format),
    ("E_Q", "E_Q", "{:>10.4g}".format),
    ("constraint", "constraint", "{:>10.2e}".format),
    ("zeros", "zeros", "{:>6.1%}".format),
    ("seconds_z", "Z s", "{:>7.2f}".format),
    ("seconds_w", "W s", "{:>7.2f}".format),
    ("seconds_comm", "exch s", "{:>7.3f}".format),
    ("seconds_wait", "wait s", "{:>7.3f}".format),
)

OPTIONAL = frozenset({"error_val", "zeros"})
"""Columns that only some runs have."""


def optional_columns(of: Resolved) -> set[str]:
    """The columns of OPTIONAL that a run has."""
    return {name for name, has in (("error_val", of.loss.labels), ("zeros", of.shaping.sparse)) if has}


def _wide(name: str, cell: Callable[[Any], str]) -> str:
    return f"{name:>{len(cell(1))}}"


class Curve:
    """Rank 0 keeps the records, in curve.jsonl too, and prints a line an iteration; other ranks keep quiet.

    path: the file; None where nothing is written.  resume_at: keep the records up to this iteration and go on from
    there, without what a crash has left of a line; None starts a new file.  extra: keys beyond those that every record
    has; without: keys that have no column; first: this is rank 0; run: the id that the first line has.  Raises
    StorageError.  Collective: no.
    """

    def __init__(
        self,
        path: Path | None,
        resume_at: int | None = None,
        extra: Iterable[str] = (),
        without: frozenset[str] = frozenset(),
        first: bool = True,
        run: str = "",
    ) -> None:
        self._file = None
        self._mark = {files.RUN: run} if run else {}
        self._first = first
        absent = without | (OPTIONAL - set(extra))
        self._columns = [column for column in COLUMNS if column[0] not in absent]
        self.records: list[dict[str, Any]] = []
        if path is None or not first:
            return
        if resume_at is not None and os.path.exists(path):
            kept = [r for line in path.read_text(errors="replace").splitlines() if (r := record_in(line)) is not None]
            self.records = [r for r in kept if r["iteration"] <= resume_at and r["phase"] != "postprocess"]
        try:
            files.replace_file(path, "".join(map(self._line, self.records)).encode(), run)
            self._file = path.open("a")
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}") from None

    def header(self) -> None:
        if self._first:
            names = "".join(" " + _wide(name, cell) for _, name, cell in self._columns)
            say(f"{names} {'elapsed':>8} {'left <=':>8}")

    def add(self, record: dict[str, Any], left: float | None) -> None:
        """Write one record and its line.  left: seconds to the last iteration allowed, if known."""
        if not self._first:
            return
        self.records.append(record)
        self._write(record)
        cells = "".join(" " + cell(record[key]) for key, _, cell in self._columns)
        rest = duration(left) if left is not None and math.isfinite(left) else "-"
        say(f"{cells} {duration(record['seconds']):>8} {rest:>8}")

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(self._line(record))
            self._file.flush()
        except OSError as error:
            warn(f"{self._file.name} cannot be written: {error.strerror}; training goes on")

    def _line(self, record: dict[str, Any]) -> str:
        """A record as a line; the first one of the file has the id of the run."""
        mark, self._mark = self._mark, {}
        return json.dumps(record | mark) + "\n"

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def record_of(state: State, phase: str, errors: Errors) -> dict[str, Any]:
    """Records a state and its errors; errors that the loss or the method does not have are left out."""
    optional = {
        "error_train": errors.wrong_train,
        "error_val": errors.wrong_validation,
        "lagrangian": errors.lagrangian,
        "multiplier": errors.multiplier,
        "zeros": errors.zeros,
        **(_norms(errors.gradients) if errors.gradients else {}),
    }
    return {
        "iteration": state.iteration,
        "phase": phase,
        "mu": state.mu,
        "E1_train": errors.train,
        "E1_val": errors.validation,
        "E_Q": errors.E_Q,
        "constraint": errors.constraint,
        **{name: value for name, value in optional.items() if value is not None},
        "seconds": state.seconds,
    }


def changed(sizes: Iterable[int], record: dict[str, Any]) -> str:
    """Sizes of a net that a selection has changed, and its widths and ridges where they are selected."""
    more = [f"{key} {', '.join(f'{v:g}' for v in record[key])}" for key in ("widths", "ridges") if key in record]
    return "; ".join(["-".join(map(str, sizes)), *more])


def _norms(found: Gradients) -> dict[str, float]:
    return {"gradient_E_Q": found.penalised, "gradient_E1": found.nested, "multipliers_lack": found.lacking}
