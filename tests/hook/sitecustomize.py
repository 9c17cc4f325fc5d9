"""A Python whose PYTHONPATH holds this folder strikes the run that MACMPI_FAULT names (tests/striking.py)."""

import os
import sys
from contextlib import suppress
from pathlib import Path

if "MACMPI_FAULT" in os.environ:
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    with suppress(ImportError):  # as in a Python that has no macmpi
        from striking import arrange

        arrange(os.environ["MACMPI_FAULT"])
