"""One loop refuses what does not go together: demands of a config that a part of the run does not handle.

A remedy is a setting that puts another part in the place of this one, or that switches the demand off, and only one
that was tried: with it the config is accepted, or refused for something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from macmpi import UsageError
from macmpi.config import NESTED, Config
from macmpi.config.auto import Sizes
from macmpi.config.tables import SHAPING
from macmpi.config.whole import toml
from macmpi.demand import Demand
from macmpi.plan.asked import Asked, Setting, asked, asked_of_segment, of_schedule, of_ways
from macmpi.plan.parts import REFIT, Part, part_of_segment, parts
from macmpi.plan.resolved import Resolved

REMEDIES = 2
"""At most this many settings that put another part in the place of the refused one are offered."""

Pair = tuple[Part, Asked]


def unhandled(of: Resolved, sizes: Sizes) -> Iterator[Pair]:
    """Each part with a demand that it does not handle.  sizes: of the data.  Collective: no."""
    whole = asked(of, sizes)
    for part in parts(of):
        yield from _between(part, whole)
    if of.method.name not in NESTED:
        for k in (k for k, group in enumerate(of.chain.groups) if group):
            yield from _between(part_of_segment(of, k), list(asked_of_segment(of, k, whole)))


def can_refit(config: Config) -> bool:
    """Tells whether a run can be repeated on other points: its schedule and its start do not depend on them."""
    return all(one.demand in REFIT for one in (*of_ways(config), *of_schedule(config)))


def _between(part: Part, demands: Sequence[Asked]) -> Iterator[Pair]:
    for one in demands:
        if one.demand not in part.handles:
            yield part, one


class Refused(UsageError):
    """A part does not handle a demand.  settings: the remedies that the message offers, each one alone.

    As every known error it is made of its text alone, so that it reaches another process whole.
    """

    part: Part
    demand: Demand
    settings: list[Setting]


def refuse(pair: Pair, config: Config, pairs_of: Callable[[Config], list[Pair]]) -> None:
    """Raises Refused for a part and a demand that it does not handle.

    pairs_of: the pairs of another config; raises UsageError where it is refused for what it is.  Collective: no.
    """
    part, demand = pair
    tried = [_tried(pair, config, settings, pairs_of) for settings in (part.others, demand.off)]
    settings = [*tried[0].accepted[:REMEDIES], *tried[1].accepted]
    if not settings and not demand.words:
        settings = [*tried[0].other[:REMEDIES], *tried[1].other]
    remedies = list(_written(settings)) or [demand.words]
    if part.author:
        remedies.append(f"let {part.author}.handles have Demand.{demand.demand.name} if it does handle that")
    why = f": {part.why}" if part.why else ""
    text = f"{part.said} does not go with {demand.by}{why}; use {', or '.join(filter(None, remedies))}"
    error = Refused(text)
    error.part, error.demand, error.settings = part, demand.demand, settings
    raise error


def _written(settings: Sequence[Setting]) -> Iterator[str]:
    """Remedies in words: the values of a key together."""
    for key in dict.fromkeys(key for key, _ in settings):
        values = [value for name, value in settings if name == key]
        bounds = key.split(".")[0] == "penalty" and key.split(".")[1] in SHAPING
        yield f"no {key}" if bounds else f"{key} = {' or '.join(map(toml, values))}"


class _Tried(NamedTuple):
    """Settings with which the config is accepted, and those with which something else is refused."""

    accepted: list[Setting]
    other: list[Setting]


def _tried(pair: Pair, config: Config, settings: Sequence[Setting], pairs_of: Callable[[Config], list[Pair]]) -> _Tried:
    """Each setting is tried alone."""
    found = _Tried([], [])
    for setting in settings:
        try:
            left = pairs_of(with_setting(config, setting))
        except (UsageError, ValueError):
            continue
        if not left:
            found.accepted.append(setting)
        elif not any(_alike(pair, one) for one in left):
            found.other.append(setting)
    return found


def _alike(one: Pair, other: Pair) -> bool:
    return one[0].said == other[0].said and one[1].demand == other[1].demand


def with_setting(config: Config, setting: Setting) -> Config:
    """The config with another value of one key.  Raises ValueError where its table refuses it.  Collective: no."""
    table, key = setting[0].split(".")
    own = getattr(config, table)
    return replace(config, **{table: replace(own, **{key: setting[1]})})
