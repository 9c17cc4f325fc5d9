"""A stream goes on in another process, on another number of ranks, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import macmpi

RANDOM = np.random.default_rng(0)
X, LABELS = RANDOM.normal(size=(300, 4)), RANDOM.choice(["p", "q"], 300)


@pytest.mark.parametrize("ranks", [(2, 3)])
def test_a_stream_goes_on_on_any_number_of_ranks(ranks: tuple[int, int]) -> None:
    first, second = [(X[:120], LABELS[:120])], [(X[120:], LABELS[120:])]
    here = macmpi.fit(batches=first + second, classes=["p", "q", "s"], hidden=[6], seed=0)
    begun = macmpi.fit(batches=first, classes=["p", "q", "s"], hidden=[6], seed=0, ranks=ranks[0])
    there = macmpi.fit(batches=second, start=begun, seed=0, ranks=ranks[1])
    assert there == here and there.stream.keys() == here.stream.keys()
    assert all(np.array_equal(A, there.stream[name]) for name, A in here.stream.items())
