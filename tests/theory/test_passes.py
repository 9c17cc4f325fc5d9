"""A pass of a minibatch gives the same slopes in one exchange as in two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from theory.test_stochastic import RIDGES, halves, method_of

from macmpi.methods.stochastic import moves as moving
from macmpi.nets.losses import LOSSES

ROWS = halves(np.arange(30))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("factored", [False, True])
def test_one_exchange_brings_what_two_do(loss: str, ridge: float, factored: bool) -> None:
    """To rounding: losses come in units of their running mean.  factored: inverses are applied point by point."""
    method, state = method_of(loss)
    sides = [(factored, factored)] * len(method.layout.shapes)
    for _ in range(2):
        method.step(ROWS, state)
    method.curvature.sides = sides
    apart = method.passes.losses(ROWS, state)
    width, weights = len(state.weights), slice(0, len(state.weights))
    slopes = method.passes.slopes(apart, ridge, state).put(weights, np.empty(width))
    both = method.passes.with_slopes(ROWS, ridge, state)
    assert (apart.probed, apart.n) == (both.probed, both.n) == (30.0, 30.0)
    assert (both.loss, both.square) == pytest.approx((apart.loss, apart.square), rel=1e-13)
    assert both.slopes is not None
    assert_allclose(both.slopes.put(weights, np.empty(width)), slopes, rtol=1e-12, atol=1e-15)
    assert method.passes.slopes(both, ridge, state) is both.slopes


@pytest.mark.parametrize(("off", "wrong"), [(1.0, False), (100.0, True)])
def test_targets_of_any_size_are_judged_alike(off: float, wrong: bool) -> None:
    """Squares of such losses are above the range of single precision, their ratios to the running mean are not."""
    method, state = method_of()
    size = np.float32(1e12)
    data = method.data
    method.passes.data = replace(data, X=data.X.astype(np.float32), Y=(off * size * data.Y).astype(np.float32))
    state.weights = state.weights.astype(np.float32)
    state.own.level = method.passes.losses(ROWS, state).loss / off**2
    method.curvature.sides = [(False, False)] * len(method.layout.shapes)
    passed = method.passes.with_slopes(ROWS, 0.0, state)
    assert np.isfinite(passed.loss)
    assert passed.square > float(np.finfo(np.float32).max)
    assert moving.gone_wrong(passed.loss, passed.square, passed.n, state.own.level) is wrong
