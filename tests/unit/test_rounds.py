"""Speedup in rounds: which are quiet, and what is known of their median."""

from __future__ import annotations

import math

import pytest
from rounds import SLOW, STOLEN, Round, Run, interval, quiet

BOTH = (1.0, 1.0)


def run(
    seconds: float = 1.0,
    rates: tuple[float, ...] = BOTH,
    together: tuple[float, ...] = BOTH,
    stolen: float = 0.0,
    others: float = 0.0,
) -> Run:
    return Run(seconds, 0.0, 0.0, list(rates), list(together), stolen, others)


@pytest.mark.parametrize("n", [6, 7, 12, 25])
def test_the_median_lies_in_its_interval_in_at_least_95_of_100_cases(n: int) -> None:
    """P(x_(k) <= median <= x_(n-k+1)) = 1 - 2 P(fewer than k of n fair coins show heads); one value less is too few."""
    low, high = interval(list(range(n)))
    k = int(low) + 1
    outside = [2.0 * sum(math.comb(n, i) for i in range(own)) / 2**n for own in (k, k + 1)]
    assert high == n - k
    assert outside[0] <= 0.05 < outside[1]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("disturbed", "kept"),
    [
        (run(stolen=1.1 * STOLEN), False),
        (run(others=1.1 * STOLEN), False),
        (run(stolen=0.6 * STOLEN, others=0.6 * STOLEN), False),
        (run(rates=(1.0, 0.99 * SLOW)), False),
        (run(together=(0.99 * SLOW, 1.0)), False),
        (run(rates=(1.0, 1.01 / SLOW)), False),
        (run(rates=(1.01 * SLOW, 1.0), others=0.9 * STOLEN), True),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_round_is_quiet_if_neither_launch_was_disturbed(disturbed: Run, kept: bool, place: int) -> None:
    rounds: list[Round] = [[run(), run()] for _ in range(3)]
    rounds[1] = [disturbed, run()] if place == 0 else [run(), disturbed]
    assert quiet(rounds) == (rounds if kept else [rounds[0], rounds[2]])
