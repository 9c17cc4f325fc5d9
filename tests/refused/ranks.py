"""Refused: points over ranks."""

from __future__ import annotations

from refused.case import CODES, FOREST, HALVES, IMAGES, OWN, SKIPS, SPARSE, Row

COMBINATIONS = [
    (
        '`w_step.schedule = "ring"` with replicated points, with another method than `"mac"`, with a solver other'
        " than auto and sgd, with convolutions, sparse layers or skips, and where all layers are fitted in closed"
        " form"
    ),
    (
        '`parallel.data = "sharded"` with radial basis functions, codewords, bits or a fitter, with another '
        'method than `"mac"` and `"stochastic"`, with `w_step.solver = "sgd"` that does not go round the ring, '
        'with another start than `"uniform"` and `"model"`'
    ),
    '`stochastic.parts` below the number of ranks with `parallel.data = "sharded"`',
]

TABLE = {
    "convolutions on a ring": Row(
        {**IMAGES, "parallel.data": "sharded", "w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', "convolutions", 'w_step.schedule = "units"'),
        ({"w_step.schedule": "units"},),
        '`w_step.schedule = "ring"` with',
    ),
    "sparse layers on a ring": Row(
        {**SPARSE, "parallel.data": "sharded", "w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', "sparse layers", 'w_step.schedule = "units"'),
        ({"w_step.schedule": "units"},),
        '`w_step.schedule = "ring"` with',
    ),
    "skips on a ring": Row(
        {**SKIPS, "parallel.data": "sharded", "w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', "skips", 'w_step.schedule = "units"'),
        ({"w_step.schedule": "units"},),
        '`w_step.schedule = "ring"` with',
    ),
    "trees of sharded points": Row(
        {**FOREST, **OWN},
        (),
        ({"parallel.data": "replicated"}, {"parallel.data": "node"}),
        '`parallel.data = "sharded"`',
    ),
    "codewords of sharded points": Row(
        {**OWN, **CODES},
        (),
        ({"parallel.data": "replicated"},),
        '`parallel.data = "sharded"`',
    ),
    "alternating over sharded points": Row(
        {**OWN, **HALVES},
        (),
        ({"parallel.data": "replicated"},),
        '`parallel.data = "sharded"`',
    ),
    "a start that reads all sharded points": Row(
        {**OWN, "start.method": "pca"},
        (),
        ({"start.method": "uniform"},),
        '`parallel.data = "sharded"`',
    ),
    "minibatches of single sharded points": Row(
        {**OWN, "w_step.solver": "sgd"},
        (),
        ({"w_step.solver": "auto"}, {"w_step.schedule": "ring"}),
        '`parallel.data = "sharded"`',
    ),
    "a ring of points that every rank holds": Row(
        {"w_step.schedule": "ring"},
        (),
        ({"parallel.data": "sharded"}, {"w_step.schedule": "units"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring without a W-step": Row(
        {**OWN, "w_step.schedule": "ring", "method.name": "stochastic", "stochastic.parts": 2},
        (),
        ({"w_step.schedule": "units"}, {"method.name": "mac"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring of another solver": Row(
        {**OWN, "w_step.schedule": "ring", "w_step.solver": "gauss_newton"},
        (),
        ({"w_step.solver": "auto"}, {"w_step.solver": "sgd"}, {"w_step.schedule": "units"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring that nothing goes round": Row(
        {**OWN, "w_step.schedule": "ring", "model.sites": "before"},
        ("nothing travels", 'use w_step.schedule = "units", or w_step.linear_solver = "same"'),
        ({"w_step.linear_solver": "same"}, {"w_step.schedule": "units"}),
        '`w_step.schedule = "ring"`',
    ),
    "fewer parts than ranks": Row(
        {**OWN, "method.name": "stochastic", "stochastic.parts": 1},
        ("stochastic.parts = 1", "2 ranks without points", "use stochastic.parts = 2"),
        ({"stochastic.parts": 2},),
        "`stochastic.parts`",
    ),
}
