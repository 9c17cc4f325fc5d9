"""`python -m macmpi.run CONFIG.toml`: reads a config, plans, and trains; under mpiexec on all its ranks."""

from __future__ import annotations

from macmpi.training import process

if __name__ == "__main__":
    process.hold_stop_signals()  # at once, because the imports below take a while

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from macmpi import MacmpiError, UsageError, many
from macmpi.console import guard, say, warn
from macmpi.parallel.clock import now
from macmpi.parallel.command import by_all_ranks, parsed, set_threads
from macmpi.parallel.launchers import cores, in_task, speaks
from macmpi.parallel.mpi import STOPPED, launch
from macmpi.parallel.team import Team
from macmpi.training.request import Request, machine_question, planned
from macmpi.training.time_limit import seconds_left


def settle(argv: list[str]) -> tuple[Any, ...]:
    """Reads the command line and the config, and returns both, with defaults filled in.  Raises UsageError.

    Rank 0 calls it for all, so that a refusal comes before the other ranks import NumPy.
    """
    args = parsed("run", argv)
    from macmpi import config as configs
    from macmpi.config.reading import read_named

    empty = {"--set": "" in args.set, "--output": args.output == "", "--resume": not args.resume}
    for option in (option for option, is_empty in empty.items() if is_empty):
        raise UsageError(f"{option}: a value is needed")
    if args.overwrite and args.resume != "no":
        raise UsageError(f"--overwrite removes the run that --resume {args.resume} would go on from: give one of them")
    args.max_time = seconds_left(args.max_time, args.since)
    given, (args.config, tables) = args.config, read_named(args.config)
    config = configs.validate(tables, f"{args.config} and --set" if args.set else str(args.config), args.set)
    if args.check and args.explain:
        raise UsageError("--check and --explain: give one of them at a time")
    args.question = machine_question(args)
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


def run(team: Team, argv: list[str], began: float | None = None) -> int:
    """Runs the whole program on this rank, and returns the exit code.  Collective: yes.

    began: the time of `clock.now` at which the program started, from which --max-time is counted; None for now.
    """
    began = now() if began is None else began
    args, config = team.from_root(lambda: settle(argv))
    team.set_deadline(config.run.deadline)
    set_threads(config.run.threads)
    if args.question:
        from macmpi.training.trial import answer

        team.from_root(lambda: say("\n".join(answer(config, args.question, team.size))))
        return 0
    plan, source, chosen = planned(config, team)
    if args.explain:
        from macmpi.training.explanation import explanation

        team.from_root(lambda: say("\n".join(explanation(plan, source.sizes()))))
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
        if in_task() or not speaks():  # otherwise the launcher might end the rank that prints
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
