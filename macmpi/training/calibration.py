"""The rate of this machine, measured once and kept, so that predictions do not change with what else it does."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from macmpi import MacmpiError
from macmpi.files import cache, replace_file
from macmpi.parallel.kernels import libraries, words
from macmpi.plan import estimate

FILE, VARIABLE = "calibration.json", "MACMPI_CALIBRATION"
"""The file in the user's cache, and the variable that names another one."""

QUIET = 0.5
"""A rate is kept where other work keeps at most this share of the cores busy."""


@dataclass(frozen=True)
class Calibration:
    """flop/s of a core in large products of float64; processor and kernel of BLAS; the day; kept: where it was found.

    Collective: no.
    """

    rate: float
    processor: str
    kernel: str
    day: str
    kept: str = ""

    @property
    def said(self) -> str:
        """In a line: the rate, and where it comes from."""
        place = f", kept in {self.kept}" if self.kept else ", not kept"
        return f"{self.rate / 1e9:.3g} GFLOP/s a core, measured {self.day} on {self.processor}, {self.kernel}{place}"


def processor() -> str:
    """The processor's name, as Linux tells it.  Collective: no."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.machine()


def calibrated(measure: Callable[[], float] | None = None) -> Calibration:
    """This machine's, from the user's cache, or measured now and kept there, unless other work disturbs it.

    Cost: of the first call some tenths of a second.  Collective: no (rank 0).
    """
    path, here, kernel = Path(os.environ.get(VARIABLE) or cache() / FILE), processor(), words(libraries())
    found = _read(path)
    for one in found:
        if (one.processor, one.kernel) == (here, kernel):
            return one
    quiet = os.getloadavg()[0] <= QUIET * (os.cpu_count() or 1)
    rate = (measure or estimate.steady_rate)()
    made = Calibration(rate, here, kernel, time.strftime("%Y-%m-%d"), str(path))
    if not quiet:
        return replace(made, kept="")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps([asdict(one) for one in [*found, made]], indent=1).encode())
    except (OSError, MacmpiError):
        return replace(made, kept="")
    return made


def _read(path: Path) -> list[Calibration]:
    """Reads what is kept; nothing where the file is not there or is none of ours."""
    try:
        found = [Calibration(**one) for one in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return []
    return [one for one in found if isinstance(one.rate, float) and 0.0 < one.rate < float("inf")]
