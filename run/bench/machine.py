"""Stochastic MAC on all cores against PyTorch's ways to use them: threads, processes, or one core alone; wall clock.

    python run/bench/compare.py machine --torch-python T --curves C --tune [--only usps] [--pause S]   # at any load
    python run/bench/compare.py machine --torch-python T --curves C [--only usps]            # on a quiet machine

A rival's steps are the same in every way, but for rounding: gradients of a minibatch's parts are averaged over the
processes (DistributedDataParallel over gloo).  So how its error falls with epochs is found once for each minibatch, on
one core, which load does not change: all rates for an eighth of the seconds, the best one to the end.  What an epoch
takes is timed in each way, in turns of a few seconds, and takes the median over --repeats rounds.  A rival's time to a
level is the one times the other, with the rate and the minibatch that suit level and way best.  Stochastic MAC is run
as a user runs it, once a round, and each of its iterations takes the median of its seconds.  Rivals begin at random
weights; all are judged by averaged weights.
"""

from __future__ import annotations

import hashlib
import math
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from contenders import AVERAGED, FAST, grid
from contest import ROOT, Candidate, Contender, Contest, Curve, Pace, lowest, merged, reached
from shapes import LABELS, SHAPES, SMALL, UNENDING

SECONDS, TRAIN, VALIDATION, RECORD = 0, 1, 2, 4
"""Columns of a curve."""

CORES = len(os.sched_getaffinity(0))


class Way(NamedTuple):
    """Processes, and threads of each."""

    name: str
    ranks: int
    threads: int


def ways(cores: int) -> list[Way]:
    """All threads of one process, a process a core, one core."""
    return [Way("threads", 1, cores), Way("processes", cores, 1), Way("one core", 1, 1)]


def ranks(cores: int) -> list[int]:
    """Of stochastic MAC."""
    return [n for n in (2, 4, 8, 16) if n <= cores] or [1]


@dataclass(frozen=True)
class Rival:
    """An optimiser of rivals.py with its rates and minibatches."""

    name: str
    optimiser: str
    rates: tuple[float, ...]
    batches: tuple[int, ...]
    beta2: float = 0.99


@dataclass(frozen=True)
class Net:
    """settings: on top of the config; range_: of random weights; seconds: of a rival's curve, on one core.

    own: wall seconds of stochastic MAC's run, evaluation included; step: seconds for which steps are timed.
    """

    config: str
    settings: tuple[str, ...]
    range_: float
    seconds: float
    own: float
    step: float
    levels: tuple[float, ...]
    rivals: tuple[Rival, ...]


OF_LABELS = ('data.source="usps-large"', "model.hidden=[500]", *LABELS)
NETS = {
    "usps": Net(
        FAST,
        (),
        4.0,
        32.0,
        12.0,
        1.5,
        (8.0, 6.0, 5.0, 4.0, 3.5, 3.0, 2.5, 2.0),
        (
            Rival("Adam", "adam", (4e-3, 8e-3), (100, 250)),
            Rival("Muon", "muon", (0.01, 0.02, 0.04), (250, 500)),
            Rival("SOAP", "soap", (3e-3, 1e-2), (250, 500), 0.95),
        ),
    ),
    "classification": Net(
        FAST,
        OF_LABELS,
        2.4,
        60.0,
        30.0,
        1.5,
        (0.1, 0.05, 0.02, 0.01, 0.005, 0.002),
        (
            Rival("Adam", "adam", (1e-3, 3e-3), (100, 500)),
            Rival("Muon", "muon", (0.01, 0.02), (250, 500)),
            Rival("SOAP", "soap", (3e-3, 1e-2), (250, 500), 0.95),
        ),
    ),
    "large": Net(
        "run/large_fast.toml",
        (),
        4.0,
        400.0,
        120.0,
        6.0,
        SHAPES["large"].levels,
        (
            Rival("Adam", "adam", (1e-3, 2e-3), (100, 250)),
            Rival("Muon", "muon", (0.01, 0.02), (500, 1000)),
            Rival("SOAP", "soap", (3e-3, 1e-2), (500, 1000), 0.95),
        ),
    ),
}
QUICK = {"digits": Net(FAST, SMALL, 2.4, 0.2, 1.0, 0.05, (2.0,), (Rival("Adam", "adam", (3e-3,), (100,)),))}
"""To see that all is there, in seconds."""


@dataclass(frozen=True)
class Trained:
    """A rival with one minibatch.

    candidate: at its best rate; curves: of that one to the end, and of all rates as far as they were tried; paces: the
    seconds of an epoch in each round, by way.
    """

    name: str
    candidate: Candidate
    curves: list[Curve]
    paces: dict[str, list[Pace]]

    def there(self, way: str, level: float, column: int, records: int) -> float:
        """Seconds of the clock until an error is at a level, whichever rate is soonest."""
        curves = ([[r[RECORD], *r[1:]] for r in curve] for curve in self.curves)
        return min(reached(curve, level, column)[0] for curve in curves) * self._epoch(way) / records

    def end(self, records: int) -> float:
        """Seconds of the clock of the longest curve, in the way that is done first."""
        return max(curve[-1][RECORD] for curve in self.curves) * min(map(self._epoch, self.paces)) / records

    def _epoch(self, way: str) -> float:
        return statistics.median(pace.seconds for pace in self.paces[way])


def at_any_load(contest: Contest, folder: Path) -> Contest:
    """Keeps curves in a folder of their own, for these sources of the rivals, which other commits may have in common.

    By the processor's clock.
    """
    sources = b"".join((ROOT / name).read_bytes() for name in ("peers.py", "rivals.py"))
    own = folder.resolve() / f"curves-{hashlib.sha256(sources).hexdigest()[:12]}"
    own.mkdir(parents=True, exist_ok=True)
    return replace(contest, folder=own, clock="cpu")


