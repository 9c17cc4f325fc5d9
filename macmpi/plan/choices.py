"""Choices: the config names loss, penalty and its schedule, the solvers of each segment, the trainers of layers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from macmpi.config import NESTED, Config, Model, WStep
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import registered
from macmpi.nets.losses import Loss, loss_of
from macmpi.plan.fitted import fitter, fitter_of, fitters
from macmpi.plan.penalty import AugmentedLagrangian, Patient, Quadratic, Stationary
from macmpi.plan.shaping import Shaping, shaping_of
from macmpi.solvers import W_SOLVERS, Z_SOLVERS, WSolver, ZSolver
from macmpi.solvers.centres import TRAINERS, Trainer
from macmpi.solvers.fitters import Fitter
from macmpi.solvers.grams import System
from macmpi.solvers.w_fitted import ByFitter
from macmpi.solvers.w_sgd import SGDW
from macmpi.solvers.w_thresholded import Thresholded


@dataclass(frozen=True)
class Regression:
    """A segment's regression is solved by `solver`, called `name`: its units apart, or all of its weights at once.

    plain: the solver without over-relaxation, of starts, selections and the postprocessing.  fitter: it hands all to
    this fitter, called `name`; by_rows: to one that fits each row of the weights apart.
    """

    name: str
    by_unit: bool
    solver: WSolver
    plain: WSolver
    fitter: Fitter | None = None
    by_rows: ByFitter | None = None

    @property
    def by_fitter(self) -> bool:
        """A fitter fits its segment."""
        return self.fitter is not None

    @property
    def system(self) -> System | None:
        """Its units share the Gram of their inputs; None where nothing is shared."""
        return self.solver.system if self.by_unit else None

    @property
    def single(self) -> bool:
        """The W-step of its units reads its inputs in single precision too."""
        return bool(self.system and self.system.single)


@dataclass(frozen=True)
class Choices:
    """The config names these.

    shaping: what is asked of the weights.  regressions: of each segment.  trainers: of the parameter blocks that no
    regression fits.  metric: the form in which constraints are measured.  ring: trains the segments of inexact solvers,
    which then travel round a ring of blocks of points; None: nothing travels.
    """

    loss: Loss
    penalty: Quadratic
    shaping: Shaping
    z_solver: ZSolver
    regressions: tuple[Regression, ...]
    trainers: dict[int, Trainer]
    metric: str
    ring: SGDW | None = None

    def travels(self, segment: int) -> bool:
        """Its regressions go round the ring of blocks; they are not done by all ranks jointly."""
        return self.ring is not None and not self.regressions[segment].solver.exact


def choose(config: Config, chain: Chain) -> Choices:
    """Makes the choices of a config for a chain.  Collective: no."""
    penalty = config.penalty
    return Choices(
        loss=loss_of(config),
        penalty=penalty_of(config),
        shaping=shaping_of(penalty, regressed(chain)),
        z_solver=solver(registered(Z_SOLVERS, "macmpi.z_solvers", z_name(config, chain)), config.z_step),
        regressions=regressions(config, chain),
        trainers=trainers(config.model, chain),
        metric=penalty.metric if chain.sites else "identity",  # without constraints there is none to measure
        ring=solver(SGDW, config.w_step) if config.w_step.schedule == "ring" else None,
    )


def regressions(config: Config, chain: Chain) -> tuple[Regression, ...]:
    """The W-solver of each segment.  Collective: no."""
    keys, found = config.w_step, list[Regression]()
    if config.model.precision == "float32":
        keys = replace(keys, cg_precision="double")
    names, shaped = fitters(config.model, chain), shaping_of(config.penalty, regressed(chain)).restrained
    for k, segment in enumerate(chain.segments):
        if not chain.groups[k]:
            first = next(i for i, group in enumerate(chain.groups) if k in group)
            found.append(replace(found[first], by_unit=False))
            continue
        if name := fitter_of(names, segment.weighted):
            own_fitter = fitter(name)
            by = ByFitter(own_fitter)
            apart = by if by.by_rows and segment.fitted[0].fitter else None
            found.append(Regression(name, False, by, by, own_fitter, apart))
            continue
        restrained = bool(set(segment.regressed) & set(shaped))
        last = len(chain.segments) - 1 in chain.groups[k]
        name, by_unit = w_choice(config, segment, last, restrained, chain.alike(k))
        own, plain = (_w_solver(name, segment, given) for given in (keys, replace(keys, relaxation=1.0)))
        found.append(Regression(name, by_unit, own, plain))
    return tuple(found)


def _w_solver(name: str, segment: Segment, keys: WStep) -> WSolver:
    plain: WSolver = solver(w_kind(name), keys)
    return Thresholded(plain) if "bits" in segment.maps[-1].capabilities else plain


def solver(kind: type, keys: Any) -> Any:
    """A solver with the keys that it knows; 0 stands for its own default."""
    given = {name: value for name, value in vars(keys).items() if not (name.endswith("iterations") and value == 0)}
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given})


def penalty_of(config: Config) -> Quadratic:
    """When mu and the multipliers move, and when to stop."""
    penalty = config.penalty
    mu0, factor, every, patience = map(penalty.value, ("mu0", "factor", "mu_every", "patience"))
    mu_max = penalty.mu_max if _has_sites(config) else mu0  # without constraints there is no mu to grow
    common = (mu0, factor, mu_max, penalty.tolerance, config.run.max_iterations)
    decay = penalty.tolerance_decay
    if config.method.name == "alternating":  # no penalty: mu stays, and the run ends at max_iterations
        return Quadratic(mu0, factor, mu0, 0.0, config.run.max_iterations, every=1)
    if config.method.name == "stochastic":
        noticeable = NOTICEABLE_LABELS if loss_of(config).labels else NOTICEABLE
        patience = config.stochastic.patience * config.stochastic.records
        return Patient(*common, patience=patience, noticeable=noticeable)
    if config.method.name in NESTED:
        return Patient(*common, patience=config.baseline.patience)
    if penalty.stop == "gradient":
        return Stationary(*common, patience=patience, gradient_tolerance=penalty.gradient_tolerance)
    kind = Quadratic if penalty.method == "quadratic" else AugmentedLagrangian
    return kind(*common, decay, every=every, patience=patience, gradients=penalty.gradients)


def _has_sites(config: Config) -> bool:
    return any(site != "none" for _, _, site in config.model.layers())


def longer(config: Config) -> str:
    """A run settles later by these keys of its `penalty`."""
    if config.method.name == "stochastic":
        return "a larger stochastic.patience"
    if config.method.name in NESTED:
        return "a larger baseline.patience"
    if config.penalty.value("patience"):
        return "a larger penalty.patience"
    if config.penalty.stop == "gradient":
        return "a larger penalty.mu_max"
    return ("a larger penalty.mu_max or " if _has_sites(config) else "") + "a smaller penalty.tolerance"


def z_name(config: Config, chain: Chain) -> str:
    """The Z-solver of a config: "auto" is "binary" where a site holds bits, else "gauss_newton"."""
    if config.z_step.solver != "auto":
        return config.z_step.solver
    bits = any("bits" in s.maps[-1].capabilities for s in chain.segments[:-1])
    return "binary" if bits else "gauss_newton"


def trainers(model: Model, chain: Chain) -> dict[int, Trainer]:
    """A trainer for each parameter block that has centres."""
    blocks = [b for b, m in enumerate(chain.blocks) if "centres" in m.capabilities]
    names = zip(blocks, model.each("centres", len(blocks)), strict=True)
    return {b: registered(TRAINERS, "macmpi.trainers", name)() for b, name in names}


def regressed(chain: Chain) -> tuple[int, ...]:
    """The parameter blocks that regressions fit: the layers with weights of the lists in [penalty].  Collective: no."""
    return tuple(sorted({b for segment in chain.segments for b in segment.regressed}))


def w_choice(
    config: Config, segment: Segment, last: bool, restrained: bool = False, alike: bool = True
) -> tuple[str, bool]:
    """The W-solver of a segment, by name, and whether it solves the units apart: each a sum of squares of its own.

    restrained: of its weights more is asked than a ridge; alike: segments that share its weights are the same maps.
    """
    loss = loss_of(config)
    separable = segment.separable and alike and (not last or (loss.by_output and loss.unit_hessian))
    name, step = config.w_step.solver, config.w_step
    if restrained and name == "auto":
        return "proximal", separable
    if separable and segment.activation == "linear" and not restrained and step.linear_solver == "closed_form":
        return "closed_form", True
    if name == "auto" and step.schedule == "ring":
        name = "sgd"
    biased = separable and "bias" in segment.fitted[0].capabilities
    if name == "auto":
        name = "gauss_newton" if biased else "hessian_free"
    return name, biased and "units" in w_kind(name).takes


def w_kind(name: str) -> Any:
    """The class of a W-solver, of macmpi or of another package."""
    return registered(W_SOLVERS, "macmpi.w_solvers", name)


NOTICEABLE, NOTICEABLE_LABELS = 0.01, 0.03
"""A validation error that is lower by this share has noticeably fallen: of numbers, and of labels, whose cross-entropy
goes on falling where no more of them are right."""

KEPT = 2**29
"""Bytes of the patches of all points that a W-step keeps; more of them are made again each time they are read."""


def without_half_steps(config: Config) -> Config:
    """Reset the keys of the half steps, which mean nothing to a method without coordinates.  Collective: no."""
    penalty = replace(config.penalty, method="quadratic", metric="identity")
    model, z_step = replace(config.model, sites="none", fitters="auto"), replace(config.z_step, solver="auto")
    return replace(config, model=model, penalty=penalty, z_step=z_step)
