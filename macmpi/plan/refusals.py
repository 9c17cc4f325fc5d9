"""Refuse what does not fit together: one sentence each, with a remedy.  docs/refusals.md has the table."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import NESTED, Config
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.losses import Loss
from macmpi.plan.choices import Choices
from macmpi.plan.layer_refusals import check_bits
from macmpi.plan.minibatches import minibatch_parts
from macmpi.solvers import W_SOLVERS, WSolver

FLOAT32_MU = 1e4
"""Largest mu at which float32 coordinates still carry the constraints' digits."""


def check(config: Config, chain: Chain, choices: Choices) -> None:
    """Refuse what does not fit together, each case in one sentence with a remedy."""
    model, penalty, z_solver = config.model, config.penalty, choices.z_solver
    _check_loss(config, choices.loss)
    if config.method.name not in NESTED and model.precision == "float32" and penalty.mu_max > FLOAT32_MU:
        raise UsageError(
            f'model.precision = "float32" loses the constraints\' digits beyond mu = {FLOAT32_MU:g} '
            f"(penalty.mu_max = {penalty.mu_max:g}); use penalty.mu_max = {FLOAT32_MU:g}, or float64"
        )
    if penalty.method == "augmented_lagrangian" and not chain.sites:
        raise UsageError(
            'penalty.method = "augmented_lagrangian" needs constraints and model.sites = "none" has none; '
            'use model.sites = "after" or "before"'
        )
    if config.run.refit is True and not can_refit(config):
        raise UsageError(
            "run.refit = true repeats a run on other points: it needs a method without coordinates or penalty.mu_every "
            '> 0, start.method "uniform", "pca", "greedy" or "staged", points that are not sharded and no selection; '
            "use run.refit = false"
        )
    check_bits(config, chain, z_solver)
    _check_metric(config, choices)
    if config.method.name in NESTED:  # no half step is taken
        return
    for k, regression in enumerate(choices.regressions):
        if chain.groups[k]:
            _check_segment(config, chain, k, regression.solver, regression.by_unit)
    for k, (segment, regression) in enumerate(zip(chain.segments, choices.regressions, strict=True), start=1):
        if any(m.connected is not None for m in segment.fitted) and not regression.solver.masks:
            raise UsageError(
                f'w_step.solver = "{config.w_step.solver}" does not say that it leaves weights at 0 that do not exist, '
                f"and a layer of segment {k} is sparse; use auto"
            )
    for k, segment in enumerate(chain.segments[1:], start=2):
        for map_ in segment.maps:
            for need in z_solver.needs - map_.capabilities:
                raise UsageError(
                    f"z_step.solver = \"{config.z_step.solver}\" needs '{need}'; segment {k} ({map_.spec()['kind']}) "
                    "does not offer it; make it the first of model.hidden, with no site before it"
                )


def _check_loss(config: Config, loss: Loss) -> None:
    model = config.model
    if loss.link != "identity" and model.output != "linear":
        raise UsageError(
            f'model.loss = "{model.loss}" has its own {loss.link}: model.output = "{model.output}" does not go with '
            'it; use model.output = "linear"'
        )
    if config.loss.missing and not loss.missing:
        why = "a point has one label" if loss.labels else "this loss does not say that outputs may be missing"
        raise UsageError(
            f'loss.missing = true leaves single outputs out, and with model.loss = "{model.loss}" {why}; '
            "leave out the points without targets, and use loss.missing = false"
        )
    if config.loss.missing and config.selection.criterion != "none":
        raise UsageError(
            f'selection.criterion = "{config.selection.criterion}" compares errors by one factor of all outputs, and '
            'with loss.missing = true each has points of its own; use criterion = "none", or loss.missing = false'
        )


def can_refit(config: Config) -> bool:
    """Tells whether a run can be repeated on other points: its schedule and its start do not depend on them."""
    scheduled = config.method.name in NESTED or (
        config.method.name == "mac" and config.penalty.method == "quadratic" and config.penalty.value("mu_every") > 0
    )
    whole = config.parallel.data != "sharded" and config.selection.criterion == "none"
    return scheduled and whole and config.start.method in ("auto", "uniform", "pca", "greedy", "staged")


def _check_metric(config: Config, choices: Choices) -> None:
    penalty = config.penalty
    if penalty.metric == "identity":
        return
    if max(penalty.each("ridge", 1)) > 0.0 and penalty.value("ridge_scale") == "objective":
        raise UsageError(
            f'penalty.metric = "{penalty.metric}" with penalty.ridge_scale = "objective" gives every unit another '
            'ridge; use ridge_scale = "unit"'
        )
    exact = all(r.solver.exact for r in choices.regressions[:-1])
    if penalty.metric == "curvature" and not exact:
        asked = (
            {}
            if any(r.by_fitter for r in choices.regressions[:-1])
            else {
                'model.sites = "before"': {site for _, _, site in config.model.layers()} != {"before"},
                'w_step.linear_solver = "closed_form"': config.w_step.linear_solver != "closed_form",
            }
        )
        lacking = " and ".join(way for way, absent in asked.items() if absent)
        raise UsageError(
            'penalty.metric = "curvature" couples the units of a layer unless their regression is linear and exact; '
            f'use {lacking + ", or " if lacking else ""}penalty.metric = "variance"'
        )


