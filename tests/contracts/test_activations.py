"""The contract of an activation, for every row of FUNCTIONS."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from contracts.examples import away_from_kinks, worked_example
from numpy.testing import assert_allclose

from macmpi.config import validate
from macmpi.nets.layers.activation import FUNCTIONS, Function

EXTREMES = np.array([[-1e4, -750.0, -37.0, -1e-300, 0.0, 1e-300, 37.0, 750.0, 1e4]])


@pytest.fixture(params=[*FUNCTIONS, "gelu"])
def function(request: pytest.FixtureRequest) -> Function:
    """Those of the table, and that of docs/extending/activation.md, whose slope reads its input."""
    found: Function = FUNCTIONS[request.param] if request.param in FUNCTIONS else worked_example()["gelu"]
    return found


def test_slope_is_the_derivative(function: Function, random: np.random.Generator) -> None:
    a, h = away_from_kinks(random, (20, 4)), 1e-6
    ahead, behind = (function.value(a + sign * h, np.empty_like(a)) for sign in (1.0, -1.0))
    slope = function.slope(a, function.value(a, np.empty_like(a)), np.empty_like(a))
    assert_allclose(slope, (ahead - behind) / (2.0 * h), rtol=1e-7, atol=1e-8)


def test_no_slope_is_beyond_the_steepest_and_some_is_near_it(function: Function) -> None:
    a = np.linspace(-9.0, 9.0, 2000)[None]
    b = function.value(a.copy(), np.empty_like(a))
    largest = np.abs(function.slope(a, b, np.empty_like(b))).max()
    assert 0.999 * function.steepest < largest <= function.steepest


def test_value_and_slope_write_to_out(function: Function, random: np.random.Generator) -> None:
    a, out = random.normal(size=(5, 3)), np.full((5, 3), np.nan)
    assert function.value(a.copy(), out) is out
    assert np.isfinite(out).all()
    to = np.full((5, 3), np.nan)
    assert function.slope(a, out.copy(), to) is to
    assert np.isfinite(to).all()


def test_single_precision_stays(function: Function, random: np.random.Generator) -> None:
    a = random.normal(size=(5, 3)).astype(np.float32)
    b = function.value(a.copy(), np.empty_like(a))
    exact = function.value(a.astype(float), np.empty(a.shape))
    assert_allclose(b, exact, rtol=1e-5, atol=1e-6)
    slope = function.slope(a, b, np.empty_like(b))
    assert_allclose(slope, function.slope(a.astype(float), exact, np.empty(a.shape)), rtol=1e-5, atol=1e-6)


def test_extreme_inputs_are_finite_and_silent(function: Function) -> None:
    with warnings.catch_warnings(), np.errstate(over="warn", divide="warn", invalid="warn"):
        warnings.simplefilter("error")
        b = function.value(EXTREMES.copy(), np.empty_like(EXTREMES))
        slope = function.slope(EXTREMES, b, np.empty_like(b))
    assert np.isfinite(b).all()
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_config_may_name_it(name: str) -> None:
    assert validate({"model": {"activation": name}}, "a test").model.activation == name