def tuned(contest: Contest, net: Net) -> Iterator[Trained]:
    """Of each rival and minibatch all rates for an eighth of the seconds, and the best one to the end."""
    for rival in net.rivals:
        for batch in rival.batches:
            keys = {"lr": rival.rates, "batch": (batch,), "beta2": (rival.beta2,)} | AVERAGED
            candidates = grid(rival.optimiser, net.config, (net.range_,), net.settings, **keys)
            rungs = ((net.seconds / 8.0, 1), (net.seconds, 1))
            name = f"{rival.name}, minibatches of {batch}"
            winner, *_ = contest.tune(Contender(name, candidates, rungs, 1), ())
            curves = [*contest.curves([winner], net.seconds), *contest.curves(candidates, net.seconds / 8.0)]
            yield Trained(rival.name, winner, curves, {})


def timed(contest: Contest, net: Net, rivals: Sequence[Trained], cores: int, rounds: int) -> dict[int, Curve]:
    """Stochastic MAC's curves by its ranks, and the paces of the rivals, in turns."""
    own: dict[int, list[Curve]] = {}
    settings = (*net.settings, f"stochastic.records={contest.records}", *UNENDING)
    for repeat in range(rounds):
        for n in ranks(cores):
            (curve,) = contest.curves([Candidate(net.config, settings, ranks=n)], net.own, repeat)
            own.setdefault(n, []).append(curve)
        for way in ways(cores):
            of_way = [replace(rival.candidate, ranks=way.ranks) for rival in rivals]
            for rival, pace in zip(rivals, contest.paces(of_way, way.threads, net.step, repeat), strict=True):
                rival.paces.setdefault(way.name, []).append(pace)
        print(f"  round {repeat + 1} of {rounds}", flush=True)
    return {n: merged(curves) for n, curves in own.items()}


HEAD = ("net, error", "stochastic MAC", "Adam", "Muon", "SOAP", "best rival / stochastic MAC")
OPTIMISERS = HEAD[2:5]
PACES = ("net, seconds an epoch", *(way.name for way in ways(2)))


def ruled(head: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]


def rows(name: str, net: Net, own: dict[int, Curve], rivals: Sequence[Trained], records: int) -> list[str]:
    """Markdown: seconds to each training error, and to the lowest validation errors, of each at its best way.

    In brackets the way, its minibatch, and how many times later than stochastic MAC on the most ranks.
    """
    most = max(own)
    least = {o: _lowest(rivals, o) for o in OPTIMISERS}
    wanted = [("train", TRAIN, level, "") for level in net.levels]
    wanted += [("validation", VALIDATION, v, f" (the lowest of {o})") for o, v in least.items() if v < math.inf]
    found = []
    for what, column, level, label in wanted:
        ours = {n: reached(curve, level, column)[0] for n, curve in own.items()}
        there = ", ".join(f"{seconds:.2f} s on {n}" for n, seconds in ours.items() if seconds < math.inf)
        cells, best = [there or f"never: {lowest(own[most], column):.4g} at best"], math.inf
        for optimiser in OPTIMISERS:
            pairs = [
                (rival.there(way, level, column, records), way, rival)
                for rival in rivals
                if rival.name == optimiser
                for way in rival.paces
            ]
            seconds, way, rival = min(pairs, key=lambda pair: pair[0], default=(math.inf, "", None))
            best = min(best, seconds)
            cells.append(_cell(seconds, way, rival, ours[most]))
            if rival and seconds == math.inf:
                cells[-1] = f"> {max(r.end(records) for r in rivals if r.name == optimiser):.2f} s"
        cells.append(f"{best / ours[most]:.1f}" if max(best, ours[most]) < math.inf and ours[most] > 0.0 else "-")
        found.append(f"| {name}, {what} {level:.4g}{label} | {' | '.join(cells)} |")
    return found


def _lowest(rivals: Sequence[Trained], name: str) -> float:
    """An optimiser's lowest validation error, of all its rates and minibatches."""
    curves = (curve for rival in rivals if rival.name == name for curve in rival.curves)
    return min((lowest(curve, VALIDATION) for curve in curves), default=math.inf)


def _cell(seconds: float, way: str, rival: Trained | None, ours: float) -> str:
    if rival is None:
        return "-"
    times = f", {seconds / ours:.1f}" if 0.0 < ours < math.inf else ""
    return f"{seconds:.2f} s ({way}, {dict(rival.candidate.peer)['batch']}{times})"


def paces(name: str, rivals: Sequence[Trained]) -> list[str]:
    """Markdown: the medians over rounds, least and most."""
    found = []
    for rival in rivals:
        keys = dict(rival.candidate.peer)
        each = [sorted(pace.seconds for pace in rival.paces[way]) for way in PACES[1:]]
        cells = [f"{statistics.median(s):.3f} ({s[0]:.3f}-{s[-1]:.3f})" for s in each]
        found.append(f"| {name}, {rival.name}, {keys['batch']} points, rate {keys['lr']:g} | {' | '.join(cells)} |")
    return found


def apart(rivals: Sequence[Trained]) -> float:
    """By how much errors after the same steps differ between ways, relative to them: rounding."""
    errors = [[pace.error for paces in rival.paces.values() for pace in paces] for rival in rivals]
    return max((max(own) / min(own) - 1.0 for own in errors if own and min(own) > 0.0), default=0.0)