def _check_segment(config: Config, chain: Chain, number: int, solver: WSolver, by_unit: bool) -> None:
    name, segment, k, last = config.w_step.solver, chain.segments[number], number + 1, number == len(chain.sites)
    if not by_unit and "segment" not in solver.takes:
        if len(chain.groups[number]) > 1:
            why = "shares its weights with another"
        elif len(segment.weighted) > 1:
            why = f"holds {len(segment.weighted)} layers between two sites"
        elif lacking := _lacking(segment):
            why = f"is {segment.fitted[0].spec()['kind']}, without '{lacking[0]}'"
        else:
            own = f'model.loss = "{config.model.loss}"{" with missing outputs" if config.loss.missing else ""}'
            why = f"ends in {own}" if last and segment.separable else "ends in softmax"
        joint = ", ".join(word for word, kind in W_SOLVERS.items() if "segment" in kind.takes)
        raise UsageError(
            f'w_step.solver = "{name}" fits units one by one, and the units of segment {k} do not separate (it {why}); '
            f"use one of {joint}, or auto"
        )
    if by_unit and solver.activations is not None and segment.activation not in solver.activations:
        raise UsageError(f'w_step.solver = "{name}" cannot train under "{segment.activation}" (segment {k}); use auto')


def _lacking(segment: Segment) -> list[str]:
    """Names what its regression's map does not offer of what units that are fitted one by one need."""
    offered = segment.fitted[0].capabilities
    return sorted({"units", "bias", *({"linear"} if "patches" not in offered else ())} - offered)


def check_ring(config: Config, chain: Chain, choices: Choices) -> None:
    """Refuse what cannot go round a ring of blocks of points."""
    key, units = 'w_step.schedule = "ring"', 'w_step.schedule = "units"'
    if config.parallel.data != "sharded":
        raise UsageError(
            f'{key} takes units to the ranks that hold the points; with parallel.data = "{config.parallel.data}" every '
            f'rank holds them all; use parallel.data = "sharded", or {units}'
        )
    if config.method.name != "mac":
        raise UsageError(f'{key} is a W-step, and method.name = "{config.method.name}" has none; use {units}')
    if config.w_step.solver not in ("auto", "sgd"):
        raise UsageError(
            f'{key} trains units by minibatches on their way, not by w_step.solver = "{config.w_step.solver}"; '
            'use solver = "auto" or "sgd", or schedule = "units"'
        )
    if any(m.positions > 1 for m in chain.blocks):
        raise UsageError(f"{key} trains dense layers, and the net has convolutions; use {units}")
    if any(m.connected is not None for m in chain.blocks):
        raise UsageError(f"{key} trains units that read all inputs, and the net has sparse layers; use {units}")
    if config.model.skips:
        raise UsageError(f"{key} trains layers that read one another in turn, and the net has skips; use {units}")
    if all(r.solver.exact for r in choices.regressions):
        raise UsageError(
            f"{key}: every layer is linear and fitted in closed form, so that nothing travels; use {units}, or "
            'w_step.linear_solver = "same"'
        )


def check_sharded(config: Config, chain: Chain, choices: Choices, ranks: int) -> None:
    """Refuse what needs all points in one place."""
    own = 'use parallel.data = "replicated" or "node"'
    if any("centres" in m.capabilities or "bits" in m.capabilities for m in chain.maps):
        raise UsageError(
            'parallel.data = "sharded" fits layers by sums over points, and a layer with centres, words or bits needs '
            f"the points themselves; {own}"
        )
    for fitted in (r for r in choices.regressions if r.by_fitter):
        raise UsageError(f'parallel.data = "sharded" and the fitter "{fitted.name}", which reads all points; {own}')
    if config.method.name not in ("mac", "stochastic"):
        raise UsageError(
            f'parallel.data = "sharded" goes with the methods "mac" and "stochastic", not "{config.method.name}"; {own}'
        )
    if config.start.method not in ("auto", "uniform", "model"):
        raise UsageError(
            f'parallel.data = "sharded" starts from weights, and start.method = "{config.start.method}" reads all '
            'points; use "uniform" or "model"'
        )
    if config.w_step.schedule != "ring" and any(not r.solver.by_sums for r in choices.regressions):
        raise UsageError(
            f'parallel.data = "sharded": w_step.solver = "{config.w_step.solver}" draws points one by one; use auto, '
            'or w_step.schedule = "ring"'
        )
    parts = minibatch_parts(config, chain, ranks)
    if config.method.name == "stochastic" and parts < ranks:
        raise UsageError(
            f"stochastic.parts = {parts} leaves some of {ranks} ranks without points; "
            f"use stochastic.parts = {ranks} (or a multiple of it), or fewer ranks"
        )
