"""Refused: losses, metrics, schedules of mu."""

from __future__ import annotations

from dataclasses import replace

from refused.case import CODES, CURVATURE, FOREST, HALVES, UNITS, Row

COMBINATIONS = [
    "`cross_entropy`, `logistic` or `poisson` with an output activation",
    "`loss.missing = true` with `cross_entropy`",
    "`float32` with mu_max > 1e4",
    (
        '`penalty.stop = "gradient"` and `penalty.gradients = true` with another method than mac, acceleration, '
        'selection, `sites = "none"` or a layer without derivatives; the former also with multipliers, '
        '`mu_every`, `ridge_scale = "unit"`, l1, groups, bounds or a fitter'
    ),
    '`augmented_lagrangian` with `sites = "none"`',
    '`metric` with `ridge_scale = "objective"`',
    (
        "`run.refit = true` with coordinates and `penalty.mu_every = 0` or multipliers, with selection, with a start "
        'from a file, a model or an embedding, with `centres = "points"`'
    ),
    (
        "`run.finish = true` with layers that are no dense ones or convolutions, with `mu_every`, `stop`, selection, "
        "l1, groups or bounds"
    ),
    '`metric = "curvature"` where a hidden segment is not linear and exact',
]

TABLE = {
    "a softmax of its own": Row(
        {"model.loss": "cross_entropy", "model.output": "sigmoid"},
        ('model.loss = "cross_entropy"', 'model.output = "sigmoid"', 'use model.output = "linear"'),
        ({"model.output": "linear"},),
        "`cross_entropy`",
    ),
    "two softmaxes": Row(
        {"model.loss": "cross_entropy", "model.output": "softmax"},
        ('model.output = "softmax"', 'use model.output = "linear"'),
        ({"model.output": "linear"},),
        "`cross_entropy`",
    ),
    **{
        f"a {link} of its own": Row(
            {"model.loss": loss, "model.output": "relu"},
            (),
            ({"model.output": "linear"}, {"model.loss": "squared"}),
            "`cross_entropy`",
        )
        for loss, link in (("logistic", "sigmoid"), ("poisson", "exp"))
    },
    "labels that are missing": Row(
        {"model.loss": "cross_entropy", "loss.missing": True},
        (),
        ({"loss.missing": False}, {"model.loss": "logistic"}),
        "`loss.missing = true` with `cross_entropy`",
    ),
    "mu beyond float32": Row(
        {"model.precision": "float32"},
        ('model.precision = "float32"', "penalty.mu_max = 1e+08", "use penalty.mu_max = 10000, or float64"),
        ({"penalty.mu_max": 1e4}, {"model.precision": "float64"}),
        "`float32`",
    ),
    "gradients of an alternation": Row(
        {**HALVES, "penalty.gradients": True},
        ("penalty.gradients = true", 'method.name = "alternating"', 'use method.name = "mac"'),
        ({"method.name": "mac"},),
        "`penalty.stop",
    ),
    "gradients of nets that change": Row(
        {**UNITS, "penalty.gradients": True},
        (),
        ({"selection.criterion": "none"},),
        "`penalty.stop",
    ),
    "multipliers of nothing": Row(
        {"penalty.method": "augmented_lagrangian", "model.sites": "none"},
        (),
        ({"model.sites": "after"}, {"model.sites": "before"}),
        "`augmented_lagrangian`",
    ),
    "multipliers of a list of nothing": Row(
        {"penalty.method": "augmented_lagrangian", "model.sites": ["none", "none"]},
        (),
        ({"model.sites": ["none", "after"]}, {"model.sites": "before"}),
        "`augmented_lagrangian`",
    ),
    "variance and the objective's ridge": Row(
        {"penalty.metric": "variance", "penalty.ridge_scale": "objective"},
        (),
        ({"penalty.ridge_scale": "unit"},),
        "`metric` with",
    ),
    "a refit whose schedule asks the validation points": Row(
        {"run.refit": True, "penalty.mu_every": 0},
        (),
        ({"run.refit": False}, {"penalty.mu_every": 5}),
        "`run.refit = true` with",
    ),
    "a refit whose centres are the training points": Row(
        {**CODES, "model.words": 37, "model.centres": "points", "run.refit": True, "penalty.mu_every": 5},
        (),
        ({"run.refit": False}, {"model.centres": "subset"}),
        "`run.refit = true` with",
    ),
    "a finish that would move what the schedule holds": Row(
        {"run.finish": True, "penalty.mu_every": 5},
        (),
        ({"run.finish": False}, {"penalty.mu_every": 0}),
        "`run.finish = true` with",
    ),
    "a finish without the bounds": Row(
        {"run.finish": True, "penalty.l1": 0.1},
        (),
        ({"run.finish": False}, {"penalty.l1": 0.0}),
        "`run.finish = true` with",
    ),
    "curvature of coupled units": CURVATURE,
    "curvature of a segment of two layers": replace(
        CURVATURE, keys={**CURVATURE.keys, "model.sites": ["none", "before"]}
    ),
    "curvature of regressions solved inexactly": replace(
        CURVATURE,
        keys={**CURVATURE.keys, "model.sites": "before", "w_step.solver": "lbfgs", "w_step.linear_solver": "same"},
        remedies=({"w_step.linear_solver": "closed_form"}, {"penalty.metric": "variance"}),
        says=('penalty.metric = "curvature"', "w_step.linear_solver", 'penalty.metric = "variance"'),
    ),
    "trees and a full metric": Row(
        {**FOREST, "penalty.metric": "curvature"},
        (),
        ({"penalty.metric": "variance"},),
        '`metric = "curvature"`',
    ),
}
