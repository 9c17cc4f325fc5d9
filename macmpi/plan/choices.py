"""A config names the schedule of the penalty, the solvers of each segment and the trainers of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from macmpi.config import NESTED, Config, Model, Stochastic, WStep
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import registered
from macmpi.nets.losses import LOSSES
from macmpi.plan.penalty import AugmentedLagrangian, Patient, Quadratic
from macmpi.solvers import TRAINERS, W_SOLVERS, Thresholded, Trainer, WSolver


def w_solvers(keys: WStep, choices: Sequence[tuple[str, bool]], chain: Chain) -> tuple[WSolver, ...]:
    """The W-solver of each segment."""
    found = [solver(W_SOLVERS[name], keys) for name, _ in choices]
    bits = ["bits" in segment.maps[-1].capabilities for segment in chain.segments]
    return tuple(Thresholded(plain) if b else plain for plain, b in zip(found, bits, strict=True))


def solver(kind: type, keys: Any) -> Any:
    """A solver with the keys that it knows; 0 stands for its own default."""
    given = {name: value for name, value in vars(keys).items() if not (name.endswith("iterations") and value == 0)}
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given})


def schedule(config: Config) -> Quadratic:
    """When mu and the multipliers move, and when to stop."""
    penalty = config.penalty
    mu_max = penalty.mu_max if _has_sites(config) else penalty.mu0  # without constraints there is no mu to grow
    common = (penalty.mu0, penalty.factor, mu_max, penalty.tolerance, config.run.max_iterations)
    decay, every = penalty.tolerance_decay, penalty.mu_every
    if config.method.name == "alternating":  # no penalty: mu stays, and the run ends at max_iterations
        return Quadratic(penalty.mu0, penalty.factor, penalty.mu0, 0.0, config.run.max_iterations, every=1)
    if config.method.name == "stochastic":
        return Patient(*common, patience=config.stochastic.patience)
    if config.method.name in NESTED:
        return Patient(*common, patience=config.baseline.patience)
    if penalty.method == "quadratic":
        return Quadratic(*common, decay, every=every)
    return AugmentedLagrangian(*common, decay, every=every)


def _has_sites(config: Config) -> bool:
    return any(site != "none" for _, _, site in config.model.layers())


def longer(config: Config) -> str:
    """A run settles later by these keys of its `schedule`."""
    if config.method.name == "stochastic":
        return "a larger stochastic.patience"
    if config.method.name in NESTED:
        return "a larger baseline.patience"
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


def w_choice(config: Config, segment: Segment, last: bool) -> tuple[str, bool]:
    """The W-solver of a segment, by name, and whether it solves the units apart: each a sum of squares of its own."""
    loss = LOSSES[config.model.loss]
    separable = segment.separable and (not last or (loss.by_output and loss.unit_hessian))
    name, step = config.w_step.solver, config.w_step
    if separable and segment.activation == "linear" and step.linear_solver == "closed_form":
        return "closed_form", True
    if name == "auto" and step.schedule == "ring":
        name = "sgd"
    if name == "auto":
        name = "gauss_newton" if separable else "hessian_free"
    takes = W_SOLVERS[name].takes  # type: ignore[attr-defined]
    return name, separable and "units" in takes


REMADE = 10
"""Minibatches of the stochastic method that share the layers' metrics and inverses."""

LEAST = 32
"""Points of a minibatch of few points."""


def minibatch(keys: Stochastic, n_train: int, epoch: int) -> int:
    """Points of a minibatch: at first `batch`, but at most a twentieth of all (or `LEAST`); doubled every `grow_every`
    epochs.  Collective: no.
    """
    first = min(keys.batch, max(n_train // 20, LEAST))
    return min(first << min(epoch // keys.grow_every, 30), keys.batch_max)


def without_half_steps(config: Config) -> Config:
    """Reset the keys of the half steps, which mean nothing to a method without coordinates.

    Collective: no.
    """
    penalty = replace(config.penalty, method="quadratic", metric="identity")
    model, z_step = replace(config.model, sites="none"), replace(config.z_step, solver="auto")
    return replace(config, model=model, penalty=penalty, z_step=z_step)
