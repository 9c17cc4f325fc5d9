"""Refused: points over ranks."""

from __future__ import annotations

from refused.case import FOREST, LABELS, OWN, Row

COMBINATIONS = [
    (
        '`w_step.schedule = "ring"` with another method than `"mac"`, with a solver other than auto and sgd, and where'
        " all layers are fitted in closed form or by fitters"
    ),
]

TABLE = {
    "a ring without a W-step": Row(
        {**OWN, "w_step.schedule": "ring", "method.name": "stochastic", "stochastic.parts": 2},
        (),
        ({"w_step.schedule": "units"}, {"method.name": "mac"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring that nothing goes round": Row(
        {**OWN, "w_step.schedule": "ring", "model.sites": "before"},
        ("nothing travels", 'use w_step.schedule = "units", or w_step.linear_solver = "same"'),
        ({"w_step.linear_solver": "same"}, {"w_step.schedule": "units"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring of fitters": Row(
        {**FOREST, **LABELS, "w_step.schedule": "ring", "model.hidden": [5], "model.activation": "forest"}
        | {"model.fitters": ["auto", "linear_svm"]},
        ('nothing travels; use w_step.schedule = "units"',),
        ({"w_step.schedule": "units"},),
        '`w_step.schedule = "ring"`',
    ),
}
