"""Checks of a net's structure refuse configs by the numbers, kinds and order of its layers.

Which values of keys do not go together is decided in plan/resolve.py.
"""

from __future__ import annotations

from importlib.util import find_spec

from macmpi import UsageError, many
from macmpi.config import Config
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import Map, is_basis
from macmpi.nets.losses import Loss
from macmpi.plan.choices import class_of
from macmpi.plan.resolved import Resolved
from macmpi.solvers.fitters import FITTERS, Fitter

MOST_EMBEDDED = 20_000
"""The most points whose pairwise similarities fit into memory."""

FLOAT32_MU = 1e4
"""The largest mu at which float32 coordinates still carry the constraints' digits."""


def check_layers(config: Config, chain: Chain, n_train: int) -> None:
    """Refuses numbers of centres, sites and points that do not fit, before solvers are chosen.  Raises UsageError."""
    model, start, nested = config.model, config.start.method, config.method.nested
    if not nested and model.precision == "float32" and config.penalty.mu_max > FLOAT32_MU:
        raise UsageError(
            f'model.precision = "float32" loses the constraints\' digits beyond mu = {FLOAT32_MU:g} '
            f"(penalty.mu_max = {config.penalty.mu_max:g}); use penalty.mu_max = {FLOAT32_MU:g}, or float64"
        )
    with_centres = [m for m in chain.blocks if "centres" in m.capabilities]
    for map_, name in zip(with_centres, model.each("centres", len(with_centres)), strict=True):
        _check_centres(map_, name, n_train)
    rigid = [m for m in chain.maps if "jacobian" not in m.capabilities]
    if config.method.name == "alternating" and rigid:
        raise UsageError(
            f'method.name = "alternating" does not go with a layer without derivatives ({rigid[0].kind}); '
            'use method.name = "mac"'
        )
    if not nested:
        for k, segment in enumerate(chain.segments, start=1):
            _check_trainable(config, k, segment)
    sites, basis = len(chain.sites), any(map(is_basis, chain.blocks))
    if (start in ("elastic_embedding", "file") and sites != 1) or (start in ("pca", "itq") and basis and sites > 1):
        lack = f'model.sites makes {sites} sites; use "after" at the code and "none" elsewhere'
        if nested:
            lack = f'method.name = "{config.method.name}" has none; use "mac", or start.method = "uniform"'
        raise UsageError(f'start.method = "{start}" gives the coordinates of one code, and {lack}')
    if start == "elastic_embedding" and n_train > MOST_EMBEDDED:
        raise UsageError(
            f'start.method = "elastic_embedding" compares all pairs of points: at most {MOST_EMBEDDED:,} of them, and '
            f'there are {n_train:,}; use "pca", or fewer points (data.points)'
        )
    if start == "staged":
        weighted = [i for i, m in enumerate(chain.maps) if m.parameter_shape is not None]
        for i in (i for i in weighted[:-1] if "bias" in chain.maps[i].capabilities):
            _check_stage(chain.maps[i], chain.maps[i + 1], n_train)
    first = chain.segments[0]
    linear = first.separable and first.activation == "linear" and chain.views[0].rows_per_point == 1
    if config.method.name == "alternating" and (sites != 1 or not linear):
        raise UsageError(
            'method.name = "alternating" needs one site, at a linear code that one layer computes from the data or '
            'radial basis functions; use model.activation = "linear" and model.sites = "after" there, "none" '
            'elsewhere, or method.name = "mac"'
        )


def _check_stage(map_: Map, after: Map, n_train: int) -> None:
    """Refuses a staged layer with more units than patches to find them among, or more groups of units than columns.

    after: the activation after `map_`; each group of its units is found separately.
    """
    units, columns, run = (map_.parameter_shape or (0, 0))[0], map_.columns, after.run_length
    count = run if run > 1 else units
    patches = n_train * map_.positions
    if count > patches:
        raise UsageError(
            f'start.method = "staged" finds the {count:,} units of a layer ({map_.kind}) among '
            f"{patches:,} patches of training points; use at most {patches:,} (model.hidden), or more points"
        )
    if run > 1 and units > run * columns:
        raise UsageError(
            f'start.method = "staged" finds {run} words (model.words) a run of columns, and {units:,} units '
            f"(model.hidden) are {units // run:,} runs, of {many(columns, 'column')}; use at most {run * columns:,} "
            'units, or start.method = "uniform"'
        )


