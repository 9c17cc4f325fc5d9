"""What to compare a net with: the best constant and, for an autoencoder, principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from macmpi.chain import Chain
from macmpi.data import Dataset

PCA_LIMIT = 2048
"""The most columns for which principal components are computed."""


@dataclass(frozen=True)
class Level:
    """E1 per training point, or the share of misclassified ones."""

    name: str
    value: float
    share: bool = False

    def __str__(self) -> str:
        return f"{self.name:28s} " + (f"wrong train {self.value:6.2%}" if self.share else f"E1 train {self.value:9.4f}")


def levels(chain: Chain, data: Dataset) -> list[Level]:
    """Of the best constant and, for an autoencoder, of PCA with as many components as the code has units."""
    n = len(data.Y)
    if data.classes is not None:
        share = data.Y.mean(axis=0, dtype=float)
        entropy = -float(np.sum(share * np.log(np.maximum(share, 1e-300))))
        return [
            Level("predict the shares", entropy),
            Level("predict the largest class", float(1.0 - share.max()), share=True),
        ]
    centred = data.Y - data.Y.mean(axis=0, dtype=float)
    found = [Level("predict the mean", 0.5 * float(np.einsum("nl,nl->", centred, centred)) / n)]
    if data.autoencoder and data.Y.shape[1] <= PCA_LIMIT:
        code = min(min(chain.layer_sizes[1:-1]), data.Y.shape[1])
        values = np.linalg.eigvalsh(centred.T @ centred)
        lost = max(float(values[: len(values) - code].sum()), 0.0)
        found.append(Level(f"PCA with {code} component{'s' if code > 1 else ''}", 0.5 * lost / n))
    return found
