"""The numbers of a run stop being finite somewhere: in which half step, layer, unit or point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from macmpi import NumericalError
from macmpi.nets.chain import Chain
from macmpi.state import W_STEP, Errors, State
from macmpi.typing import Array

SAME = 1e-9
"""Errors that differ by this share are the same but for rounding."""

LITTLE = 0.01
"""A run that ends above the best constant by less than this share has not gone wrong: there was nothing to learn."""

FAR = 2.0
"""A run has diverged where its error ends above this times that of the best constant, and above where it started."""

CHANGES = "another model.activation or another data.scale may help"


def first_bad(A: Array) -> int:
    """The flat index of the first number of A that is not finite, or -1.  Cost: a byte a number."""
    good = np.isfinite(A)
    return -1 if good.all() else int(good.argmin())


NOWHERE = -np.inf
"""The place of `bad_places` where all numbers are finite."""


def bad_places(state: State[Any], first: int = 0) -> dict[str, float]:
    """`first_bad` of the coordinates and of the weights, negative: the largest over the ranks is the first place.

    first: the number of the first point of which the state holds coordinates.
    """
    z, w = first_bad(state.Z), first_bad(state.weights)
    at = first * state.Z.shape[1]
    return {"bad_z": NOWHERE if z < 0 else -float(z + at), "bad_w": NOWHERE if w < 0 else -float(w)}


def wrong_places(
    chain: Chain, iteration: int, places: dict[str, float], stepped: str = "the W-step"
) -> NumericalError | None:
    """The error where a place of `bad_places` is one, else None; the same on every rank that knows it.

    stepped: what moved the weights.
    """
    if places["bad_z"] > NOWHERE:
        point, column = divmod(int(-places["bad_z"]), sum(chain.site_sizes))
        site, unit = _locate(chain.site_sizes, column)
        where = f"the Z-step gave point {point} a coordinate that is not finite, unit {unit} of site {site + 1}"
    elif places["bad_w"] > NOWHERE:
        layer, at = _locate([h * d for h, d in chain.block_shapes], int(-places["bad_w"]))
        unit, column = divmod(at, chain.block_shapes[layer][1])
        where = f"{stepped} gave layer {layer + 1} a weight that is not finite, unit {unit}, input {column}"
    else:
        return None
    return NumericalError(f"iteration {iteration}: {where}")


def check_start(errors: Errors) -> None:
    """Raises NumericalError when the starting point is beyond what numbers can hold."""
    if not (np.isfinite(errors.train) and np.isfinite(errors.validation)):
        raise NumericalError(
            f"the error at the start is {errors.train:g} (training) and {errors.validation:g} (validation); "
            "a smaller start.range, or scaled data (data.scale), may help"
        )


def wrong_errors(errors: Errors, iteration: int, remedy: str) -> NumericalError | None:
    """The error where one of an iteration's errors is not finite, else None: all ranks have the same."""
    named = {"E1 (training)": errors.train, "E1 (validation)": errors.validation, "E_Q": errors.E_Q}
    bad = [f"{name} is {value:g}" for name, value in named.items() if not np.isfinite(value)]
    return NumericalError(f"iteration {iteration}: {', '.join(bad)} at its end; {remedy}, {CHANGES}") if bad else None


def went_wrong(error: float, constant: float, start: float | None, poor: bool) -> bool:
    """Tells whether the last training error (E1, without a ridge) says that a run went wrong.

    constant: the best constant's, 0 where there is none to compare with; start: at the start, if known; poor: the best
    weights are no better than that constant.  A run that has not learnt yet is where it started, and one that is near
    the best constant has lost little.
    """
    if poor:
        return constant > 0.0 and error > FAR * constant and (start is None or error > start)
    return constant > 0.0 and not error <= constant * (1.0 + LITTLE)


def kept(iteration: int, gives_constant: bool) -> str:
    """Says what the model has after training went wrong.

    iteration: of the best weights; gives_constant: the model gives the best constant, since that was better than these.
    """
    if gives_constant:
        return "the model gives the best constant, as no weights of before were better"
    best = f"best weights of before, of iteration {iteration}" if iteration else "weights that the run started with"
    return f"the model has the {best}"


def gone_wrong(
    iteration: int, error: float, constant: float, name: str, remedy: str, gives_constant: bool = False
) -> str:
    """Says that a run has ended worse than a constant, and what the model has.

    iteration, gives_constant: as of `kept`; error, constant: as of `went_wrong`; name: of the constant; remedy: what
    may help.
    """
    return (
        f"training went wrong after iteration {iteration}: at the end E1 (training) is {error:g}, against {constant:g} "
        f"({name}); {kept(iteration, gives_constant)}; {remedy}, {CHANGES}"
    )


def is_arithmetic(error: Exception) -> bool:
    """Libraries raise such errors when they are given, or come to, numbers that are not finite."""
    known = isinstance(error, np.linalg.LinAlgError | FloatingPointError)
    return known or "infs or NaNs" in str(error)


def broken(
    chain: Chain, state: State[Any], problem: tuple[Any, ...], error: Exception, first: int = 0
) -> NumericalError:
    """The error of a sweep that a library has ended in this rank.  problem: the last one that was made here.

    first: as in `bad_places`.
    """
    if (found := wrong_places(chain, state.iteration + 1, bad_places(state, first))) is not None:
        return found
    half, at = "W" if state.position == W_STEP and state.Z.size else "Z", ""
    if half == "W" and problem[:1] == ("W",):
        _, segment, tile = problem
        units = "all units" if tile is None else f"units {tile.start} to {tile.stop - 1}"
        at = f" in segment {segment + 1}, {units}"
    elif half == "Z" and problem[:1] == ("Z",):
        rows: Any = problem[1]
        if isinstance(rows, slice):
            at = f" at points {first + rows.start} to {first + rows.stop - 1}"
        else:
            at = f" at {len(rows)} sample points"
    where = f"iteration {state.iteration + 1}: the {half}-step failed{at}"
    return NumericalError(f"{where} ({error}); checkpoints of before stay")


def _locate(sizes: Sequence[int], at: int) -> tuple[int, int]:
    """Finds the part, of parts of these sizes, that holds entry `at`, and the place in it."""
    bounds = np.cumsum([0, *sizes])
    part = int(np.searchsorted(bounds, at, side="right")) - 1
    return part, at - int(bounds[part])
