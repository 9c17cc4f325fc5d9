"""Weights that several maps share: all steps of a recurrent layer, or a layer and the one that mirrors it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from macmpi import UsageError
from macmpi.config import Model, Recurrent
from macmpi.nets.layers import Map
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.recurrent import FirstState
from macmpi.nets.layers.tied import Shift, Transposed
from macmpi.nets.segment import Columns

UNBOUNDED = ("relu", "leaky_relu", "linear")
"""Activations under which recurrent weights begin as a share of the identity."""


@dataclass(frozen=True)
class Sharing:
    """The parameter block of each map, and the columns of the data that it reads; () where nothing is shared."""

    numbers: tuple[int | None, ...] = ()
    reads: tuple[Columns | None, ...] = ()


def recurrent(layer: Recurrent, kind: str, size: int, place: int) -> list[Map]:
    """The maps of a recurrent layer: its first state, then an affine map and its activation for each step.

    Raises UsageError where the inputs are not as many equal parts, or are not the data.
    """
    key = f"model.hidden.{place}"
    if place:
        raise UsageError(f"{key} is recurrent and reads the data step by step; make it the first of model.hidden")
    inputs, over = divmod(size, layer.steps)
    if over or not inputs:
        fitting = [n for n in range(2, size + 1) if size % n == 0]
        raise UsageError(
            f"{key}.steps = {layer.steps} does not divide the {size:,} columns of the data into equal parts; "
            f"use {_some(fitting)}"
        )
    units = layer.recurrent
    step: list[Map] = [Affine(units + inputs, units), Activation(kind, units)]
    return [FirstState(inputs, units, layer.memory, kind in UNBOUNDED), *step * layer.steps]


def _some(numbers: Sequence[int]) -> str:
    """The first and the last of some numbers."""
    shown = [*map(str, numbers)] if len(numbers) <= 8 else [*map(str, numbers[:6]), "...", str(numbers[-1])]
    return " or ".join(shown) if len(shown) < 3 else ", ".join(shown)


def tied(model: Model, layers: list[list[Map]], n_in: int) -> list[list[Map]]:
    """The layers with those of the decoder transposed: of K hidden layers j <= K/2 is tied to layer K + 1 - j.

    Raises UsageError for a net that is no mirror of dense layers.
    """
    units, K = model.units, len(model.units)
    sizes = [n_in, *units, layers[-1][0].n_out]
    first = [maps[0] for maps in layers]
    plain = all({"linear", "bias"} <= m.capabilities and m.connected is None for m in first)
    if not plain or any(model.recurrences):
        raise UsageError(
            "model.tied = true makes the decoder the transpose of an encoder of dense layers, and model.hidden has "
            "others (sparse, recurrent, convolutions, ...); use numbers of units there, or tied = false"
        )
    if sizes[0] != sizes[-1]:
        raise UsageError(
            f"model.tied = true goes with an autoencoder, and here {sizes[0]:,} columns are to give {sizes[-1]:,} "
            "targets; use data without targets (data.target = []), or tied = false"
        )
    if K % 2 == 0 or sizes != sizes[::-1]:
        encoder = units[: (K + 1) // 2]
        raise UsageError(
            "model.tied = true makes the decoder the transpose of the encoder, and the sizes "
            f"{'-'.join(map(str, sizes))} are no mirror with one code in the middle; use model.hidden = "
            f"{[*encoder, *encoder[-2::-1]]}, or tied = false"
        )
    half = (K + 1) // 2
    mirror = [list[Map]([Transposed(m[0].n_in, m[0].n_out), Shift(m[0].n_out), *m[1:]]) for m in layers[half:]]
    return [*layers[:half], *mirror]


def sharing(model: Model, layers: list[list[Map]]) -> Sharing:
    """The blocks of the maps, those of a decoder next to those that they are tied to, and the data of each step."""
    if model.tied:
        return _mirrored(layers)
    numbers, reads = list[int | None](), list[Columns | None]()
    for layer, maps in zip([*model.recurrences, None], layers, strict=True):
        taken = len({b for b in numbers if b is not None})
        if layer is None:
            count = iter(range(taken, taken + len(maps)))
            numbers += [None if m.parameter_shape is None else next(count) for m in maps]
            reads += [None] * len(maps)
            continue
        inputs = maps[0].n_in
        numbers += [None, *[taken, None] * layer.steps]
        later = [((t * inputs, (t + 1) * inputs), None) for t in range(1, layer.steps)]
        reads += [(0, inputs), None, None, *(read for pair in later for read in pair)]
    return Sharing(tuple(numbers), tuple(reads)) if any(model.recurrences) else Sharing()


def _mirrored(layers: list[list[Map]]) -> Sharing:
    """Layer j has block 2 j; the one tied to it the same, and its biases block 2 j + 1."""
    half, numbers = len(layers) // 2, list[int | None]()
    for j, maps in enumerate(layers):
        own = 2 * j if j < half else 2 * (len(layers) - 1 - j)
        first = [own] if j < half else [own, own + 1]
        numbers += [*first, *[None] * (len(maps) - len(first))]
    return Sharing(tuple(numbers))
