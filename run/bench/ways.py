"""Processor seconds of the ways of MAC to an error: quadratic penalty, multipliers, all points, minibatches.

    python run/bench/ways.py run/usps_mac.toml run/usps_al.toml run/usps_all.toml run/usps_fast.toml --levels 5 4 3 2.5

One process, without checkpoints: the seconds are of the half steps, or steps, and of the start, and not of evaluations.
A row a config: at the first iteration with E1 of the training points at most each level the seconds and the validation
error, then those of the end, with E1 of both sets.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from macmpi import config  # noqa: E402
from macmpi.methods.choose import Method, choose  # noqa: E402
from macmpi.methods.starts import Origin, start  # noqa: E402
from macmpi.parallel.team import Team  # noqa: E402
from macmpi.plan.resolved import Progress  # noqa: E402
from macmpi.state import Errors, State  # noqa: E402
from macmpi.training.launch import loaded  # noqa: E402
from macmpi.training.request import planned  # noqa: E402

Point = tuple[float, float, float]
"""Processor seconds, E1 of the training points, E1 of the validation points."""


def run(path: Path, settings: list[str]) -> list[Point]:
    """A run to its end, and of full MAC with `run.finish` the steps of all points behind it."""
    team = Team()
    plan, source, _ = planned(config.read(path, settings), team)
    data, points, state = loaded(plan, source, team), list[Point](), None
    for of in filter(None, (plan, plan.finishing)):
        method = choose(of, data, team)
        began = time.process_time()
        state = start(method, Origin()) if state is None else method.start_at(state.weights, False)
        method.begin(state)
        state = carried_out(method, state, points, time.process_time() - began)
    return points


def carried_out(method: Method, state: State[Any], points: list[Point], used: float) -> State[Any]:
    """Carries out a method to its end, and adds a point for each iteration.  used: seconds of its start."""
    used, schedule = used + (points[-1][0] if points else 0.0), method.plan.resolved.schedule

    def note() -> Errors:
        errors = method.evaluate(state)
        state.note_validation(errors.validation, errors.watched, noticeable=schedule.noticeable)
        points.append((used, errors.train, errors.validation))
        return errors

    note()
    while not state.finished:
        before, mu, began = state.history.e1_val, state.mu, time.process_time()
        method.sweep(state)
        used += time.process_time() - began
        progress = Progress(state.iteration, mu, before, **state.history.progress(note()))
        decision = schedule.decide(progress)
        if decision.multipliers:
            method.move_multipliers(state)
            state.history.reference = progress.move
        state.mu, state.finished = decision.mu, decision.stop or ""
    began = time.process_time()
    state = method.finish(state)
    used += time.process_time() - began
    note()
    return state


def cell(points: list[Point], level: float) -> str:
    """Seconds and validation error at a level; "-" where it is not reached."""
    at = next((point for point in points if point[1] <= level), None)
    return "-" if at is None else f"{at[0]:.1f}, {at[2]:.2f}"


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--levels", nargs="+", type=float, default=[5.0, 4.0, 3.5, 3.0, 2.5, 2.1])
    parser.add_argument("--set", action="append", default=[], dest="settings")
    args = parser.parse_args()
    print("| config |", " | ".join(f"{level:g}" for level in args.levels), "| end, seconds | E1 train / validation |")
    print("|---" * (len(args.levels) + 3) + "|")
    for path in args.configs:
        points = run(path, args.settings)
        seconds, train, validation = points[-1]
        cells = " | ".join(cell(points, level) for level in args.levels)
        print(f"| `{path.stem}` | {cells} | {seconds:.1f} | {train:.3f} / {validation:.3f} |", flush=True)


if __name__ == "__main__":
    main()
