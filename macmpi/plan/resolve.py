"""A config becomes values here alone: "auto" is decided, the net is built, what does not go together is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from macmpi.config import NESTED, Config, dump, flat
from macmpi.config.auto import Decision, Sizes, decide
from macmpi.config.unread import ignored
from macmpi.nets.build import build_chain
from macmpi.nets.losses import loss_of
from macmpi.parallel.placement import PLACEMENTS
from macmpi.plan.choices import fitters, longer, named_by, without_half_steps
from macmpi.plan.refusing import Pair, can_refit, refuse, unhandled
from macmpi.plan.resolved import Resolved
from macmpi.plan.selectable import check_selection
from macmpi.plan.structure import check_choices, check_fitters, check_layers

TABLES = ("method", "stochastic", "baseline", "selection", "start", "run")
"""Tables of which a run reads the keys themselves."""


FEW = 5000
""""auto" refits where there are no more points than this, training and validation points together."""


def resolve(config: Config, sizes: Sizes, decided: Sequence[Decision] = ()) -> Resolved:
    """Settles all that a config says of a run on data of these sizes.

    decided: what the data have decided before.  Raises UsageError, naming a remedy, for what does not fit together.
    Cost: a fraction of a second.  Collective: no.
    """
    found = _settled(config, sizes, decided)
    for pair in unhandled(found, sizes):
        refuse(pair, config, lambda other: _pairs(other, sizes))
    check_selection(found)
    return found


def _settled(given: Config, sizes: Sizes, decided: Sequence[Decision] = ()) -> Resolved:
    """All of it, but for what does not go together.  Raises UsageError for sizes, numbers and orders of layers."""
    config, others = decide(given, sizes.n_in, sizes.autoencoder, sizes.shape)
    repeatable = can_refit(config)
    gains = repeatable and sizes.drawn and not sizes.autoencoder and config.method.name == "stochastic"
    if gains and config.run.refit == "auto" and (n := sizes.n_train + sizes.n_val) <= FEW:
        config = replace(config, run=replace(config.run, refit=True))
        why = f"{n:,} points are few (up to {FEW:,}): those for validation are worth a second training"
        others.append(Decision("run.refit", True, why))
    told = {"settings": flat(config), "text": dump(config), "unread": tuple(ignored(config))}
    if config.method.name in NESTED:
        config = without_half_steps(config)
    chain = build_chain(config.model, sizes.n_in, sizes.n_out)
    check_layers(config, chain, sizes.n_train)
    loss, fitted_by = loss_of(config, sizes.weighted_outputs), fitters(config.model, chain)
    if config.method.name not in NESTED:
        check_fitters(fitted_by, config, chain, loss)
    found = Resolved(
        config=config,
        decisions=(*decided, *others),
        chain=chain,
        units=tuple(config.model.units),
        activations=tuple(kind for _, kind, _ in config.model.layers()),
        autoencoder=sizes.autoencoder,
        dtype=np.dtype(config.model.precision),
        longer=longer(config),
        placement=PLACEMENTS[config.parallel.data],
        repeatable=repeatable,
        gains=gains,
        **told,  # type: ignore[arg-type]
        **named_by(config, chain, loss, fitted_by),
        **{name: getattr(config, name) for name in TABLES},
    )
    check_choices(found)
    return found


def _pairs(config: Config, sizes: Sizes) -> list[Pair]:
    """The parts of a config that do not handle a demand.  Raises UsageError where it is refused for what it is."""
    found = _settled(config, sizes)
    if not (pairs := list(unhandled(found, sizes))):
        check_selection(found)
    return pairs
