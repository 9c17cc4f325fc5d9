"""The largest deviations that the tests have found, written when they end (`make checks`)."""

from __future__ import annotations

from theory import checks


def pytest_sessionfinish() -> None:
    checks.write()
