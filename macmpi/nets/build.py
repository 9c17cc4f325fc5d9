"""[model] -> the chain of maps that it describes."""

from __future__ import annotations

from collections.abc import Callable

from macmpi.config import Model
from macmpi.nets.chain import Chain
from macmpi.nets.images import convolution, pooling, readout, shape_read
from macmpi.nets.layers import Map, registered
from macmpi.nets.layers.activation import Activation, is_function
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.discrete import Binary, Quantiser
from macmpi.nets.layers.linear import Linear
from macmpi.nets.layers.rbf import GaussianBasis
from macmpi.nets.layers.softmax import Softmax
from macmpi.nets.losses import loss_named


def build_chain(model: Model, n_in: int, n_out: int) -> Chain:
    """The hidden layers and the output layer; sites as the config puts them.

    A layer of radial basis functions is one map; a linear layer that reads it has no biases; every other layer is an
    affine map and its activation, or a convolution, its activation and, behind the site, its pooling.  Other packages
    give kinds of layers by entry points of the group "macmpi.layers": functions (inputs, units) -> list of maps.
    """
    maps: list[Map] = []
    sites, size = [], n_in
    image: tuple[int, ...] = tuple(model.image)
    widths, convolutions = iter(model.each("width", len(model.units))), model.convolutions
    for i, (units, kind, site) in enumerate(model.layers()):
        layer, key, pooled = convolutions[i], f"model.hidden.{i}", list[Map]()
        if layer is not None:
            own = convolution(layer, shape_read(layer, image, size, key), key)
            maps += [own, Activation(kind, own.n_out)]
            pooled, image = pooling(layer, own, key)
        elif kind == "rbf":
            maps.append(GaussianBasis(size, units, next(widths)))
        elif is_function(kind) or kind in AFTER:
            maps += _dense(size, units, kind, model, maps)
        else:
            maps += registered({}, "macmpi.layers", kind)(size, units)
        if site != "none":
            sites.append(len(maps) if site == "after" else len(maps) - 1)
        maps += pooled
        size, image = maps[-1].n_out, image if layer is not None else ()
    if model.readout == "dense":
        maps += _dense(size, n_out, model.output, model, maps)
    else:
        maps += [readout(model.readout, image, size, n_out), Activation(model.output, n_out)]
    if model.output == "linear" and maps[-1].parameter_shape is None:
        maps.pop()
    return Chain(tuple(maps), tuple(sites))


AFTER: dict[str, Callable[[int, Model], Map]] = {
    "softmax": lambda units, model: Softmax(units),
    "binary": lambda units, model: Binary(units),
    "quantise": lambda units, model: Quantiser(units, model.words),
}
"""These words put another map after the affine one of a layer than an elementwise activation."""


def _dense(size: int, units: int, kind: str, model: Model, before: list[Map]) -> list[Map]:
    reads_basis = bool(before) and is_basis(before[-1])
    unbiased = reads_basis and kind in ("linear", "quantise") and loss_named(model.loss).unit_hessian
    after = AFTER[kind](units, model) if kind in AFTER else Activation(kind, units)
    return [Linear(size, units) if unbiased else Affine(size, units), after]


def is_basis(map_: Map) -> bool:
    """Radial basis functions."""
    return "centres" in map_.capabilities and "jacobian" in map_.capabilities
