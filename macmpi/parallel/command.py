"""A command is done by one process of a launch or by all its ranks, and a known error is its exit code."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, NoReturn

from macmpi import Done, MacmpiError, UsageError
from macmpi.console import flush, guard, program, say, warn
from macmpi.parallel.launchers import speaks
from macmpi.parallel.mpi import die
from macmpi.parallel.team import Team


def parser_of(command: str, description: str | None, ends: str, **more: Any) -> ArgumentParser:
    """The parser of a command, without its arguments.  ends: its exit codes other than 0.  Collective: no."""
    codes = f"Exit codes: 0 done, {ends}."
    return ArgumentParser(prog=program(command), description=description, epilog=codes, **more)


def by_one_process(parser: Callable[[], ArgumentParser], work: Callable[[Namespace], str]) -> None:
    """The main of a command that needs no MPI: it prints what the work gives, or why there is nothing.

    Every process of a launch but the first ends at once.  Collective: no.
    """
    guard()
    if not speaks():
        sys.exit(0)
    args = parser().parse_args()
    try:
        said = work(args)
    except MacmpiError as error:
        warn(str(error))
        sys.exit(error.exit_code)
    say(said)


def parsed(parser: ArgumentParser, argv: list[str]) -> Namespace:
    """The command line, for rank 0 to read.  Raises Done where it asks for help, UsageError where it is wrong.

    Both have no text: the parser has said it.  Collective: no.
    """
    try:
        return parser.parse_args(argv)
    except SystemExit as end:
        error = UsageError if end.code else Done
        raise error("") from None


def set_threads(threads: int) -> None:
    """BLAS threads a rank, before NumPy is imported: part of the promise of equal bits."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def by_all_ranks(team: Team, work: Callable[[], int]) -> NoReturn:
    """The end of the main of a command that all ranks do: an error that not all have met ends every rank at once.

    work: gives the exit code.  Collective: yes.
    """
    try:
        code = work()
    except MacmpiError as error:
        if not error.agreed:
            die(team, error)
        code = error.exit_code
        if team.rank == 0 and str(error):
            say(f"macmpi: {error}", error=code != 0)
    except BaseException as error:  # noqa: BLE001 - every rank must end, whatever happened in this one
        die(team, error)
    if code:  # of all ranks alike: no launcher shall kill those that are a little slower
        flush()
        team.depart()
    sys.exit(code)
