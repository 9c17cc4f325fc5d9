"""A config becomes values here: "auto" is decided, the net is built, and parts that do not go together are refused.

One loop refuses a config if it makes a demand that a part of the run does not handle.  Remedies are settings that put
another part in the place of this one, or that switch the demand off.  Each one that is offered was tried: with it the
config is accepted, or refused for something else.  If "auto" has chosen the part, it takes such a remedy itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from macmpi import UsageError
from macmpi.config import Config, Penalty, Start, dump, flat
from macmpi.config.auto import AUTO, Decision, Sizes, decide
from macmpi.config.tables import SHAPING
from macmpi.config.whole import given as keys_of
from macmpi.config.whole import ignored, toml, with_value
from macmpi.demand import USUAL, Asked, Demand, Part, Setting
from macmpi.nets.build import build_chain
from macmpi.nets.layers import is_dense
from macmpi.nets.losses import loss_of
from macmpi.parallel.placement import PLACEMENTS
from macmpi.plan import choices, tuned
from macmpi.plan.demands import FINISH, REFIT, asked, asked_by_keys, parts, rows_of, said
from macmpi.plan.resolved import Resolved
from macmpi.plan.selectable import check_selection
from macmpi.plan.structure import check_choices, check_fitters, check_layers
from macmpi.solvers.gradient_solvers import SGDW

TABLES = ("method", "stochastic", "baseline", "selection", "start", "run")
"""Tables of the config whose keys a run reads as they are."""


SPAN = USUAL - {Demand.SKIPS, Demand.SHARED, Demand.SPARSE, Demand.RESTRAINED, Demand.FITTED}
"""Demands of nets that can be trained in the span of the points: the first layer reads all columns, with a ridge."""

BY_SQUARES = ("mac", "stochastic")
"""Methods that find the same net whatever orthonormal coordinates the inputs have."""

FEW = 5000
""""auto" refits if training and validation points together are no more than this."""


REMEDIES = 2
"""A message offers at most this many settings that put another part in the place of the refused one."""

Pair = tuple[Part, Asked]


class Checked(NamedTuple):
    """A config, what it resolves to, and each pair of a part and a demand that the part does not handle."""

    config: Config
    resolved: Resolved
    pairs: list[Pair]


def resolve(config: Config, sizes: Sizes, decided: Sequence[Decision] = ()) -> Resolved:
    """Turns a config into the values of a run on data of these sizes.

    decided: decisions that the data have made before.
    Raises UsageError, which names a remedy, if parts do not go together.
    Cost: a fraction of a second.  Collective: no.
    """
    checked = _checked(config, sizes, decided)
    chosen = [said(decision.key, decision.value) for decision in checked.resolved.decisions]
    for pair in sorted(checked.pairs, key=lambda pair: any(text in _blamed(pair) for text in chosen)):
        raise _refused(pair, checked.config, sizes)
    settled = checked.resolved
    if settled.start.method == "stochastic" and settled.method.name != "stochastic":
        settled = replace(settled, opening=resolve(replace(finishing_of(settled.config), penalty=Penalty()), sizes))
    if not _finishes(settled, sizes):
        return settled
    return replace(settled, finishing=resolve(finishing_of(settled.config), sizes))


def resolve_in_span(config: Config, sizes: Sizes, decided: Sequence[Decision] = ()) -> Resolved:
    """Resolves a config as `resolve` does; for fewer points than columns the net reads coordinates in their span.

    That is the span of the training points, or of all points if the validation points are drawn from the same set.  If
    the config depends on single columns, the net reads all columns instead.  Raises UsageError.  Collective: no.
    """
    of_columns, n = resolve(config, sizes, decided), sizes.n_train + (sizes.n_val if sizes.drawn else 0)
    if n >= sizes.n_in or not _has_span(of_columns, sizes):
        return of_columns
    told = {key: getattr(of_columns, key) for key in ("decisions", "settings", "text", "unread")}
    of_points = resolve(of_columns.config, replace(sizes, n_in=n, shape=None))
    return replace(of_points, columns=sizes.n_in, **told)


def _has_span(of: Resolved, sizes: Sizes) -> bool:
    """Tells whether training may be in the span of the points, since nothing depends on single columns or distances.

    Every rank has to hold all points, and no others may follow, as in a stream.
    """
    if not of.placement.all_rows or of.autoencoder or of.stochastic.stream:
        return False
    usual = SPAN.issuperset(one.demand for one in asked(of, sizes)) and of.start.method != "elastic_embedding"
    return usual and of.method.name in BY_SQUARES and is_dense(of.chain.maps[0])


def _finishes(of: Resolved, sizes: Sizes) -> bool:
    """Tells whether full MAC ends with steps of all points; with "auto" it does for autoencoders that these handle."""
    if of.method.name != "mac" or of.run.finish != "auto":
        return of.method.name == "mac" and bool(of.run.finish)
    return sizes.autoencoder and FINISH.issuperset(one.demand for one in asked(of, sizes))


def finishing_of(config: Config) -> Config:
    """Makes the config of the steps of all points with which full MAC ends.  Collective: no.

    Their ridge is stochastic.ridge, and 0 with "auto", since a ridge would outweigh the error for weights that have
    grown without one.
    """
    values = {"method.name": "stochastic", "stochastic.batch": "all", "run.refit": False}
    values |= {"method.acceleration": "none", "stochastic.patience": tuned.FINISH_PATIENCE, "w_step.schedule": "units"}
    values |= {"stochastic.ridge": 0.0} if config.stochastic.ridge == "auto" else {}
    for key, value in values.items():
        config = with_value(config, key, value)
    return replace(config, start=Start(seed=config.start.seed))  # they begin with weights, not with the run's start


def _checked(config: Config, sizes: Sizes, decided: Sequence[Decision] = ()) -> Checked:
    """Resolves a config.  If a choice of "auto" is refused, it tries other values of that key.

    If none of them is accepted, the outcome is that of the last one which is refused for another reason, if there is.
    Raises UsageError if the config is refused for the shape of its net or for its selection alone.
    """
    found: Checked | UsageError
    other: Checked | UsageError
    try:
        found = _as_decided(config, sizes, decided)
        if not found.pairs:
            return found
        (part, demand), *_ = found.pairs
        why, offered = _blamed((part, demand)), (*part.others, *demand.off)
    except UsageError as error:
        found, why, offered = error, str(error).partition("; use ")[0], ()
    for key, value in _left_open(config, sizes, why, offered):
        try:
            other = _checked(with_value(config, key, value), sizes, [*decided, Decision(key, value, why)])
            if not other.pairs:
                return other
            blamed = [*map(_blamed, other.pairs)]
        except UsageError as error:
            other, blamed = error, [str(error)]
        if not all(said(key, value) in text for text in blamed):
            found = other
    if isinstance(found, UsageError):
        raise found
    return found


def _blamed(pair: Pair) -> str:
    """Says which part does not handle which demand."""
    return f"{pair[0].said} does not go with {pair[1].by}"


def _left_open(config: Config, sizes: Sizes, why: str, offered: Sequence[Setting]) -> list[Setting]:
    """Lists what to try where a config is refused for a choice of "auto", not of the net: other values of that key.

    why: the refusal, which names the setting; offered: its remedies.
    """
    chosen, _ = decide(config, sizes.n_in, sizes.autoencoder, sizes.shape)
    instead = [(key, value) for key, _, row in rows_of(chosen) for value in row.instead]
    keys = {key for key, _ in (*instead, *offered) if attrgetter(key)(config) == AUTO and not key.startswith("model.")}
    blamed = {key for key in keys if said(key, attrgetter(key)(chosen)) in why}
    return [(key, value) for key, value in (*instead, *offered) if key in blamed]


def _as_decided(config: Config, sizes: Sizes, decided: Sequence[Decision]) -> Checked:
    """Does what `_checked` does, but leaves the choices of "auto" as they are."""
    settled = _settled(config, sizes, decided)
    pairs = [(part, one) for part, asked in parts(settled, sizes) for one in asked if one.demand not in part.handles]
    if not pairs:
        check_selection(settled)
    return Checked(config, settled, pairs)


def _settled(given: Config, sizes: Sizes, decided: Sequence[Decision]) -> Resolved:
    """Resolves a config without checking whether its parts go together.

    decided: decisions that the data have made before.
    Raises UsageError for numbers, sizes and orders of layers that make no net.
    """
    config, others = decide(given, sizes.n_in, sizes.autoencoder, sizes.shape)
    repeatable = can_refit(config)
    gains = repeatable and sizes.drawn and not sizes.autoencoder and config.method.name == "stochastic"
    if gains and config.run.refit == "auto" and (n := sizes.n_train + sizes.n_val) <= FEW:
        config = with_value(config, "run.refit", True)
        why = f"{n:,} points are few (up to {FEW:,}): those for validation are worth a second training"
        others.append(Decision("run.refit", True, why))
    as_given = config
    if config.method.nested:
        config = choices.without_half_steps(config)
    chain = build_chain(config.model, sizes.n_in, sizes.n_out)
    loss, fitted_by = loss_of(config, sizes), choices.fitters(config.model, chain)
    check_layers(config, chain, sizes.n_train)
    if not config.method.nested:
        check_fitters(fitted_by, config, chain, loss)
    dtype = np.dtype(config.model.precision)
    numbers = [dtype.itemsize * n for n in (chain.n_in, chain.n_out)[: 2 - sizes.autoencoder]]
    penalty, layers = config.penalty, tuple(sorted({b for segment in chain.segments for b in segment.regressed}))
    shaping = choices.shaping_of(penalty, layers, config.model.tied, chain.undivided is not None)
    in_vain = ignored(as_given, as_given, chain.reuses)
    settled = Resolved(
        config=config,
        decisions=(*decided, *(one for one in others if one.key not in in_vain)),
        settings=flat(as_given),
        text=dump(as_given),
        unread=tuple(key for key in in_vain if key in keys_of(given)),
        chain=chain,
        units=tuple(config.model.units),
        activations=tuple(kind for _, kind, _ in config.model.layers()),
        autoencoder=sizes.autoencoder,
        dtype=dtype,
        loss=loss,
        schedule=choices.schedule_of(config, loss, bool(chain.codes)),
        shaping=shaping,
        z_solver=choices.solver(choices.class_of("z_solvers", choices.z_name(config, chain)), config.z_step),
        minibatches=min(config.z_step.minibatches, sizes.n_train) if chain.sites else 1,
        running=config.w_step.sums == "running" and bool(chain.sites),
        regressions=choices.regressions(config, chain, loss, shaping, fitted_by),
        trainers=(trainers := choices.trainers(config.model, chain)),
        refined=frozenset(b for b, trainer in trainers.items() if hasattr(trainer, "by_sums")),
        stage=choices.class_of("trainers", config.model.each("centres", 1)[0])(),
        metric=penalty.metric if chain.sites else "identity",  # without constraints nothing is measured
        ring=choices.solver(SGDW, config.w_step) if config.w_step.schedule == "ring" else None,
        placement=(placement := PLACEMENTS[config.parallel.data]),
        point_bytes=placement.bytes_of(numbers, sizes.raw or numbers, config.parallel.rows == "file"),
        repeatable=repeatable,
        gains=gains,
        before=sizes.before,
        **{name: getattr(config, name) for name in TABLES},
    )
    check_choices(settled)
    return settled


def can_refit(config: Config) -> bool:
    """Tells whether a run can be repeated on other points: neither its schedule nor its start depend on the points."""
    return all(one.demand in REFIT for one in asked_by_keys(config))


class Refused(UsageError):
    """Is raised if a part does not handle a demand.

    Like every known error it is made from its text alone, so that it can be sent to another process; the attributes are
    set afterwards.

    part, demand: the part, and the demand that it does not handle.
    settings: the remedies that the message offers, each by itself.
    """

    part: Part
    demand: Demand
    settings: list[Setting]


def _refused(pair: Pair, config: Config, sizes: Sizes) -> Refused:
    """Makes the error for a part and a demand that it does not handle, with remedies that were tried.

    pair: the part and the demand.
    config, sizes: the config and the data sizes of the refused run.
    """
    part, demand = pair
    (others, but), (off, off_but) = (_tried(pair, config, sizes, settings) for settings in (part.others, demand.off))
    settings = [*others[:REMEDIES], *off]
    if not settings and not demand.words:
        settings = [*but[:REMEDIES], *off_but]
    remedies = list(_written(settings)) or [demand.words]
    if part.author:
        remedies.append(f"let {part.author}.handles have Demand.{demand.demand.name} if it does handle that")
    why = f": {part.why}" if part.why else ""
    error = Refused(f"{_blamed(pair)}{why}; use {', or '.join(filter(None, remedies))}")
    error.part, error.demand, error.settings = part, demand.demand, settings
    return error


def _written(settings: Sequence[Setting]) -> Iterator[str]:
    """Writes remedies in words, with all values of a key together."""
    for key in dict.fromkeys(key for key, _ in settings):
        values = [value for name, value in settings if name == key]
        shapes = key.removeprefix("penalty.") in SHAPING
        yield f"no {key}" if shapes else f"{key} = {' or '.join(map(toml, values))}"


def _tried(
    pair: Pair, config: Config, sizes: Sizes, settings: Sequence[Setting]
) -> tuple[list[Setting], list[Setting]]:
    """Tries settings as remedies, each alone.

    Returns those with which the config is accepted, and those with which it is refused for another reason.

    pair: the part and the demand for which the config is refused.
    """
    accepted, other = list[Setting](), list[Setting]()
    for setting in settings:
        try:
            left = _checked(with_value(config, *setting), sizes).pairs
        except UsageError as error:
            other += [setting] if said(*setting) not in str(error) else []
            continue
        except ValueError:
            continue
        if not left:
            accepted.append(setting)
        elif (pair[0].said, pair[1].demand) not in [(part.said, asked.demand) for part, asked in left]:
            other.append(setting)
    return accepted, other
