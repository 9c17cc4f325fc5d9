"""`python -m macmpi.run CONFIG.toml`: read, plan, train.  Under mpiexec, on all its ranks."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from macmpi import MacmpiError, UsageError, __version__
from macmpi.console import guard, say, warn
from macmpi.parallel.clock import now
from macmpi.parallel.launchers import speaks
from macmpi.parallel.team import BINDINGS, STOPPED, Team, die, launch
from macmpi.training.process import STOP_SIGNALS, on_stop_signals
from macmpi.training.scheduler import time_left

FAULT = "MACMPI_FAULT"
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Done(MacmpiError):
    """Nothing is left to do: the message, exit code 0."""

    exit_code = 0


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m macmpi.run",
        allow_abbrev=False,
        description="Train a deeply nested net by the method of auxiliary coordinates (MAC).",
        epilog="On many ranks: mpiexec -n 12 python -m macmpi.run CONFIG.toml.  run/defaults.toml explains every key.  "
        "Exit codes: 0 done, 2 usage, config or data, 70 internal error, 74 the last save failed, "
        "75 stopped, --resume auto goes on.",
    )
    p.add_argument("config", type=Path, metavar="CONFIG.toml")
    p.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help="override a key; a TOML value")
    p.add_argument("--output", type=Path, metavar="DIR", help="run directory (default: runs/<name of the config>)")
    p.add_argument(
        "--resume",
        default="no",
        metavar="auto|PATH|no",
        help="go on from the newest checkpoint, or from PATH",
    )
    p.add_argument("--iterations", type=int, metavar="N", help="end after N iterations as if they were all")
    p.add_argument(
        "--max-time",
        type=_seconds,
        metavar="T",
        default=float("inf"),
        help="stop in time: seconds, MM:SS, H:MM:SS, or auto: before the batch system ends the job",
    )
    p.add_argument("--check", action="store_true", help="check config and data, print sizes and costs, write nothing")
    p.add_argument("--version", action="version", version=f"macmpi {__version__}")
    return p


def _seconds(text: str) -> float:
    """Seconds of "90", "1:30", "3:50:00" or "auto"."""
    if text == "auto":
        return time_left()
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    total = sum(part * 60.0**i for i, part in enumerate(reversed(parts)))
    whole = all(part < 60.0 for part in parts[1:])  # 1:99 is a slip of the pen
    if not 1 <= len(parts) <= 3 or not 0.0 < total < float("inf") or min(parts) < 0.0 or not whole:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: seconds, MM:SS, H:MM:SS or auto")
    return total


def settle(argv: list[str]) -> tuple[Any, ...]:
    """The command line and the config, refused where they are wrong.  On rank 0, before the others import NumPy."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as end:
        error = Done if not end.code else UsageError
        raise error("") from None
    from macmpi import config as configs

    for option, empty in (
        ("--set", "" in args.set),
        ("--output", args.output == Path()),
        ("--resume", not args.resume),
    ):
        if empty:
            raise UsageError(f"{option}: a value is needed")
    config = configs.read(args.config, args.set)
    if args.output is None and args.config.stem in ("", ".", ".."):
        raise UsageError(f"{args.config}: no folder can be named after it; name one with --output")
    if args.iterations is not None:
        if args.iterations < 0:
            raise UsageError(f"--iterations {args.iterations}: a number from 0 on is needed")
        config = replace(config, run=replace(config.run, max_iterations=args.iterations))
    cores = os.cpu_count() or 1
    if config.run.threads > cores:
        warn(f"run.threads = {config.run.threads}: this machine has {cores} cores; more threads than that are slower")
    return args, config


def read(config: Any) -> Any:
    """The data, or what there are of sharded ones: refused where they are wrong, before the others import NumPy."""
    labels = config.model.loss == "cross_entropy"
    if config.parallel.data == "sharded":
        from macmpi.data.survey import survey

        return survey(config.data, labels)
    from macmpi.data import dataset as datasets

    return datasets.load(config.data, labels, config.model.precision)


