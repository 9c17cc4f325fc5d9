"""Seconds of the pieces of a stochastic step, on one rank and on each of several: what these lose, and where.

    python run/bench/pieces.py run/usps_fast.toml --iterations 40
    python run/bench/pieces.py run/large_fast.toml --iterations 12 --set stochastic.records=12

A piece's seconds are its own, without those of pieces within it; "meets in ..." is the waiting for other ranks there.
"lost" is the mean over ranks less what one rank takes divided by their number.  The first iteration does not count.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

from programs import give_up, mpiexec  # noqa: E402

OUTPUT = "MACMPI_PIECES"
"""Names the file of a child's rank, whose number is put behind it."""

METHOD, PARALLEL = "macmpi.methods.stochastic.", "macmpi.parallel."
MEETING = "exchange:Node.barrier"
PIECES = {
    METHOD + "method:Stochastic.step": "step, the rest",
    METHOD + "passes:GaussNewton.along": "length",
    METHOD + "passes:GaussNewton.decrease": "decrease",
    METHOD + "schedule:Schedule.drawn": "drawing points",
    METHOD + "passes:MinibatchPass._at": "forward",
    METHOD + "passes:put_slopes": "slopes",
    METHOD + "passes:MinibatchPass.with_slopes": "pass, the rest",
    METHOD + "passes:MinibatchPass.losses": "pass, the rest",
    METHOD + "passes:MinibatchPass.slopes": "pass, the rest",
    METHOD + "curvature:RunningCurvature.note": "note",
    METHOD + "curvature:RunningCurvature.fold": "fold",
    METHOD + "curvature:RunningCurvature.complete": "complete",
    METHOD + "curvature:RunningCurvature.refresh": "inverses",
    METHOD + "curvature:RunningCurvature._pairs": "metrics",
    METHOD + "moves:Directions.whole": "directions, shown",
    METHOD + "moves:Moves.step": "directions, moves",
    METHOD + "moves:Moves.go": "moves",
    METHOD + "moves:Moves.show": "show weights, average or step",
    METHOD + "moves:Moves.complete": "complete",
    PARALLEL + "shared_work:Sum.part": "join",
    PARALLEL + MEETING: "meets",
}


class Watch:
    """Counts the own seconds of functions that it has wrapped, while `on`."""

    def __init__(self) -> None:
        self.on, self.seconds = False, Counter[str]()
        self._inner, self._names = [0.0], ["start"]

    def wrap(self, place: str, piece: str) -> None:
        """A function or method, module:Class.name, is timed from now on."""
        module, path = place.split(":")
        *owners, last = path.split(".")
        owner: Any = functools.reduce(getattr, owners, import_module(module))
        setattr(owner, last, self._timed(getattr(owner, last), piece))

    def _timed(self, function: Callable[..., Any], piece: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **keys: Any) -> Any:
            if not self.on:
                return function(*args, **keys)
            named = f"meets in {self._names[-1]}" if piece == "meets" else piece
            self._inner.append(0.0)
            self._names.append(named)
            began = time.perf_counter()
            try:
                return function(*args, **keys)
            finally:
                took = time.perf_counter() - began
                self.seconds[named] += took - self._inner.pop()
                self._names.pop()
                self._inner[-1] += took

        return timed


def child(words: list[str]) -> None:
    """A rank of a run, all pieces of which are timed from its second iteration on."""
    watch, sweeps = Watch(), 0
    for place, piece in PIECES.items():
        watch.wrap(place, piece)
    Stochastic = import_module(METHOD + "method").Stochastic
    sweep = Stochastic.sweep

    def swept(*args: Any, **keys: Any) -> Any:
        nonlocal sweeps
        sweeps += 1
        watch.on = sweeps > 1
        began = time.perf_counter()
        try:
            return sweep(*args, **keys)
        finally:
            if watch.on:
                watch.seconds["all"] += time.perf_counter() - began
            watch.on = False

    Stochastic.sweep = swept
    from mpi4py import MPI

    path = Path(f"{os.environ[OUTPUT]}.{MPI.COMM_WORLD.rank}")
    atexit.register(lambda: path.write_text(json.dumps(watch.seconds)))
    sys.argv = ["macmpi.run", *words]
    runpy.run_module("macmpi.run", run_name="__main__", alter_sys=True)


def measured(ranks: int, words: list[str], folder: Path) -> list[dict[str, float]]:
    """Each rank's seconds of each piece."""
    output = folder / f"pieces-{ranks}"
    command = mpiexec(ranks, Path(__file__), "--child", *words, "--output", folder / f"run-{ranks}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {OUTPUT: str(output)})
    if done.returncode:
        give_up(command, done.returncode, done.stderr)
    return [json.loads(Path(f"{output}.{rank}").read_text()) for rank in range(ranks)]


def table(one: dict[str, float], many: list[dict[str, float]]) -> list[str]:
    """Markdown: a row for each piece, in milliseconds, the longest first."""
    P, rows = len(many), []
    for piece in sorted(many[0], key=lambda piece: -many[0][piece]):
        share, own = one.get(piece, 0.0) / P, [rank.get(piece, 0.0) for rank in many]
        cells = (share, *own, sum(own) / P - share)
        rows.append(f"| {piece} | " + " | ".join(f"{1e3 * cell:.1f}" for cell in cells) + " |")
    head = ["piece, ms", f"one rank / {P}", *(f"rank {rank}" for rank in range(P)), "lost"]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2:])
    p = argparse.ArgumentParser(description="Seconds of the pieces of a stochastic step, on one rank and on several.")
    p.add_argument("config", metavar="CONFIG.toml")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--iterations", type=int, default=20, help="of a launch, the first one left out")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = p.parse_args()
    words = [args.config, "--iterations", str(args.iterations)]
    words += [word for setting in ("stochastic.patience=1000000", *args.set) for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        (one,), many = (measured(ranks, words, Path(folder)) for ranks in (1, args.ranks))
    print(f"{one['all'] / many[0]['all']:.3f} times as fast on {args.ranks} ranks\n")
    print("\n".join(table(one, many)))


if __name__ == "__main__":
    main()