def _check_centres(map_: Map, name: str, n_train: int) -> None:
    count, kind = (map_.parameter_shape or (0, 0))[0], map_.kind
    if count > n_train:
        raise UsageError(
            f"a layer ({kind}) has {many(count, 'centre')} but there {many(n_train, 'training point', 'is')}; "
            f"use at most {n_train:,} (model.hidden, model.words)"
        )
    if name == "points" and count != n_train:
        raise UsageError(
            f'model.centres = "points" makes every training point a centre: a layer ({kind}) has '
            f'{many(count, "centre")} but there are {n_train:,} points; use {n_train:,}, or centres = "subset"'
        )


def _check_trainable(config: Config, k: int, segment: Segment) -> None:
    numbered = zip(segment.maps, segment.blocks, strict=True)
    free = [map_ for map_, b in numbered if b is not None and b not in segment.regressed]
    if not segment.regressed and (segment.parameter_blocks or not segment.maps):
        kind = segment.maps[-1].kind if segment.maps else "nothing"
        raise UsageError(
            f"segment {k} ({kind}) has no weights that a regression could fit; "
            'use model.sites = "none" at that layer: it is trained together with the next one'
        )
    for map_ in (m for m in free if "centres" not in m.capabilities):
        raise UsageError(
            f"segment {k} ({map_.kind}) offers neither 'weight_jacobian' nor 'centres': nothing trains it; "
            "declare one of them in its capabilities"
        )
    inside = [m for m in segment.maps[segment.core :] if m in free or m.code]
    if inside and not segment.separable:
        raise UsageError(
            f"segment {k} holds a layer without derivatives ({inside[0].kind}) between others; {_remedy(inside[0])}"
        )
    if free and config.w_step.solver != "auto":
        raise UsageError(
            f"w_step.solver = \"{config.w_step.solver}\" needs 'weight_jacobian'; segment {k} ({free[0].kind}) does "
            'not offer it; use w_step.solver = "auto", and model.centres for how its weights are found'
        )


def _remedy(inside: Map) -> str:
    if "jacobian" in inside.capabilities:
        return 'use model.sites = "after" at the layer before it'
    rest = ' and "none" elsewhere' if inside.code else ""
    return f'make it the first of model.hidden, with model.sites = "after" there{rest}'


def check_choices(of: Resolved) -> None:
    """Refuses choices that the settled net rules out.  Raises UsageError.

    These are: restraints of layers that multiply no inputs, a solver under an activation that it cannot train, a ring
    on which no layer travels, and a stream for another method than stochastic MAC.
    """
    if of.stochastic.stream and of.method.name != "stochastic":
        why = [f", as {one.why}; leave it out" for one in of.decisions if one.key == "method.name"]
        remedy = why[0] if why else '; use method.name = "stochastic"'
        raise UsageError(
            "stochastic.stream = true: stochastic MAC trains on pieces of a stream, and this run is by "
            f'"{of.method.name}"{remedy}, or train on all points (stochastic.stream = false)'
        )
    for k, segment in enumerate(of.chain.segments, start=1):
        if set(segment.regressed) & set(of.shaping.restrained):
            _check_restrained(f"penalty.{of.config.penalty.shaping[0]}", k, segment)
    for k, regression in of.regressions.items():
        able, activation = regression.solver.activations, of.chain.segments[k].activation
        if of.chain.groups[k] and regression.by_unit and able is not None and activation not in able:
            raise UsageError(
                f'w_step.solver = "{regression.name}" cannot train under "{activation}" (segment {k + 1}); use auto'
            )
    lacking = [k for k, own in of.regressions.items() if of.running and not own.solver.exact]
    if lacking and min(lacking) == len(of.chain.sites):
        raise UsageError(
            'w_step.sums = "running": the output layer (loss, penalty, activation) has no closed form; use '
            'w_step.sums = "whole"'
        )
    if of.ring and not any(map(of.travels, of.regressions)):
        same = "" if all(own.by_fitter for own in of.regressions.values()) else ', or w_step.linear_solver = "same"'
        raise UsageError(
            'w_step.schedule = "ring": closed forms or fitters fit every layer, so that nothing travels; use '
            f'w_step.schedule = "units"{same}'
        )


