"""What it costs to start: `python run/bench/startup.py [--ranks 24 48 96] [--json FILE]`.

For each number of ranks, processor seconds of all processes from mpiexec to the end of a run of no iterations, seconds
to the head of the table, where the first iteration would begin, and to the end; with the load before, for seconds (not
processor seconds) say little where other programs run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from programs import ROOT, give_up, mpiexec

CONFIG = "run/digits_mac.toml"
HEAD = "  iter "


def spent() -> float:
    """Processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def started(ranks: int, config: str) -> dict[str, Any]:
    """One launch."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        words = ("-m", "macmpi.run", config, "--iterations", "0", "--output", Path(folder) / "run")
        command = mpiexec(ranks, *words)
        load, before, began, head = os.getloadavg()[0], spent(), time.perf_counter(), None
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if head is None and line.startswith(HEAD):
                    head = time.perf_counter() - began
        seconds = time.perf_counter() - began
        if running.returncode or head is None:
            errors.seek(0)
            give_up(command, running.returncode or 1, errors.read())
    used = spent() - before
    times = {"head": head, "seconds": seconds, "processor_seconds": used, "each": used / ranks}
    return {"ranks": ranks, **times, "load_before": load, "cores": os.cpu_count()}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, nargs="+", default=[24, 48, 96])
    p.add_argument("--config", default=CONFIG)
    p.add_argument("--json", type=Path, metavar="FILE")
    args = p.parse_args()
    rows = []
    for ranks in args.ranks:
        rows.append(row := started(ranks, args.config))
        print(
            f"{ranks} ranks on {row['cores']} cores: {row['processor_seconds']:.1f} processor seconds, "
            f"{row['each']:.2f} a rank; {row['head']:.1f} s to the table, {row['seconds']:.1f} s to the end; "
            f"load before {row['load_before']:.1f}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
