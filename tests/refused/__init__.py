"""Refusals of a config, by topic: combinations, configs that show them, messages and remedies.

tests/unit/test_refusals.py holds macmpi to them; run/pages/refusals_page.py makes docs/refusals.md of them.
"""

from __future__ import annotations

from refused import connections, layers, losses, ranks, restraints, selection, starts, trainers
from refused.case import Row

TOPICS = {
    "Layers and images": layers,
    "Sparse layers and skips": connections,
    "Losses, metrics, schedules of mu": losses,
    "Penalties and bounds": restraints,
    "Solvers, centres, bits, fitters": trainers,
    "Starts and methods": starts,
    "Selection": selection,
    "Points over ranks": ranks,
}

TABLE: dict[str, Row] = {name: row for topic in TOPICS.values() for name, row in topic.TABLE.items()}

ELSEWHERE = [
    (
        "`activation` or `sites` whose length is not the number of layers",
        "each layer has one",
        "one word for each layer, or one for all",
    ),
    (
        "units in `sites` of a layer that is not a dense, elementwise first one, or with `skips` or `tied`",
        "the next segment computes the others from the data",
        "a word",
    ),
    (
        "a W-solver of another package with a sparse layer, unless it handles `SPARSE`",
        "weights that do not exist would get values",
        "auto",
    ),
    ('`"elastic_embedding"` of more than 20,000 points', "it compares all pairs", '`"pca"`, fewer points'),
    (
        'a layer of another package that is not dense, or has no biases, with `method.name = "stochastic"`',
        "its directions rest on the Gram of a layer's inputs and a 1",
        '`method.name = "adam"`',
    ),
    (
        "a fitter of numbers for the output layer with `loss.missing = true`",
        "it is given every target",
        '`"auto"` there',
    ),
    ("a fitter whose library is not installed", "scikit-learn is an extra", "`pip install scikit-learn`"),
    (
        '`start.method = "model"` with a net of other sizes, activations or classes',
        "its weights do not fit",
        "the same `[model]` layers",
    ),
]
"""Combination, why, remedy: found where files are read, where a run begins, or with layers of other packages."""
