"""Offsets: where each block's weights and each segment's Gram lie in their flat buffers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from macmpi.nets.chain import Chain
from macmpi.parallel import tiles
from macmpi.plan.resolved import Regression


@dataclass(frozen=True)
class Offsets:
    """Bounds of the parameter blocks among the weights, and of the segments' Grams among the Grams.

    gram_shapes: (0, 0) for segments whose units share none.
    """

    weights: tuple[int, ...]
    grams: tuple[int, ...]
    gram_shapes: tuple[tuple[int, int], ...]

    def block(self, block: int) -> slice:
        """Gives the place of a parameter block among the weights."""
        return slice(self.weights[block], self.weights[block + 1])

    def gram(self, segment: int) -> slice:
        """Gives the place of a segment's Gram among the Grams."""
        return slice(self.grams[segment], self.grams[segment + 1])

    def large(self, segment: int) -> bool:
        """Its units share a Gram so large that it is made by rows and factored by all ranks jointly."""
        return self.gram_shapes[segment][1] > tiles.GRAM_WHOLE


def offsets(chain: Chain, regressions: tuple[Regression, ...]) -> Offsets:
    """The places that the shapes of a chain determine.  Collective: no."""

    def shape(k: int) -> tuple[int, int]:
        system = regressions[k].system
        rows = chain.inputs(chain.trained(k)[0]) + chain.has_bias(k) if system else 0
        return (rows, rows)

    shapes = tuple(shape(k) for k in range(len(chain.segments)))
    return Offsets(_bounds(chain.block_shapes), _bounds(shapes), shapes)


def _bounds(shapes: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return tuple(accumulate((a * b for a, b in shapes), initial=0))
