"""A run directory is read back: its curve, its data if they are still the same, its nets and its codes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, config
from macmpi.config import Config
from macmpi.data.dataset import Dataset
from macmpi.data.loading import Source
from macmpi.data.reading import read_file
from macmpi.nets.build import build_chain
from macmpi.nets.losses import LINKS, loss_of
from macmpi.results.card import record_in
from macmpi.results.model import Model
from macmpi.results.model_file import load as load_model
from macmpi.results.scores import Labels, Level, Numbers, levels, scores_of, sums_of
from macmpi.typing import Array


@dataclass(frozen=True)
class Net:
    """Holds a trained net, its data and its codes.

    codes: the coordinates of the training points if the file has them, else `encoded`.
    encoded, held: the training points and the validation points as the net encodes them.
    """

    model: Model
    data: Dataset
    codes: Array
    encoded: Array
    held: Array


@dataclass
class Result:
    """Holds what was read from a run directory.

    missing: says in sentences what could not be read.
    start, end: the nets of start.h5 and model.h5.
    levels: errors to compare its own with, if its data could be read.
    """

    path: Path
    name: str
    records: list[dict[str, Any]]
    missing: list[str] = field(default_factory=list)
    config: Config | None = None
    data: Dataset | None = None
    start: Net | None = None
    end: Net | None = None
    levels: list[Level] = field(default_factory=list)

    @property
    def nets(self) -> dict[str, Net]:
        """The nets that could be read, by the words "start" and "end"."""
        return {when: net for when, net in (("start", self.start), ("end", self.end)) if net is not None}

    @property
    def finished(self) -> bool:
        """Tells whether the run has come to its postprocessing."""
        return self.records[-1]["phase"] == "postprocess"


def read(path: Path, name: str) -> Result:
    """Reads a run directory; parts that cannot be read are named in `missing`.

    path: the folder.
    name: the name of the run in a report.
    Raises UsageError if there is no run or no curve.
    """
    if not os.path.isdir(path):
        inside = f"name {path.parent}" if os.path.isfile(path.parent / "curve.jsonl") else "name the folder of a run"
        why = f"it is a file; {inside}" if os.path.exists(path) else "there is no such folder"
        raise UsageError(f"{path} is not a run: {why}")
    result = Result(path, name, *read_curve(path / "curve.jsonl"))
    try:
        result.config = config.read(path / "config.toml", [])
        data = _data(result.config, path)
        chain = build_chain(result.config.model, data.sizes.n_in, data.sizes.n_out)
        result.levels = levels(chain, data, loss_of(result.config, data.sizes))
        result.data = data
    except UsageError as error:
        result.missing.append(f"the data, so that only the curves are drawn: {error}")
    if not result.finished:
        old = "; its model.h5 is that of an earlier end" if os.path.exists(path / "model.h5") else ""
        last = result.records[-1]["iteration"]
        result.missing.append(f"the end: the curve stops after iteration {last}, the run has not finished{old}")
    if result.data is not None:
        result.start = _net(path / "start.h5", result.data, result.missing)
        result.end = _net(path / "model.h5", result.data, result.missing)
    return result


def read_curve(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Reads the records of a curve.jsonl, and describes its damaged lines.  Raises UsageError if no line is good."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"{path.parent} is not a run: {path.name} cannot be read ({error.strerror})") from None
    records = [record for line in lines if (record := record_in(line)) is not None]
    if not records:
        raise UsageError(f"{path} holds no record: there is nothing to draw")
    bad = len(lines) - len(records)
    count = f"{bad} damaged line{'s' if bad > 1 else ''} of {len(lines)}"
    return records, [f"{count} in {path.name}, left out"] if bad else []


def launches(log: Path) -> list[Any]:
    """Reads the entries of a provenance.json; there are none if the file does not exist or is damaged."""
    try:
        return list(json.loads(log.read_text(encoding="utf-8"))["launches"])
    except (OSError, LookupError, TypeError, ValueError):
        return []


def _data(config: Config, path: Path) -> Dataset:
    """Reads the data of the run in this folder.  Raises UsageError if they are gone or have changed.

    For a piece of a stream, columns, classes and running scaling come from the run's own nets.
    """
    log, source = path / "provenance.json", Source(config)
    try:
        sha256 = launches(log)[-1]["data_sha256"]
    except (LookupError, TypeError):
        raise UsageError(f"{log} does not say which they were") from None
    if config.stochastic.stream:
        net = load_model(path / ("model.h5" if os.path.exists(path / "model.h5") else "start.h5"))
        like = replace(net.scaling_x, seen=None), replace(net.scaling_y, seen=None)
        source.rules = replace(source.rules, like=like, classes=net.classes, columns=net.read_as)
    data = source.whole()
    if data.sha256 != sha256:
        raise UsageError(f"they have changed since (data.source = {config.data.source!r})")
    return data


def _net(path: Path, data: Dataset, missing: list[str]) -> Net | None:
    """Reads the net of a file and its codes; if that fails, returns None and adds the reason to `missing`."""
    try:
        model = load_model(path)
        model = model.with_weights("best") if "best" in model.kept else model  # a refit has seen the validation points
        if (model.chain.n_in, model.chain.n_out) != (data.sizes.n_in, data.sizes.n_out):
            raise UsageError(f"{path} is a net for other data")
        encoded, held = (model.encode(points(data, A)) for A in (data.X, data.X_val))
        codes = read_file(path, ("codes",)).get("codes", encoded)
        if codes.shape != encoded.shape:
            raise UsageError(f"{path} holds codes of shape {codes.shape}; {encoded.shape} is needed")
    except UsageError as error:
        missing.append(f"{path.name}: {error}")
        return None
    return Net(model, data, codes.astype(np.float64), encoded, held)


def scores_at(net: Net) -> Numbers | Labels:
    """Computes the scores of a net at the validation points."""
    data, F = net.data, net.model.chain.forward(net.model.weights, net.data.X_val)
    labels = data.classes is not None
    sums = sums_of(data.Y_val, F if labels else LINKS[net.model.link](F), labels, data.weights_val)
    return scores_of(sums, data.scaling_y.scale, data.classes)


def points(data: Dataset, X: Array) -> Array:
    """Converts scaled rows to the data's own units."""
    return data.scaling_x.undo(X.astype(np.float64))
