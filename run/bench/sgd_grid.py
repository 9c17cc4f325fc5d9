"""The paper's grid of stochastic gradient descent (section 4.2): nine minibatches, four rates, on its deep autoencoder.

    MACMPI_DATA=... python run/bench/sgd_grid.py [--seconds 10] [--json FILE] [--output DIR]

The paper's rates are 1, 10, 100 and 1000 times 1e-7 on sums over points, of which it found 1e-6 and minibatches of 20
best; here they are 1, 10, 100 and 1000 times 0.002 on means, so that run/usps_sgd.toml stands where its best one does.
Each cell has some processor seconds of training.  What lies in --output is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from contest import Candidate, Contest, Curve, within  # noqa: E402

CONFIG = "run/usps_sgd.toml"
BATCHES = (1, 10, 20, 50, 100, 200, 500, 1000, 5000)
RATES = (0.002, 0.02, 0.2, 2.0)


def cell(batch: int, rate: float, curve: Curve, seconds: float) -> dict[str, float | None]:
    """The errors after the seconds; None where they are no numbers any more."""
    *_, (_, train, held, _, epochs) = within(curve, seconds)
    errors = [error if math.isfinite(error) else None for error in (train, held)]
    return {"batch": batch, "rate": rate, "E1_train": errors[0], "E1_val": errors[1], "epochs": epochs}


def main() -> None:
    p = argparse.ArgumentParser(description="The paper's grid of stochastic gradient descent.")
    p.add_argument("--seconds", type=float, default=10.0, help="of training a cell, of the processor")
    p.add_argument("--batches", type=int, nargs="+", choices=BATCHES, default=BATCHES, metavar="POINTS")
    p.add_argument("--json", type=Path)
    p.add_argument("--output", type=Path, default=Path("runs/sgd_grid"))
    args = p.parse_args()
    if not 0.0 < args.seconds < math.inf:
        p.error(f"--seconds {args.seconds:g}: above 0")
    if not Path(CONFIG).is_file():
        p.error(f"{CONFIG} is not there: run it from the folder that holds run/")
    args.output.mkdir(parents=True, exist_ok=True)
    contest = Contest(args.output.resolve(), sys.executable, clock="cpu")
    rows = []
    for batch in args.batches:
        for rate in RATES:
            candidate = Candidate(CONFIG, (f"baseline.batch={batch}", f"baseline.rate={rate}"))
            (curve,) = contest.curves([candidate], args.seconds)
            rows.append(cell(batch, rate, curve, args.seconds))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
