"""The fitters of macmpi have this in common: scikit-learn does their work."""

from __future__ import annotations

from typing import ClassVar

from macmpi.demand import Demand, Demands
from macmpi.parallel.streams import Stream


class ByScikitLearn:
    """A fitter that calls scikit-learn, and may raise the error of its segment."""

    descends: ClassVar[bool] = False
    library: ClassVar[str] = "sklearn"
    handles: ClassVar[Demands] = frozenset({Demand.WEIGHTED})


def seed_of(random: Stream) -> int:
    """A seed that scikit-learn takes, the next of a stream.  Collective: no."""
    return int(random.integers(2**31 - 1))
