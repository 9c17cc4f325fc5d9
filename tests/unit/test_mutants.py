"""The mutants of `make mutants`: each follows the code, and the verdict on it is what its tests say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mutants.run import KILLED, ROOT, STALE, SURVIVED, UNTESTED, Mutant, Tree, mutants, verdict

MUTANTS = mutants()
ONE = Mutant("X1", "one.py", "it adds", "a + b", "a - b", "tests/one")


def test_there_are_60_of_different_names() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS) == 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_what_a_mutant_changes_and_the_tests_that_it_names_are_there(mutant: Mutant) -> None:
    text = mutant.path(ROOT).read_text(encoding="utf-8")
    assert mutant.applied(text) not in (None, text), "carry it over to the code as it is now"
    named = [word.partition("::") for word in mutant.tests.split() if word.startswith("tests/")]
    assert named
    for path, _, function in named:
        assert (ROOT / path).exists()
        assert not function or f"def {function}(" in (ROOT / path).read_text(encoding="utf-8")


class Told(Tree):
    """A tree of one file, whose tests have the outcome that they are told, and note the file as it is then."""

    def __init__(self, root: Path, code: int | None) -> None:
        self.root, self.code, self._moment, self.seen = root, code, 0, list[str]()
        (root / "macmpi").mkdir()
        (root / "macmpi" / "one.py").write_text("a + b\n")

    def tested(self, tests: str) -> tuple[int | None, str]:
        self.seen.append((self.root / "macmpi" / "one.py").read_text())
        return self.code, "said"


@pytest.mark.parametrize(
    ("code", "outcome"), [(0, SURVIVED), (1, KILLED), (None, KILLED), (2, UNTESTED), (5, UNTESTED)]
)
def test_tests_that_fail_kill_a_mutant_and_what_cannot_be_tested_is_none(
    code: int | None, outcome: str, tmp_path: Path
) -> None:
    tree = Told(tmp_path, code)
    assert verdict(tree, ONE, {}).outcome == outcome
    assert tree.seen == ["a - b\n"]
    assert (tmp_path / "macmpi" / "one.py").read_text() == "a + b\n"


def test_what_is_not_there_or_fails_anyhow_is_not_tried(tmp_path: Path) -> None:
    tree = Told(tmp_path, 1)
    for mutant in (replace(ONE, old="a * b"), replace(ONE, count=2), replace(ONE, file="none.py")):
        assert verdict(tree, mutant, {}).outcome == STALE
    assert verdict(tree, ONE, {"tests/one": "fails"}).outcome == UNTESTED
    assert tree.seen == []
