"""Fitters: which layer is fitted by which, and what is refused of them."""

from __future__ import annotations

from importlib.util import find_spec

from macmpi import UsageError
from macmpi.config import Config, Model
from macmpi.nets.build import layers_of
from macmpi.nets.chain import Chain
from macmpi.nets.layers import Map, registered
from macmpi.nets.losses import Loss
from macmpi.solvers.fitters import FITTERS, Fitter


def fitters(model: Model, chain: Chain) -> dict[int, str]:
    """The fitter of each parameter block that has one, by name: the config's, or else the layer's own."""
    own = {b: m.fitter for b, m in enumerate(chain.blocks) if m.fitter}
    if model.fitters == "auto" or chain.numbers:  # with shared weights a list is refused
        return own
    layers = layers_of(model, chain.n_in, chain.n_out)
    block = 0
    for name, maps in zip(model.each("fitters", len(layers)), layers, strict=True):
        weighted = [m for m in maps if m.parameter_shape is not None]
        if name != "auto" and weighted:
            own[block] = name
        block += len(weighted)
    return own


def fitter(name: str) -> Fitter:
    """The fitter of a name, of macmpi or of another package.  Collective: no."""
    found: Fitter = registered(FITTERS, "macmpi.fitters", name)()
    return found


def fitter_of(names: dict[int, str], segment_blocks: tuple[int, ...]) -> str:
    """The fitter of a segment, by name, or "".  Collective: no."""
    return next((names[b] for b in segment_blocks if b in names), "")


def check_fitters(names: dict[int, str], config: Config, chain: Chain, loss: Loss) -> None:
    """Refuse what fitters cannot do; before solvers are chosen."""
    for b, name in names.items():
        map_, own = chain.blocks[b], _known(name)
        word = f'a layer ({map_.spec()["kind"]}) is fitted by "{name}"'
        if map_.spec()["kind"] not in own.kinds:
            raise UsageError(
                f'model.fitters = "{name}" fits layers of the kind {", ".join(sorted(own.kinds))}, and a layer is '
                f'{map_.spec()["kind"]}; use "auto" there'
            )
        if own.library and find_spec(own.library) is None:
            missing = "scikit-learn" if own.library == "sklearn" else own.library
            raise UsageError(f"{word}, which needs {missing}, and that is not installed: pip install {missing}")
        k = next(i for i, s in enumerate(chain.segments) if b in s.weighted)
        segment, last = chain.segments[k], k + 1 == len(chain.segments)
        after = [m for m in segment.maps[segment.blocks.index(b) + 1 :] if not _does_nothing(m)]
        bits = len(after) == 1 and "bits" in after[0].capabilities
        what = "bits" if bits else "labels" if last and loss.labels else "numbers"
        if what not in own.targets:
            raise UsageError(
                f'model.fitters = "{name}" fits {" or ".join(sorted(own.targets))}, and segment {k + 1} should give '
                f'{what}; use "auto" there'
            )
        if last and what == "numbers" and config.loss.missing:
            raise UsageError(
                f"{word}, which is given every target, and with loss.missing = true some are not known; use "
                'model.fitters = "auto" there'
            )
        if segment.weighted != (b,):
            raise UsageError(
                f"{word}, which needs coordinates on either side, and segment {k + 1} holds another layer too; use "
                'model.sites = "after" at this layer and at the one before it'
            )
        if after and not bits:
            raise UsageError(
                f"{word}, which fits no activation behind it (segment {k + 1}); use "
                f'{"model.output" if last else "model.activation"} = "linear" there'
            )


def _does_nothing(map_: Map) -> bool:
    """It is the activation "linear"."""
    return "elementwise" in map_.capabilities and map_.trained_as == "linear"


def _known(name: str) -> Fitter:
    """Raises UsageError where no package gives the fitter that a layer names as its own."""
    try:
        return fitter(name)
    except KeyError:
        raise UsageError(
            f'a layer names the fitter "{name}", which nobody gives by an entry point of "macmpi.fitters"; '
            f"use one of {', '.join(FITTERS)} in model.fitters"
        ) from None
