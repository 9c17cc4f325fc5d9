"""Speedup measured in rounds: the interval in which the median of all rounds lies."""

from __future__ import annotations

import math

import pytest
from rounds import interval


@pytest.mark.parametrize("n", [6, 7, 12, 25])
def test_the_median_lies_in_its_interval_in_at_least_95_of_100_cases(n: int) -> None:
    """P(x_(k) <= median <= x_(n-k+1)) = 1 - 2 P(fewer than k of n fair coins show heads); one value less is too few."""
    low, high = interval(list(range(n)))
    k = int(low) + 1
    outside = [2.0 * sum(math.comb(n, i) for i in range(own)) / 2**n for own in (k, k + 1)]
    assert high == n - k
    assert outside[0] <= 0.05 < outside[1]
