"""The task of a config for peers: its data and its initial weights, those of macmpi bit for bit, as npz files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from settings import planned

from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel.team import Team


def write_task(folder: Path, config: str, settings: Sequence[str]) -> dict[str, Any]:
    """{data, activations, loss, start}; what exists is not written again."""
    name = hashlib.sha256(json.dumps([config, list(settings)]).encode()).hexdigest()[:16]
    found = folder / f"task-{name}.json"
    if not found.exists():
        plan, data = planned(Path(config), settings)
        method: Any = choose(plan, data, Team())
        weights = method.parts.weights(start(method, Origin()))
        np.savez(folder / f"start-{name}.npz", **{f"W{i}": W for i, W in enumerate(weights)})
        arrays = {"X": data.X, "X_val": data.X_val}
        np.savez(
            folder / f"data-{name}.npz",
            **(arrays if data.autoencoder else {**arrays, "Y": data.Y, "Y_val": data.Y_val}),
        )
        found.write_text(
            json.dumps(
                {
                    "data": str(folder / f"data-{name}.npz"),
                    "activations": list(plan.resolved.activations),
                    "loss": plan.resolved.settings["model.loss"],
                    "skips": plan.resolved.settings["model.skips"],
                    "start": str(folder / f"start-{name}.npz"),
                }
            )
        )
    return dict(json.loads(found.read_text()))
