"""An exchange of columns in two levels, on real ranks, and what decides that it is made so."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch.launching import run_program

from macmpi.parallel.exchange import FEWER, FROM, group_size, messages

pytestmark = pytest.mark.launch
PROGRAM = Path(__file__).parent / "in_levels.py"


@pytest.mark.parametrize(
    ("ranks", "group"),
    [(4, 2), pytest.param(12, 3, marks=pytest.mark.long)],
)
def test_columns_in_two_levels_are_those_of_the_whole(ranks: int, group: int, tmp_path: Path) -> None:
    outcome = run_program(ranks=ranks, cwd=tmp_path, program=[PROGRAM], code=0)
    assert outcome.out == f"groups of {group}, 0 wrong\n"


@pytest.mark.parametrize("ranks", [1, 2, 12, 96, FROM - 1, 257, 514, 256, 480, 1000, 1024, 4096, 16_384])
def test_many_ranks_that_make_even_groups_have_two_levels(ranks: int) -> None:
    group = group_size(ranks)
    assert ranks % group == 0
    if group > 1:
        assert ranks >= FROM
        assert messages(ranks, group) == (group - 1) + (ranks // group - 1) <= (ranks - 1) / FEWER
    else:
        assert messages(ranks, group) == ranks - 1
    assert (group > 1) == (ranks in (256, 480, 1000, 1024, 4096, 16_384))
