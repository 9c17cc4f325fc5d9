"""The page of formulas says what the tests hold: no formula that is not checked, no figure better than its bound."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import checks_page
import numpy as np
import pytest
from theory import checks
from theory.checks import FORMULAS, deviation

FIGURES = json.loads(checks_page.FIGURES.read_text(encoding="utf-8"))["found"]


def compared() -> list[str]:
    """Patterns of the names that tests hand to `deviation`: literals, f-strings, and words that tests hand on."""
    found = []
    for path in Path(__file__).parent.glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__) or "deviation(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.JoinedStr():
                    parts = [re.escape(p.value) if isinstance(p, ast.Constant) else ".+" for p in node.values]
                    found.append("".join(parts))
                case ast.Constant(value=str()):
                    found.append(re.escape(node.value))
    return [pattern for pattern in found if re.search(r"\w", pattern.replace(".+", ""))]


def test_every_formula_of_the_page_is_compared_by_a_test() -> None:
    patterns = compared()
    assert [name for name in FORMULAS if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []
    assert len(FORMULAS) >= 40


def test_the_page_has_a_figure_of_each_formula_and_of_no_other() -> None:
    """`make checks` writes them."""
    assert list(FIGURES) == list(FORMULAS)
    assert all(found["times"] > 0 for found in FIGURES.values())
    assert checks_page.PAGE.read_text(encoding="utf-8") == checks_page.page()


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.every_case
def test_no_figure_is_better_than_what_the_tests_allow(name: str) -> None:
    """A bound is at most 100 times what was found, or a few thousand roundings."""
    figure, bound = FIGURES[name]["deviation"], FORMULAS[name].bound
    assert figure <= bound <= 100.0 * max(figure, 1e-14) * (1.0 + 1e-9)


def test_a_deviation_above_its_bound_fails_and_one_below_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "found", {})
    exact = np.array([1.0, -4.0])
    deviation("E1", exact + np.array([0.0, 4e-14]), exact)
    assert checks.found["E1"].deviation == pytest.approx(1e-14, rel=0.1)
    deviation("E1", exact, exact)
    assert (checks.found["E1"].times, checks.found["E1"].deviation > 0.0) == (2, True)
    for wrong in (exact + np.array([0.0, 1e-10]), exact * np.nan, exact[:1], [1.0, 4.0]):
        with pytest.raises(AssertionError):
            deviation("E1", wrong, exact)
    with pytest.raises(AssertionError, match="nothing to compare"):
        deviation("E1", 0.0 * exact, 0.0 * exact)
    with pytest.raises(KeyError):
        deviation("no formula", exact, exact)
