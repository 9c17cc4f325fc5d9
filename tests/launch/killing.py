"""macmpi.run, and the first rank that ends with another code than 0 has all others killed, as srun --kill-on-bad-exit.

MACMPI_TEST_CODES: the folder in which each rank leaves its process id as pid-RANK and its exit code as code-RANK.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

folder, rank = Path(os.environ["MACMPI_TEST_CODES"]), os.environ.get("PMI_RANK", os.environ.get("PMIX_RANK", "0"))
process = subprocess.Popen([sys.executable, "-m", "macmpi.run", *sys.argv[1:]], close_fds=False)
(folder / f"pid-{rank}").write_text(str(process.pid))
code = process.wait()
(folder / f"code-{rank}").write_text(str(code))
for path in folder.glob("pid-*") if code else ():
    with suppress(OSError, ValueError):
        os.kill(int(path.read_text()), signal.SIGTERM)
