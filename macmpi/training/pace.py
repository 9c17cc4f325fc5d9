"""The time that a run has taken, against the time that it has: when a checkpoint is due, and when it must stop."""

from __future__ import annotations

from macmpi.parallel.clock import now

FIRST = 60.0
"""Seconds to the first checkpoint at most, whatever is set between the others: before it a death loses all."""

SPARE = 1.5
"""A stretch of training and a checkpoint may take this many times as long as the longest so far."""


class Pace:
    """Seconds between pauses and of checkpoints.  For rank 0 alone.  Collective: no.

    began: when the run did; max_time: seconds that it has; every: seconds between checkpoints.
    """

    def __init__(self, began: float, max_time: float, every: float) -> None:
        self.began, self.max_time, self.every = began, max_time, every
        self.longest = self.saving = 0.0
        self.has_saved = self.late = False
        self.saved_at = self.paused_at = now()

    def pause(self) -> None:
        """A stretch of training begins here."""
        self.paused_at = now()

    def is_late(self) -> bool:
        """Ends a stretch; tells whether no time is left for as long a one as the longest so far, and a checkpoint."""
        self.longest = max(self.longest, now() - self.paused_at)
        self.pause()
        self.late = not self.suffices(SPARE * (self.longest + self.saving))
        return self.late

    def suffices(self, seconds: float) -> bool:
        """Tells whether there is time for that many seconds more."""
        return now() - self.began + seconds <= self.max_time

    def is_due(self) -> bool:
        """Tells whether a checkpoint must be written."""
        return now() - self.saved_at > (self.every if self.has_saved else min(self.every, FIRST))

    def saved(self, began: float) -> None:
        """A checkpoint, which was begun at `began`, has been written."""
        self.saved_at = self.paused_at = now()
        self.has_saved = True
        self.saving = max(self.saving, self.saved_at - began)
