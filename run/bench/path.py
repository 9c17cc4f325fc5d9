"""The path of theorem B.3 to a large mu: E_Q + ridge minimised over W and Z together at each mu.

    MACMPI_DATA=... python run/bench/path.py run/usps_theory.toml --output FOLDER [--mu 1 10 100 1e3 1e4 1e5]

The theorem asks for minimisers and for no method.  Half steps alternate, and need about as many iterations as mu is
large; here SciPy's L-BFGS moves W, on min over Z of E_Q + ridge: coordinates by the program's Z-step, the gradient by
the program's own, at those coordinates.  Writes path.json: a row for each mu, with the keys of curve.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402
from scipy import optimize  # noqa: E402
from workload import begun  # noqa: E402

from macmpi.half_steps.errors import gradients_of, slopes_of  # noqa: E402
from macmpi.mac import Mac  # noqa: E402
from macmpi.methods.choose import Method  # noqa: E402
from macmpi.state import State  # noqa: E402

MU = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5)
Z_STEPS, SOLVED = 20, 1e-7
"""Z-steps at most, until ||dE_Q/dz|| is this share of the multipliers."""

OPTIONS = {"maxiter": 3000, "maxfun": 3000, "maxcor": 50, "ftol": 1e-15, "gtol": 1e-7}
"""Of L-BFGS, for the objective per point."""

SETTINGS = ("z_step.relaxation=1.0", "z_step.cg_iterations=60", "z_step.cg_tolerance=0.0")
"""Full Gauss-Newton steps, their systems solved."""


def minimised(method: Method, state: State[Any]) -> int:
    """W and Z at a stationary point of E_Q + ridge at the state's mu; the number of evaluations."""
    assert isinstance(method, Mac)
    parts, segments, n = method.parts, range(len(method.plan.chain.segments)), method.plan.n_train

    def reduced(w: np.ndarray) -> tuple[float, np.ndarray]:
        state.weights[:] = w
        for _ in range(Z_STEPS):
            method.z_step(state)
            by_w, _, (by_z, _, size) = slopes_of(parts, state)
            if by_z <= SOLVED**2 * size:
                break
        return method.evaluate(state).E_Q + parts.shaping_of(state, segments) / n, by_w / n

    found = optimize.minimize(reduced, state.weights.copy(), jac=True, method="L-BFGS-B", options=OPTIONS)
    reduced(found.x)
    return int(found.nfev)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--mu", type=float, nargs="+", default=MU)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    method, state, _ = begun(args.config, SETTINGS)
    rows = []
    for mu in args.mu:
        state.mu = mu
        count, found, errors = minimised(method, state), gradients_of(method.parts, state), method.evaluate(state)
        rows.append(
            {
                "mu": mu,
                "evaluations": count,
                "gradient_E_Q": found.penalised,
                "gradient_E1": found.nested,
                "multipliers_lack": found.lacking,
                "constraint": errors.constraint,
                "E1_train": errors.train,
                "E_Q": errors.E_Q,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "path.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
