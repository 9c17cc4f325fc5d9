"""Small runs on data of the user's own, and how two runs are compared bit for bit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

SHARDED = {"parallel": {"data": "sharded"}}


@dataclass(frozen=True)
class Case:
    """Rows of training and validation points (0: drawn from the training points) and columns; targets = 0: an
    autoencoder; with a loss of labels, the largest of the targets is the class."""

    rows: int
    validation: int
    columns: int
    targets: int
    hidden: list[int]
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)


LABELS = np.array([-3, 0, 7])

SETTLES_SOON = {"tolerance": 0.1, "mu_max": 1000.0}
"""mu goes up every few iterations, so that the runs here go through its whole schedule."""

BASIS = {"activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"], "width": [3.0, 1.5]}

CASES = {
    "autoencoder": Case(37, 11, 9, 0, [7, 5, 7], {"penalty": SETTLES_SOON}),
    "regression": Case(
        53,
        13,
        6,
        3,
        [6, 5],
        {
            "model": {"activation": "tanh", "sites": "before"},
            "penalty": {"tolerance": 0.2, "ridge_scale": "objective"},
            "z_step": {"iterations": 2},
        },
    ),
    "wide": Case(1300, 0, 20, 0, [70, 5, 45], {"penalty": {"tolerance": 0.3}, "w_step": {"cg_iterations": 3}}),
    "hasty": Case(37, 11, 9, 0, [7, 5, 7], {"penalty": {"tolerance": 0.5}}),
    "classifier": Case(
        *(61, 17, 6, 3, [6, 5, 4]),
        {
            "model": {
                "activation": ["tanh", "softmax", "leaky_relu"],
                "sites": ["none", "after", "before"],
                "loss": "cross_entropy",
            },
            "penalty": {"method": "augmented_lagrangian", "tolerance": 0.2, "metric": "variance"},
        },
    ),
    "finishing": Case(*(150, 50, 9, 0, [7, 4, 7]), {"penalty": {"tolerance": 0.5, "mu_max": 1000.0}}),
    "few": Case(5, 2, 3, 0, [2]),
    "long": Case(
        *(37, 11, 9, 0, [7, 5, 7]),
        {"penalty": {"factor": 1.01}, "run": {"keep_checkpoints": 2, "checkpoint_minutes": 1e-9}},
    ),
    "architecture": Case(
        *(61, 17, 6, 0, [40, 2, 30]),
        {
            "model": {**BASIS, "centres": "subset"},
            "start": {"method": "elastic_embedding", "width": 2.0},
            "penalty": {"mu0": 1.0, "factor": 5.0, "mu_max": 5.0, "mu_every": 5, "ridge": 0.002},
            "selection": {"criterion": "aic", "epsilon2": [0.2], "every": 3, "sizes": [[5, 14, 23], [], [5, 14, 23]]},
        },
    ),
    "alternating": Case(
        *(37, 11, 6, 0, [37, 2, 20]),
        {
            "model": {**BASIS, "centres": ["points", "kmeans"]},
            "start": {"method": "pca"},
            "penalty": {"mu_every": 2, "ridge_scale": "objective"},
            "method": {"name": "alternating"},
        },
    ),
    "sharded": Case(
        *(403, 0, 9, 0, [7, 5, 7]),
        {"model": {"sites": "before"}, "penalty": {**SETTLES_SOON, "factor": 3.0}, **SHARDED},
    ),
    "ring": Case(
        *(403, 0, 9, 0, [7, 5, 7]),
        {
            "penalty": {**SETTLES_SOON, "factor": 3.0},
            "w_step": {"schedule": "ring", "linear_solver": "same", "iterations": 2, "batch": 20},
            **SHARDED,
        },
    ),
    "minibatches": Case(
        *(403, 40, 9, 0, [7, 5, 7]),
        {"method": {"name": "stochastic"}, "stochastic": {"batch": 50, "parts": 5}, **SHARDED},
    ),
    "auto_parts": Case(*(403, 40, 9, 0, [7, 5, 7]), {"method": {"name": "stochastic"}, **SHARDED}),
    "sharded_layers": Case(
        *(403, 40, 9, 3, [7, 5, 6]),
        {
            "model": {"activation": ["quantise", "tanh", "sigmoid"], "words": 9},
            "penalty": {**SETTLES_SOON, "factor": 3.0},
            **SHARDED,
        },
    ),
    "sharded_halves": Case(
        *(403, 0, 6, 0, [30, 2, 20]),
        {
            "model": {**BASIS, "centres": ["subset", "kmeans"]},
            "start": {"method": "pca"},
            "penalty": {"mu_every": 2, "ridge_scale": "objective"},
            "method": {"name": "alternating"},
            **SHARDED,
        },
    ),
    "sharded_adam": Case(*(403, 40, 9, 0, [7, 5, 7]), {"method": {"name": "adam"}, **SHARDED}),
}
"""hasty: mu goes up at nearly every iteration; few: fewer points, units and tiles than ranks; long: mu creeps up, so
the run goes on until it is stopped, and it saves every iteration; architecture: its sizes change in iteration 3."""


def points(seed: int, rows: int, columns: int) -> np.ndarray:
    """Points near a plane of five dimensions."""
    random = np.random.default_rng(seed)
    plane = np.random.default_rng(99).standard_normal((5, columns))
    return random.standard_normal((rows, 5)) @ plane + 0.1 * random.standard_normal((rows, columns))


def write_case(folder: Path, name: str) -> Path:
    """Write folder/points.npz (sharded: points.h5) and folder/<name>.toml; gives the config's path."""
    case = CASES[name]
    arrays = {"X": points(1, case.rows, case.columns)}
    if case.validation:
        arrays["X_val"] = points(2, case.validation, case.columns)
    if case.targets:
        arrays["Y"], arrays["Y_val"] = (np.sin(arrays[k][:, : case.targets]) for k in ("X", "X_val"))
        if case.tables.get("model", {}).get("loss") == "cross_entropy":
            arrays |= {k: LABELS[arrays[k].argmax(axis=1)] for k in ("Y", "Y_val")}
    if case.tables.keys() >= SHARDED.keys():
        write_h5(folder / "points.h5", **arrays)
    else:
        np.savez(folder / "points.npz", **arrays)
    tables = {"method": {"name": "mac"}} | case.tables
    return write_config(folder / f"{name}.toml", {"hidden": case.hidden}, tables)


