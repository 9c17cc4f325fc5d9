"""The recipes for packagers ask for what setup.cfg asks for, and the draft of the paper says what the results say."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest

from macmpi import __version__

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "run" / "recipes"


def floors() -> dict[str, str]:
    """The packages that macmpi needs, each with the lowest version."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    needed = [*setup["options"]["install_requires"].split(), f"python{setup['options']['python_requires']}"]
    return dict(line.split(">=") for line in needed)


@pytest.mark.parametrize(
    ("recipe", "asked"),
    [
        ("conda/recipe.yaml", r"^ +- ([\w-]+) >=([\d.]+)"),
        ("spack/package.py", r'depends_on\("(?:py-)?([\w-]+)@([\d.]+):'),
        ("easybuild/macmpi-0.2.0-foss-2025b.eb", r"([\w-]+)>=([\d.]+)"),
    ],
)
def test_a_recipe_has_the_names_and_floors_of_the_package(recipe: str, asked: str) -> None:
    text = (RECIPES / recipe).read_text(encoding="utf-8")
    found = {name: floor for name, floor in re.findall(asked, text, re.M) if name != "setuptools"}
    expected = floors()
    assert found | {"python": expected["python"]} == expected
    assert f"{__version__.removesuffix('.dev0')}" in text


def test_the_draft_has_the_figures_of_the_results() -> None:
    paper, results = (
        " ".join((ROOT / path).read_text(encoding="utf-8").split())
        for path in ("run/recipes/joss/paper.md", "docs/results.md")
    )
    both = re.search(r"([\d.]+) to (\d+) times faster than the best of tuned Adam, Muon and SOAP", results)
    assert both is not None
    assert f"{both[1]} to {both[2]} times faster than the best of tuned Adam, Muon and SOAP" in paper
    (slower,) = re.findall(r"to ([\d.]+) times as long to lower errors", results)
    assert f"between ahead and {slower} times slower" in paper
    assert set(re.findall(r"@(\w+)", paper)) == set(
        re.findall(r"^@\w+\{(\w+),", (RECIPES / "joss" / "paper.bib").read_text(encoding="utf-8"), re.M)
    )
