"""`python -m macmpi.run CONFIG.toml`: read, plan, train.  Under mpiexec, on all its ranks."""

from __future__ import annotations

from macmpi.training import process

if __name__ == "__main__":
    process.hold_stop_signals()  # they wait from the first line on: loading what follows takes a while

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from macmpi import MacmpiError, UsageError, __version__, many
from macmpi.console import guard, program, say, warn
from macmpi.parallel.clock import now
from macmpi.parallel.command import by_all_ranks, parsed, parser_of, set_threads
from macmpi.parallel.launchers import cores, in_task, speaks
from macmpi.parallel.mpi import STOPPED, launch
from macmpi.parallel.team import Team
from macmpi.training.request import MachineQuestion, Request, machine_question, planned
from macmpi.training.time_limit import seconds_left, seconds_of

QUESTION = {
    "ranks": "ranks",
    "nodes": "nodes that they are on (1)",
    "points": "rows of the data",
    "columns": "columns of X",
    "outputs": "columns of Y, or classes; without it an autoencoder",
}


def whole(text: str) -> int:
    """A whole number, 1000000 or 1e6.  Raises ValueError."""
    number = int(float(text)) if "e" in text.lower() else int(text)
    if "e" in text.lower() and number != float(text):
        raise ValueError
    return number


def parser() -> argparse.ArgumentParser:
    description = (
        "Train a deeply nested net by the method of auxiliary coordinates (MAC).  On many ranks: mpiexec -n 12 "
        f"{program('run')} CONFIG.toml.  {program('init')} --config defaults (run/defaults.toml) explains every key."
    )
    ends = "2 usage, config or data, 70 internal error, 74 the last save failed, 75 stopped, --resume auto goes on"
    p = parser_of("run", description, ends, allow_abbrev=False)
    p.add_argument("config", type=Path, metavar="CONFIG.toml", help="a file, or the name of a documented config")
    p.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help="override a key; a TOML value")
    p.add_argument("--output", type=Path, metavar="DIR", help="run directory (default: runs/<name of the config>)")
    p.add_argument("--resume", default="no", metavar="auto|PATH|no", help="go on from the newest checkpoint, or PATH")
    p.add_argument("--overwrite", action="store_true", help="remove the run that the run directory holds already")
    p.add_argument("--iterations", type=int, metavar="N", help="end after N iterations as if they were all")
    p.add_argument(
        "--max-time",
        type=_seconds,
        metavar="T",
        default=float("inf"),
        help="stop in time: seconds, MM:SS, H:MM:SS, 2h30m, unlimited, or auto: before the batch system ends the job",
    )
    p.add_argument("--since", type=whole, metavar="MOMENT", help="count --max-time from there (seconds since 1970)")
    p.add_argument(
        "--when-stopped",
        choices=("checkpoint", "model"),
        default="checkpoint",
        help="model: a run that is stopped also leaves the best model so far",
    )
    p.add_argument("--check", action="store_true", help="check config and data, print sizes and costs, write nothing")
    question = p.add_argument_group("with --check, of a machine and of data that need not be at hand")
    for name, text in QUESTION.items():
        question.add_argument(f"--{name}", type=whole, metavar=name[0].upper(), help=text)
    question.add_argument("--memory", metavar="64G", help="memory of a node (this machine's)")
    p.add_argument("--explain", action="store_true", help='say what "auto" stands for, why, and how to pin it')
    p.add_argument("--version", action="version", version=f"macmpi {__version__}")
    return p


def _seconds(text: str) -> float | str:
    """Seconds of "90", "1:30", "3:50:00", "2h30m" or "unlimited"; "auto" stays."""
    total = text if text == "auto" else seconds_of(text)
    if not total:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: seconds, MM:SS, H:MM:SS, D-HH:MM:SS, 2h30m, unlimited or auto"
        )
    return total


