"""What does not fit together: one sentence each, with a remedy.  docs/methods.md has the table."""

from __future__ import annotations

from collections.abc import Sequence

from macmpi import UsageError
from macmpi.chain import Chain, Segment
from macmpi.config import Config
from macmpi.solvers import W_SOLVERS, WSolver, ZSolver

FLOAT32_MU = 1e4
"""Largest mu at which float32 coordinates still carry the constraints' digits."""

MOST_EMBEDDED = 20_000
"""Points whose pairwise similarities fit into memory."""

JOINT = ", ".join(name for name, kind in W_SOLVERS.items() if "segment" in kind.takes)  # type: ignore[attr-defined]


def check(
    config: Config, chain: Chain, z_solver: ZSolver, w_solvers: Sequence[WSolver], by_unit: Sequence[bool]
) -> None:
    """Refuse what does not fit together, each case in one sentence with a remedy."""
    model, penalty = config.model, config.penalty
    K = len(chain.sites)
    if model.loss == "cross_entropy" and model.output != "linear":
        raise UsageError(
            f'model.loss = "cross_entropy" has its own softmax: model.output = "{model.output}" does not go with it; '
            'use model.output = "linear"'
        )
    if penalty.site_weights and len(penalty.site_weights) != K:
        raise UsageError(
            f"penalty.site_weights has {len(penalty.site_weights)} entries but model.sites makes {K} sites; "
            "give one for each"
        )
    largest = penalty.mu_max * max([1.0, *penalty.site_weights])
    if model.precision == "float32" and largest > FLOAT32_MU:
        raise UsageError(
            f'model.precision = "float32" loses the constraints\' digits beyond mu = {FLOAT32_MU:g} '
            f"(penalty.mu_max = {penalty.mu_max:g}, with site_weights {largest:g}); "
            f"use penalty.mu_max = {FLOAT32_MU:g}, or float64"
        )
    if penalty.method == "augmented_lagrangian" and not K:
        raise UsageError(
            'penalty.method = "augmented_lagrangian" needs constraints and model.sites = "none" has none; '
            'use model.sites = "after" or "before"'
        )
    _check_bits(config, chain, z_solver)
    _check_metric(config, w_solvers)
    for k, (segment, solver, apart) in enumerate(zip(chain.segments, w_solvers, by_unit, strict=True)):
        _check_segment(config, k + 1, k + 1 == len(chain.segments), segment, solver, apart)
    for k, segment in enumerate(chain.segments[1:], start=2):
        for map_ in segment.maps:
            for need in z_solver.needs - map_.capabilities:
                raise UsageError(
                    f"z_step.solver = \"{config.z_step.solver}\" needs '{need}'; segment {k} ({map_.spec()['kind']}) "
                    "does not offer it; put no site before it"
                )


def check_layers(config: Config, chain: Chain, n_train: int) -> None:
    """Refuse what the layers that trainers fit cannot do; before solvers are chosen."""
    model, start = config.model, config.start
    trained = [m for m in chain.blocks if "centres" in m.capabilities]
    names = model.centres if isinstance(model.centres, list) else [model.centres] * len(trained)
    for map_, name in zip(trained, names, strict=True):
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
    inner = trained and "jacobian" in trained[0].capabilities
    if start.method in ("elastic_embedding", "file") or (inner and start.method == "pca"):
        if len(chain.sites) != 1:
            raise UsageError(
                f'start.method = "{start.method}" gives the coordinates of one code, and model.sites makes '
                f'{len(chain.sites)} sites; use "after" at the code and "none" elsewhere'
            )
    elif inner and start.method != "model":
        raise UsageError(
            f'start.method = "{start.method}" does not go with radial basis functions, whose centres are found from '
            'data; use "elastic_embedding", "pca" or "file"'
        )
    if start.method == "elastic_embedding" and n_train > MOST_EMBEDDED:
        raise UsageError(
            f'start.method = "elastic_embedding" compares all pairs of points: at most {MOST_EMBEDDED:,} of them, and '
            f'there are {n_train:,}; use "pca", or fewer points (data.points)'
        )


