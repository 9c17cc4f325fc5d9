"""Places of a net's weights, Grams and inverses in flat buffers, as a State keeps and ranks exchange them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from macmpi.methods.stochastic.lowrank import Dense, Inverse, LowRank, Multiple
from macmpi.typing import Array


@dataclass(frozen=True)
class Layout:
    """Places of the layers' numbers in flat buffers: weights (h, d), d with the bias, Grams (d, d), and inverses.

    low_rank: of the inverses of G_1, M_1, G_2, M_2, ... those that are made of eigenvectors, and of how many.
    """

    shapes: tuple[tuple[int, int], ...]
    low_rank: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def weights(self) -> tuple[slice, ...]:
        return _runs([h * d for h, d in self.shapes])

    @cached_property
    def grams(self) -> tuple[slice, ...]:
        return _runs([d * d for _, d in self.shapes])

    @cached_property
    def squares(self) -> tuple[slice, ...]:
        """Inverses of Grams and metrics in turn: of G_1, M_1, G_2, M_2, ..."""
        return _runs([n * columns for n, columns in self._square_shapes])

    @cached_property
    def _square_shapes(self) -> list[tuple[int, int]]:
        return [(n, self.low_rank.get(j, n)) for j, n in enumerate(self.sides)]

    @cached_property
    def sides(self) -> tuple[int, ...]:
        return tuple(n for h, d in self.shapes for n in (d, h))

    @cached_property
    def spectra(self) -> tuple[slice, ...]:
        """Eigenvalues of Grams and metrics in turn, or LowRank.shares, as `squares` has their eigenvectors."""
        return _runs(self.sides)

    def place(self, layer: int, rows: slice) -> slice:
        """Gives the place of some rows of a layer's weights."""
        start, d = self.weights[layer].start, self.shapes[layer][1]
        return slice(start + rows.start * d, start + rows.stop * d)

    def blocks(self, flat: Array) -> list[Array]:
        """Views (h, d) of the weights, or of anything of their shape."""
        return [flat[part].reshape(shape) for part, shape in zip(self.weights, self.shapes, strict=True)]

    def square_blocks(self, flat: Array) -> list[Array]:
        """Views of the inverses of G_1, M_1, G_2, M_2, ...: (n, n), or some eigenvectors (n, r)."""
        return [flat[part].reshape(shape) for part, shape in zip(self.squares, self._square_shapes, strict=True)]

    def inverses(self, flat: Array, spectra: Array, identity: Container[int] = ()) -> list[Inverse]:
        """Inverses to apply, of G_1, M_1, G_2, M_2, ....  identity: layers whose metric is the identity."""

        def inverse(j: int, square: Array, own: slice) -> Inverse:
            if j % 2 and j // 2 in identity:
                return Multiple(square[0, 0])
            return LowRank(square, spectra[own][: self.low_rank[j] + 1]) if j in self.low_rank else Dense(square)

        pairs = zip(self.square_blocks(flat), self.spectra, strict=True)
        return [inverse(j, square, own) for j, (square, own) in enumerate(pairs)]

    def gram_blocks(self, flat: Array) -> list[Array]:
        """Views G_k (d, d)."""
        return [flat[part].reshape(d, d) for part, (_, d) in zip(self.grams, self.shapes, strict=True)]


def _runs(sizes: Sequence[int]) -> tuple[slice, ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(slice(end - size, end) for size, end in zip(sizes, ends, strict=True))
