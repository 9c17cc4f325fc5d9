"""The factor made panel by panel: that of the library for every shape, and the same bits on any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg
from tolerance import assert_within, of_product
from unit.crew import crew

from macmpi.parallel import shared_work
from macmpi.parallel.shared_work import MatrixAcrossRanks, Products
from macmpi.parallel.team import Team
from macmpi.reductions import Make, SharedMatrix
from macmpi.solvers import cholesky as module
from macmpi.solvers.cholesky import cholesky, panels
from macmpi.solvers.closed_form import ClosedForm
from macmpi.solvers.grams import LayerGram
from macmpi.typing import Array


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of a few rows, so that small matrices have many."""
    for name, size in (("WHOLE", 10), ("PANEL", 6), ("MOST", 5), ("LEAST", 3)):
        monkeypatch.setattr(module, name, size)


def positive(random: np.random.Generator, n: int, ridge: float = 0.1) -> Array:
    A = random.normal(size=(n + 3, n))
    return A.T @ A + ridge * np.eye(n)


class Counted(SharedMatrix):
    """Notes each exchange."""

    def __init__(self, exchanges: list[int]) -> None:
        self.exchanges = exchanges

    def fill(self, blocks: Sequence[Array], make: Make) -> None:
        self.exchanges.append(len(blocks))
        super().fill(blocks, make)


class Elsewhere(SharedMatrix):
    """Another rank finds that a block is not positive definite."""

    def anywhere(self, failed: bool) -> bool:
        return True


@pytest.mark.usefixtures("narrow")
def test_a_factor_that_fails_on_one_rank_fails_on_all_after_the_last_exchange(random: np.random.Generator) -> None:
    with pytest.raises(linalg.LinAlgError, match="another rank"):
        cholesky(positive(random, 18), Elsewhere())
    indefinite, whole, broken = positive(random, 18), list[int](), list[int]()
    indefinite[2, 2] = -1.0
    cholesky(positive(random, 18), Counted(whole))
    with pytest.raises(linalg.LinAlgError, match="row 2"):
        cholesky(indefinite, Counted(broken))
    assert broken == whole[:-1], "a rank on which it fails takes part in every exchange but the last, of what is found"


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11, 12, 13, 17, 18, 40])
@pytest.mark.usefixtures("narrow")
def test_it_is_the_factor_of_the_library(n: int, random: np.random.Generator) -> None:
    H = positive(random, n)
    assert_allclose(np.triu(cholesky(H.copy())), linalg.cholesky(H), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n", [1, 10, 11, 40, 512, 513, 1368])
def test_panels_and_pieces_cover_the_upper_half_once(n: int) -> None:
    seen = np.zeros(n, dtype=int)
    for panel, columns in panels(n):
        seen[panel] += 1
        assert [j for c in columns for j in range(c.start, c.stop)] == list(range(panel.stop, n))
    assert_array_equal(seen, 1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 12])
@pytest.mark.usefixtures("narrow")
def test_ranks_that_share_the_work_have_the_bits_of_one(ranks: int, random: np.random.Generator) -> None:
    """And solve for the same weights: a factor is the same made alone or together."""
    H = positive(random, 41)
    alone = cholesky(H.copy())
    for R in crew(ranks, lambda team: cholesky(H.copy(), MatrixAcrossRanks(team))):
        assert_array_equal(np.triu(R), np.triu(alone))  # type: ignore[arg-type]
    gram = LayerGram(H, 0.3, np.dtype(float))
    factor = ClosedForm.system.factor
    for found in crew(ranks, lambda team: factor(gram, MatrixAcrossRanks(team))):
        assert_array_equal(np.tril(found.lower), np.tril(factor(gram).lower))  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", [0, 8, 12, 39])
@pytest.mark.usefixtures("narrow")
def test_what_is_not_positive_definite_is_refused_by_all_ranks_alike(row: int, random: np.random.Generator) -> None:
    H = positive(random, 40)
    H[row, row] = -1.0

    def refused(team: Any) -> str:
        with pytest.raises(linalg.LinAlgError) as error:
            cholesky(H.copy(), MatrixAcrossRanks(team))
        return str(error.value)

    assert set(crew(3, refused)) == {f"not positive definite: row {row}"}


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_blocks_are_seen_by_all(ranks: int) -> None:
    """Of any shapes, empty ones and none at all among them; each is made once."""
    places = [np.s_[:2, :3], np.s_[2:2, :4], np.s_[:5, 4:5], np.s_[4:5, 3:4]]
    made: list[int] = []

    def make(i: int) -> Array:
        made.append(i)
        return np.full(np.zeros((5, 5))[places[i]].shape, float(i))

    def filled(team: Any) -> Array:
        pieces = MatrixAcrossRanks(team)
        M = pieces.matrix(5, 5)
        M[:] = -1.0
        pieces.fill([], make)
        pieces.fill([M[place] for place in places], make)
        return M

    expected = np.full((5, 5), -1.0)
    for i, place in enumerate(places):
        expected[place] = float(i)
    for M in crew(ranks, filled):
        assert_array_equal(M, expected)
    assert sorted(made) == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ranks", [1, 2, 5, 12])
def test_a_product_that_ranks_share_has_the_bits_of_one(
    ranks: int, dtype: type, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of narrow ones too; two of them after the first leave it as it was."""
    monkeypatch.setattr(shared_work, "LARGE", 0.0)
    for h, d in ((40, 33), (3, 4), (5, 1)):
        V, A = random.normal(size=(h, d)).astype(dtype), random.normal(size=(h, h)).astype(dtype)
        M = A @ A.T
        alone = Products(Team()).form(V, M)
        exact = [factor.astype(float) for factor in (V.T, M, V)]
        assert_within(alone, np.linalg.multi_dot(exact), of_product(*exact, dtype=dtype) + of_product(*exact))

        def three(team: Any, V: Array = V, M: Array = M) -> Array:
            products = Products(team)
            first = products.form(V, M)
            products.form(V, 2.0 * M)
            products.form(V, 3.0 * M)
            return first

        for found in crew(ranks, three):
            assert_array_equal(found, alone)  # type: ignore[arg-type]


@pytest.mark.parametrize("large", [0.0, np.inf])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_product_times_a_matrix_asks_a_rank_for_the_rows_that_it_makes(
    ranks: int, large: float, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of shared products (large = 0) each row is asked for by one rank; the one before stays as it was."""
    monkeypatch.setattr(shared_work, "LARGE", large)
    V, A, N = (random.normal(size=shape) for shape in ((40, 33), (40, 40), (33, 33)))
    asked: dict[int, list[int]] = {rank: [] for rank in range(ranks)}

    def two(team: Any) -> list[Array]:
        products = Products(team)

        def times(rows: slice) -> Array:
            asked[team.rank] += range(33)[rows]
            return N[rows]

        first = products.weighted(V, A @ A.T, times)
        return [first, products.weighted(V, None, None)]

    exact = (V.T @ (A @ A.T) @ V * N, V.T @ V)
    for found in crew(ranks, two):
        first, second = found  # type: ignore[misc]
        assert_allclose(first, exact[0], rtol=1e-10, atol=1e-10)
        assert_allclose(second, exact[1], rtol=1e-10, atol=1e-10)
    rows = list(range(33))
    assert sorted(chain.from_iterable(asked.values())) == (rows if large == 0.0 else sorted(ranks * rows))
