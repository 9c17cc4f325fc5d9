"""Scores by the names that people know are scikit-learn's, from sums that may be taken over parts of the points."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scalings import fit_scaling
from sklearn import metrics

from macmpi.nets.layers.activation import softmax
from macmpi.results import scores
from macmpi.results.scores import Labels, Numbers

N = 200


def numbers(L: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Numbers]:
    """True and predicted numbers in the data's units, and the scores that come from three parts of the points."""
    random = np.random.default_rng(seed)
    Y = random.normal(size=(N, L)) * 10.0 ** random.uniform(-3, 3, L) + random.normal(size=L)
    F = Y + 0.3 * Y.std(axis=0) * random.normal(size=(N, L))
    scaling = fit_scaling(Y, "standard")
    of_y, of_f = scaling.apply(Y), scaling.apply(F)
    sums = sum(scores.numbers_sums(of_y[rows], of_f[rows]) for rows in np.array_split(np.arange(N), 3))
    assert len(sums) == len(scores.sums_of(Y[:0], F[:0], labels=False))
    return Y, F, scores.numbers_of(sums, scaling.scale)


def labels(C: int, seed: int = 0, missing: int | None = None) -> tuple[np.ndarray, np.ndarray, Labels]:
    """True classes, outputs, and the scores from three parts of the points.  missing: a class that does not occur."""
    random = np.random.default_rng(seed)
    true = random.integers(C, size=N)
    if missing is not None:
        true[true == missing] = (missing + 1) % C
    F = random.normal(size=(N, C)) + 2.0 * np.eye(C)[true]
    Y = np.eye(C)[true]
    sums = sum(scores.label_sums(Y[rows], F[rows]) for rows in np.array_split(np.arange(N), 3))
    assert len(sums) == len(scores.sums_of(Y[:0], F[:0], labels=True))
    return true, F, scores.labels_of(sums, np.arange(C) * 10)


@pytest.mark.parametrize("L", [1, 3])
def test_scores_of_numbers_are_those_of_scikit_learn(L: int) -> None:
    Y, F, found = numbers(L)
    assert_allclose(found.rmse, metrics.root_mean_squared_error(Y, F, multioutput="raw_values"), rtol=1e-9)
    assert_allclose(found.mae, metrics.mean_absolute_error(Y, F, multioutput="raw_values"), rtol=1e-9)
    assert_allclose(found.r2, metrics.r2_score(Y, F, multioutput="raw_values"), rtol=1e-9)
    scaling = fit_scaling(Y, "standard")
    whole = metrics.r2_score(scaling.apply(Y), scaling.apply(F), multioutput="variance_weighted")
    assert_allclose(found.total, whole, rtol=1e-9)


@pytest.mark.parametrize("C", [2, 5, 12])
def test_scores_of_labels_are_those_of_scikit_learn(C: int) -> None:
    true, F, found = labels(C)
    named = F.argmax(axis=1)
    assert_allclose(found.accuracy, metrics.accuracy_score(true, named))
    assert_allclose(found.balanced, metrics.balanced_accuracy_score(true, named))
    assert_allclose(found.log_loss, metrics.log_loss(true, softmax(F), labels=np.arange(C)), rtol=1e-9)
    assert found.confusion is not None
    assert_allclose(found.confusion, metrics.confusion_matrix(true, named, labels=np.arange(C)))


def test_a_few_classes_are_shown_as_a_matrix_whose_columns_line_up() -> None:
    found = labels(3)[2]
    assert found.confusion is not None
    head, *rows = found.lines()[1:]
    assert head.split() == ["true", "\\", "named", "0", "10", "20"]
    assert [row.split() for row in rows] == [
        [str(10 * i), *(str(int(n)) for n in row)] for i, row in enumerate(found.confusion)
    ]
    assert len({len(line) for line in (head, *rows)}) == 1


def test_an_output_of_which_no_target_is_known_has_no_scores() -> None:
    Y = np.column_stack([np.full(N, np.nan), np.arange(N, dtype=float)])
    found = scores.numbers_of(scores.numbers_sums(Y, np.zeros((N, 2))), np.ones(2))
    assert np.isnan([found.rmse[0], found.mae[0], found.r2[0]]).all()
    assert found.lines()[1] == "output 1: no target is known"
    nothing = scores.numbers_of(scores.numbers_sums(Y[:, [0, 0]], np.zeros((N, 2))), np.ones(2))
    assert nothing.lines()[0] == "R^2 undefined of 2 outputs together"


@pytest.mark.parametrize("L", [1, 3, scores.SHOWN_OUTPUTS + 4])
@pytest.mark.parametrize("unknown", ["one", "all"])
def test_what_is_not_known_is_said_in_words_and_the_rest_is_scored_alone(L: int, unknown: str) -> None:
    """No nan is printed, no warning is given, and the outputs that are known have the scores that they have alone."""
    lost = slice(0, 1) if unknown == "one" else slice(0, L)
    random = np.random.default_rng(L)
    Y, F = random.normal(size=(2, N, L))
    Y[:, lost] = np.nan
    found = scores.numbers_of(scores.numbers_sums(Y, F), np.ones(L))
    said = " ".join(found.lines())
    assert "nan" not in said
    assert "no target is known" in said
    if not np.isnan(Y).all():
        known = scores.numbers_of(scores.numbers_sums(Y[:, 1:], F[:, 1:]), np.ones(L - 1))
        assert_allclose(found.rmse[1:], known.rmse)
        assert found.total == pytest.approx(known.total)
        assert found.lines()[0].startswith(f"R^2 {known.total:.4f}")
        assert L <= scores.SHOWN_OUTPUTS or found.lines()[1] == "no target is known of 1 output: 1"
