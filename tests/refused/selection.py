"""Refused: selection."""

from __future__ import annotations

from refused.case import CODES, FOREST, IMAGES, RIDGES, SELECTED, UNITS, Row

COMBINATIONS = [
    (
        "`selection.criterion` in a net with neither `selection.sizes` for dense layers nor radial basis functions "
        "that begin a segment and are read by one linear layer"
    ),
    (
        '`selection.criterion` with centres other than `"subset"`, with neither one `epsilon2` nor one for each layer, '
        'without `sizes` for layers of fewer than 150 centres, or with `linear_solver = "same"`'
    ),
    "`selection.criterion` with `loss.missing = true`, or if all lists of candidates are empty",
    "`selection.widths` or `selection.ridges` with `selection.sizes` for dense layers",
    (
        "`selection.widths` or `selection.ridges` of a wrong number of layers; widths of layers without radial "
        "basis functions, ridges of layers that no closed form fits"
    ),
    (
        "`selection.sizes` with a number of lists that is not the number of hidden layers, or candidates above a "
        "layer's own size"
    ),
    (
        "`selection.sizes` for a layer that is not dense with an elementwise activation, is sparse, has a skip or is "
        "read by no dense layer; in a net with radial basis functions, for a layer of another kind"
    ),
    "`selection.sizes` without one `epsilon2`, with a method other than mac, or with multipliers",
]

