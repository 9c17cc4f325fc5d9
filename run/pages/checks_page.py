"""docs/algorithms/checks.md: each formula, how it was computed once more, and by how much both differ.

    python run/pages/checks_page.py              # writes the page from docs/algorithms/checks.json, as make docs does
    python run/pages/checks_page.py --measure    # runs the tests and writes that file first: make checks

Formulas and bounds are those of tests/theory/checks.py, which the tests assert.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "run" / "bench")]

from evidence import THREADS, commit, where  # noqa: E402
from pages_of_evidence import place, table  # noqa: E402
from theory.checks import FORMULAS, ROUNDING, Formula  # noqa: E402

FOLDER = ROOT / "docs" / "algorithms"
PAGE, FIGURES = FOLDER / "checks.md", FOLDER / "checks.json"
TESTS = ROOT / "tests" / "theory"

HEAD = """# Formulas, checked by computation

Every formula below is computed by the program and by a few lines in `tests/theory`, and both agree up to rounding.
These lines share no code with the program, except that the lines for selection, steps of stochastic MAC and baselines
use parts that other rows check.

"Found" is the largest difference, relative to the largest number of the independent computation;
docs/algorithms/checks.json names the test of each formula, and counts comparisons. Tests fail above 1e-12, or above the
bound in brackets. Complex steps, Im f(x + ih) / h with h = 1e-30, contain no subtraction and are exact up to rounding.
"""

END = """The figure of `multipliers of the path` is not a rounding error: the deviation falls like 1 / mu, and this is
its size at mu = 1e5 ([convergence](convergence.md)). `make checks` runs these tests and writes this page.
"""


def command() -> list[str]:
    """The tests that compare formulas, on the cases that `make test` takes."""
    files = sorted(set(TESTS.glob("test_*.py")) - {TESTS / "test_checks.py"})
    names = [str(p.relative_to(ROOT)) for p in files if "deviation(" in p.read_text(encoding="utf-8")]
    return ["-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", *names]


def measure() -> None:
    """Run the tests and write the figures, a formula a line.  Raises SystemExit where a test fails."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "found.json"
        ours = THREADS | {"MACMPI_CHECKS": str(kept)}
        if subprocess.run([sys.executable, *command()], cwd=ROOT, env=os.environ | ours, check=False).returncode:
            raise SystemExit("a test has failed: the page stays as it was")
        found = json.loads(kept.read_text())
    head = {"commit": commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}", **where()}
    lines = [f' "{key}": {json.dumps(value)}' for key, value in head.items()]
    rows = [f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(row)}" for name, row in found.items()]
    FIGURES.write_text("{\n" + ",\n".join([*lines, ' "found": {\n' + ",\n".join(rows) + "\n }"]) + "\n}\n", "utf-8")


FEW = 4
"""Ways to compute again that fewer formulas have stand in one table."""


def stands(of: str) -> str:
    """A number of the paper, or a link to a page."""
    if not of.endswith(".md"):
        return of
    path = ROOT / "docs" / of
    return f"[{of.removesuffix('.md')}]({os.path.relpath(path, FOLDER)})"


def page() -> str:
    """The whole page, a table for each way to compute again; formulas of one kind that stand on one page as one row."""
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    by_means: dict[str, list[list[str]]] = {}
    alike: dict[tuple[str, str, str, float], list[Formula]] = {}
    for row in FORMULAS.values():
        of, _, rest = row.name.partition(" of ")
        alike.setdefault((row.means, row.place, of if rest else row.name, row.bound), []).append(row)
    for (means, where_it_stands, of, limit), rows in alike.items():
        found = [figures["found"][row.name] for row in rows]
        largest = max(each["deviation"] for each in found)
        size = f"{largest:.1e}" if largest else "0"
        bound = f" ({limit:g})" if limit != ROUNDING else ""
        text = "; ".join(f"`{row.formula.replace('|', chr(92) + '|')}`" for row in rows)
        names = [row.name.removeprefix(f"{of} of ") for row in rows]
        name = rows[0].name if len(rows) == 1 else f"{of} of {', '.join(names)}"
        cells = [name, text, stands(where_it_stands), f"{size}{bound}"]
        by_means.setdefault(means, []).append(cells)
    header = ("formula", "what is computed", "where it stands", "found")
    rare = {means: by_means.pop(means) for means in [m for m, rows in by_means.items() if len(rows) < FEW]}
    by_means["otherwise"] = [[f"{own[0]}: {means}", *own[1:]] for means, rows in rare.items() for own in rows]
    tables = [f"## {means[0].upper()}{means[1:]}\n\n{table(header, rows)}\n" for means, rows in by_means.items()]
    return "\n".join([HEAD, *tables, END, f"The figures are from {place(figures)}.", ""])


if __name__ == "__main__":
    if "--measure" in sys.argv[1:]:
        measure()
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
