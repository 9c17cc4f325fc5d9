"""Layers without derivatives, methods and model selection are refused what they cannot do: a sentence, a remedy."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import NESTED, Config
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import Map
from macmpi.plan.resizable import check_places, check_sizes, places
from macmpi.plan.selectable import FEWEST, STEP, check_selectable, ridges_of, width_places
from macmpi.plan.staged_refusals import check_staged
from macmpi.solvers import ZSolver

_BASIS = "radial basis functions"

MOST_EMBEDDED = 20_000
"""Points whose pairwise similarities fit into memory."""


def check_layers(config: Config, chain: Chain, n_train: int) -> None:
    """Refuse what the layers that trainers fit cannot do; before solvers are chosen."""
    model, start = config.model, config.start
    if config.method.name in NESTED:
        _check_derivatives(chain, f'method.name = "{config.method.name}"', 'method.name = "mac"')
    if config.method.acceleration in ("feasible", "momentum"):
        _check_acceleration(config, chain)
    trained = [m for m in chain.blocks if "centres" in m.capabilities]
    for map_, name in zip(trained, model.each("centres", len(trained)), strict=True):
        count, kind = (map_.parameter_shape or (0, 0))[0], map_.spec()["kind"]
        if count > n_train:
            raise UsageError(
                f"a layer ({kind}) has {count:,} centres but there are {n_train:,} training points; "
                f"use at most {n_train:,} (model.hidden, model.words)"
            )
        if name == "points" and count != n_train:
            raise UsageError(
                f'model.centres = "points" makes every training point a centre: a layer ({kind}) has {count:,} centres '
                f'but there are {n_train:,} points; use {n_train:,}, or centres = "subset" or "kmeans"'
            )
    for k, segment in enumerate(chain.segments, start=1):
        _check_trained(config, k, segment)
    inner = any("jacobian" in m.capabilities for m in trained)
    if start.method in ("elastic_embedding", "file") or (inner and start.method == "pca"):
        if len(chain.sites) != 1 and (chain.sites or start.method != "pca"):
            raise UsageError(
                f'start.method = "{start.method}" gives the coordinates of one code, and model.sites makes '
                f'{len(chain.sites)} sites; use "after" at the code and "none" elsewhere'
            )
    elif inner and chain.sites and start.method != "model":
        raise UsageError(
            f'start.method = "{start.method}" does not go with radial basis functions, whose centres are found from '
            'data; use "elastic_embedding", "pca" or "file"'
        )
    if start.method == "staged":
        check_staged(config, chain, n_train)
    if start.method in ("pca", "greedy"):
        if model.skips:
            raise UsageError(
                f'start.method = "{start.method}" fits layers that read one another in turn, and model.skips have them '
                'read others too; use "uniform"'
            )
        fitted = [m for s in chain.segments for m in s.fitted]
        for map_ in (m for m in fitted if "linear" not in m.capabilities or m.connected is not None):
            raise UsageError(
                f'start.method = "{start.method}" fits dense layers, and a layer ({map_.spec()["kind"]}) is another; '
                'use "uniform"'
            )
    if start.method == "greedy" and any("jacobian" not in m.capabilities for m in chain.maps):
        raise UsageError(
            'start.method = "greedy" trains layers by their derivatives, and one has none; use "pca" or "uniform"'
        )
    if start.method == "elastic_embedding" and n_train > MOST_EMBEDDED:
        raise UsageError(
            f'start.method = "elastic_embedding" compares all pairs of points: at most {MOST_EMBEDDED:,} of them, and '
            f'there are {n_train:,}; use "pca", or fewer points (data.points)'
        )


def _without_derivatives(chain: Chain) -> list[Map]:
    """The maps without a derivative in their weights or in their inputs."""
    blocks = [m for m in chain.blocks if "weight_jacobian" not in m.capabilities]
    return [*blocks, *(m for m in chain.maps if "jacobian" not in m.capabilities)]


def _check_derivatives(chain: Chain, key: str, remedy: str) -> None:
    for map_ in _without_derivatives(chain):
        raise UsageError(
            f"{key} needs the derivatives of every layer, and {map_.spec()['kind']} has none; use {remedy}"
        )


def _check_acceleration(config: Config, chain: Chain) -> None:
    key, remedy = f'method.acceleration = "{config.method.acceleration}"', 'method.acceleration = "none"'
    mistakes = {
        f'method.name = "{config.method.name}"': config.method.name != "mac",
        "selection.criterion": config.selection.criterion != "none" and not config.selection.sizes,
        "penalty.method, whose multipliers belong to coordinates that are not feasible": config.penalty.method
        != "quadratic",
        'model.sites = "none"': not chain.sites,
    }
    for which in (name for name, wrong in mistakes.items() if wrong):
        raise UsageError(f"{key} does not go with {which}; use {remedy}")
    _check_derivatives(chain, key, remedy)


def check_method(config: Config, chain: Chain) -> None:
    """Refuse what the method and model selection cannot do."""
    keys = config.selection
    basis = [m for m in chain.blocks if "centres" in m.capabilities and "jacobian" in m.capabilities]
    if config.model.skips:
        _check_skips(config)
    if config.method.name == "alternating":
        first = chain.segments[0]
        linear = first.separable and first.activation == "linear" and first.fitted[0].positions == 1
        if len(chain.sites) != 1 or not linear:
            raise UsageError(
                'method.name = "alternating" needs a net of two halves with one site, at a linear code between them; '
                'use model.sites = "after" there and "none" elsewhere, or method.name = "mac"'
            )
        if any("jacobian" not in m.capabilities for m in chain.maps):
            raise UsageError(
                'method.name = "alternating" needs the gradient of the decoder, and a layer has none; use "mac"'
            )
        mistakes = {
            "selection.criterion": keys.criterion != "none",
            "penalty.method": config.penalty.method != "quadratic",
            "penalty.metric": config.penalty.metric != "identity",
        }
        for which in (name for name, wrong in mistakes.items() if wrong):
            raise UsageError(f'method.name = "alternating" does not go with {which}; use method.name = "mac"')
    if config.method.name == "stochastic":
        _check_affine(chain)
    if keys.criterion == "none":
        return
    check_sizes(config)
    units = bool(places(config, chain))
    check_selectable(config, chain, units)
    if units:
        return check_places(config, chain)
    dense = [k for k in ridges_of(config, chain) if not chain.segments[k].leading]
    if not basis and not dense:
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" chooses numbers of centres, and no layer has radial basis '
            'functions; use model.activation = "rbf" at some, selection.sizes or selection.ridges for dense layers, '
            'or criterion = "none"'
        )
    if basis and set(config.model.each("centres", 1)) != {"subset"}:
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" compares nested sets of centres; use model.centres = "subset"'
        )
    count = len(basis) + len(dense)
    epsilons = keys.epsilons(count)
    if len(epsilons) != count:
        which = f"dense layers and nets of {_BASIS}" if dense else f"nets of {_BASIS}"
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" needs selection.epsilon2, the mean squared error of a model of '
            f"low bias: one number, or one for each of the {count} {which} ({len(epsilons)} given)"
        )
    fewest = min((m.n_out for m in basis), default=FEWEST)
    if fewest < FEWEST and not keys.sizes:
        lists = [[-(-n // 2)] if i in width_places(config) else [] for i, n in enumerate(config.model.units)]
        raise UsageError(
            f"a selection without sizes compares {FEWEST}, {FEWEST + STEP}, ... centres, and a layer starts with "
            f"{fewest:,}; say which to compare, as in selection.sizes = {lists}"
        )
    for k, segment in enumerate(chain.segments, start=1):
        linear = segment.separable and segment.activation == "linear"
        if any(m in basis for m in segment.maps) and not (
            linear and segment.core == 1 and "bias" not in segment.maps[1].capabilities
        ):
            raise UsageError(
                f'selection.criterion = "{keys.criterion}" needs radial basis functions that begin their segment and '
                f"are read by one linear layer, and segment {k} has others; change model.activation or model.sites, "
                'use model.loss = "squared", or criterion = "none"'
            )
    for key, given, needed in (
        ("w_step.linear_solver", config.w_step.linear_solver, "closed_form"),
        ("penalty.metric", config.penalty.metric, "identity"),
    ):
        if given != needed:
            raise UsageError(f'selection.criterion = "{keys.criterion}" needs {key} = "{needed}"')


def _check_skips(config: Config) -> None:
    if config.method.name == "alternating":
        raise UsageError(
            'method.name = "alternating" fits a decoder that reads the code alone, and model.skips may go past it; '
            'use method.name = "mac", or skips = []'
        )
    if config.penalty.metric == "curvature":
        raise UsageError(
            'penalty.metric = "curvature" couples units with what model.skips carry past them; use "variance", or '
            "skips = []"
        )


def _check_affine(chain: Chain) -> None:
    """Stochastic MAC multiplies a gradient by the inverse Gram of [a, 1]: weights W with outputs W [a, 1] alone."""
    for map_ in (m for m in chain.blocks if m.columns):
        offered = map_.own.capabilities
        affine = "patches" if "patches" in offered else "linear"
        for need in sorted({affine, "bias"} - offered):
            raise UsageError(
                f"method.name = \"stochastic\" trains dense layers with biases: it needs '{need}', which "
                f'{map_.spec()["kind"]} does not offer; use method.name = "adam", which needs derivatives alone'
            )


def _check_trained(config: Config, k: int, segment: Segment) -> None:
    free = [
        m for m, b in zip(segment.maps, segment.blocks, strict=True) if b is not None and b not in segment.regressed
    ]
    if not segment.regressed:
        kind = segment.maps[-1].spec()["kind"] if segment.maps else "nothing"
        raise UsageError(
            f"segment {k} ({kind}) has no weights that a regression could fit; "
            'use model.sites = "none" at that layer: it is trained together with the next one'
        )
    for map_ in (m for m in free if "centres" not in m.capabilities):
        raise UsageError(
            f"segment {k} ({map_.spec()['kind']}) offers neither 'weight_jacobian' nor 'centres': nothing trains it; "
            "declare one of them in its capabilities"
        )
    inside = [m for m in segment.maps[segment.core :] if m in free or "bits" in m.capabilities]
    if inside and not segment.separable:
        raise UsageError(
            f"segment {k} holds a layer without derivatives ({inside[0].spec()['kind']}) between others; "
            + _remedy(inside[0])
        )
    if free and config.w_step.solver != "auto":
        raise UsageError(
            f"w_step.solver = \"{config.w_step.solver}\" needs 'weight_jacobian'; "
            f"segment {k} ({free[0].spec()['kind']}) "
            'does not offer it; use w_step.solver = "auto", and model.centres for how its weights are found'
        )


def _remedy(inside: Map) -> str:
    if "jacobian" in inside.capabilities:
        return 'use model.sites = "after" at the layer before it'
    rest = ' and "none" elsewhere' if "bits" in inside.capabilities else ""
    return f'make it the first of model.hidden, with model.sites = "after" there{rest}'


def check_bits(config: Config, chain: Chain, z_solver: ZSolver) -> None:
    binary = [k for k, s in enumerate(chain.segments[:-1], start=1) if "bits" in s.maps[-1].capabilities]
    if binary and not z_solver.bits:
        raise UsageError(
            f'z_step.solver = "{config.z_step.solver}" moves coordinates continuously, but those of site {binary[0]} '
            'are bits; use z_step.solver = "auto" or "binary"'
        )
    if z_solver.bits and (len(chain.sites) != 1 or not binary):
        raise UsageError(
            'z_step.solver = "binary" needs one site and bits there; here are '
            f"{len(chain.sites)} sites, {len(binary)} of bits; make the binary layer the first of model.hidden, with "
            'model.sites = "after" there and "none" elsewhere' + ("" if binary else ', or z_step.solver = "auto"')
        )