def settle(argv: list[str]) -> tuple[Any, ...]:
    """The command line and the config, refused where they are wrong.  On rank 0, before the others import NumPy."""
    args = parsed(parser(), argv)
    from macmpi import config as configs
    from macmpi.config.documented import found, meant

    empty = {"--set": "" in args.set, "--output": args.output == Path(), "--resume": not args.resume}
    for option in (option for option, is_empty in empty.items() if is_empty):
        raise UsageError(f"{option}: a value is needed")
    if args.overwrite and args.resume != "no":
        raise UsageError(f"--overwrite removes the run that --resume {args.resume} would go on from: give one of them")
    args.max_time = seconds_left(args.max_time, args.since)
    given, args.config = args.config, found(args.config)
    try:
        config = configs.read(args.config, args.set)
    except UsageError as error:
        raise UsageError(f"{error}{'' if os.path.exists(args.config) else meant(given)}") from None
    args.question = _question(args)
    if not config.data.source and not (args.question and args.question.without_data):
        named = 'data = "points.npz" (X, and Y but for an autoencoder), or data = "digits" to try'
        raise UsageError(f"{args.config}: no data are named; write {named}")
    if args.output is None and args.config.stem in ("", ".", ".."):
        raise UsageError(f"{args.config}: no folder can be named after it; name one with --output")
    args.argv, args.output = argv, args.output or Path("runs") / args.config.stem
    if args.iterations is not None:
        if args.iterations < 0:
            raise UsageError(f"--iterations {args.iterations}: a number from 0 on is needed")
        config = replace(config, run=replace(config.run, max_iterations=args.iterations))
    if args.config != given and not args.explain:
        say(f"config: {args.config}")
    if config.run.threads > cores():
        warn(f"run.threads = {config.run.threads}: {many(cores(), 'core')} may be used; more threads are slower")
    return args, config


def _question(args: argparse.Namespace) -> MachineQuestion | None:
    """The question to --check about other ranks, nodes and data; None where there is none.  Raises UsageError."""
    if args.check and args.explain:
        raise UsageError("--check and --explain: give one of them at a time")
    given = {name: value for name in QUESTION if (value := getattr(args, name)) is not None}
    return machine_question(given, args.memory, args.check) if given or args.memory is not None else None


def run(team: Team, argv: list[str], began: float | None = None) -> int:
    """The whole program on one rank.  Collective: yes.

    began: when the program did, by `clock.now`; --max-time is counted from there.
    """
    began = now() if began is None else began
    args, config = team.from_root(lambda: settle(argv))
    team.set_clock(None, config.run.deadline)
    set_threads(config.run.threads)
    if args.question:
        from macmpi.training.trial import answer

        team.from_root(lambda: say("\n".join(answer(config, args.question, team.size))))
        return 0
    plan, source, chosen = planned(config, team)
    if args.explain:
        from macmpi.config.auto import explained
        from macmpi.plan.directions import explained_forms

        team.from_root(lambda: say("\n".join([*explained(plan.resolved.decisions), *explained_forms(plan)])))
        return 0
    request = Request(
        *(began, args.output, args.resume, args.overwrite, args.max_time, tuple(args.argv), chosen),
        ends_with_model=args.when_stopped == "model",
        inputs=(args.config,),
    )
    if args.check:
        from macmpi.training.trial import check

        lines = check(request, source, plan, team)
        team.from_root(lambda: say("\n".join(lines)))
        return 0
    from macmpi.training.launch import launch_training

    return launch_training(request, source, plan, team).code


def main() -> None:
    began = now()
    guard()
    process.hold_stop_signals()
    try:
        team = launch()
    except MacmpiError as error:
        if speaks():
            warn(str(error))
        if in_task():
            process.wait_for_others()
        sys.exit(error.exit_code)
    if team.size > 1:
        process.end_with_launcher()
    # Until training begins there is nothing to save: a signal to one rank ends all, the same command starts again.
    process.on_stop_signals(lambda number, frame: team.abort(STOPPED))

    def work() -> int:
        try:
            return run(team, sys.argv[1:], began)
        finally:
            process.ignore_stop_signals()

    by_all_ranks(team, work)


if __name__ == "__main__":
    main()
