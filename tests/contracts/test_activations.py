"""The contract of an activation, for every row of FUNCTIONS."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from contracts.examples import away_from_kinks
from numpy.testing import assert_allclose, assert_array_equal

from macmpi.config import validate
from macmpi.nets.layers.activation import FUNCTIONS, Function

EXTREMES = np.array([[-1e4, -750.0, -37.0, -1e-300, 0.0, 1e-300, 37.0, 750.0, 1e4]])


@pytest.fixture(params=FUNCTIONS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def function(name: str) -> Function:
    return FUNCTIONS[name]


def test_slope_is_the_derivative_as_a_function_of_the_value(function: Function, random: np.random.Generator) -> None:
    a, h = away_from_kinks(random, (20, 4)), 1e-6
    ahead, behind = (function.value(a + sign * h, np.empty_like(a)) for sign in (1.0, -1.0))
    slope = function.slope(function.value(a, np.empty_like(a)), np.empty_like(a))
    assert_allclose(slope, (ahead - behind) / (2.0 * h), rtol=1e-7, atol=1e-8)


def test_no_slope_is_beyond_the_steepest_and_some_is_near_it(function: Function) -> None:
    b = function.value(np.linspace(-9.0, 9.0, 2000)[None], np.empty((1, 2000)))
    largest = function.slope(b, np.empty_like(b)).max()
    assert 0.999 * function.steepest < largest <= function.steepest


def test_value_and_slope_write_to_out(function: Function, random: np.random.Generator) -> None:
    a, out = random.normal(size=(5, 3)), np.full((5, 3), np.nan)
    assert function.value(a.copy(), out) is out
    assert np.isfinite(out).all()
    to = np.full((5, 3), np.nan)
    assert function.slope(out.copy(), to) is to
    assert np.isfinite(to).all()


def test_value_in_place(function: Function, random: np.random.Generator) -> None:
    a = random.normal(size=(5, 3))
    apart = function.value(a.copy(), np.empty_like(a))
    assert function.value(a, a) is a
    assert_array_equal(a, apart)


def test_the_slope_leaves_the_values_alone(function: Function, random: np.random.Generator) -> None:
    b = function.value(random.normal(size=(5, 3)), np.empty((5, 3)))
    before = b.copy()
    function.slope(b, np.empty_like(b))
    assert_array_equal(b, before)


def test_extreme_inputs_are_finite_and_silent(function: Function) -> None:
    with warnings.catch_warnings(), np.errstate(over="warn", divide="warn", invalid="warn"):
        warnings.simplefilter("error")
        b = function.value(EXTREMES.copy(), np.empty_like(EXTREMES))
        slope = function.slope(b, np.empty_like(b))
    assert np.isfinite(b).all()
    assert np.isfinite(slope).all()


def test_a_config_may_name_it(name: str) -> None:
    assert validate({"model": {"activation": name}}, "a test").model.activation == name
