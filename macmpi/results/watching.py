"""Runs are followed while they go on: a page of their curves, drawn again whenever there are new records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from macmpi.console import duration, say
from macmpi.machine.lock import is_held
from macmpi.results.live import PAGE, conclude, publish
from macmpi.results.page import figure
from macmpi.results.reading import Result, glance

SHARE = 4.0
"""Between two drawings there is at least this multiple of the time that the last one took: the run needs the cores."""


@dataclass
class Followed:
    """A run that is watched: what it has left so far, and whether it goes on.

    held: a run holds its folder; begun: one has, since this began to watch.
    """

    path: Path
    name: str
    result: Result | None = None
    held: bool = False
    begun: bool = False

    def look(self) -> None:
        """Looks again.  The lock first: a run that ends has written its last record before it lets go of it."""
        self.held = is_held(self.path / "lock")
        self.begun = self.begun or self.held
        self.result = glance(self.path, self.name)

    @property
    def over(self) -> bool:
        """Nobody holds the folder, and somebody did, or there is a curve."""
        return not self.held and (self.begun or self.result is not None)

    @property
    def records(self) -> int:
        return 0 if self.result is None else len(self.result.records)

    def state(self) -> str:
        """In words: how far the run is."""
        if self.result is None:
            return "ended without a record" if self.over else "waiting for its first record"
        if self.over:
            return "finished" if self.result.finished else "stopped"
        last, known = self.result.records[-1], self.result.config
        if self.result.finished:
            return "running, all iterations are done: the model is made"
        if known is None or not last["iteration"]:
            return f"running, iteration {last['iteration']:,}"
        limit, done = known.run.max_iterations, last["iteration"]
        left = max(limit - done, 0) * last["seconds"] / done
        return f"running, iteration {done:,} of {limit:,}, {duration(left)} left at most"


def watch(paths: Sequence[Path], names: Sequence[str], folder: Path, title: str, seconds: float) -> bool:
    """Keep a page current until no run goes on: True; or until Ctrl-C: False, and the page stays as it is then.

    folder: where the page lies; it is made once there is a run's folder.  Raises OSError, UsageError.
    """
    runs, drawn, body = [Followed(path, name) for path, name in zip(paths, names, strict=True)], "", list[str]()
    try:
        while True:
            for run in runs:
                run.look()
            if all(run.over for run in runs):
                if body and not any(run.result for run in runs):
                    conclude(folder, title, drawing(runs, title))
                return True
            began, seen = time.monotonic(), str([(run.path.is_dir(), run.records, run.state()) for run in runs])
            if seen != drawn and any(run.path.is_dir() for run in runs):
                folder.mkdir(parents=True, exist_ok=True)
                body = drawing(runs, title)
                publish(folder, title, body, seconds / 2)
            if not drawn:
                waiting = [f"{run.path}: {run.state()}" for run in runs if run.result is None]
                say("\n".join([*waiting, f"{folder / PAGE} stays current; Ctrl-C ends the watch, and no run"]))
            drawn = seen
            time.sleep(max(seconds, SHARE * (time.monotonic() - began)))
    except KeyboardInterrupt:
        if body:
            note = f'<p class="missing">The watch ended at {_clock()}; what came later is not here.</p>'
            conclude(folder, title, [body[0], note, *body[1:]])
        return False


def drawing(runs: Sequence[Followed], title: str) -> list[str]:
    """The parts of the page: how far each run is, and the pictures that its records alone give.  Raises UsageError."""
    from macmpi.results.pictures import colours_of, draw

    results = [run.result for run in runs if run.result is not None]
    colours = dict(zip([result.name for result in results], colours_of(results), strict=False))
    body = [f"<h1>{escape(title)}</h1>"]
    for run in runs:
        mark = f'<span class="run" style="background: {colours[run.name]}"></span>' if run.name in colours else ""
        name = f"{escape(run.name)}: " if len(runs) > 1 else ""
        body.append(f'<p class="state">{mark}{name}{escape(run.state())}, updated {_clock()}</p>')
    pictures = draw(results) if results else ()
    return body + [figure(picture.name, picture.title, picture.caption, picture.png()) for picture in pictures]


def _clock() -> str:
    return time.strftime("%H:%M:%S")