def check_fitters(names: dict[int, str], config: Config, chain: Chain, loss: Loss) -> None:
    """Refuses fitters at layers that they cannot fit, before solvers are chosen.  Raises UsageError.

    names: the fitter of each parameter block that has one.
    """
    for b, name in names.items():
        map_, own = chain.blocks[b], _known(name)
        word, other = f'a layer ({map_.kind}) is fitted by "{name}"', 'model.fitters = "auto" there'
        if name == map_.fitter:  # which "auto" stands for
            other = "a layer of another kind there"
        if map_.kind not in own.kinds:
            raise UsageError(
                f'model.fitters = "{name}" fits layers of the kind {", ".join(sorted(own.kinds))}, and a layer is '
                f'{map_.kind}; use "auto" there'
            )
        if own.library and find_spec(own.library) is None:
            missing = "scikit-learn" if own.library == "sklearn" else own.library
            raise UsageError(f"{word}, which needs {missing}, and that is not installed: pip install {missing}")
        k = next(i for i, s in enumerate(chain.segments) if b in s.parameter_blocks)
        segment, last = chain.segments[k], k + 1 == len(chain.segments)
        after = [m for m in segment.maps[segment.blocks.index(b) + 1 :] if not _does_nothing(m)]
        bits = len(after) == 1 and bool(after[0].code) and not segment.quantised
        what = "bits" if bits else "labels" if last and loss.labels else "numbers"
        if what not in own.targets:
            raise UsageError(
                f"{word}, which fits {' or '.join(sorted(own.targets))}, and segment {k + 1} should give {what}; use "
                f"{other}"
            )
        if last and what == "numbers" and config.loss.missing:
            raise UsageError(
                f"{word}, which is given every target, and with loss.missing = true some are not known; use {other}"
            )
        if segment.parameter_blocks != (b,):
            raise UsageError(
                f"{word}, which needs coordinates on either side, and segment {k + 1} holds another layer too; use "
                'model.sites = "after" at this layer and at the one before it'
            )
        if after and not bits:
            raise UsageError(
                f"{word}, which fits no activation after it (segment {k + 1}); use "
                f'{"model.output" if last else "model.activation"} = "linear" there'
            )


def _does_nothing(map_: Map) -> bool:
    """Tells whether a map is the activation "linear"."""
    return "elementwise" in map_.capabilities and map_.trained_as == "linear"


def _known(name: str) -> Fitter:
    """Makes the fitter that a layer names as its own.  Raises UsageError if no package has it."""
    try:
        return class_of("fitters", name)()
    except KeyError:
        raise UsageError(
            f'a layer names the fitter "{name}", which nobody gives by an entry point of "macmpi.fitters"; '
            f"use one of {', '.join(FITTERS)} in model.fitters"
        ) from None


def _check_restrained(key: str, k: int, segment: Segment) -> None:
    kinds = {map_.kind: map_.capabilities for map_ in segment.fitted}
    for kind in (kind for kind, capabilities in kinds.items() if not {"linear", "patches"} & capabilities):
        raise UsageError(
            f"{key} holds for the weights of inputs, and a layer of segment {k} ({kind}) multiplies its inputs by "
            "none; use a list without it for that layer"
        )
    if segment.quantised or segment.maps[-1].code:
        kind = next(m.kind for m in segment.maps[::-1] if m.n_out == segment.n_out)
        raise UsageError(
            f"{key} does not go with a layer that ends in values of its own choice (segment {k}, {kind}): weights are "
            "kept there by their errors alone; use a list without it for that layer"
        )
