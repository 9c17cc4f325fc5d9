"""The table that `make faults` prints: for each row of README.md the cases tried, those lost, the seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from statistics import median

import pytest


class Tally:
    """Enters a test into rows of the table.  seconds: from the fault to the end."""

    def __init__(self, enter: Callable[[str, object], None]) -> None:
        self._enter = enter

    def row(self, name: str) -> None:
        self._enter("row", name)

    def seconds(self, value: float) -> None:
        self._enter("seconds", value)


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    return Tally(record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            noted = dict(report.user_properties)
            if "row" in noted:
                rows[str(noted["row"])].append((outcome == "failed", float(noted.get("seconds", "nan"))))
    if not rows:
        return
    terminalreporter.write_sep("=", "cases")
    width = max(map(len, rows))
    terminalreporter.write_line(f"{'row':{width}} {'cases':>6} {'lost':>5} {'median s':>9} {'max s':>7}")
    for row, cases in rows.items():
        timed = [seconds for _, seconds in cases if seconds == seconds]
        ends = f"{median(timed):9.2f} {max(timed):7.2f}" if timed else f"{'-':>9} {'-':>7}"
        lost = sum(failed for failed, _ in cases)
        terminalreporter.write_line(f"{row:{width}} {len(cases):6d} {lost:5d} {ends}")
