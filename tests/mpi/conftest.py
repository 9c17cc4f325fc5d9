"""The hooks and the fixtures of tests that run on several ranks."""

from mpi.ranks import (
    new_team,
    pytest_configure,
    pytest_runtest_makereport,
    pytest_sessionstart,
    pytest_unconfigure,
    team,
)

__all__ = [
    "new_team",
    "pytest_configure",
    "pytest_runtest_makereport",
    "pytest_sessionstart",
    "pytest_unconfigure",
    "team",
]
