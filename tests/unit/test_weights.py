"""Moves of a stochastic run's weights: the formulas hold for every unit, whatever its rank and however many ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sampled import examples
from unit.crew import crew

from macmpi.methods.stochastic.moves import Moves
from macmpi.parallel.team import Team
from macmpi.state import State, StochasticState
from macmpi.training.checkpoint import contents
from macmpi.typing import Array

often = examples(30)
owners = st.lists(st.integers(0, 3), min_size=1, max_size=12)
"""The rank of each run of units."""

RANKS, WIDTH = 4, 3
RATE, KEPT, LENGTH = 0.3, 0.9, -0.7
Places = list[list[slice]]


def places_of(runs: Sequence[int], ranks: int) -> Places:
    """Where each rank's runs lie: `WIDTH` weights a run."""
    return [
        [slice(WIDTH * i, WIDTH * (i + 1)) for i, r in enumerate(runs) if r % ranks == rank] for rank in range(ranks)
    ]


def state_of(count: int) -> State:
    random = np.random.default_rng(count)
    weights, average, momentum = random.normal(size=(3, count))
    return State(weights, np.empty((0, 0)), 1.0, StochasticState(average=average, step=momentum))


def direction_of(count: int) -> Array:
    found: Array = np.random.default_rng(count + 1).normal(size=count)
    return found


def mask(places: Sequence[slice], count: int) -> Array:
    found = np.zeros(count, dtype=bool)
    for place in places:
        found[place] = True
    return found


def after(runs: Sequence[int], ranks: int, move: Callable[[Moves, State], Any]) -> tuple[State, list[State], Places]:
    """The state before, those of the ranks after, and the places of each rank."""
    count, places = WIDTH * len(runs), places_of(runs, ranks)

    def work(team: Team) -> State:
        state = state_of(count)
        move(Moves(team, places), state)
        return state

    return state_of(count), crew(ranks, work), places  # type: ignore[return-value]


def step(moves: Moves, state: State, go: bool, i: int = 0) -> None:
    direction = direction_of(len(state.weights) + i)[: len(state.weights)]
    runs = [(place, direction[place]) for place in moves.places[moves.team.rank]]
    moves.step(state, RATE, KEPT, runs, LENGTH, go)


@often
@given(owners, st.booleans())
def test_a_step_moves_average_last_step_and_weights_of_own_units_alone(runs: list[int], go: bool) -> None:
    before, found, places = after(runs, RANKS, lambda moves, state: step(moves, state, go))
    turned = KEPT * before.own.step + LENGTH * direction_of(WIDTH * len(runs))
    expected = {
        "average": before.own.average + RATE * (before.weights - before.own.average),
        "step": turned,
        "weights": before.weights + go * turned,
    }
    for state, own in zip(found, places, strict=True):
        here = mask(own, len(before.weights))
        for name, moved in expected.items():
            assert_array_equal(contents(state)[name], np.where(here, moved, contents(before)[name]), err_msg=name)


@often
@given(owners)
def test_weights_go_by_the_last_step_and_are_shown_to_all_ranks(runs: list[int]) -> None:
    def go(moves: Moves, state: State) -> None:
        moves.go(state)
        moves.show(state.weights)

    before, found, _ = after(runs, RANKS, go)
    for state in found:
        assert_array_equal(state.weights, before.weights + before.own.step)
        assert_array_equal(state.own.step, before.own.step)
        assert_array_equal(state.own.average, before.own.average)


@often
@given(owners)
def test_going_back_ends_at_the_average_on_all_ranks_without_a_last_step(runs: list[int]) -> None:
    before, found, places = after(runs, RANKS, lambda moves, state: moves.place(state.own.average, state))
    for state, own in zip(found, places, strict=True):
        assert_array_equal(state.weights, before.own.average)
        assert not state.own.step[mask(own, len(before.weights))].any()
        assert_array_equal(state.own.average, before.own.average)


def several(moves: Moves, state: State) -> None:
    """Some steps of a run, a failed one among them."""
    for i in range(4):
        step(moves, state, True, i)
        moves.show(state.weights)
        if i == 2:
            moves.place(state.own.average, state)
    moves.complete(state)


@often
@given(owners, st.integers(1, RANKS))
def test_the_union_of_the_ranks_is_what_one_rank_has(runs: list[int], ranks: int) -> None:
    before, found, _ = after(runs, ranks, several)
    alone = state_of(len(before.weights))
    several(Moves(Team(), places_of(runs, 1)), alone)
    for state in found:
        for name in ("weights", "average", "step"):
            assert_array_equal(contents(state)[name], contents(alone)[name], err_msg=name)
    assert (alone.weights != before.weights).all()


@pytest.mark.parametrize(
    ("shows", "shown"),
    [
        (lambda moves, state: moves.show(state.weights), {"weights"}),
        (lambda moves, state: moves.show(state.own.step), {"step"}),
        (Moves.complete, {"step", "average"}),
    ],
)
def test_what_is_shown_comes_from_the_rank_that_owns_it(shows: Callable[..., None], shown: set[str]) -> None:
    runs = [0, 1, 1, 2, 0]
    places = places_of(runs, 3)

    def work(team: Team) -> State:
        state = state_of(WIDTH * len(runs))
        for flat in (state.weights, state.own.average, state.own.step):
            flat[:] = float(team.rank)
        shows(Moves(team, places), state)
        return state

    for rank, state in enumerate(crew(3, work)):
        for flat in ("weights", "average", "step"):
            expected = np.repeat(runs, WIDTH) if flat in shown else np.full(WIDTH * len(runs), rank)
            assert_array_equal(contents(state)[flat], expected)
