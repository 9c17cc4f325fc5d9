"""Here the words of a config become objects: schedules, solvers, trainers, fitters, ridges and restraints."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from macmpi import UsageError, many
from macmpi.config import Config, Model, Penalty, WStep, ZStep
from macmpi.config.tables import FAR, SHAPING
from macmpi.nets.build import layers_of
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import registered
from macmpi.nets.losses import Loss
from macmpi.plan.resolved import DECAY, Patient, Quadratic, Regression, Shaping, Stationary
from macmpi.solvers import W_SOLVERS, Z_SOLVERS, Thresholded, WSolver
from macmpi.solvers.fitters import FITTERS, TRAINERS, ByFitter, Trainer
from macmpi.solvers.w_problem import Restraint


def regressions(
    config: Config, chain: Chain, loss: Loss, shaping: Shaping, fitted_by: dict[int, str]
) -> dict[int, Regression]:
    """Chooses the W-solver, or the fitter, of each segment that has weights; returns them by the segment's number.

    shaping: the ridges and restraints of the weights, which decide between solvers.
    fitted_by: the fitter of each parameter block that has one.  Collective: no.
    """
    keys, solved = config.w_step, dict[int, Regression]()
    if config.model.precision == "float32":
        keys = replace(keys, cg_precision="double")
    for k, *others in filter(None, chain.groups):
        segment = chain.segments[k]
        if name := next((fitted_by[b] for b in segment.parameter_blocks if b in fitted_by), ""):
            by = ByFitter(class_of("fitters", name)())
            by_rows = by if hasattr(by.fitter, "fit_rows") and segment.fitted[0].fitter else None
            regression = Regression(name, False, by, by, True, by_rows)
        else:
            restrained = bool(set(segment.regressed) & set(shaping.restrained))
            by_output = len(chain.segments) - 1 not in chain.groups[k] or (loss.by_output and loss.unit_hessian)
            name, by_unit = w_choice(keys, segment, by_output and chain.views[k].separable, restrained)
            relaxed, plain = (_w_solver(name, segment, given) for given in (keys, replace(keys, relaxation=1.0)))
            regression = Regression(name, by_unit, relaxed, plain)
        solved |= {k: regression} | dict.fromkeys(others, replace(regression, by_unit=False))
    return dict(sorted(solved.items()))


PARTS = {"w_solvers": W_SOLVERS, "z_solvers": Z_SOLVERS, "trainers": TRAINERS, "fitters": FITTERS}


def class_of(kind: str, name: str) -> Any:
    """Finds the class of a solver, trainer or fitter by its name, in macmpi or another package.  Collective: no."""
    return registered(PARTS[kind], f"macmpi.{kind}", name)


def _w_solver(name: str, segment: Segment, keys: WStep) -> WSolver:
    plain: WSolver = solver(class_of("w_solvers", name), keys)
    return Thresholded(plain) if segment.maps[-1].code and not segment.quantised else plain


def solver(kind: type, keys: Any) -> Any:
    """Makes a solver with those keys that it knows; a number of iterations of 0 stands for its own default."""
    given = {name: value for name, value in vars(keys).items() if not (name.endswith("iterations") and value == 0)}
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given})


def schedule_of(config: Config, loss: Loss, discrete: bool = False) -> Quadratic:
    """Makes the schedule of a config, which says when mu and the multipliers move, and when to stop.

    discrete: whether the coordinates are a code.
    """
    penalty, method, run = config.penalty, config.method.name, config.run
    mu0, factor, every, patience = map(penalty.value, ("mu0", "factor", "mu_every", "patience"))
    sites = any(site != "none" for _, _, site in config.model.layers())
    mu_max = penalty.mu_max if sites else mu0  # without constraints there is no mu to grow
    common = (mu0, factor, mu_max, penalty.tolerance, run.max_iterations)
    decay = penalty.tolerance_decay
    if method == "alternating":  # no penalty: mu stays, and the run ends at max_iterations
        return Quadratic(mu0, factor, mu0, 0.0, run.max_iterations, every=1)
    if method == "stochastic":
        keys, noticeable = config.stochastic, NOTICEABLE_LABELS if loss.labels else NOTICEABLE
        longer = "a larger stochastic.patience"
        return Patient(*common, patience=keys.patience * keys.records, noticeable=noticeable, longer=longer)
    if config.method.nested:
        return Patient(*common, patience=config.baseline.patience, longer="a larger baseline.patience")
    known: dict[str, Any] = {"patience": patience, "multipliers": penalty.method == "augmented_lagrangian"}
    if patience:
        known["longer"] = "a larger penalty.patience"
    elif penalty.stop == "gradient":
        known["longer"] = "a larger penalty.mu_max"
    elif not sites:
        known["longer"] = "a smaller penalty.tolerance"
    if penalty.stop == "gradient":
        decay = 1.0 / factor if config.method.acceleration == "joint" else DECAY
        return Stationary(*common, gradient_tolerance=penalty.gradient_tolerance, decay=decay, **known)
    known |= {"every": every, "gradients": penalty.gradients}
    return Quadratic(*common, decay, **known, discrete=discrete)


def z_name(config: Config, chain: Chain) -> str:
    """Names the Z-solver of a config: "auto" is the one that searches the code of a site, else "gauss_newton"."""
    if config.z_step.solver != "auto":
        return config.z_step.solver
    codes = [segment.maps[-1].code for segment in chain.segments[:-1]]
    return next((code.searched_by for code in codes if code), "gauss_newton")


def trainers(model: Model, chain: Chain) -> dict[int, Trainer]:
    """Makes a trainer for each parameter block that has centres."""
    blocks = [b for b, m in enumerate(chain.blocks) if "centres" in m.capabilities]
    names = zip(blocks, model.each("centres", len(blocks)), strict=True)
    return {b: class_of("trainers", name)() for b, name in names}


def fitters(model: Model, chain: Chain) -> dict[int, str]:
    """Names the fitter of each parameter block that has one: that of the config, or else the layer's own."""
    names = {b: m.fitter for b, m in enumerate(chain.blocks) if m.fitter}
    if model.fitters == "auto" or chain.numbers:  # with shared weights a list is refused
        return names
    layers = layers_of(model, chain.n_in, chain.n_out)
    block = 0
    for name, maps in zip(model.each("fitters", len(layers)), layers, strict=True):
        weighted = [m for m in maps if m.parameter_shape is not None]
        if name != "auto" and weighted:
            names[block] = name
        block += len(weighted)
    return names


