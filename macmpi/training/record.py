"""The record of a run: what it says of itself on the console, and its learning curve, there and in curve.jsonl."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from macmpi import StorageError, files, many
from macmpi.console import decimals, duration, say, warn
from macmpi.data.dataset import Dataset
from macmpi.half_steps.method import Account
from macmpi.plan.plan import Plan
from macmpi.results.card import Error, record_in
from macmpi.results.scores import Labels, Numbers
from macmpi.state import Errors, State
from macmpi.training.weights import Best

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


def columns_of(plan: Plan, account: Account) -> list[Column]:
    """The columns that mean something of a run, those of few losses and penalties among them."""
    has = {"error_val": plan.resolved.loss.labels, "zeros": plan.resolved.shaping.sparse}
    return [column for column in COLUMNS if column[0] not in account.without and has.get(column[0], True)]


class Curve:
    """Rank 0 keeps the records, in curve.jsonl too, and prints a line an iteration; other ranks keep quiet.

    path: the file; None where nothing is written.  resume_at: keep the records up to this iteration and go on from
    there, without what a crash has left of a line; None starts a new file.  columns: those of the table; first: this is
    rank 0; run: the id that the first line has.  Raises StorageError.  Collective: no.
    """

    def __init__(
        self,
        path: Path | None,
        resume_at: int | None = None,
        columns: Sequence[Column] = (),
        first: bool = True,
        run: str = "",
    ) -> None:
        self._file = None
        self._mark = {files.RUN: run} if run else {}
        self._columns, self._first = columns, first
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
        """The titles of the table."""
        if self._first:
            titles = "".join(f" {title:>{len(cell(1))}}" for _, title, cell in self._columns)
            say(f"{titles} {'elapsed':>8} {'left <=':>8}")

    def add(self, record: dict[str, Any], left: float | None) -> None:
        """Write one record and its line.  left: seconds to the last iteration allowed, if known."""
        if not self._first:
            return
        self.records.append(record)
        if self._file is not None:
            try:
                self._file.write(self._line(record))
                self._file.flush()
            except OSError as error:
                warn(f"{self._file.name} cannot be written: {error.strerror}; training goes on")
        cells = "".join(" " + cell(record[key]) for key, _, cell in self._columns)
        rest = duration(left) if left is not None and math.isfinite(left) else "-"
        say(f"{cells} {duration(record['seconds']):>8} {rest:>8}")

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
    norms = errors.gradients
    found = {
        "iteration": state.iteration,
        "phase": phase,
        "mu": state.mu,
        "E1_train": errors.train,
        "E1_val": errors.validation,
        "E_Q": errors.E_Q,
        "constraint": errors.constraint,
        "error_train": errors.wrong_train,
        "error_val": errors.wrong_validation,
        "lagrangian": errors.lagrangian,
        "multiplier": errors.multiplier,
        "zeros": errors.zeros,
        "gradient_E_Q": norms and norms.penalised,
        "gradient_E1": norms and norms.nested,
        "multipliers_lack": norms and norms.lacking,
        "seconds": state.seconds,
    }
    return {name: value for name, value in found.items() if value is not None}


# --- lines of the console ---------------------------------------------------------------------------------------------


def describe(plan: Plan, data: Dataset, ranks: int, account: Account) -> str:
    """Says what is trained, and how."""
    chain = plan.net
    sizes = "-".join(str(n) for n in chain.layer_sizes)
    kind = "classifier" if plan.resolved.loss.labels else "autoencoder" if data.autoencoder else "regression"
    line = (
        f"macmpi: {sizes} {kind}, {chain.existing:,} weights, "
        f"{plan.n_train:,} training and {many(plan.n_val, 'validation point')}, {many(ranks, 'rank')}"
    )
    line += f"\n  {plan.in_span}" if plan.in_span else ""
    if plan.has_basis:
        line += "\n  E1 train holds the ridge on the linear weights, as in eq. (6)"
    return f"{line}\n  {account.how}"


def changed(sizes: Iterable[int], record: dict[str, Any]) -> str:
    """Sizes of a net that a selection has changed, and its widths and ridges where they are selected."""
    more = [f"{key} {', '.join(f'{v:g}' for v in record[key])}" for key in ("widths", "ridges") if key in record]
    return "; ".join(["-".join(map(str, sizes)), *more])


def closing(
    state: State,
    errors: Errors,
    account: Account,
    best: Best,
    scores: Numbers | Labels | None = None,
    diverged: bool = False,
) -> list[str]:
    """Says how the run ended, which weights a model predicts with, and their scores at the validation points."""
    reason = {"converged": account.settled, "max_iterations": "the last iteration allowed"}
    head = "went wrong" if diverged else "finished"
    why = reason.get(state.finished, state.finished) or "stopped"
    lines = [
        f"{head} ({why}) after {many(state.iteration, 'iteration')}, {duration(state.seconds)} of training",
        f"  {account.end + (', the best' if best.last else ''):28s} E1 {Error.of(errors)}",
    ]
    if best.constant:
        lines.append("  nothing better than a constant was learnt from these points: the model predicts that constant")
    elif not best.last:
        lines.append(f"  {f'the best, iteration {best.iteration}':28s} E1 {Error.of(best.errors)}")
    own = scores.lines() if scores else []
    return lines + [f"  {'' if i else 'validation points':28s} {line}" for i, line in enumerate(own)]
