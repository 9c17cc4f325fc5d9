"""`python -m macmpi.sweep CONFIG --set key=value,value ...`: train every combination, several at once, and compare."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from macmpi import MacmpiError, StorageError, UsageError, __version__
from macmpi import config as configs
from macmpi.config.documented import found as config_file
from macmpi.config.documented import meant
from macmpi.config.writing import toml
from macmpi.console import duration, guard, program, say, warn
from macmpi.files import first_line, replace_file
from macmpi.machine.lock import Lock
from macmpi.parallel.launchers import speaks, started
from macmpi.results import page
from macmpi.sweep.checked import Run, checked
from macmpi.sweep.grid import Axis, axes, combinations
from macmpi.sweep.outcome import Scored, aligned, as_csv, best_of, doubts, groups, scored, table
from macmpi.sweep.processes import CONSOLE, Ended, carry_out, command, places
from macmpi.training.process import StopRequest

DONE, FAILED, STOPPED = 0, 70, 75


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog=program("sweep"),
        allow_abbrev=False,
        description="Train every combination of some values of a config, several at once, and compare the errors.",
        epilog="Values are separated by commas and are TOML, or words without quotes: --set model.hidden=[50],[100,50] "
        "--set model.activation=relu,tanh.  Exit codes: 0 done, 2 usage, config or data, 70 some runs have failed, "
        "75 stopped, --resume auto goes on.",
    )
    p.add_argument("config", type=Path, metavar="CONFIG.toml", help="a file, or the name of a documented config")
    p.add_argument(
        "--set", action="append", default=[], metavar="TABLE.KEY=VALUE,...", help="the values that a key takes"
    )
    p.add_argument("--random", type=_count, default=0, metavar="N", help="train N combinations, drawn at random")
    p.add_argument("--seeds", type=_count, default=1, metavar="K", help="train each K times, with other seeds")
    p.add_argument("--ranks", type=_count, default=1, metavar="N", help="ranks of each run (default: 1)")
    p.add_argument("--jobs", type=_jobs, default=0, metavar="auto|N", help="runs at once (auto: what the cores take)")
    p.add_argument("--output", type=Path, metavar="DIR", help="default: sweeps/<name of the config>")
    p.add_argument(
        "--resume", choices=("auto", "no"), default="no", help="auto: leave finished runs, go on with others"
    )
    p.add_argument("--check", action="store_true", help="check and list the runs, start none, write nothing")
    return p


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on is needed")
    return int(text)


def _jobs(text: str) -> int:
    return 0 if text == "auto" else _count(text)


@dataclass
class Sweep:
    """A sweep as a command line asks for it, checked; and how far it is."""

    config: Path
    output: Path
    axes: list[Axis]
    runs: list[Run]
    ranks: int
    jobs: int
    states: dict[str, Ended] = field(default_factory=dict)

    @property
    def todo(self) -> list[Run]:
        return [run for run in self.runs if run.state != "finished"]

    def note(self, ended: Ended) -> None:
        """A run has ended: one line."""
        self.states[ended.run.name] = ended
        took = [one.seconds for one in self.states.values() if one.state == "finished"]
        rest, left = len(self.todo) - len(self.states), ""
        if rest and took and ended.state != "stopped":
            left = f", about {duration(sum(took) / len(took) * rest / self.jobs)} left"
        of = f"  {len(self.runs) - len(self.todo) + len(self.states)} of {len(self.runs)}"
        text = ended.words or ended.state
        if ended.state == "finished" and (numbers := scored(ended.run, ended.state).numbers):
            text = f"E1 val {numbers['E1_val']:.4g} after {numbers['iterations']:.0f} iterations"
        say(f"{of}  {ended.run.name}: {text}, {duration(ended.seconds)}{left}")

    def scores(self) -> list[Scored]:
        """All runs, those of earlier launches too."""
        ended = {name: one.state for name, one in self.states.items()}
        return [scored(run, ended.get(run.name, run.state)) for run in self.runs]


def settle(args: argparse.Namespace) -> Sweep:
    """Everything is checked here, before anything is created.  Raises UsageError."""
    if started(os.environ)[0] > 1:
        raise UsageError(f"start {program('sweep')} without mpiexec; --ranks N gives each run N ranks")
    path = config_file(args.config)
    try:
        base = configs.read(path, [])
    except UsageError as error:
        raise UsageError(f"{error}{meant(args.config)}") from None
    output = args.output or Path("sweeps") / path.stem
    if os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"--output {output} is no folder; name another one")
    asked = axes(args.set)
    runs = checked(path, combinations(asked, base, args.random, args.seeds), output, args.ranks)
    old = [run for run in runs if run.state != "new"]
    if old and args.resume == "no" and not args.check:
        raise UsageError(
            f"{output} holds {len(old)} of these runs already: --resume auto leaves finished ones and goes on with "
            "others; or name another --output"
        )
    jobs = args.jobs or places(args.ranks, max(run.config.run.threads for run in runs))
    return Sweep(path, output, asked, runs, args.ranks, jobs)


def head(sweep: Sweep) -> str:
    """Says what is going to be trained."""
    done = len(sweep.runs) - len(sweep.todo)
    each = f"{sweep.ranks} rank{'s' if sweep.ranks > 1 else ''} each"
    finished = f", {done} of them finished already" if done else ""
    return (
        f"macmpi sweep: {len(sweep.runs)} runs of {sweep.config}{finished}, {sweep.jobs} at once, {each}, "
        f"in {sweep.output}"
    )


def train(sweep: Sweep) -> bool:
    """Train what is not finished; gives whether all runs were started.  Raises UsageError, StorageError."""
    lines = [(run, command(sweep.config, run, sweep.ranks)) for run in sweep.todo]
    stop = StopRequest()
    try:
        sweep.output.mkdir(parents=True, exist_ok=True)
        with Lock(sweep.output / "lock") as lock:
            lock.claim()
            whole = carry_out(lines, sweep.jobs, stop, sweep.note)
            compare(sweep)
    except OSError as error:
        place = error.filename or sweep.output
        raise StorageError(f"cannot write to {place}: {error.strerror or first_line(error)}") from None
    return whole and not stop.asked


def compare(sweep: Sweep) -> None:
    """Once a run has finished: print the table and the best command; write sweep.csv, sweep.html.  Raises OSError."""
    results = sweep.scores()
    if not any(one.state == "finished" for one in results):
        return
    found = groups(results)
    titles, rows = table(found, sweep.axes)
    best, lines = best_of(found), doubts(sweep.axes)
    say("\n".join(aligned(titles, rows)))
    if best is not None:
        run = min(best.finished, key=lambda one: one.numbers["E1_val"]).run
        words = [word for key, value in best.settings.items() for word in ("--set", f"{key}={toml(value)}")]
        line = shlex.join([str(sweep.config), *words])
        launched = f"mpiexec -n {sweep.ranks} " if sweep.ranks > 1 else ""
        lines += [f"best: {run.folder / 'model.h5'}", f"the command: {launched}{program('run')} {line}"]
    for line in lines:
        say(line)
    replace_file(sweep.output / "sweep.csv", as_csv(results, sweep.axes).encode())
    written = [sweep.output / "sweep.csv"]
    failed = [f"{one.run.name}: {one.words}" for one in sweep.states.values() if one.state == "failed"]
    try:
        from macmpi.results.figures import png_of
        from macmpi.sweep.picture import drawn
    except ImportError as error:
        warn(f"sweep.html is not written: pictures are drawn by matplotlib ({error}): pip install matplotlib")
    else:
        body = [f"<h1>{escape(f'macmpi sweep: {sweep.output.name}')}</h1>", page.table(titles, rows)]
        body += [f"<p>{escape(text)}</p>" for text in (*lines, *failed)]
        if sweep.axes and best is not None:
            png = png_of(drawn(found, sweep.axes, best))
            body.append(page.figure("errors", "Validation error against each key", CAPTION, png))
        body.append(f"<footer>Drawn by macmpi {escape(__version__)}</footer>")
        replace_file(sweep.output / "sweep.html", page.document(f"macmpi sweep: {sweep.output.name}", body).encode())
        written.append(sweep.output / "sweep.html")
    say("\n".join(map(str, written)))


CAPTION = (
    "E1 per validation point of each run's best weights, a point for each combination (with several seeds the mean and "
    "the standard deviation); blue: the best at each value. The diamond is the best combination."
)


def last_line(sweep: Sweep, whole: bool) -> tuple[str, int]:
    """Says how the sweep has ended; and the exit code."""
    failed = [run for run in sweep.runs if run.name in sweep.states and sweep.states[run.name].state == "failed"]
    if not whole or any(one.state == "stopped" for one in sweep.states.values()):
        return "stopped; the same command with --resume auto goes on", STOPPED
    if failed:
        where = f"{failed[0].folder / CONSOLE}"
        return (
            f"{len(failed)} of {len(sweep.runs)} runs have failed: {where} has more; --resume auto tries again",
            FAILED,
        )
    return "", DONE


def main() -> None:
    guard()
    args = parser().parse_args()
    try:
        sweep = settle(args)
        say(head(sweep))
        if args.check:
            say("\n".join(f"  {run.name}: {run.state}" for run in sweep.runs))
            return
        text, code = last_line(sweep, train(sweep))
    except MacmpiError as error:
        if speaks():
            warn(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        warn("ended at once, without checkpoints; the same command with --resume auto goes on")
        sys.exit(STOPPED)
    if text:
        warn(text)
    sys.exit(code)


if __name__ == "__main__":
    main()
