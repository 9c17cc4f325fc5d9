"""run/bench/pieces.py times the pieces of a step: functions that the program has."""

from __future__ import annotations

import functools
from importlib import import_module

from pieces import PIECES


def test_every_piece_is_a_function_of_the_program() -> None:
    for place in PIECES:
        module, path = place.split(":")
        assert callable(functools.reduce(getattr, path.split("."), import_module(module))), place
