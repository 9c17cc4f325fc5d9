"""Refused: penalties and bounds."""

from __future__ import annotations

from macmpi.config import Penalty
from macmpi.config.tables import SHAPING
from refused.case import BITS, CODES, LABELS, SELECTED, Row

COMBINATIONS = [
    (
        "a list of `penalty.ridge`, `l1`, `group_lasso`, `weights_min` or `weights_max` whose length is "
        "not the number of layers whose weights regressions fit"
    ),
    (
        "`l1`, `group_lasso`, `weights_min` or `weights_max` with another method than mac, another "
        '`w_step.solver` than auto and proximal, `schedule = "ring"`, a metric or selection, or on a layer with a'
        " fitter"
    ),
    "`weights_min` above `weights_max`, or bounds that leave out 0 with `l1` or `group_lasso`",
    "`group_lasso` with other bounds than `weights_min = 0`",
    (
        "`l1`, `group_lasso`, `weights_min` or `weights_max` before codewords or bits, or on a layer that is "
        "neither dense, sparse nor a convolution"
    ),
]

TABLE = {
    "a list of another length than the net": Row(
        {"penalty.l1": [0.1, 0.2]},
        ("penalty.l1 has 2 values", "has 3 layers", "give one value, or 3"),
        ({"penalty.l1": 0.1}, {"penalty.l1": [0.1, 0.2, 0.0]}),
        "a list of `penalty.ridge`",
    ),
    **{
        f"{key} without a W-step": Row(
            {f"penalty.{key}": 0.1, "method.name": method},
            (),
            ({"method.name": "mac"}, {f"penalty.{key}": getattr(Penalty, key)}),
            "`l1`, `group_lasso`, `weights_min` or `weights_max` with",
        )
        for key, method in zip(SHAPING, ("stochastic", "adam", "sgd", "lbfgs"), strict=True)
    },
    "l1 where a fitter fits": Row(
        {**LABELS, "model.fitters": ["auto", "auto", "linear_svm"], "penalty.l1": 0.1},
        (),
        ({"model.fitters": "auto"}, {"penalty.l1": [0.1, 0.1, 0.0]}),
        "`l1`, `group_lasso`, `weights_min` or `weights_max` with",
    ),
    "l1 and selection": Row(
        {**SELECTED, "penalty.l1": 0.1},
        ('selection.criterion = "bic"', "penalty.l1", 'use selection.criterion = "none"'),
        ({"selection.criterion": "none"}, {"penalty.l1": 0.0}),
        "`l1`, `group_lasso`, `weights_min` or `weights_max` with",
    ),
    "bounds the wrong way round": Row(
        {"penalty.weights_min": [0.0, 0.5, 0.0], "penalty.weights_max": 0.2},
        ("penalty.weights_min = 0.5", "above penalty.weights_max = 0.2", "use a smaller weights_min"),
        ({"penalty.weights_min": 0.0},),
        "`weights_min` above",
    ),
    "l1 apart from 0": Row(
        {"penalty.l1": 0.1, "penalty.weights_min": 0.1},
        ("penalty.l1 draws weights to 0", "use bounds around 0, or leave them out"),
        ({"penalty.weights_min": 0.0}, {"penalty.weights_min": -1e12}),
        "`weights_min` above",
    ),
    "groups within bounds": Row(
        {"penalty.group_lasso": 0.1, "penalty.weights_max": 0.1},
        ("penalty.group_lasso", "one by one", "use penalty.l1, or leave the bounds out"),
        ({"penalty.group_lasso": 0.0, "penalty.l1": 0.1}, {"penalty.weights_max": 1e12}),
        "`group_lasso` with",
    ),
    **{
        f"l1 before {kind}": Row(
            {**keys, "penalty.l1": 0.1},
            ("penalty.l1 does not go with", f"segment 1, {kind}", "use a list without it"),
            ({"penalty.l1": [0.0, 0.1, 0.1]},),
            "`l1`, `group_lasso`, `weights_min` or `weights_max` before",
        )
        for kind, keys in (("binary", BITS), ("quantiser", {**CODES, "start.method": "pca"}))
    },
}
