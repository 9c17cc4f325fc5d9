"""[model] -> the chain of maps that it describes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from macmpi import UsageError
from macmpi.config import Convolution, Model, Recurrent
from macmpi.nets.chain import Chain
from macmpi.nets.images import convolution, masked, pooling, readout, shape_read
from macmpi.nets.layers import Map, is_dense, registered
from macmpi.nets.layers.activation import Activation, Binary, Softmax, is_function
from macmpi.nets.layers.carrying import FirstState
from macmpi.nets.layers.centres import GaussianBasis, Quantiser
from macmpi.nets.layers.convolution import Shared
from macmpi.nets.layers.dense import Affine, Linear, Shift, Transposed
from macmpi.nets.layers.fitted import Kernels, Neighbours, Trees
from macmpi.nets.losses import loss_named
from macmpi.nets.segment import Columns
from macmpi.nets.skips import layers_with_skips


def build_chain(model: Model, n_in: int, n_out: int) -> Chain:
    """The hidden layers and the output layer; sites as the config puts them.

    A layer of radial basis functions is one map; a linear layer that reads it has no biases; every other layer is an
    affine map and its activation, or a convolution, its activation and, behind the site, its pooling, but that of a
    codebook (softmax), which belongs to it: its coordinates are histograms.  Other packages give kinds of layers by
    entry points of the group "macmpi.layers": functions (inputs, units) -> list of maps.
    """
    sites, before = list[int](), 0
    layers = layers_of(model, n_in, n_out)
    for i, (_, kind, site) in enumerate(model.layers()):
        before, cell = before + len(layers[i]), model.recurrences[i]
        steps = cell.steps if cell else 1
        if site != "none":
            adds = sum("adds" in m.own.capabilities for m in layers[i])
            last = before if site == "after" else before - 1 - adds - histograms(model.convolutions[i], kind)
            sites += [last - 2 * back for back in reversed(range(steps))]
    shared = sharing(model, layers)
    return Chain(tuple(m for maps in layers for m in maps), tuple(sites), shared.numbers, shared.reads)


def layers_of(model: Model, n_in: int, n_out: int) -> list[list[Map]]:
    """The maps of each hidden layer and of the output layer; a layer begins with the pooling of the one before."""
    if model.skips:
        return layers_with_skips(model, n_in, n_out)
    layers: list[list[Map]] = []
    size, last, pooled, image = n_in, list[Map](), list[Map](), tuple(model.image)
    widths, convolutions = iter(model.each("width", len(model.units))), model.convolutions
    for i, (units, kind, _) in enumerate(model.layers()):
        layer, key, before = convolutions[i], f"model.hidden.{i}", pooled
        pooled = []
        if cell := model.recurrences[i]:
            last = recurrent(cell, kind, size, i)
        elif layer is not None:
            own = convolution(layer, shape_read(layer, image, size, key), key)
            last = [own, _of_images(kind, own)]
            pooled, image = pooling(layer, own, key)
            if histograms(layer, kind):
                last, pooled = [*last, *pooled], []
        elif (sparse := model.sparse[i]) is not None:
            last = [masked(sparse, i, image, size), Activation(kind, units)]
        elif kind == "rbf":
            last = [GaussianBasis(size, units, next(widths))]
        elif kind == "nearest_neighbours":
            last = [Neighbours(size, units, model.examples)]
        elif kind == "kernel_ridge":
            last = [Kernels(size, units, model.examples, next(widths))]
        elif kind in ("forest", "boosted"):
            last = [Trees(size, units, model.trees, model.depth, kind)]
        elif is_function(kind) or kind in AFTER:
            last = _dense(size, units, kind, model, [*last, *before])
        else:
            last = list(registered({}, "macmpi.layers", kind)(size, units))
        layers.append([*before, *last])
        size, image = [*last, *pooled][-1].n_out, image if layer is not None else ()
    if model.readout == "dense":
        last = _dense(size, n_out, model.output, model, [*last, *pooled])
    else:
        own = readout(model.readout, image, size, n_out)
        last = [own, _of_images(model.output, own)]
    if model.output == "linear":
        last.pop()
    layers.append([*pooled, *last])
    return tied(model, layers, n_in) if model.tied else layers


AFTER: dict[str, Callable[[int, Model], Map]] = {
    "softmax": lambda units, model: Softmax(units),
    "binary": lambda units, model: Binary(units),
    "quantise": lambda units, model: Quantiser(units, model.words),
}
"""These words put another map after the affine one of a layer than an elementwise activation."""


def histograms(layer: Convolution | None, kind: str) -> bool:
    """A codebook whose shares are pooled: one number for each word and patch of the image."""
    return layer is not None and kind == "softmax" and layer.pool > 1


def _of_images(kind: str, own: Shared) -> Map:
    """The activation of a convolution; a softmax is one of its channels, at each pixel by itself."""
    return Softmax(own.n_out, math.prod(own.shape)) if kind == "softmax" else Activation(kind, own.n_out)


def _dense(size: int, units: int, kind: str, model: Model, before: list[Map]) -> list[Map]:
    reads_basis = bool(before) and is_basis(before[-1])
    unbiased = reads_basis and kind in ("linear", "quantise") and loss_named(model.loss).unit_hessian
    after = AFTER[kind](units, model) if kind in AFTER else Activation(kind, units)
    return [Linear(size, units) if unbiased else Affine(size, units), after]


def is_basis(map_: Map) -> bool:
    """Radial basis functions."""
    return "centres" in map_.capabilities and "jacobian" in map_.capabilities


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
    if not all(map(is_dense, first)) or any(model.recurrences):
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
