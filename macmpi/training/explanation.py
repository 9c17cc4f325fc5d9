"""--explain prints config lines that pin the choices of macmpi, and says what every other "auto" stands for."""

from __future__ import annotations

from collections.abc import Iterator

from macmpi.config.auto import AUTO, Sizes, explained
from macmpi.config.tables import PAPER_DEFAULTS
from macmpi.config.whole import toml
from macmpi.data.named_sets import NAMED_SETS
from macmpi.data.scaling import BOUNDED
from macmpi.methods.stochastic.schedule import RidgeSchedule, Schedule
from macmpi.plan.choices import z_name
from macmpi.plan.directions import explained_forms, forms_of
from macmpi.plan.plan import Plan


def explanation(plan: Plan, sizes: Sizes) -> list[str]:
    """Writes the lines of --explain: lines of a config with their reasons, and comments.

    sizes: the sizes of the data.  Collective: no.
    """
    of = plan.resolved
    said = dict(_by_the_run(plan, sizes))
    left = [f"# {key}: {words}" for key, words in said.items() if of.settings[key] == AUTO]
    return [*explained(of.decisions), *([f"# {plan.in_span}"] if plan.in_span else ()), *left, *explained_forms(plan)]


def _by_the_run(plan: Plan, sizes: Sizes) -> Iterator[tuple[str, str]]:
    """Yields keys whose "auto" the run itself decides, each with words that say what it does."""
    of = plan.resolved
    named = of.config.data.source in NAMED_SETS
    alike, own = of.autoencoder or not of.loss.scaled, BOUNDED.get(of.config.model.output, "standard")
    bounded = own != "standard" or not of.loss.scaled
    scaled = "range" if of.autoencoder and bounded else "robust" if alike else f"robust; of targets {own}"
    yield "data.scale", "none" if named else "range" if sizes.shape else scaled
    if of.method.name == "stochastic":
        yield "stochastic.ridge", RidgeSchedule.of(plan).words.removeprefix(", ridge ") or "0"
        if not of.whole_steps:
            averages = Schedule(plan, {}, forms_of(plan).dense_autoencoder)
            yield "stochastic.averaging", averages.words(of.schedule.max_iterations).removeprefix("averaging ")
            yield "stochastic.parts", str(plan.minibatch_parts)
    if not of.method.nested:
        keys = of.config.penalty
        yield from ((f"penalty.{key}", toml(keys.value(key))) for key in PAPER_DEFAULTS)
        yield "model.sites", toml([site for _, _, site in of.config.model.layers()])
        if of.method.acceleration != "joint":
            yield "z_step.solver", z_name(of.config, plan.chain)
        fitted = ", ".join(f"{one.name} (segment {k + 1})" for k, one in of.regressions.items())
        yield "w_step.solver", fitted
        yield "model.fitters", fitted
    if of.method.name == "mac":
        yield "run.finish", toml(of.finishing is not None)
        if of.finishing is not None:
            yield "stochastic.ridge", "0, of the steps of all points at the end"
    late = "true if the validation error comes to be at least twice that of the training points"
    yield "run.refit", late if of.gains else "false"
