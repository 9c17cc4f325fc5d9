"""A recurrent layer: its first state, and the steps behind that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.nets.layers import Built, Graph, Map, Place
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.carrying import Rearranging
from macmpi.typing import Array


@dataclass(frozen=True)
class FirstState(Rearranging):
    """b = [0, a]: `units` zeros, the state before the first step, and the inputs of that step.

    memory: the weights that multiply the state begin as this share of a matrix: the identity or an orthogonal one.
    """

    n_in: int
    units: int
    memory: float = 0.0
    identity: bool = False
    kind: ClassVar[str] = "first_state"

    @property
    def n_out(self) -> int:
        return self.units + self.n_in

    def remembered(self, random: Any) -> Array:
        """`memory` times the identity, as Le, Jaitly and Hinton (2015) have it, or a random orthogonal matrix."""
        Q, R = np.linalg.qr(random.standard_normal((self.units, self.units)))
        return self.memory * (np.eye(self.units) if self.identity else Q * np.sign(np.diag(R)))

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.pad(A, ((0, 0), (self.units, 0)))

    def back(self, dB: Array) -> Array:
        return dB[:, self.units :]

    def export(self, g: Graph, A: str, W: Any) -> str:
        return g.node("Pad", A, g.constant(np.array([0, self.units, 0, 0])))


UNBOUNDED = ("relu", "leaky_relu", "linear")
"""Activations under which recurrent weights begin as a share of the identity."""


def layer(place: Place) -> Built:
    """A first state, then an affine map and its activation for each step, which reads its own part of the data.

    Raises UsageError where the inputs are not as many equal parts, or are not the data.
    """
    asked, key, units = place.layer, place.key, place.units
    if place.number:
        raise UsageError(f"{key} is recurrent and reads the data step by step; make it the first of model.hidden")
    inputs, over = divmod(place.n_in, asked.steps)
    if over or not inputs:
        fitting = [n for n in range(2, place.n_in + 1) if place.n_in % n == 0]
        raise UsageError(
            f"{key}.steps = {asked.steps} does not divide the {place.n_in:,} columns of the data into equal parts; "
            f"use {_some(fitting)}"
        )
    step: list[Map] = [Affine(units + inputs, units), Activation(place.kind, units)]
    later = [((t * inputs, (t + 1) * inputs), None) for t in range(1, asked.steps)]
    return Built(
        [FirstState(inputs, units, asked.memory, place.kind in UNBOUNDED), *step * asked.steps],
        steps=asked.steps,
        blocks=(None, *[0, None] * asked.steps),
        reads=((0, inputs), None, None, *(read for pair in later for read in pair)),
    )


def _some(numbers: Sequence[int]) -> str:
    """The first and the last of some numbers."""
    shown = [*map(str, numbers)] if len(numbers) <= 8 else [*map(str, numbers[:6]), "...", str(numbers[-1])]
    return " or ".join(shown) if len(shown) < 3 else ", ".join(shown)
