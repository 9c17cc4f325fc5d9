"""`python -m macmpi.supervise -n P CONFIG.toml ...`: train on ranks, and start again on what is left when one dies."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from macmpi import UsageError
from macmpi.console import guard, program, warn
from macmpi.parallel.launchers import mpiexec, speaks, started
from macmpi.training.process import StopRequest

OWN_ENDS = frozenset({0, 2, 70, 74, 75})
"""Exit codes with which macmpi itself ends: the same start would end the same way, or is not wanted."""

RETRIES = 3
POLL = 0.05
"""Seconds between two looks at the launch."""

ANSWER = 30.0
"""Seconds that a host may take to answer."""

STOP = signal.SIGUSR1
"""Launchers pass it on, and it asks the ranks for an end with a checkpoint."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog=program("supervise"),
        allow_abbrev=False,
        description="Train on several ranks, and go on with those that are left when a rank or a host dies.",
        epilog=f"The words from CONFIG on go to {program('run')}, with --resume auto.  After a death it starts again "
        "from the newest checkpoint (run.checkpoint_minutes), on one rank less, or on the hosts that still answer; the "
        "bits are those of a run that nothing struck.  Exit codes: the run's; after the last retry, the launcher's.",
    )
    p.add_argument("-n", dest="ranks", type=int, metavar="P", help="ranks (default: those of --hosts)")
    p.add_argument(
        "--hosts", type=_hosts, default={}, metavar="A:4,B:4", help="hosts, and the ranks of each (MPICH, Open MPI)"
    )
    p.add_argument(
        "--retries", type=int, default=RETRIES, metavar="N", help=f"starts after a death, at most (default: {RETRIES})"
    )
    p.add_argument("config", type=Path, metavar="CONFIG.toml", help="a file, or the name of a documented config")
    p.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="options of a run")
    return p


def _hosts(text: str) -> dict[str, int]:
    """Ranks by host, of "a:4,b"."""
    found: dict[str, int] = {}
    for word in text.split(","):
        if not (named := re.fullmatch(r"([^\s:,]+)(?::([1-9]\d*))?", word)):
            raise argparse.ArgumentTypeError(f"{text!r}: names of hosts are needed, each with its ranks: a:4,b:4")
        found[named[1]] = found.get(named[1], 0) + int(named[2] or 1)
    return found


def settled(argv: Sequence[str]) -> argparse.Namespace:
    """The command line.  Raises UsageError."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as end:
        if not end.code:
            raise
        raise UsageError("") from None
    if args.ranks is None:
        args.ranks = sum(args.hosts.values())
    if args.ranks < 1:
        raise UsageError("-n P: a number of ranks from 1 on is needed, or --hosts")
    if args.retries < 0:
        raise UsageError(f"--retries {args.retries}: a number from 0 on is needed")
    if "--resume" not in args.options and not any(word.startswith("--resume=") for word in args.options):
        args.options += ["--resume", "auto"]
    if started(os.environ)[0] > 1:
        raise UsageError("supervise starts mpiexec itself, and this process was started by one: run it without mpiexec")
    return args


def command(launcher: str, ranks: int, hosts: dict[str, int], words: Sequence[str]) -> list[str]:
    """The launch of a program on some ranks, and on some hosts where they are named."""
    where = ["--host", ",".join(f"{name}:{slots}" for name, slots in hosts.items())] if hosts else []
    return [launcher, *where, "-n", str(ranks), *words]


def left(ranks: int, hosts: dict[str, int], answers: Callable[[str], bool]) -> tuple[int, dict[str, int]]:
    """Ranks and hosts of the next start: those of the hosts that answer, where one does not; else a rank less.

    (0, {}) where no host answers.
    """
    alive = {name: slots for name, slots in hosts.items() if answers(name)}
    if alive == hosts:
        return max(1, ranks - 1), hosts
    return min(ranks, sum(alive.values())), alive


def answers(launcher: str, host: str) -> bool:
    """Tells whether a process can be started on a host."""
    line = command(launcher, 1, {host: 1}, ["true"])
    with suppress(OSError, subprocess.SubprocessError):
        return _within(line, ANSWER) == 0
    return False


def _within(line: list[str], seconds: float) -> int:
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    try:
        return process.wait(seconds)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def launched(line: list[str], wish: StopRequest) -> int:
    """The exit code of a launch in a session of its own; a wish to stop goes on to its ranks, the second one ends it.

    Raises KeyboardInterrupt then.
    """
    process, told = subprocess.Popen(line, start_new_session=True), False
    try:
        while process.poll() is None:
            if wish.asked and not told:
                told = True
                process.send_signal(STOP)
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL)
        return process.returncode if process.returncode >= 0 else 128 - process.returncode
    finally:
        if process.poll() is None:
            _end(process)


def supervise(args: argparse.Namespace, wish: StopRequest) -> int:
    """Launches until a run ends by itself, or has died once more than `--retries` allow.  Raises UsageError."""
    launcher = mpiexec()
    if launcher is None:
        raise UsageError("there is no mpiexec here; install an MPI, as by: pip install 'macmpi[mpich]'")
    words = [sys.executable, "-m", "macmpi.run", str(args.config), *args.options]
    ranks, hosts = args.ranks, args.hosts
    for start in range(args.retries + 1):
        code = launched(command(launcher, ranks, hosts, words), wish)
        if code in OWN_ENDS or wish.asked:
            return code
        if start == args.retries:
            break
        ranks, hosts = left(ranks, hosts, lambda host: answers(launcher, host))
        if not ranks:
            warn(f"the run has died (exit code {code}), and no host answers")
            return code
        where = f" of {', '.join(hosts)}" if hosts else ""
        again = f"start {start + 1} of {args.retries} again, on {ranks} ranks{where}, from the newest checkpoint"
        warn(f"the run has died (exit code {code}): {again}")
    warn(f"the run has died (exit code {code}) as often as --retries {args.retries} allows")
    return code


def main() -> None:
    guard()
    try:
        code = supervise(settled(sys.argv[1:]), StopRequest())
    except UsageError as error:
        if speaks() and str(error):
            warn(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
