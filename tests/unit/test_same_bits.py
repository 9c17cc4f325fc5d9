"""run/bench/same_bits.py tells what differs between two runs; its cases are configs that macmpi takes."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import same_bits
from same_bits import differences
from same_bits_case import Seen
from same_bits_cases import CASES

from macmpi.config import validate

W = np.array([0.0, 0.5, -2.0])


def found(old: dict[str, Any], new: dict[str, Any], tolerance: float = 0.0) -> list[str]:
    return list(differences(old, new, tolerance))


def test_equal_datasets_do_not_differ() -> None:
    held = {"W": W, "names": np.array([b"a", b"b"], dtype=object), "none": np.array([np.nan])}
    assert found(held, {name: array.copy() for name, array in held.items()}) == []


def test_a_last_bit_is_a_difference() -> None:
    new = W.copy()
    new[1] = np.nextafter(new[1], 1.0)
    assert found({"W": W}, {"W": new}) == ["W differs by 5.6e-17 of its largest number"]


def test_the_sign_of_a_zero_is_a_difference() -> None:
    new = W.copy()
    new[0] = -0.0
    assert len(found({"W": W}, {"W": new})) == 1


@pytest.mark.parametrize("new", [W.astype(np.float32), W[:2], W[:, None]])
def test_another_type_or_shape_is_a_difference(new: Any) -> None:
    assert len(found({"W": W}, {"W": new})) == 1


def test_a_tolerance_lets_small_differences_pass_and_no_large_ones() -> None:
    assert found({"W": W}, {"W": W + 1e-9}, tolerance=1e-8) == []
    assert len(found({"W": W}, {"W": W + 1e-7}, tolerance=1e-8)) == 1
    assert len(found({"W": W}, {"W": W * np.nan}, tolerance=1e-8)) == 1


SEEN = Seen([], [], {"weights/last": W}, [{"mu": 1.0, "E_Q": 2.0, "seconds": 0.1}, {"mu": 1.0, "E_Q": 1.0}], "", 1)


def test_curves_are_compared_without_times_by_keys_that_both_have() -> None:
    other = replace(SEEN, records=[{"mu": 1.0, "E_Q": 2.0, "seconds": 9.0}, {"mu": 1.0, "E_Q": 1.5, "added": 3.0}])
    assert found(*same_bits.results_of(SEEN, SEEN)) == []
    assert found(*same_bits.results_of(SEEN, other)) == ["curve E_Q differs by 2.5e-01 of its largest number"]


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_a_config(name: str) -> None:
    text = same_bits.config_text({"data.source": "points.h5", **CASES[name].keys})
    validate(tomllib.loads(text), name)