def w_choice(keys: WStep, segment: Segment, alone: bool, restrained: bool) -> tuple[str, bool]:
    """Names the W-solver of a segment, and tells whether it solves each unit by itself, as a sum of squares of its own.

    alone: whether neither the loss nor other segments that share the weights couple the units.
    restrained: whether the weights have more than a ridge: l1, groups or bounds.
    """
    separable = segment.separable and alone
    if restrained and keys.solver == "auto":
        return "proximal", separable
    if separable and segment.activation == "linear" and not restrained and keys.linear_solver == "closed_form":
        return "closed_form", True
    biased = separable and "bias" in segment.fitted[0].capabilities
    usual = "sgd" if keys.schedule == "ring" else "gauss_newton" if biased else "hessian_free"
    name = usual if keys.solver == "auto" else keys.solver
    return name, biased and "units" in class_of("w_solvers", name).takes


NOTICEABLE, NOTICEABLE_LABELS = 0.01, 0.03
"""A validation error has noticeably fallen if it is lower by this share.  The share is larger with labels, whose
cross-entropy goes on falling although no more of them are right."""

KEPT = 2**29
"""A W-step keeps the patches of all points up to this number of bytes; more are made again each time they are read."""


def without_half_steps(config: Config) -> Config:
    """Resets the keys of the half steps, which mean nothing to a method without coordinates.  Collective: no.

    Restraints of the weights, and a ring, stay: such a method refuses them.
    """
    model = replace(config.model, sites="none", fitters="auto")
    penalty = Penalty(**{key: getattr(config.penalty, key) for key in config.penalty.shaping})
    w_step = WStep(schedule=config.w_step.schedule)
    return replace(config, model=model, penalty=penalty, z_step=ZStep(), w_step=w_step)


def shaping_of(penalty: Penalty, layers: tuple[int, ...], tied: bool = False, divided: bool = False) -> Shaping:
    """Reads ridges and restraints from the config's [penalty], for the blocks that regressions fit.  Collective: no.

    layers: these parameter blocks.
    tied: whether the layers of a decoder have the weights of the encoder's.
    divided: whether the first two blocks belong to one layer, which has one value in a list.
    Raises UsageError for lists of another length than there are layers, and for bounds that contradict each other.
    """
    if tied and isinstance(penalty.value("ridge"), list):
        raise UsageError(
            "model.tied = true and a list penalty.ridge: a layer and the one tied to it have one ridge; give one number"
        )
    count = len(layers) - divided
    for key in ("ridge", *SHAPING):
        given = penalty.value(key)
        if isinstance(given, list) and len(given) != count:
            raise UsageError(
                f"penalty.{key} has {many(len(given), 'value')}, and the net has {many(count, 'layer')} whose "
                f"weights regressions fit; give one value, or {count}"
            )
    values = ([*given[:divided], *given] for given in (penalty.each(key, count) for key in ("ridge", *SHAPING)))
    ridges, restraints = dict[int, float](), dict[int, Restraint]()
    for block, ridge, l1, group, least, most in zip(layers, *values, strict=True):
        ridges[block], restraints[block] = ridge, Restraint(l1, group, _bound(least), _bound(most))
    until_mu = math.inf if penalty.stop == "gradient" else penalty.ridge_until_mu  # one objective for all mu
    shaping = Shaping(ridges, restraints, penalty.value("ridge_scale"), until_mu)
    _check_sizes(shaping)
    return shaping


def _bound(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= FAR else value


def _check_sizes(shaping: Shaping) -> None:
    for layer, asked in enumerate(shaping.restraints.values(), start=1):
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