TABLE = {
    "selection of nothing": Row(
        {"selection.criterion": "bic", "selection.epsilon2": [0.1]},
        (
            'selection.criterion = "bic"',
            "no layer has radial basis functions",
            "selection.sizes or selection.ridges",
            'or criterion = "none"',
        ),
        ({"selection.criterion": "none", "selection.epsilon2": []}, SELECTED, {"selection.sizes": [[2], [3]]}),
        "`selection.criterion` in a net",
    ),
    "selection of centres that are not nested": Row(
        SELECTED | {"model.centres": ["subset", "kmeans"]},
        ('selection.criterion = "bic"', 'use model.centres = "subset"'),
        ({"model.centres": "subset"},),
        "`selection.criterion` with centres",
    ),
    "selection without a price": Row(
        SELECTED | {"selection.epsilon2": []},
        ("needs selection.epsilon2", "one for each of the 2 nets", "(0 given)"),
        ({"selection.epsilon2": [0.1]}, {"selection.epsilon2": [0.1, 0.2]}),
        "`selection.criterion` with centres",
    ),
    "selection with prices too many": Row(
        SELECTED | {"selection.epsilon2": [0.1, 0.2, 0.3]},
        ("needs selection.epsilon2", "(3 given)"),
        ({"selection.epsilon2": [0.1]}, {"selection.epsilon2": [0.1, 0.2]}),
        "`selection.criterion` with centres",
    ),
    "selection of few centres without sizes": Row(
        SELECTED | {"selection.sizes": []},
        ("compares 150, 175, ... centres", "starts with 6", "selection.sizes = [[3], [], [3]]"),
        ({"selection.sizes": [[3], [], [3]]},),
        "`selection.criterion` with centres",
    ),
    "selection where others read the centres": Row(
        SELECTED | {"model.output": "sigmoid"},
        ('selection.criterion = "bic"', "read by one linear layer", "segment 2", 'or use selection.criterion = "none"'),
        ({"model.output": "linear"}, {"selection.criterion": "none", "selection.epsilon2": []}),
        "`selection.criterion` in a net",
    ),
    "selection where outputs are missing": Row(
        SELECTED | {"loss.missing": True},
        (),
        ({"selection.criterion": "none", "selection.epsilon2": []}, {"loss.missing": False}),
        "`selection.criterion` with `loss.missing = true`, or",
    ),
    "selection among empty lists": Row(
        SELECTED | {"selection.sizes": [[], [], []]},
        ('selection.criterion = "bic" has nothing to compare', 'or use criterion = "none"'),
        ({"selection.sizes": [[3], [], [3]]}, {"selection.widths": [0.1, 0.2]}),
        "`selection.criterion` with `loss.missing = true`, or",
    ),
    "ridges and sizes of units": Row(
        UNITS | {"selection.ridges": [0.1], "model.sites": "before"},
        ("selection.ridges are compared by E_Q", "selection.sizes, by E1", "or leave one of them out"),
        ({"selection.ridges": []},),
        "`selection.widths` or `selection.ridges` with",
    ),
    "widths of nothing and sizes of units": Row(
        UNITS | {"selection.widths": [0.1]},
        ("selection.widths are those of radial basis functions", "leave it out"),
        ({"selection.widths": []},),
        "`selection.widths` or `selection.ridges` of",
    ),
    "widths in numbers and lists": Row(
        SELECTED | {"selection.widths": [1.0, [2.0]]},
        ("selection.widths mixes numbers and lists", "or a list for each"),
        ({"selection.widths": [1.0, 2.0]}, {"selection.widths": [[1.0], [2.0]]}, {"selection.widths": [[], [2.0]]}),
        "`selection.widths` or `selection.ridges` of",
    ),
    "widths of other layers than there are": Row(
        SELECTED | {"selection.widths": [[1.0]]},
        ("selection.widths has 1 list but", "2 layers of radial basis functions", "[] for a layer that keeps its"),
        ({"selection.widths": [[1.0], []]},),
        "`selection.widths` or `selection.ridges` of",
    ),
    "widths of nothing": Row(
        RIDGES | {"selection.widths": [1.0]},
        ("selection.widths are those of radial basis functions", "leave it out"),
        ({"selection.widths": []},),
        "`selection.widths` or `selection.ridges` of",
    ),
    "ridges of other layers than there are": Row(
        RIDGES | {"selection.ridges": [[0.1]]},
        ("selection.ridges has 1 list but", "3 layers", "[] for a layer that keeps its ridge"),
        ({"selection.ridges": [[0.1], [], [0.5]]},),
        "`selection.widths` or `selection.ridges` of",
    ),
    "ridges of layers that no closed form fits": Row(
        RIDGES | {"model.sites": "after", "w_step.linear_solver": "same"},
        (),
        (
            {"w_step.linear_solver": "closed_form"},
            {"w_step.linear_solver": "closed_form", "model.sites": "before"},
            {"selection.ridges": [], "selection.criterion": "none", "selection.epsilon2": []},
        ),
        "`selection.widths` or `selection.ridges` of",
    ),
    "ridges of a layer that no closed form fits": Row(
        RIDGES | {"selection.ridges": [[0.1], [0.1], []], "model.sites": ["before", "after"]},
        ("has candidates for layer 2", "not fitted in closed form", "give it the empty list []"),
        ({"selection.ridges": [[0.1], [], []]},),
        "`selection.widths` or `selection.ridges` of",
    ),
    "ridges without a price": Row(
        RIDGES | {"selection.epsilon2": []},
        ("needs selection.epsilon2", "one for each of the 3 dense layers", "(0 given)"),
        ({"selection.epsilon2": 0.1},),
        "`selection.criterion` with centres",
    ),
    "sizes of other layers than there are": Row(
        UNITS | {"selection.sizes": [[2, 5]]},
        ("selection.sizes has 1 list but", "2 hidden layers", "give one for each, []"),
        ({"selection.sizes": [[2, 5], []]},),
        "`selection.sizes` with a number",
    ),
    "sizes above the start": Row(
        UNITS | {"selection.sizes": [[2], [3, 8]]},
        ("a candidate of 8 for layer 2", "starts with 4", "leave it out, or start with more (model.hidden)"),
        ({"selection.sizes": [[2], [3]]}, {"model.hidden": [5, 8]}),
        "`selection.sizes` with a number",
    ),
    **{
        f"sizes of {kind}": Row(
            UNITS | keys,
            ("selection.sizes has candidates for layer 1", "a dense layer of elementwise activation", "empty list []"),
            ({"selection.sizes": [[], [3]]},),
            "`selection.sizes` for",
        )
        for kind, keys in {
            "softmax": {"model.activation": ["softmax", "tanh"]},
            "codewords": {**CODES, "start.method": "pca"},
            "trees": FOREST,
            "images": {**IMAGES, "model.hidden": [{"channels": 5, "kernel": 3}, 4]},
        }.items()
    },
    "sizes before images": Row(
        UNITS | {"model.hidden": [8, {"channels": 3, "image": [2, 2, 2]}]},
        ("selection.sizes has candidates for layer 1", "that a dense one reads", "empty list []"),
        ({"selection.sizes": [[], []], "selection.criterion": "none"},),
        "`selection.sizes` for",
    ),
    "sizes of units and of centres": Row(
        {**SELECTED, **UNITS, "model.activation": ["rbf", "linear", "tanh"], "model.hidden": [6, 2, 6]}
        | {"model.sites": ["none", "after", "none"], "selection.sizes": [[3], [], [3, 6]]},
        ("radial basis functions by E_Q and units by E1", "empty list []"),
        ({"selection.sizes": [[3], [], []]},),
        "`selection.sizes` for",
    ),
    **{
        f"sizes without a price: {given}": Row(
            UNITS | {"selection.epsilon2": given},
            ('selection.criterion = "aic" of dense layers needs selection.epsilon2', f"({len(given)} given)"),
            ({"selection.epsilon2": 0.1}, {"selection.epsilon2": [0.1]}),
            "`selection.sizes` without one",
        )
        for given in ([], [0.1, 0.2])
    },
    "sizes and multipliers": Row(
        UNITS | {"penalty.method": "augmented_lagrangian"},
        (),
        ({"penalty.method": "quadratic"},),
        "`selection.sizes` without one",
    ),
}
