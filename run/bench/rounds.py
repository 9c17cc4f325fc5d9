"""Speedup in many short rounds, on a machine whose speed swings: launches on 1 rank and on P in turn.

    python run/bench/rounds.py run/large_fast.toml --iterations 1 --rounds 12
    python run/bench/rounds.py run/usps_mac.toml run/usps_fast.toml --ranks 2

With each launch go the dgemm rate of every core, alone and all at once, the share of the cores that the host has taken
away ("stolen", /proc/stat) and that other programs have used.  Rates are taken before and after a launch.  A round is
quiet if none of its launches lost more than STOLEN, and if every core, alone and with the others, was within SLOW of
its usual rate, the upper quartile of all: a host may slow the cores down, or speed one up for a while, of which
/proc/stat knows nothing.  Rounds are added until the median speedup of the quiet ones is known to within WIDTH, by the
order statistics of a sign test, or until there are --rounds of them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
from measure import Kind, busy, launch  # noqa: E402

STOLEN, SLOW, WIDTH, FEWEST = 0.02, 0.93, 0.01, 6
"""Shares of the cores' time, and of a core's usual rate; half the width of the median's interval; rounds at least."""

RATE = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\n"
RATE += "from macmpi.plan.estimate import dgemm_rate; print(dgemm_rate(repeats=20))"
"""A program that measures the rate of the core whose number it is given."""


@dataclass(frozen=True)
class Run:
    """A launch: seconds of an iteration, exchange and waiting in them, and how the machine was.

    alone, together: the least dgemm flop/s of each core just before and just after, by itself and while the others
    work; stolen, others: cores that the host and other programs have taken, on average.
    """

    seconds: float
    exchange: float
    waiting: float
    alone: list[float]
    together: list[float]
    stolen: float
    others: float

    @property
    def rates(self) -> list[float]:
        """Of each core alone, then of each together with the others."""
        return [*self.alone, *self.together]


def rates(cores: Sequence[int], together: bool) -> list[float]:
    """dgemm flop/s on each core, one after the other or all at once."""
    found = []
    for some in [list(cores)] if together else [[core] for core in cores]:
        commands = ([sys.executable, "-c", RATE, str(core)] for core in some)
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        found += [float(process.communicate()[0]) for process in running]
    return found


def stolen() -> float:
    """Core seconds that the host has taken since this machine started."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def run(config: Path, ranks: int, count: int, settings: tuple[str, ...], folder: Path) -> Run:
    """One launch, the first iteration left out where there are more."""
    cores = sorted(os.sched_getaffinity(0))
    before = rates(cores, False), rates(cores, True)
    (all_before, own_before), lost, began = busy(), stolen(), time.perf_counter()
    (table,) = launch(config, Kind(ranks, 1, settings), count, folder)
    (all_after, own_after), taken, took = busy(), stolen() - lost, time.perf_counter() - began
    after = rates(cores, False), rates(cores, True)
    alone, together = ([min(pair) for pair in zip(*both, strict=True)] for both in zip(before, after, strict=True))
    others = max(all_after - all_before - (own_after - own_before) - taken, 0.0) / took
    seconds, _, _, exchange, waiting = medians(table[1:] if count > 1 else table)
    return Run(seconds, exchange, waiting, alone, together, taken / took, others)


def medians(table: Sequence[Sequence[float]]) -> list[float]:
    """Medians over iterations of seconds and their parts."""
    return [statistics.median(column) for column in zip(*table, strict=True)]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Between these the median lies with 95 %, or the extremes where there are too few values."""
    ordered, n = sorted(values), len(values)
    if not n:
        return math.nan, math.nan
    below, k = 0.0, 0
    while k < n // 2 and below + math.comb(n, k) / 2**n <= 0.025:
        below, k = below + math.comb(n, k) / 2**n, k + 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


