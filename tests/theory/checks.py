"""The formulas that tests hold against an independent computation, each with its bound: docs/algorithms/checks.md.

A test calls `deviation("a formula's name", ours, independent)`, which asserts the bound.  With MACMPI_CHECKS=FILE the
largest deviation of each formula goes to that file when the tests end (tests/theory/conftest.py), from which
run/pages/checks_page.py makes the page; tests/theory/test_checks.py holds page, table and tests together.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

COMPLEX, RICHARDSON = "complex step", "central differences, Richardson"
LOOPS, LSTSQ, WRITTEN = "loops over points and units", "least squares by QR or SVD", "written out once more"

SELECTION, STOCHASTIC = "algorithms/selection.md", "algorithms/stochastic.md"

ROUNDING = 1e-12
"""A bound on sums and products of a few hundred numbers in double precision."""


@dataclass(frozen=True)
class Formula:
    """A row of the page.

    place: the paper's number, or the page that has it; means: of the independent computation; bound: on the largest
    difference, relative to the largest independent number.
    """

    name: str
    formula: str
    place: str
    means: str
    bound: float = ROUNDING


FORMULAS = {
    row.name: row
    for row in (
        # objectives
        Formula("E1", "1/2 sum_n ‖y_n - f_{K+1}(... f_1(x_n))‖^2", "eq. (1)", WRITTEN),
        Formula("feasible coordinates", "z_k = f_k(z_{k-1}), z_0 = x", "eq. (2)", WRITTEN),
        Formula("E_Q", "loss(y, f_{K+1}(z_K)) + mu/2 sum_k ‖z_k - f_k(z_{k-1})‖^2", "eq. (3)", LOOPS),
        Formula("E_Q by point", "sum over points of the objectives of eq. (4)", "eq. (4)", WRITTEN),
        Formula("E_Q by unit", "sum over units of the objectives of the W-step", "section 2.3", WRITTEN),
        Formula("augmented Lagrangian", "E_Q - sum lambda^T (z - f)", "section 2.3", WRITTEN),
        Formula("multipliers move", "lambda - mu M (z - f)", "section 2.3", WRITTEN),
        Formula("E1 of basis nets", "1/2 sum ‖y - f‖^2 + lambda_2 ‖W_2‖^2 + lambda_4 ‖W_4‖^2", "eq. (6)", WRITTEN),
        Formula("basis functions", "exp(-‖(x - w_i) / sigma‖^2)", "section 4.3", LOOPS),
        # gradients
        Formula("grad E1", "dE1/dW by backpropagation", "theorem A.2", COMPLEX),
        Formula("grad E_Q by W", "dE_Q/dW = -mu sum_n df_k^T/dW (z - f), with the ridge", "theorem B.4", COMPLEX),
        Formula("grad E_Q by Z", "dE_Q/dz = -J^T (y - f_2) + mu (z - f_1), corrected", "theorem B.4", COMPLEX),
        Formula("grad of the Lagrangian", "dL/dW at lambda = -J^T r is dE1/dW", "theorem A.2", COMPLEX),
        Formula("multipliers of the net", "lambda_k = J_{k+1}^T lambda_{k+1} at feasible z", "theorem A.2", COMPLEX),
        Formula("‖grad E_Q‖", "as recorded, by W and Z", "theorem B.3", COMPLEX),
        Formula("‖grad E1‖", "as recorded", "theorem B.3", COMPLEX),
        Formula("constraint gradients", "d(z_k - f_k(z_{k-1})) / dz", "theorem B.3", COMPLEX),
        Formula(
            "multipliers of the path",
            "lim -mu (z - f) at the minimisers of E_Q + ridge, mu = 1e5",
            "theorem B.3",
            "backpropagation at feasible z",
            1e-4,
        ),
        # losses
        *(
            Formula(f"gradient of {name}", formula, "losses.md", COMPLEX)
            for name, formula in (
                ("squared", "y - f"),
                ("cross_entropy", "y - softmax(f)"),
                ("logistic", "y - 1 / (1 + exp(-f))"),
                ("poisson", "y - exp(f)"),
                ("huber", "y - f, at most 1 in size"),
                ("absolute", "(y - f) / sqrt((y - f)^2 + s^2)"),
            )
        ),
        *(
            Formula(f"curvature of {name}", formula, "losses.md", COMPLEX)
            for name, formula in (
                ("squared", "I"),
                ("cross_entropy", "diag(p) - p p^T"),
                ("logistic", "p (1 - p)"),
            )
        ),
        # layers
        Formula("derivative of sigmoid", "s (1 - s)", "section 2.1", COMPLEX),
        Formula("derivative of tanh", "1 - t^2", "section 2.1", COMPLEX),
        Formula("derivative of softmax", "diag(p) - p p^T", "layers/index.md", COMPLEX),
        Formula("derivative of basis functions", "-2 (x - w) phi / sigma^2", "section 4.3", COMPLEX),
        Formula("convolution", "sum over patches and channels", "layers/index.md", LOOPS),
        Formula("gradient of filters", "df/dW^T of a convolution", "layers/index.md", COMPLEX),
        Formula("average pooling", "means of patches", "layers/index.md", LOOPS),
        Formula("max pooling", "maxima of patches", "layers/index.md", LOOPS),
        # half steps
        Formula("W-step of a linear unit", "argmin 1/2 ‖t - A w‖^2 + ridge/2 ‖v‖^2", "section 4.1", LSTSQ, 5e-11),
        Formula("W-step of a sigmoid unit", "its Gauss-Newton step", "section 4.1", LSTSQ),
        Formula("Z-step", "its Gauss-Newton step, one system a point", "section 4.1", LSTSQ),
        Formula("Z-step by the dual", "the same by conjugate gradients on outputs", "differences.md", LSTSQ),
        Formula("W-step of basis nets", "least of 1/2 ‖T - Phi W^T‖^2 + ridge/2 ‖W‖^2", "section 4.3", LSTSQ),
        Formula("postprocessing", "W_{K+1} fitted to (f_K(... f_1(X)), Y)", "section 2.3", LSTSQ),
        Formula("gradient of the encoder", "dE1/dW_2 through the decoder", "section 4.3", RICHARDSON, 5e-9),
        # selection
        Formula("price of aic", "E1 + eps^2 |W|", SELECTION, "SciPy's densities"),
        Formula("price of bic", "E1 + 1/2 eps^2 |W| log N", SELECTION, "SciPy's densities"),
        Formula("price of mdl", "E1 + 1/2 eps^2 |W| log(N / 2 pi)", SELECTION, "SciPy's densities"),
        Formula("C(W)", "c eps^2 (D + L) (M_1 + M_3), c = 1 of AIC", "eq. (9)", WRITTEN),
        Formula("errors of candidates", "all fits of one Gram and factor", "section 4.4", LSTSQ, 2e-12),
        Formula("effective weights", "E + C with tr(G (G + Lambda)^-1)", SELECTION, "dense solves", 1e-9),
        # metrics, multipliers
        Formula("variance metric", "1 / var(z), mean 1", "algorithms/mac.md", WRITTEN),
        Formula("curvature metric", "E[J_k^T M J_k] map by map, damped", "algorithms/mac.md", WRITTEN),
        # stochastic MAC, baselines, starts
        Formula("gradient of a minibatch", "dE1/dW along a way", STOCHASTIC, COMPLEX),
        Formula("metrics of stochastic MAC", "E[J^T M J] map by map", STOCHASTIC, WRITTEN),
        Formula("curvature along a way", "w^T J^T B^T B J w + damping w^T w", STOCHASTIC, WRITTEN),
        Formula("length of a step", "the model's minimum at probed points", STOCHASTIC, WRITTEN),
        Formula("step of stochastic MAC", "momentum s + length d", STOCHASTIC, WRITTEN),
        Formula("SGD", "v <- momentum v + g, W <- W - rate v", "section 4.2", RICHARDSON, 5e-12),
        Formula("Adam", "m / (sqrt(v) + 1e-8), corrected", "algorithms/index.md", RICHARDSON, 5e-10),
        Formula("PR+", "-g + max(0, g^T (g - g_old) / g_old^T g_old) d", "section 4.2", WRITTEN),
        Formula("L-BFGS", "-H g by two loops", "algorithms/index.md", "SciPy's LbfgsInvHessProduct"),
        Formula("elastic embedding", "sum w ‖z_n - z_m‖^2 + r sum exp(-‖z_n - z_m‖^2)", "section 4.3", LOOPS),
        Formula("gradient of the embedding", "4 sum_m (w - r e) (z_n - z_m)", "section 4.3", COMPLEX),
        Formula("principal codes", "scores on leading directions", "starts.md", LSTSQ, 2e-12),
    )
}


@dataclass
class Found:
    """The largest deviation of a formula, how often it was compared, and the test where it was largest."""

    deviation: float
    times: int
    test: str


found: dict[str, Found] = {}


def deviation(name: str, ours: Any, independent: Any) -> None:
    """Assert a formula's bound on max |ours - independent| / max |independent|, and note the figure."""
    a, b = np.asarray(ours, float).ravel(), np.asarray(independent, float).ravel()
    assert a.shape == b.shape
    largest = float(np.abs(b).max())
    assert largest > 0.0, "nothing to compare with"
    off, row = float(np.abs(a - b).max()) / largest, FORMULAS[name]
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split("[")[0].split(" (")[0]
    noted = found.setdefault(name, Found(0.0, 0, test))
    noted.times += 1
    if off > noted.deviation:
        noted.deviation, noted.test = off, test
    assert off <= row.bound, f"{name}: {row.formula} is {off:.2g} off, more than {row.bound:g}"


def write() -> None:
    """The figures, to the file that MACMPI_CHECKS names, if there is one."""
    if found and (path := os.environ.get("MACMPI_CHECKS")):
        rows = {name: vars(found[name]) for name in FORMULAS if name in found}
        Path(path).write_text(json.dumps(rows))