def _set_threads(threads: int) -> None:
    """BLAS threads a rank, before NumPy is imported: part of the promise of equal bits."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)


def run(team: Team, argv: list[str], fault: Any = None, began: float | None = None) -> int:
    """The whole program on one rank, struck by `fault` where a test asks for one.  Collective: yes.

    began: when the program did, by `record.now`; --max-time is counted from there.
    """
    began = now() if began is None else began
    kept: list[Any] = []

    def load() -> tuple[int, int, int, int]:
        kept.append(read(config))
        found: tuple[int, int, int, int] = kept[0].sizes
        return found

    if fault:
        fault.arm(team, light=True)
    args, config = team.from_root(lambda: settle(argv))
    team.set_clock(None, config.run.deadline)
    _set_threads(config.run.threads)
    sizes = team.from_root(load)
    if fault:
        fault.arm(team, light=False)
    from macmpi.data import dataset as datasets
    from macmpi.methods.starts import Origin
    from macmpi.parallel.kernels import arithmetics, mixture, words
    from macmpi.plan.estimate import check_memory, estimate, node_bytes, selecting
    from macmpi.plan.plan import make_plan
    from macmpi.training.loop import Job, train
    from macmpi.training.run_directory import RunDirectory, provenance
    from macmpi.training.sharded_checkpoint import BY_POINT, rows_of

    def refuse() -> None:
        planned = make_plan(config, *sizes, team.size)
        check_memory(planned, kept[0].autoencoder)
        batch, points = config.baseline.batch, planned.n_train
        if config.method.name in ("sgd", "adam") and batch > max(points, type(config.baseline).batch):
            warn(f"baseline.batch = {batch}: there are {points} training points; a minibatch is all of them")

    team.from_root(refuse)
    plan = make_plan(config, *sizes, team.size)
    if plan.sharded and not args.check:
        from macmpi.data import shards

        found, deals = team.from_root(lambda: kept[0]), (plan.train, plan.validation)
        kept[:] = [shards.load(config.data, found, config.model.precision, deals, team)]
    if args.check:
        team.from_root(lambda: _origin(config, plan, kept[0].blank() if plan.sharded else kept[0]))
        team.all_or_raise(lambda: None)  # all have planned, and wait: none keeps a core busy that rank 0 measures
        team.from_root(lambda: say("\n".join(estimate(plan, config, kept[0].autoencoder))))
        return 0
    directory = RunDirectory(args.output or Path("runs") / args.config.stem)
    origin, rows = Origin(), []  # of rank 0 alone: large
    computed_on = arithmetics(team)

    def prepare() -> Any:
        nonlocal origin, rows
        data = kept[0]
        found = directory.resume(args.resume, config, data.sha256, BY_POINT if plan.sharded else ())
        path, state = found or (None, None)
        if state is not None and _complete(state, config, directory):
            raise Done(f"{directory.path} is finished {_nothing_left(state, config)}")
        if state is None:
            origin = _origin(config, plan, data)
        facts = provenance(computed_on, config.run.threads, (BINDINGS, team.library), data.sha256, argv)
        changed = directory.compare(facts) if state is not None else ""
        directory.create(config, facts)
        if unlike := changed or mixture(computed_on):
            warn(unlike)
        if state is not None and not plan.sharded:
            rows = [getattr(state, name) for name in BY_POINT]
            empty: Any = dict.fromkeys(BY_POINT)
            state = replace(state, **empty)
        return path, state, words(computed_on[0]["blas"])

    with directory.lock:
        path, state, arithmetic = team.from_root(prepare)
        if plan.shared:
            team.share_memory(team.from_root(lambda: node_bytes(plan, kept[0].autoencoder, selecting(config))))
        if state is not None and not plan.sharded:
            state = replace(state, **dict(zip(BY_POINT, datasets.share_arrays(team, rows), strict=True)))
        elif state is not None:
            state = team.all_or_raise(lambda: rows_of(path, state, plan.train, team.rank))
        if state is not None and len(state.sizes):
            hidden = [int(n) for n in state.sizes]
            plan = make_plan(replace(config, model=replace(config.model, hidden=hidden)), *sizes, team.size)
        data = kept[0] if plan.sharded else datasets.share(team, kept.pop() if kept else None)
        return train(Job(config, directory, began, args.max_time, state, origin, arithmetic), plan, data, team)


def _origin(config: Any, plan: Any, data: Any) -> Any:
    """What the start takes from a file, if the config asks for one.  Raises UsageError when it does not fit."""
    from macmpi.methods.starts import Origin

    if config.start.method == "file":
        from macmpi.data.dataset import read_codes

        return Origin(coordinates=read_codes(Path(config.start.coordinates), plan.n_train, plan.chain.site_sizes[0]))
    if config.start.method != "model":
        return Origin()
    from macmpi.results.model import load

    try:
        return Origin(load(config.start.model, config.start.weights).weights_for(plan.chain, data))
    except UsageError as error:
        raise UsageError(f'start.model = "{config.start.model}": {error}') from None


def _nothing_left(state: Any, config: Any) -> str:
    """A finished run has settled, or has come to its last iteration, which --iterations can move."""
    from macmpi.plan.choices import longer

    if state.finished == "converged":
        return (
            f"(settled after {state.iteration} iterations): nothing is left to do; "
            f"{longer(config)}, with another --output, trains longer"
        )
    return f"({state.iteration} iterations); --iterations N with a larger N goes on, another --output starts again"


def _complete(state: Any, config: Any, directory: Any) -> bool:
    """A run ends by settling or at its last iteration, and with the model of that; a larger --iterations reopens only
    the second kind."""
    from macmpi.results.model import is_made_from

    ended = state.finished == "converged" or state.iteration >= config.run.max_iterations
    return ended and is_made_from(directory.model, state)


def main() -> None:
    began = now()
    guard()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        fault = _fault()
        team = launch()
    except MacmpiError as error:
        if speaks():
            warn(str(error))
        sys.exit(error.exit_code)
    _stop_at_once(team)
    code = 0
    try:
        code = run(team, sys.argv[1:], fault, began)
    except MacmpiError as error:
        if not error.agreed:
            die(team, error)
        code = error.exit_code
        if team.rank == 0 and str(error):
            say(f"macmpi: {error}", error=code != 0)
    except BaseException as error:  # noqa: BLE001 - every rank must end, whatever happened in this one
        die(team, error)
    sys.exit(code)


def _fault() -> Any:
    """The fault that the environment asks for.  Raises UsageError."""
    if FAULT not in os.environ:
        return None
    from macmpi.training.faults import parse

    return parse(os.environ[FAULT])


def _stop_at_once(team: Team) -> None:
    """Until training begins there is nothing to save: a signal to one rank ends all, the same command starts again."""
    on_stop_signals(lambda number, frame: team.abort(STOPPED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


if __name__ == "__main__":
    main()
