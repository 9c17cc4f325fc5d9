"""A stream depends on seed, purpose and index, and on nothing else."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampled import examples

from macmpi.parallel.streams import stream

often = examples(100)
SEEDS = st.integers(0, 2**63 - 1)
PURPOSES = st.sampled_from(["start", "split", "", "Start", "start "])
INDICES = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)


def draw(seed: int, purpose: str, *index: int) -> np.ndarray:
    return stream(seed, purpose, *index).random(4)


@often
@given(seed=SEEDS, purpose=PURPOSES, index=INDICES)
def test_the_same_key_gives_the_same_numbers(seed: int, purpose: str, index: tuple[int, ...]) -> None:
    """Whatever was drawn before, from this stream's twin or from NumPy's own state."""
    first = draw(seed, purpose, *index)
    np.random.default_rng(seed).random(3)
    stream(seed, purpose, *index).normal(size=100)
    assert_array_equal(draw(seed, purpose, *index), first)


KEYS = st.tuples(SEEDS, PURPOSES, st.lists(st.integers(1, 2**40), max_size=3))


@often
@given(a=KEYS, b=KEYS)
def test_another_key_gives_other_numbers(a: tuple[int, str, list[int]], b: tuple[int, str, list[int]]) -> None:
    assume(a != b)
    assert (draw(a[0], a[1], *a[2]) != draw(b[0], b[1], *b[2])).all()


def test_the_numbers_are_the_same_in_another_process() -> None:
    """The purpose is hashed by SHA-256, not by Python's salted hash."""
    code = "from macmpi.parallel.streams import stream; print(repr(stream(7, 'start', 2).random()))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(other.stdout) == stream(7, "start", 2).random()