def check_method(config: Config, chain: Chain) -> None:
    """Refuse what the method and model selection cannot do."""
    keys = config.selection
    basis = [m for m in chain.blocks if "centres" in m.capabilities and "jacobian" in m.capabilities]
    if config.method.name == "alternating":
        first = chain.segments[0]
        if len(chain.sites) != 1 or not (first.separable and first.activation == "linear"):
            raise UsageError(
                'method.name = "alternating" needs a net of two halves with one site, at a linear code between them; '
                'use model.sites = "after" there and "none" elsewhere, or method.name = "mac"'
            )
        if any("jacobian" not in m.capabilities for m in chain.maps):
            raise UsageError(
                'method.name = "alternating" needs the gradient of the decoder, and a layer has none; use "mac"'
            )
        if config.penalty.method != "quadratic" or keys.criterion != "none":
            which = "selection.criterion" if keys.criterion != "none" else "penalty.method"
            raise UsageError(f'method.name = "alternating" does not go with {which}; use method.name = "mac"')
    if keys.criterion == "none":
        return
    if not basis:
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" chooses numbers of centres, and no layer has radial basis '
            'functions; use model.activation = "rbf" at some, or criterion = "none"'
        )
    names = config.model.centres if isinstance(config.model.centres, list) else [config.model.centres]
    if set(names) != {"subset"}:
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" compares nested sets of centres; use model.centres = "subset"'
        )
    if len(keys.epsilon2) not in (1, len(basis)):
        raise UsageError(
            f'selection.criterion = "{keys.criterion}" needs selection.epsilon2, the mean squared error of a model of low '
            f"bias: one number, or one for each of the {len(basis)} nets of radial basis functions "
            f"({len(keys.epsilon2)} given)"
        )
    fewest = min(m.n_out for m in basis)
    if keys.smallest > fewest:
        raise UsageError(
            f"selection.smallest = {keys.smallest:,} is more than the {fewest:,} centres that a layer starts with; "
            "use fewer"
        )
    if config.w_step.linear_solver != "closed_form":
        raise UsageError('selection needs w_step.linear_solver = "closed_form"')


def _check_trained(config: Config, k: int, segment: Segment) -> None:
    free = [
        m for m, b in zip(segment.maps, segment.blocks, strict=True) if b is not None and b not in segment.regressed
    ]
    if not segment.regressed:
        raise UsageError(
            f"segment {k} ({segment.maps[-1].spec()['kind']}) has no weights that a regression could fit; "
            'use model.sites = "none" at that layer: it is trained together with the next one'
        )
    inside = [m for m in segment.maps[segment.core :] if m in free]
    if inside and not segment.separable:
        raise UsageError(
            f"segment {k} holds a layer without derivatives ({inside[0].spec()['kind']}) between others; "
            'use model.sites = "after" at the layer before it'
        )
    if free and config.w_step.solver != "auto":
        raise UsageError(
            f"w_step.solver = \"{config.w_step.solver}\" needs 'weight_jacobian'; segment {k} ({free[0].spec()['kind']}) "
            'does not offer it; use w_step.solver = "auto", and model.centres for how its weights are found'
        )


def _check_bits(config: Config, chain: Chain, z_solver: ZSolver) -> None:
    binary = [k for k, s in enumerate(chain.segments[:-1], start=1) if "bits" in s.maps[-1].capabilities]
    if binary and not z_solver.bits:
        raise UsageError(
            f'z_step.solver = "{config.z_step.solver}" moves coordinates continuously, but those of site {binary[0]} are '
            'bits; use z_step.solver = "auto" or "binary"'
        )
    if z_solver.bits and (len(chain.sites) != 1 or not binary):
        raise UsageError(
            'z_step.solver = "binary" needs one site and bits there, the layer of activation "binary"; '
            f'model.sites makes {len(chain.sites)}: use "after" at the binary layer and "none" elsewhere'
        )


def _check_metric(config: Config, w_solvers: Sequence[WSolver]) -> None:
    penalty = config.penalty
    if penalty.metric == "identity":
        return
    if penalty.ridge > 0.0 and penalty.ridge_scale == "objective":
        raise UsageError(
            f'penalty.metric = "{penalty.metric}" with penalty.ridge_scale = "objective" gives every unit another '
            'ridge; use ridge_scale = "unit"'
        )
    exact = all(s.exact for s in w_solvers[:-1])
    if penalty.metric == "curvature" and not exact:
        raise UsageError(
            'penalty.metric = "curvature" couples the units of a layer unless their regression is linear and exact; '
            'use model.sites = "before" and w_step.linear_solver = "closed_form", or penalty.metric = "variance"'
        )


def _check_segment(config: Config, k: int, last: bool, segment: Segment, solver: WSolver, by_unit: bool) -> None:
    name = config.w_step.solver
    if not by_unit and "segment" not in solver.takes:
        if len(segment.weighted) > 1:
            why = f"holds {len(segment.weighted)} layers between two sites"
        else:
            why = "ends in cross-entropy" if last and config.model.loss == "cross_entropy" else "ends in softmax"
        raise UsageError(
            f'w_step.solver = "{name}" fits units one by one, and the units of segment {k} do not separate (it {why}); '
            f"use one of {JOINT}, or auto"
        )
    if by_unit and solver.activations is not None and segment.activation not in solver.activations:
        raise UsageError(f'w_step.solver = "{name}" cannot train under "{segment.activation}" (segment {k}); use auto')
    for block, map_ in zip(segment.blocks, segment.maps, strict=True):
        for need in (solver.needs if block in segment.regressed else frozenset()) - map_.capabilities:
            raise UsageError(
                f"the W-solver of segment {k} needs '{need}', which its {map_.spec()['kind']} does not offer"
            )
