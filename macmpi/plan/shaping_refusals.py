"""Restraints that no W-solver can fit are refused: a sentence, a remedy."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import Config
from macmpi.nets.chain import Chain, Segment
from macmpi.plan.choices import regressed
from macmpi.plan.fitted import fitters
from macmpi.plan.shaping import Shaping, shaping_of

LISTS = ("ridge", "l1", "group_lasso", "weights_min", "weights_max")


def check_shaping(config: Config, chain: Chain) -> None:
    """Refuse lists of another length than the net has layers, and what no W-solver fits; before solvers are chosen."""
    penalty, layers = config.penalty, len(regressed(chain))
    for key in LISTS:
        given = penalty.value(key)
        if isinstance(given, list) and len(given) != layers:
            raise UsageError(
                f"penalty.{key} has {len(given)} values, and the net has {layers} layers whose weights regressions "
                f"fit; give one value, or {layers}"
            )
    if not penalty.shaping:
        return
    key = f"penalty.{penalty.shaping[0]}"
    _check_method(config, key)
    shaping = shaping_of(penalty, regressed(chain))
    _check_sizes(shaping)
    fitted = fitters(config.model, chain)
    for k, segment in enumerate(chain.segments, start=1):
        restrained = set(segment.regressed) & set(shaping.restrained)
        if restrained:
            _check_layer(key, k, segment, shaping)
        for b in sorted(restrained & set(fitted)):
            raise UsageError(
                f'{key} is fitted by w_step.solver = "proximal", and "{fitted[b]}" fits a layer of segment {k} without '
                'it; use model.fitters = "auto" there, or a list without it for that layer'
            )


def _check_method(config: Config, key: str) -> None:
    free = "leave it out"
    if config.method.name != "mac":
        raise UsageError(
            f'{key} is fitted by the W-step of method.name = "mac", and "{config.method.name}" has none that does; '
            f'use method.name = "mac", or {free}'
        )
    solver = config.w_step.solver
    if config.w_step.schedule == "ring":
        raise UsageError(
            f'{key} does not go with w_step.schedule = "ring", whose minibatches make no weight exactly 0; '
            f'use w_step.schedule = "units", or {free}'
        )
    if solver not in ("auto", "proximal"):
        raise UsageError(
            f'{key} is fitted by w_step.solver = "proximal" alone, and the config says "{solver}"; '
            f'use "proximal" or "auto", or {free}'
        )
    if config.penalty.metric != "identity":
        raise UsageError(
            f'penalty.metric = "{config.penalty.metric}" with {key} gives every unit another size of it; '
            f'use penalty.metric = "identity", or {free}'
        )
    if config.selection.criterion != "none":
        raise UsageError(
            f'selection.criterion = "{config.selection.criterion}" compares nets by fits with a ridge alone, not with '
            f'{key}; use selection.criterion = "none", or {free}'
        )


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
