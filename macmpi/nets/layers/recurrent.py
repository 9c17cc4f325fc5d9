"""Recurrent layers as maps of a flat chain: the first state, and then the steps."""

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
    """a -> [0, a]: puts the state before the first step, `units` zeros, in front of the inputs a of that step.

    memory: the weights that multiply the state begin as this multiple of a matrix.
    identity: whether this matrix is the identity; otherwise it is a random orthogonal one.
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
        """Returns `memory` times the identity, as Le, Jaitly and Hinton (2015), or a random orthogonal matrix."""
        Q, R = np.linalg.qr(random.standard_normal((self.units, self.units)))
        return self.memory * (np.eye(self.units) if self.identity else Q * np.sign(np.diag(R)))

    def forward(self, W: Any, A: Array, out: Array | None = None) -> Array:
        return np.pad(A, ((0, 0), (self.units, 0)))

    def back(self, dB: Array) -> Array:
        return dB[:, self.units :]


@dataclass(frozen=True)
class Remember(Rearranging):
    """[h, p, x] -> [h, x, p, h]: the next step reads [h, x]; the state h also joins the earlier states p.

    h: the present state, of `units` numbers; x: the `inputs` of the next step; p: earlier states, `past` numbers.
    """

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
        h, x, p, again = np.split(dB, np.cumsum([self.units, self.inputs, self.past]), axis=1)
        return np.hstack([h + again, p, x])


UNBOUNDED = ("relu", "leaky_relu", "linear")
"""The activations with which recurrent weights begin as a multiple of the identity."""


def layer(place: Place) -> Built:
    """Builds a recurrent layer: the first state, then for each step an affine map and its activation.

    Each step reads its own part of the data or, after another recurrent layer, a state of that layer.  States that are
    carried past a step become coordinates at its site, like the columns of skips; data do not.
    Raises UsageError if the inputs cannot be cut into `steps` equal parts, or are neither data nor states.
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
    """Yields the maps of each step.

    They carry along, after the present state, the earlier states (where all states are outputs) and then the inputs
    that are not read yet (where these are states of another layer).
    """
    asked, units, every = place.layer, place.units, place.layer.given > 1
    for t in range(asked.steps):
        rest, past = (asked.steps - 1 - t) * inputs if place.number else 0, t * units if every else 0
        begins: list[Map] = [Remember(units, past - units, inputs)] if past else []
        if not t:
            begins = [FirstState(inputs, units, asked.memory, place.kind in UNBOUNDED)]
        step = [Affine(units + inputs, units), Activation(place.kind, units)]
        yield [*(carry(map_, rest) for map_ in begins), *(carry(map_, past + rest) for map_ in step)]


def _some(numbers: Sequence[int]) -> str:
    """Writes some numbers for a message; of more than 8, the first six and the last."""
    shown = [*map(str, numbers)] if len(numbers) <= 8 else [*map(str, numbers[:6]), "...", str(numbers[-1])]
    return " or ".join(shown) if len(shown) < 3 else ", ".join(shown)
