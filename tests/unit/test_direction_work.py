"""Directions are assigned to ranks: every unit to one of them, and as evenly as the runs of units allow."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import examples

from macmpi.plan.directions import BEGUN, JOINED, DirectionWork, LayerForm

often = examples(60)
sizes = st.lists(st.integers(1, 700), min_size=2, max_size=6)


@often
@given(sizes, st.sampled_from([1, 2, 3, 5, 12]), st.data())
def test_every_unit_has_one_rank(units: list[int], ranks: int, data: st.DataObject) -> None:
    """And no rank has more to do than an equal share and the costliest layer."""
    shapes = tuple((h, d + 1) for d, h in pairwise(units))
    layers = range(len(shapes))
    spectral = frozenset(data.draw(st.sets(st.sampled_from(layers))))
    chosen = [data.draw(st.tuples(st.booleans(), st.booleans())) for _ in layers]
    sides = [(False, False) if k in spectral else pair for k, pair in enumerate(chosen)]
    forms = [LayerForm(spectral=k in spectral, identity=k == layers[-1] and k not in spectral) for k in layers]
    work = DirectionWork(shapes, forms, sides)
    owners = work.assigned(ranks)
    assert len(owners) == ranks
    given_out = sorted((k, own.start, own.stop) for jobs in owners for k, own in jobs)
    for k, (h, _) in enumerate(shapes):
        ends = [0, *(stop for j, _, stop in given_out if j == k)]
        assert [start for j, start, _ in given_out if j == k] == ends[:-1]
        assert ends[-1] == h
    whole = [work.cost([job for jobs in owners for job in jobs if job[0] == k]) for k in layers]
    assert max(map(work.cost, owners)) <= 1.02 * (sum(map(work.cost, owners)) / ranks + max(whole))


@pytest.mark.parametrize("scaled", [False, True])
def test_units_whose_layer_is_read_whole_are_kept_together_where_that_is_even(scaled: bool) -> None:
    """Two ranks, two equal layers: each rank has one, and reads its slope alone."""
    work = DirectionWork(((300, 301), (300, 301)), [LayerForm()] * 2, [(scaled, scaled)] * 2)
    first, second = ({k for k, _ in jobs} for jobs in work.assigned(2))
    assert not first & second


def test_what_all_units_of_a_layer_share_is_counted_once_for_each_rank() -> None:
    """The product of a slope (h, d) with r leading eigenvectors of its metric, where its units need it: r h d."""
    h, d, r = 600, 101, 75
    sides = [(False, True)]
    low = DirectionWork(((h, d),), [LayerForm(ranks=(None, r))], sides)
    half, other, both = ([(0, units)] for units in (slice(0, 300), slice(300, 600), slice(0, 600)))
    apart = low.cost(half) + low.cost(other) - low.cost(both)
    joined, begun = JOINED * h * d, BEGUN
    assert apart == pytest.approx(r * h * d + joined + begun)
    own = DirectionWork(((h, d),), [LayerForm(ranks=(None, r))], [(True, True)])
    assert own.cost(half) + own.cost(other) - own.cost(both) == pytest.approx(begun)
