"""Refused: layers and images."""

from __future__ import annotations

from refused.case import FOREST, IMAGES, RECURRENT, STEPS, TIED, Row

COMBINATIONS = [
    "a convolution, or local connections, if the images' shape is unknown or does not fit",
    "a recurrent layer after another that gives only its last state",
    "`steps` that do not divide the columns of the data",
    "`model.tied = true` for a net that is not a mirror of dense layers",
    (
        "shared weights (`tied`, a recurrent layer) with `skips`, a start that trains layers, `selection`, "
        "`alternating`, a metric, `fitters`, l1 or bounds; a list of ridges of tied layers"
    ),
    "a kernel or a `pool` larger than the images, `groups` that do not divide the channels that a layer reads",
    "a `readout` whose number of outputs is not the number of targets",
    (
        "a convolution, a sparse layer, or a layer of another package that is not dense, or of trees or kernels, "
        'with `start.method = "pca"` or `"greedy"`'
    ),
]

TABLE = {
    "images of no known shape": Row(
        {**IMAGES, "model.image": []},
        ("model.hidden.0", "given 4 numbers", "give model.image = [height, width] or [height, width, channels]"),
        ({"model.image": [2, 2]},),
        "a convolution, or local connections, if the images' shape is unknown or does not fit",
    ),
    "a recurrent layer after another": Row(
        {"model.hidden": [5, STEPS]},
        (
            "model.hidden.1 is recurrent and reads the data step by step",
            "make it the first of model.hidden",
            'states = "all"',
        ),
        ({"model.hidden": [STEPS, 5]}, {"model.hidden": [{**STEPS, "states": "all"}, STEPS]}),
        "a recurrent layer after another",
    ),
    "steps that do not divide the data": Row(
        {"model.hidden": [{"recurrent": 3, "steps": 3}]},
        ("model.hidden.0.steps = 3 does not divide the 4 columns", "use 2 or 4"),
        ({"model.hidden": [STEPS]}, {"model.hidden": [{"recurrent": 3, "steps": 4}]}),
        "`steps` that do not divide",
    ),
    "a tied net that is no autoencoder": Row(
        {**TIED, "model.hidden": [5, 2, 5]},
        ("model.tied = true", "4 columns are to give 3 targets", "data.target = []"),
        ({"model.tied": False},),
        "`model.tied = true` for a net that is not a mirror",
    ),
    "a tied net with other layers": Row(
        {**TIED, "model.hidden": [5, {"units": 4, "connections": "random", "share": 0.5}, 5]},
        ("model.tied = true", "model.hidden has others (sparse, recurrent", "or tied = false"),
        ({"model.tied": False},),
        "`model.tied = true` for a net that is not a mirror",
    ),
    **{
        f"a tied net of {kind}": Row(
            {**TIED, "model.hidden": [6], "model.activation": kind, "model.words": 3, "start.method": "uniform"},
            ("model.tied = true", "codewords", "or tied = false"),
            ({"model.tied": False},),
            "`model.tied = true` for a net that is not a mirror",
        )
        for kind in ("quantise", "argmax")
    },
    "shared weights layer by layer": Row(
        {**RECURRENT, "start.method": "pca"},
        (),
        ({"start.method": "uniform"},),
        "shared weights",
    ),
    "shared weights in turn": Row(
        {**RECURRENT, "method.name": "alternating"},
        (),
        ({"method.name": "mac"},),
        "shared weights",
    ),
    "shared weights and a metric": Row(
        {**RECURRENT, "penalty.metric": "variance"},
        ("a recurrent layer", 'penalty.metric = "variance"', 'use penalty.metric = "identity"'),
        ({"penalty.metric": "identity"},),
        "shared weights",
    ),
    "shared weights and fitters": Row(
        {**RECURRENT, "model.fitters": ["auto", "linear_svm"]},
        (),
        ({"model.fitters": "auto"},),
        "shared weights",
    ),
    "shared weights and l1": Row(
        {**RECURRENT, "penalty.l1": 0.1},
        (),
        ({"penalty.l1": 0.0},),
        "shared weights",
    ),
    "images after a dense layer": Row(
        {**IMAGES, "model.hidden": [6, {"channels": 2}]},
        ("model.hidden.1", "given 6 numbers", "give model.hidden.1.image = [height, width, channels]"),
        ({"model.hidden": [6, {"channels": 2, "image": [3, 2, 1]}]},),
        "a convolution, or local connections, if the images' shape is unknown or does not fit",
    ),
    "images of another shape": Row(
        {**IMAGES, "model.image": [3, 2]},
        ("model.image = [3, 2] has 6 numbers", "reads 4", "whose product is 4"),
        ({"model.image": [4, 1]},),
        "a convolution, or local connections, if the images' shape is unknown or does not fit",
    ),
    "a kernel larger than the image": Row(
        {**IMAGES, "model.hidden": [{"channels": 2, "kernel": 3, "padding": "none"}, 4]},
        ("model.hidden.0", "2 x 2 pixels", "smaller kernel", 'padding = "same"'),
        (
            {"model.hidden": [{"channels": 2, "kernel": 2, "padding": "none"}, 4]},
            {"model.hidden": [{"channels": 2, "kernel": 3}, 4]},
        ),
        "a kernel or a `pool` larger than the images, `groups` that do not divide the channels that a layer reads",
    ),
    "groups that do not divide the channels": Row(
        {**IMAGES, "model.hidden": [{"channels": 3}, {"channels": 4, "groups": 2}]},
        ("model.hidden.1.groups = 2 does not divide the 3 channels", "use groups = 3 (a depthwise convolution), or 1"),
        ({"model.hidden": [{"channels": 2}, {"channels": 4, "groups": 2}]},),
        "a kernel or a `pool` larger than the images, `groups` that do not divide the channels that a layer reads",
    ),
    "a kernel larger than any patch": Row(
        {**IMAGES, "model.hidden": [{"channels": 2, "kernel": 4}, 4]},
        ("model.hidden.0.kernel = 4", "2 x 2 pixels", "3 x 3", "use a smaller kernel"),
        ({"model.hidden": [{"channels": 2, "kernel": 3}, 4]},),
        "a kernel or a `pool` larger than the images, `groups` that do not divide the channels that a layer reads",
    ),
    "a pool larger than the image": Row(
        {**IMAGES, "model.hidden": [{"channels": 2, "kernel": 3, "pool": 3}, 4]},
        ("model.hidden.0.pool = 3", "2 x 2 pixels", "smaller pool"),
        ({"model.hidden": [{"channels": 2, "kernel": 3, "pool": 2}, 4]},),
        "a kernel or a `pool` larger than the images, `groups` that do not divide the channels that a layer reads",
    ),
    "outputs of another size": Row(
        {**IMAGES, "model.readout": {"channels": 1, "image": [2, 2, 1]}},
        ("model.readout", "2 x 2 pixels of 1 channels, 4 numbers", "targets have 3", 'readout = "dense"'),
        ({"model.readout": "dense"},),
        "a `readout` whose number",
    ),
    "convolutions and principal components": Row(
        {**IMAGES, "start.method": "pca"},
        (),
        ({"start.method": "uniform"},),
        "a convolution, a sparse layer, or a layer of another package that is not dense, or of trees or kernels, with",
    ),
    "windows of what is no image": Row(
        {"model.hidden": [6, {"units": 6, "connections": "local", "width": 1}]},
        ("model.hidden.1", "reads images", "give model.hidden.1.image = [height, width, channels]"),
        ({"model.hidden": [6, {"units": 6, "connections": "local", "width": 1, "image": [3, 2, 1]}]},),
        "a convolution, or local connections, if the images' shape is unknown or does not fit",
    ),
    "trees of principal components": Row(
        {**FOREST, "start.method": "pca"},
        (),
        ({"start.method": "uniform"},),
        "a convolution, a sparse layer, or a layer of another package that is not dense, or of trees",
    ),
}
