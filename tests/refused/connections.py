"""Refused: sparse layers and skips."""

from __future__ import annotations

import numpy as np

from macmpi.nets.layers.masked import as_text
from refused.case import IMAGES, SKIPS, Row

COMBINATIONS = [
    "a `width` of a band or a window that is larger than the layer's input",
    "`connections` with a wrong number of units or inputs, or a unit that reads nothing",
    "`skips` with layers that are not dense, sparse or convolutions, or whose activation is not elementwise",
    ('`joining = "add"` with different sizes or image shapes; `"append"` with different image heights or widths'),
    "a skip to the layer that reads a pooled convolution",
    '`skips` with `start.method` `"pca"` or `"greedy"`, `method.name = "alternating"`, `metric = "curvature"`',
]

TABLE = {
    "a band wider than the inputs": Row(
        {"model.hidden": [{"units": 6, "connections": "banded"}, 4]},
        ("model.hidden.0.width = 5", "4 to choose from", "use width = 4"),
        ({"model.hidden": [{"units": 6, "connections": "banded", "width": 4}, 4]},),
        "a `width` of a band or a window",
    ),
    "a window wider than the images": Row(
        {"model.hidden": [{"units": 6, "connections": "local", "width": 3}, 4], "model.image": [2, 2]},
        ("model.hidden.0.width = 3", "2 to choose from", "use width = 2"),
        ({"model.hidden": [{"units": 6, "connections": "local", "width": 2}, 4]},),
        "a `width` of a band or a window",
    ),
    "a mask of another size": Row(
        {"model.hidden": [{"units": 6, "connections": f"given {as_text(np.ones((6, 5)))}"}, 4]},
        ("model.hidden.0.connections", "6 units that read 4 inputs", "6 rows and 4 columns"),
        ({"model.hidden": [{"units": 6, "connections": f"given {as_text(np.ones((6, 4)))}"}, 4]},),
        "`connections` with a wrong number",
    ),
    "a unit that reads nothing": Row(
        {"model.hidden": [{"units": 4, "connections": f"given {as_text(np.diag([1, 1, 0, 1]))}"}, 4]},
        ("model.hidden.0.connections: unit 2 reads nothing", "give each row a connection"),
        ({"model.hidden": [{"units": 4, "connections": f"given {as_text(np.eye(4))}"}, 4]},),
        "`connections` with a wrong number",
    ),
    "a mask that nobody has read": Row(
        {"model.hidden": [{"units": 6, "connections": "mask.npy"}, 4]},
        ('model.hidden.0.connections = "mask.npy"', "no file that has been read", 'use "random", "banded" or "local"'),
        ({"model.hidden": [{"units": 6, "connections": "random"}, 4]},),
        "`connections` with a wrong number",
    ),
    "skips over bits": Row(
        {**SKIPS, "model.activation": ["binary", "tanh", "tanh"], "model.sites": ["after", "none", "none"]},
        ("model.skips join dense and sparse layers and convolutions", 'layer 1 is of "binary"', "skips = []"),
        ({"model.activation": "tanh", "model.sites": "after"}, {"model.skips": []}),
        "`skips` with layers that",
    ),
    "skips over codebooks": Row(
        {**IMAGES, "model.skips": [[1, 3]], "model.activation": ["softmax", "tanh"], "model.joining": "append"},
        ("with elementwise activations", 'layer 1 is of "softmax"', "skips = []"),
        ({"model.activation": "tanh"}, {"model.skips": []}),
        "`skips` with layers that",
    ),
    "sums of other images": Row(
        {**IMAGES, "model.hidden": [{"channels": 2}, {"channels": 2, "stride": 2}, {"channels": 2}]}
        | {"model.skips": [[1, 3]]},
        ('"add" adds images of 2 x 2 x 2 to the images of 1 x 1 x 2 that layer 3 reads', "layers of equal shapes"),
        ({"model.hidden": [{"channels": 2}, {"channels": 2}, {"channels": 2}]},),
        '`joining = "add"` with different sizes',
    ),
    "sums of as many numbers of other images": Row(
        {**IMAGES, "model.hidden": [{"channels": 1}, {"channels": 4, "stride": 2}, 4], "model.skips": [[1, 3]]},
        ('"add" adds images of 2 x 2 x 1 to the images of 1 x 1 x 4 that layer 3 reads', 'use "append"'),
        ({"model.joining": "append"},),
        '`joining = "add"` with different sizes',
    ),
    "channels of other images": Row(
        {**IMAGES, "model.hidden": [{"channels": 2}, {"channels": 2, "stride": 2}, {"channels": 2}]}
        | {"model.skips": [[1, 3]], "model.joining": "append"},
        ("appends the channels of images of 2 x 2 x 2 to the images of 1 x 1 x 2", "equal height and width"),
        ({"model.hidden": [{"channels": 2}, {"channels": 3}, {"channels": 2}]},),
        '`joining = "add"` with different sizes',
    ),
    "a skip to what is pooled": Row(
        {**IMAGES, "model.hidden": [{"channels": 2}, {"channels": 2, "pool": 2}, 4], "model.skips": [[1, 3]]},
        ("model.hidden.1.pool = 2", "pooled after the coordinates", "or no skip to layer 3"),
        ({"model.hidden": [{"channels": 2}, {"channels": 2}, 4]}, {"model.skips": [[1, 4]], "model.joining": "append"}),
        "a skip to the layer that reads",
    ),
    "sums of other sizes": Row(
        {"model.hidden": [5, 4, 6], "model.skips": [[1, 3]]},
        ('"add" adds 5 numbers to the 4 numbers that layer 3 reads', 'use "append", or layers of equal sizes'),
        ({"model.joining": "append"}, {"model.hidden": [5, 5, 6]}),
        '`joining = "add"` with different sizes',
    ),
    "skips and principal components": Row(
        {**SKIPS, "start.method": "pca"},
        (),
        ({"start.method": "uniform"}, {"model.skips": []}),
        "`skips` with `start.method",
    ),
    "skips and alternating optimisation": Row(
        {**SKIPS, "method.name": "alternating"},
        (),
        ({"method.name": "mac"},),
        "`skips` with `start.method",
    ),
}
