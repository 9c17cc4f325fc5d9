"""A recurrent layer: its first state, and the steps behind that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from macmpi import UsageError
from macmpi.nets.layers import Built, Map, Place
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.carrying import Rearranging, Turn, carry
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


@dataclass(frozen=True)
class Remember(Rearranging):
    """[h, x, p, h] of [h, p, x]: the state and the next inputs; behind them all states so far, p of `past` numbers."""

    units: int
    past: int
    inputs: int
    kind: ClassVar[str] = "remember"

    @property
    def n_in(self) -> int:
        return self.units + self.past + self.inputs

    @property
    def n_out(self) -> int:
        return self.n_in + self.units

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        h, p, x = np.split(A, [self.units, self.units + self.past], axis=1)
        return np.hstack([h, x, p, h])

    def back(self, dB: Array) -> Array:
        ends = np.cumsum([self.units, self.inputs, self.past])
        h, x, p, again = np.split(dB, ends, axis=1)
        return np.hstack([h + again, p, x])


UNBOUNDED = ("relu", "leaky_relu", "linear")
"""Activations under which recurrent weights begin as a share of the identity."""


def layer(place: Place) -> Built:
    """A first state, then an affine map and its activation for each step, which reads its own part of the data.

    Behind another recurrent layer it reads the states of that.  Those that it carries on become coordinates where it
    has sites, as what skips carry does; data do not.  Raises UsageError where the inputs are not as many equal parts,
    or are neither data nor states.
    """
    asked, key = place.layer, place.key
    before = place.model.tables.get(place.number - 1)
    if place.number and (before is None or before.given != asked.steps):
        raise UsageError(
            f"{key} is recurrent and reads the data step by step; make it the first of model.hidden, or give the "
            f'layer before it recurrent units, steps = {asked.steps} and states = "all"'
        )
    inputs, over = divmod(place.n_in, asked.steps)
    if over or not inputs:
        fitting = [n for n in range(2, place.n_in + 1) if place.n_in % n == 0]
        raise UsageError(
            f"{key}.steps = {asked.steps} does not divide the {place.n_in:,} columns of the data into equal parts; "
            f"use {_some(fitting)}"
        )
    steps = list(_steps(place, inputs))
    turned = [Turn(place.n_in, inputs)] if place.number else []
    reads = [((t * inputs, (t + 1) * inputs), *[None] * (len(step) - 1)) for t, step in enumerate(steps)]
    maps = [*turned, *(map_ for step in steps for map_ in step)]
    return Built(
        maps,
        steps=asked.steps,
        apart=len(steps[-1]),
        blocks=tuple(None if map_.parameter_shape is None else 0 for map_ in maps),
        reads=() if place.number else tuple(read for step in reads for read in step),
    )


def _steps(place: Place, inputs: int) -> Iterator[list[Map]]:
    """The maps of each step; behind the state are those before it, if all are given, then states not read yet."""
    asked, units, every = place.layer, place.units, place.layer.given > 1
    for t in range(asked.steps):
        rest, past = (asked.steps - 1 - t) * inputs if place.number else 0, t * units if every else 0
        begins: list[Map] = [Remember(units, past - units, inputs)] if past else []
        if not t:
            begins = [FirstState(inputs, units, asked.memory, place.kind in UNBOUNDED)]
        step = [Affine(units + inputs, units), Activation(place.kind, units)]
        yield [*(carry(map_, rest) for map_ in begins), *(carry(map_, past + rest) for map_ in step)]


def _some(numbers: Sequence[int]) -> str:
    """The first and the last of some numbers."""
    shown = [*map(str, numbers)] if len(numbers) <= 8 else [*map(str, numbers[:6]), "...", str(numbers[-1])]
    return " or ".join(shown) if len(shown) < 3 else ", ".join(shown)