@dataclass(frozen=True)
class Speedup:
    """The speedups of some rounds, in their order."""

    times: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def settled(self) -> bool:
        """The median is known well enough."""
        low, high = interval(self.times)
        return len(self.times) >= FEWEST and high - low <= 2.0 * WIDTH * self.median

    def __str__(self) -> str:
        if not self.times:
            return "none"
        (low, high), unknown = interval(self.times), "" if self.settled else f", not known to within {WIDTH:.0%}"
        spread = f"{min(self.times):.3f} to {max(self.times):.3f}"
        return f"{len(self.times)}, median {self.median:.3f} ({low:.3f}-{high:.3f}{unknown}), {spread}"


Round = Sequence[Run]
"""A launch on one rank and one on several."""


def is_quiet(pair: Round, usual: Sequence[float]) -> bool:
    """No launch of a round has lost much, and every core had its speed.  usual: of each of Run.rates."""
    rates = [pair for run in pair for pair in zip(run.rates, usual, strict=True)]
    steady = all(SLOW * known <= rate <= known / SLOW for rate, known in rates)
    return steady and all(run.stolen + run.others <= STOLEN for run in pair)


def speedup(rounds: Sequence[Round]) -> Speedup:
    return Speedup([one.seconds / many.seconds for one, many in rounds])


def quiet(rounds: Sequence[Round]) -> list[Round]:
    """The rounds during which nothing else disturbed the machine."""
    usual = [
        float(np.quantile(column, 0.75)) for column in zip(*(run.rates for pair in rounds for run in pair), strict=True)
    ]
    return [pair for pair in rounds if is_quiet(pair, usual)]


def by_least(rounds: Sequence[Round]) -> float:
    """The speedup by the least seconds of either number of ranks."""
    one, many = (min(run.seconds for run in column) for column in zip(*rounds, strict=True))
    return one / many


def measured(config: Path, args: argparse.Namespace, folder: Path) -> list[Round]:
    """Rounds until the quiet ones settle; a line for each."""
    rounds: list[Round] = []
    settings = tuple(args.set)
    launch(config, Kind(1, 1, settings), 1, folder)
    print(f"{config.stem}: round, seconds on 1 and {args.ranks} ranks, times, stolen and others, dgemm of the cores")
    while len(rounds) < args.rounds and not speedup(quiet(rounds)).settled:
        rounds.append([run(config, ranks, args.iterations, settings, folder) for ranks in (1, args.ranks)])
        one, many = rounds[-1]
        lost = ", ".join(f"{r.stolen:.3f} {r.others:.3f}" for r in (one, many))
        speeds = ", ".join(f"{rate / 1e9:.0f}" for r in (one, many) for rate in r.rates)
        times = f"{one.seconds / many.seconds:.3f}"
        print(f"  {len(rounds):2d}  {one.seconds:.4f} {many.seconds:.4f}  {times}  {lost}  {speeds}", flush=True)
    return rounds


def main() -> None:
    p = argparse.ArgumentParser(description="Speedup in many short interleaved rounds.")
    p.add_argument("configs", nargs="+", type=Path, metavar="CONFIG.toml")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--iterations", type=int, default=6, help="of a launch; the first counts where it is the only one")
    p.add_argument("--rounds", type=int, default=20, help="at most")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    p.add_argument("--output", type=Path, default=Path("runs/rounds"))
    args = p.parse_args()
    if not 2 <= args.ranks <= len(os.sched_getaffinity(0)):
        p.error(f"--ranks {args.ranks}: from 2 to the {len(os.sched_getaffinity(0))} cores here")
    if args.iterations < 1 or args.rounds < 1:
        p.error("--iterations and --rounds: at least 1")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for config in args.configs:
            rounds = measured(config, args, Path(folder))
            found = {"config": str(config), "ranks": args.ranks, "settings": args.set, "iterations": args.iterations}
            runs = [[asdict(run) for run in pair] for pair in rounds]
            (args.output / f"{config.stem}.json").write_text(json.dumps({**found, "rounds": runs}, indent=1))
            print(f"{config.stem}, quiet rounds: {speedup(quiet(rounds))}", flush=True)
            print(f"{config.stem}, all: {speedup(rounds)}; by the least seconds {by_least(rounds):.3f}", flush=True)


if __name__ == "__main__":
    main()
