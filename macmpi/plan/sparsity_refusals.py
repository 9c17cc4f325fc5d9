"""Refuse a sparsity of coordinates where there are none that it could draw to 0: one sentence each, with a remedy."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import Config
from macmpi.nets.chain import Chain


def check_sparsity(config: Config, chain: Chain) -> None:
    """Refuse penalty.sparsity for what has no coordinates of its own; before solvers are chosen.  Collective: no."""
    penalty, layers = config.penalty, config.model.layers()
    if isinstance(penalty.sparsity, list) and len(penalty.sparsity) != len(layers):
        raise UsageError(
            f"penalty.sparsity has {len(penalty.sparsity)} values, and the net has {len(layers)} hidden layers; give "
            f"one value, or {len(layers)}"
        )
    if not penalty.sparse:
        return
    free = "leave penalty.sparsity out"
    if config.method.name != "mac":
        raise UsageError(
            f'penalty.sparsity draws coordinates to 0, and those of method.name = "{config.method.name}" are what the '
            f'net computes, or there are none; use method.name = "mac", or {free}'
        )
    if config.method.acceleration not in ("auto", "none"):
        raise UsageError(
            f'method.acceleration = "{config.method.acceleration}" makes coordinates feasible after each iteration, so '
            f'that penalty.sparsity is undone; use method.acceleration = "none", or {free}'
        )
    if config.selection.criterion != "none":
        raise UsageError(
            f'selection.criterion = "{config.selection.criterion}" compares nets without penalty.sparsity; use '
            f'criterion = "none", or {free}'
        )
    if any("bits" in s.maps[-1].capabilities or s.trailing for s in chain.segments[:-1]):
        raise UsageError(
            f"penalty.sparsity of coordinates that are bits or codewords, of which none is near 0 by degrees; {free}"
        )
    sited = [site != "none" for _, _, site in layers]
    if not any(sited) or len(chain.sites) != sum(sited):
        raise UsageError(
            "penalty.sparsity needs a site at each hidden layer that it names, one a layer, and this net has "
            f'{len(chain.sites)} for {len(layers)} layers; use model.sites = "after" and no recurrent layer, or {free}'
        )
    if isinstance(penalty.sparsity, list):
        for i, (size, site) in enumerate(zip(penalty.sparsity, sited, strict=True), start=1):
            if size > 0.0 and not site:
                raise UsageError(
                    f'penalty.sparsity names hidden layer {i}, which has no coordinates (model.sites = "none" there); '
                    "use a list with 0.0 there, or a site after it"
                )
