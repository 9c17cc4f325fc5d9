"""Plans of configs as tests write them: a key that says "auto" has the value of the paper, whatever the data are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from macmpi.config import Config
from macmpi.config.auto import Sizes, decide_net
from macmpi.config.tables import PAPER_DEFAULTS
from macmpi.plan.plan import Plan, make_plan
from macmpi.plan.resolve import resolve
from macmpi.plan.resolved import Resolved


def resolved_of(
    config: Config, n_in: int, n_out: int, n_train: int, n_val: int, weighted: Any = False, autoencoder: Any = None
) -> Resolved:
    """What a config says of a run on data of these sizes, an autoencoder where X and Y have as many columns.

    weighted: the points have weights, or "outputs": they and their outputs have.
    """
    config, _ = decide_net(config, n_in)
    if config.method.name == "mac" and config.penalty.stop != "gradient":
        penalty = {key: value for key, value in PAPER_DEFAULTS.items() if getattr(config.penalty, key) == "auto"}
        if "mu0" in penalty:
            penalty["mu0"] = config.penalty.value("mu0")
        config = replace(config, penalty=replace(config.penalty, **penalty))
    if config.method.name == "mac" and config.method.acceleration == "auto":
        config = replace(config, method=replace(config.method, acceleration="none"))
    if config.start.method == "auto":
        config = replace(config, start=replace(config.start, method="uniform"))
    same = n_in == n_out if autoencoder is None else autoencoder
    counts = n_in, n_out, n_train, n_val
    return resolve(config, Sizes(*counts, same, weights=n_out if weighted == "outputs" else int(weighted)))


def plan_of(
    config: Config,
    n_in: int,
    n_out: int,
    n_train: int,
    n_val: int,
    ranks: int,
    weighted: Any = False,
    autoencoder: Any = None,
) -> Plan:
    """The plan of a config: `make_plan` of what `resolved_of` settles."""
    return make_plan(resolved_of(config, n_in, n_out, n_train, n_val, weighted, autoencoder), n_train, n_val, ranks)


def changed(plan: Plan, **values: Any) -> Plan:
    """A plan with other values in what its config says: `changed(plan, autoencoder=True)`."""
    return replace(plan, resolved=replace(plan.resolved, **values))
