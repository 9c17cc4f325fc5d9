"""Sizes, bounds and lists of a penalty that fit no net are refused: a sentence, a remedy."""

from __future__ import annotations

from macmpi import UsageError, many
from macmpi.config import Config
from macmpi.nets.chain import Chain, Segment
from macmpi.plan.choices import regressed
from macmpi.plan.shaping import Shaping, shaping_of

LISTS = ("ridge", "l1", "group_lasso", "weights_min", "weights_max")


def check_shaping(config: Config, chain: Chain) -> None:
    """Refuse lists of another length than the net has layers, and sizes that contradict; before solvers are chosen."""
    penalty, layers = config.penalty, len(regressed(chain))
    if config.model.tied and isinstance(penalty.value("ridge"), list):
        raise UsageError(
            "model.tied = true and a list penalty.ridge: a layer and the one tied to it have one ridge; give one number"
        )
    for key in LISTS:
        given = penalty.value(key)
        if isinstance(given, list) and len(given) != layers:
            raise UsageError(
                f"penalty.{key} has {many(len(given), 'value')}, and the net has {many(layers, 'layer')} whose weights "
                f"regressions fit; give one value, or {layers}"
            )
    if not penalty.shaping:
        return
    key, shaping = f"penalty.{penalty.shaping[0]}", shaping_of(penalty, regressed(chain))
    _check_sizes(shaping)
    for k, segment in enumerate(chain.segments, start=1):
        if set(segment.regressed) & set(shaping.restrained):
            _check_layer(key, k, segment, shaping)


def _check_sizes(shaping: Shaping) -> None:
    for layer, asked in enumerate(shaping.restraints, start=1):
        shrinks = "penalty.l1" if asked.l1 > 0.0 else "penalty.group_lasso" if asked.group > 0.0 else ""
        if asked.least > asked.most:
            raise UsageError(
                f"penalty.weights_min = {asked.least:g} is above penalty.weights_max = {asked.most:g} (layer {layer}); "
                "use a smaller weights_min"
            )
        if shrinks and not asked.least <= 0.0 <= asked.most:
            raise UsageError(
                f"{shrinks} draws weights to 0, which penalty.weights_min and weights_max leave out (layer {layer}); "
                "use bounds around 0, or leave them out"
            )
        if asked.joins and (asked.most != float("inf") or asked.least not in (0.0, float("-inf"))):
            raise UsageError(
                f"penalty.group_lasso shrinks the weights of an input together, and bounds other than "
                f"weights_min = 0 move them one by one (layer {layer}); use penalty.l1, or leave the bounds out"
            )


def _check_layer(key: str, k: int, segment: Segment, shaping: Shaping) -> None:
    kinds = {map_.spec()["kind"]: map_.capabilities for map_ in segment.fitted}
    for kind in (kind for kind, capabilities in kinds.items() if not {"linear", "patches"} & capabilities):
        raise UsageError(
            f"{key} holds for the weights of inputs, and a layer of segment {k} ({kind}) multiplies its inputs by "
            "none; use a list without it for that layer"
        )
    if segment.trailing or any("bits" in map_.capabilities for map_ in segment.maps):
        kind = next(m.spec()["kind"] for m in segment.maps[::-1] if m.n_out == segment.n_out)
        raise UsageError(
            f"{key} does not go with a layer that ends in values of its own choice (segment {k}, {kind}): weights are "
            "kept there by their errors alone; use a list without it for that layer"
        )