def write_h5(path: Path, **arrays: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def write_config(path: Path, model: dict[str, Any], tables: dict[str, dict[str, Any]]) -> Path:
    merged = {**tables, "model": {**model, **tables.get("model", {})}}
    lines = [f'data = "points.{"h5" if merged.keys() >= SHARDED.keys() else "npz"}"']
    for table, keys in merged.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]


def untimed(records: list[dict[str, Any]]) -> list[str]:
    """Every field but the seconds, the ranks and the run's id, with all the digits of its numbers."""
    told = ("ranks", "run")
    keep = [{k: v for k, v in record.items() if not k.startswith("seconds") and k not in told} for record in records]
    return [json.dumps(record) for record in keep]


def hdf5(path: Path) -> dict[str, Any]:
    """The bits of every dataset and the attributes of a file, but seconds, the model card, which has them, and ids."""
    with h5py.File(path, "r") as file:
        told = ("seconds", "card", "run")
        content: dict[str, Any] = {f"attribute {k}": v for k, v in file.attrs.items() if k not in told}

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                content[name] = (item.dtype.str, item.shape, item[()].tobytes())

        file.visititems(note)
    return content


def checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted((folder / "checkpoints").glob("*.h5"), reverse=True)


def assert_same_content(a: Path, b: Path) -> None:
    one, other = hdf5(a), hdf5(b)
    assert one.keys() == other.keys()
    assert [k for k in one if one[k] != other[k]] == [], f"{a} and {b} differ in these"


def assert_same_run(a: Path, b: Path, every_checkpoint: bool = True) -> None:
    """The same bits in the curve, the model and the checkpoints: weights, coordinates, mu, histories."""
    assert untimed(curve(a)) == untimed(curve(b))
    assert_same_content(a / "model.h5", b / "model.h5")
    ours, theirs = checkpoints(a), checkpoints(b)
    if every_checkpoint:
        assert [p.name for p in ours] == [p.name for p in theirs]
    for one, other in list(zip(ours, theirs, strict=False))[: None if every_checkpoint else 1]:
        assert one.name == other.name
        assert_same_content(one, other)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder: a launch that is refused leaves every one as it was."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} | {
        f"{p.relative_to(folder)}/": b"" for p in folder.rglob("*") if p.is_dir()
    }
