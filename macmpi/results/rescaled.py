"""Weights of a first and of a last layer for data that are scaled in another way: the same function of the data."""

from __future__ import annotations

import numpy as np

from macmpi import UsageError
from macmpi.data.scaling import Scaling
from macmpi.nets.layers import Map
from macmpi.typing import Array


def first_rescaled(map_: Map, W: Array, old: Scaling, new: Scaling) -> None:
    """Exchanges, in the weights W of the first layer, the old scaling of its inputs for the new one.

    Raises UsageError where its weights cannot hold the difference.  Collective: no.
    """
    if _same(old, new):
        return
    if _is_dense(map_):
        W[:, -1] += W[:, :-1] @ ((new.shift - old.shift) / old.scale)
        W[:, :-1] *= new.scale / old.scale
    elif "centres" in map_.capabilities and np.array_equal(new.scale, old.scale):
        W += (old.shift - new.shift) / old.scale
    elif "bias" in map_.capabilities and _uniform(old, new) and not (new.shift - old.shift).any():
        W[:, :-1] *= new.scale[0] / old.scale[0]
    else:
        raise UsageError(_kept(map_))


def last_rescaled(map_: Map, W: Array, old: Scaling, new: Scaling) -> None:
    """Exchanges, in the weights W of the last layer, the old scaling of the targets for the new one.

    Raises UsageError where its weights cannot hold the difference.  Collective: no.
    """
    if _same(old, new):
        return
    biased = "bias" in map_.capabilities
    if "linear" in map_.capabilities and (biased or np.array_equal(new.shift, old.shift)):
        W *= (old.scale / new.scale)[:, None]
        if biased:
            W[:, -1] += (old.shift - new.shift) / new.scale
    elif biased and _uniform(old, new):
        W *= old.scale[0] / new.scale[0]
        W[:, -1] += (old.shift[0] - new.shift[0]) / new.scale[0]
    else:
        raise UsageError(_kept(map_))


def shared_kept(*pairs: tuple[Scaling, Scaling]) -> None:
    """Weights that several maps share cannot hold any difference of old and new scaling.

    Raises UsageError.  Collective: no.
    """
    if not all(_same(old, new) for old, new in pairs):
        raise UsageError("its shared weights keep to the scaling of their own data; use those, or the same data.scale")


def _same(old: Scaling, new: Scaling) -> bool:
    return np.array_equal(new.scale, old.scale) and np.array_equal(new.shift, old.shift)


def _uniform(old: Scaling, new: Scaling) -> bool:
    """Each of them is one shift and one scale for all columns, so that weights that pixels share can hold them."""
    return all(not np.ptp(array) for scaling in (old, new) for array in (scaling.shift, scaling.scale))


def _is_dense(map_: Map) -> bool:
    """Its weights are [V, c], a column for each input and one for the biases."""
    return {"linear", "bias"} <= map_.capabilities


def _kept(map_: Map) -> str:
    kind = map_.fitter or ("radial basis functions" if "centres" in map_.capabilities else map_.spec()["kind"])
    return f"its weights ({kind}) keep to the scaling of their own data; use those, or the same data.scale"
