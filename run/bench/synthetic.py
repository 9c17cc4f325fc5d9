"""A larger problem without a data set: points from a smooth random map of a few latent numbers, with noise."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

POINTS, HELD_OUT, LATENT, WIDTH = 10_000, 1_000, 20, 256
HIDDEN = [300, 100, 20, 100, 300]


def write_problem(folder: Path, points: int = POINTS) -> Path:
    """Write synthetic.h5 and .toml, the net of run/usps_mac.toml on more points.  Gives its path."""
    random = np.random.default_rng(0)
    A, B = random.normal(size=(LATENT, 100)) / np.sqrt(LATENT), random.normal(size=(100, WIDTH)) / 10.0
    latent = random.normal(size=(points + HELD_OUT, LATENT))
    X = 1.0 / (1.0 + np.exp(-4.0 * np.tanh(2.0 * latent @ A) @ B)) + 0.02 * random.normal(
        size=(points + HELD_OUT, WIDTH)
    )
    data, config = folder / "synthetic.h5", folder / "synthetic.toml"
    with h5py.File(data, "w") as file:
        file["X"], file["X_val"] = X[:points], X[points:]
    config.write_text(
        f'[data]\nsource = "{data}"\nscale = "none"\n\n[model]\nhidden = {HIDDEN}\n\n[start]\nrange = 2.0\n\n'
        '[penalty]\nmu0 = 10.0\nridge = 0.01\nridge_scale = "unit"\n\n[parallel]\ndata = "node"\n'
    )
    return config
