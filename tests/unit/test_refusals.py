"""What does not fit together is refused in one sentence with a remedy, and the remedy is accepted."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macmpi import UsageError, config
from macmpi.config import NESTED, Config, Method, Penalty, ZStep
from macmpi.config.tables import SHAPING
from macmpi.nets import images, masks, sharing, skips
from macmpi.nets.chain import Chain
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.kernels import Kernels
from macmpi.nets.layers.linear import Linear
from macmpi.nets.layers.masked import as_text
from macmpi.plan import (
    fitted,
    gradient_refusals,
    layer_refusals,
    plan,
    refusals,
    resizable,
    selectable,
    shaping_refusals,
    sharing_refusals,
    sparsity_refusals,
    staged_refusals,
)
from macmpi.plan.plan import Plan, make_plan
from macmpi.solvers import W_SOLVERS, Z_SOLVERS

often = settings(deadline=None, derandomize=True, database=None, max_examples=400)

Keys = dict[str, Any]
WHOLE = sorted(name for name, kind in W_SOLVERS.items() if "segment" in kind.takes)  # type: ignore[attr-defined]


def configured(keys: Keys) -> Config:
    """The config of {"table.key": value}; two hidden layers."""
    table: dict[str, dict[str, Any]] = {"model": {"hidden": [5, 4]}, "method": {"name": "mac"}}
    for name, value in keys.items():
        part, key = name.split(".")
        table.setdefault(part, {})[key] = value
    return config.validate(table, "this test")


def planned(keys: Keys) -> Plan:
    return make_plan(configured(keys), 4, 3, 37, 11, 2)


DENSE_SELECTION: Keys = {"selection.criterion": "aic", "selection.sizes": [[3], []], "selection.epsilon2": 0.1}
STEPS: Keys = {"recurrent": 3, "steps": 2}
RECURRENT: Keys = {"model.hidden": [STEPS], "model.activation": "tanh"}
TIED: Keys = {"model.tied": True, "model.activation": "tanh"}


@dataclass(frozen=True)
class Row:
    """Keys that are refused, what the message says, and the remedies that it names, as keys on top.

    page: how its row of docs/refusals.md begins.
    """

    keys: Keys
    says: tuple[str, ...]
    remedies: tuple[Keys, ...]
    page: str


ONE_OF = f"use one of {', '.join(name for name in W_SOLVERS if name in WHOLE)}, or auto"
ANY_OF = (*({"w_step.solver": name} for name in WHOLE), {"w_step.solver": "auto"})
CURVATURE = Row(
    {"penalty.metric": "curvature"},
    ('penalty.metric = "curvature"', "linear and exact", 'model.sites = "before"', 'penalty.metric = "variance"'),
    ({"model.sites": "before"}, {"penalty.metric": "variance"}),
    '`metric = "curvature"`',
)
BASIS: Keys = {
    "model.hidden": [6, 2, 6],
    "model.activation": ["rbf", "linear", "rbf"],
    "model.sites": ["none", "after", "none"],
    "start.method": "pca",
}
"""An autoencoder's shape, with radial basis functions before the code and after it."""
CODES = {"model.activation": ["quantise", "tanh"], "model.words": 8}
BITS = {"model.activation": ["binary", "tanh"], "model.sites": ["after", "none"]}
HALVES = {"method.name": "alternating", "model.activation": ["linear", "tanh"], "model.sites": ["after", "none"]}
SELECTED: Keys = {
    **BASIS,
    "model.centres": "subset",
    "selection.criterion": "bic",
    "selection.epsilon2": [0.1],
    "selection.smallest": 2,
}
RIDGES: Keys = {
    **{"selection.criterion": "aic", "selection.epsilon2": 0.1, "selection.ridges": [0.1, 1.0]},
    "model.sites": "before",
}
UNITS: Keys = {"selection.criterion": "aic", "selection.epsilon2": 0.1, "selection.sizes": [[2, 5], [3]]}
FOREST = {"model.activation": ["forest", "tanh"], "model.trees": 3, "model.depth": 2}
LABELS = {"model.loss": "cross_entropy"}
FIRST = "make the binary layer the first of model.hidden"
IT_FIRST = "make it the first of model.hidden"

OWN: Keys = {"parallel.data": "sharded"}
TOGETHER = 'use parallel.data = "replicated" or "node"'

IMAGES: Keys = {"model.image": [2, 2], "model.hidden": [{"channels": 2, "kernel": 3}, 4], "model.activation": "tanh"}

SKIPS: Keys = {"model.hidden": [5, 5, 5], "model.skips": [[1, 3]], "model.activation": "tanh"}
SPARSE: Keys = {"model.hidden": [{"units": 6, "connections": "random"}, 4], "model.activation": "tanh"}

TABLE = {
    "images of no known shape": Row(
        {**IMAGES, "model.image": []},
        ("model.hidden.0", "given 4 numbers", "give model.image = [height, width] or [height, width, channels]"),
        ({"model.image": [2, 2]},),
        "a convolution of images of no known or of another shape, windows of such",
    ),
    "a recurrent layer behind another": Row(
        {"model.hidden": [5, STEPS]},
        ("model.hidden.1 is recurrent and reads the data step by step", "make it the first of model.hidden"),
        ({"model.hidden": [STEPS, 5]},),
        "a recurrent layer behind another",
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
        "`model.tied = true` of a net that is no mirror",
    ),
    "a tied net with other layers": Row(
        {**TIED, "model.hidden": [5, {"units": 4, "connections": "random", "share": 0.5}, 5]},
        ("model.tied = true", "model.hidden has others (sparse, recurrent", "or tied = false"),
        ({"model.tied": False},),
        "`model.tied = true` of a net that is no mirror",
    ),
    "shared weights layer by layer": Row(
        {**RECURRENT, "start.method": "pca"},
        ("a recurrent layer", 'start.method = "pca"', 'use start.method = "uniform" or "model"'),
        ({"start.method": "uniform"},),
        "shared weights",
    ),
    "shared weights and a selection": Row(
        {**RECURRENT, "selection.criterion": "aic"},
        ("a recurrent layer", 'selection.criterion = "aic"', 'use criterion = "none"'),
        ({"selection.criterion": "none"},),
        "shared weights",
    ),
    "shared weights in turn": Row(
        {**RECURRENT, "method.name": "alternating"},
        ("a recurrent layer", 'method.name = "alternating"', 'use method.name = "mac"'),
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
        ("a recurrent layer and model.fitters", 'use fitters = "auto"'),
        ({"model.fitters": "auto"},),
        "shared weights",
    ),
    "shared weights and l1": Row(
        {**RECURRENT, "penalty.l1": 0.1},
        ("a recurrent layer and penalty.l1", "leave penalty.l1 out"),
        ({"penalty.l1": 0.0},),
        "shared weights",
    ),
    "shared weights on the ring": Row(
        {**RECURRENT, "w_step.schedule": "ring", "parallel.data": "sharded"},
        ("a recurrent layer", 'w_step.schedule = "ring"', 'use w_step.schedule = "units"'),
        ({"w_step.schedule": "units"},),
        "shared weights",
    ),
    "images behind a dense layer": Row(
        {**IMAGES, "model.hidden": [6, {"channels": 2}]},
        ("model.hidden.1", "given 6 numbers", "give model.hidden.1.image = [height, width, channels]"),
        ({"model.hidden": [6, {"channels": 2, "image": [3, 2, 1]}]},),
        "a convolution of images of no known or of another shape, windows of such",
    ),
    "images of another shape": Row(
        {**IMAGES, "model.image": [3, 2]},
        ("model.image = [3, 2] has 6 numbers", "reads 4", "whose product is 4"),
        ({"model.image": [4, 1]},),
        "a convolution of images of no known or of another shape, windows of such",
    ),
    "a kernel larger than the image": Row(
        {**IMAGES, "model.hidden": [{"channels": 2, "kernel": 3, "padding": "none"}, 4]},
        ("model.hidden.0", "2 x 2 pixels", "smaller kernel", 'padding = "same"'),
        (
            {"model.hidden": [{"channels": 2, "kernel": 2, "padding": "none"}, 4]},
            {"model.hidden": [{"channels": 2, "kernel": 3}, 4]},
        ),
        "a kernel or a `pool` larger than the images",
    ),
    "a kernel larger than any patch": Row(
        {**IMAGES, "model.hidden": [{"channels": 2, "kernel": 4}, 4]},
        ("model.hidden.0.kernel = 4", "2 x 2 pixels", "3 x 3", "use a smaller kernel"),
        ({"model.hidden": [{"channels": 2, "kernel": 3}, 4]},),
        "a kernel or a `pool` larger than the images",
    ),
    "a pool larger than the image": Row(
        {**IMAGES, "model.hidden": [{"channels": 2, "kernel": 3, "pool": 3}, 4]},
        ("model.hidden.0.pool = 3", "2 x 2 pixels", "smaller pool"),
        ({"model.hidden": [{"channels": 2, "kernel": 3, "pool": 2}, 4]},),
        "a kernel or a `pool` larger than the images",
    ),
    "outputs of another size": Row(
        {**IMAGES, "model.readout": {"channels": 1, "image": [2, 2, 1]}},
        ("model.readout", "2 x 2 pixels of 1 channels, 4 numbers", "targets have 3", 'readout = "dense"'),
        ({"model.readout": "dense"},),
        "a `readout` that gives another number",
    ),
    "convolutions on a ring": Row(
        {**IMAGES, "parallel.data": "sharded", "w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', "convolutions", 'w_step.schedule = "units"'),
        ({"w_step.schedule": "units"},),
        '`w_step.schedule = "ring"` with',
    ),
    "convolutions and principal components": Row(
        {**IMAGES, "start.method": "pca"},
        ('start.method = "pca"', "a layer (convolution)", 'use "uniform"'),
        ({"start.method": "uniform"},),
        "a convolution, a sparse layer, or a layer of another package that is not dense, or of trees or kernels, with",
    ),
    "sparse layers on a ring": Row(
        {**SPARSE, "parallel.data": "sharded", "w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', "sparse layers", 'w_step.schedule = "units"'),
        ({"w_step.schedule": "units"},),
        '`w_step.schedule = "ring"` with',
    ),
    "sparse layers and principal components": Row(
        {**SPARSE, "start.method": "pca"},
        ('start.method = "pca"', "a layer (masked)", 'use "uniform"'),
        ({"start.method": "uniform"},),
        "a convolution, a sparse layer, or a layer of another package that is not dense, or of trees or kernels, with",
    ),
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
    "windows of what is no image": Row(
        {"model.hidden": [6, {"units": 6, "connections": "local", "width": 1}]},
        ("model.hidden.1", "reads images", "give model.hidden.1.image = [height, width, channels]"),
        ({"model.hidden": [6, {"units": 6, "connections": "local", "width": 1, "image": [3, 2, 1]}]},),
        "a convolution of images of no known or of another shape, windows of such",
    ),
    "a mask of another size": Row(
        {"model.hidden": [{"units": 6, "connections": f"given {as_text(np.ones((6, 5)))}"}, 4]},
        ("model.hidden.0.connections", "6 units that read 4 inputs", "6 rows and 4 columns"),
        ({"model.hidden": [{"units": 6, "connections": f"given {as_text(np.ones((6, 4)))}"}, 4]},),
        "`connections` of another number",
    ),
    "a unit that reads nothing": Row(
        {"model.hidden": [{"units": 4, "connections": f"given {as_text(np.diag([1, 1, 0, 1]))}"}, 4]},
        ("model.hidden.0.connections: unit 2 reads nothing", "give each row a connection"),
        ({"model.hidden": [{"units": 4, "connections": f"given {as_text(np.eye(4))}"}, 4]},),
        "`connections` of another number",
    ),
    "a mask that nobody has read": Row(
        {"model.hidden": [{"units": 6, "connections": "mask.npy"}, 4]},
        ('model.hidden.0.connections = "mask.npy"', "no file that has been read", 'use "random", "banded" or "local"'),
        ({"model.hidden": [{"units": 6, "connections": "random"}, 4]},),
        "`connections` of another number",
    ),
    "skips over bits": Row(
        {**SKIPS, "model.activation": ["binary", "tanh", "tanh"], "model.sites": ["after", "none", "none"]},
        ("model.skips join dense and sparse layers and convolutions", 'layer 1 is of "binary"', "skips = []"),
        ({"model.activation": "tanh", "model.sites": "after"}, {"model.skips": []}),
        "`skips` with other layers than",
    ),
    "skips over codebooks": Row(
        {**IMAGES, "model.skips": [[1, 3]], "model.activation": ["softmax", "tanh"], "model.joining": "append"},
        ("with elementwise activations", 'layer 1 is of "softmax"', "skips = []"),
        ({"model.activation": "tanh"}, {"model.skips": []}),
        "`skips` with other layers than",
    ),
    "sums of other images": Row(
        {**IMAGES, "model.hidden": [{"channels": 2}, {"channels": 2, "stride": 2}, {"channels": 2}]}
        | {"model.skips": [[1, 3]]},
        ('"add" adds images of 2 x 2 x 2 to the images of 1 x 1 x 2 that layer 3 reads', "layers of equal shapes"),
        ({"model.hidden": [{"channels": 2}, {"channels": 2}, {"channels": 2}]},),
        '`joining = "add"` of other sizes',
    ),
    "sums of as many numbers of other images": Row(
        {**IMAGES, "model.hidden": [{"channels": 1}, {"channels": 4, "stride": 2}, 4], "model.skips": [[1, 3]]},
        ('"add" adds images of 2 x 2 x 1 to the images of 1 x 1 x 4 that layer 3 reads', 'use "append"'),
        ({"model.joining": "append"},),
        '`joining = "add"` of other sizes',
    ),
    "channels of other images": Row(
        {**IMAGES, "model.hidden": [{"channels": 2}, {"channels": 2, "stride": 2}, {"channels": 2}]}
        | {"model.skips": [[1, 3]], "model.joining": "append"},
        ("appends the channels of images of 2 x 2 x 2 to the images of 1 x 1 x 2", "equal height and width"),
        ({"model.hidden": [{"channels": 2}, {"channels": 3}, {"channels": 2}]},),
        '`joining = "add"` of other sizes',
    ),
    "a skip to what is pooled": Row(
        {**IMAGES, "model.hidden": [{"channels": 2}, {"channels": 2, "pool": 2}, 4], "model.skips": [[1, 3]]},
        ("model.hidden.1.pool = 2", "pooled behind the coordinates", "or no skip to layer 3"),
        ({"model.hidden": [{"channels": 2}, {"channels": 2}, 4]}, {"model.skips": [[1, 4]], "model.joining": "append"}),
        "a skip to the layer that reads",
    ),
    "sums of other sizes": Row(
        {"model.hidden": [5, 4, 6], "model.skips": [[1, 3]]},
        ('"add" adds 5 numbers to the 4 numbers that layer 3 reads', 'use "append", or layers of equal sizes'),
        ({"model.joining": "append"}, {"model.hidden": [5, 5, 6]}),
        '`joining = "add"` of other sizes',
    ),
    "skips and principal components": Row(
        {**SKIPS, "start.method": "pca"},
        ('start.method = "pca"', "model.skips", 'use "uniform"'),
        ({"start.method": "uniform"}, {"model.skips": []}),
        "`skips` with `start.method",
    ),
    "skips and alternating optimisation": Row(
        {**SKIPS, "method.name": "alternating"},
        ('method.name = "alternating"', "model.skips", 'use method.name = "mac"'),
        ({"method.name": "mac"},),
        "`skips` with `start.method",
    ),
    "skips and a full metric": Row(
        {**SKIPS, "penalty.metric": "curvature", "model.sites": "before"},
        ('penalty.metric = "curvature"', "model.skips", 'use "variance", or skips = []'),
        ({"penalty.metric": "variance"}, {"model.skips": []}),
        "`skips` with `start.method",
    ),
    "skips on a ring": Row(
        {**SKIPS, "parallel.data": "sharded", "w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', "skips", 'w_step.schedule = "units"'),
        ({"w_step.schedule": "units"},),
        '`w_step.schedule = "ring"` with',
    ),
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
            (f'model.loss = "{loss}" has its own {link}', 'use model.output = "linear"'),
            ({"model.output": "linear"}, {"model.loss": "squared"}),
            "`cross_entropy`",
        )
        for loss, link in (("logistic", "sigmoid"), ("poisson", "exp"))
    },
    "labels that are missing": Row(
        {"model.loss": "cross_entropy", "loss.missing": True},
        ("loss.missing = true", 'model.loss = "cross_entropy" a point has one label', "use loss.missing = false"),
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
    "gradients of coordinates that are made feasible": Row(
        {"penalty.stop": "gradient", "method.acceleration": "feasible"},
        ('penalty.stop = "gradient"', 'method.acceleration = "feasible"', 'use method.acceleration = "none"'),
        ({"method.acceleration": "none"},),
        "`penalty.stop",
    ),
    "gradients of nets that change": Row(
        {**UNITS, "penalty.gradients": True},
        ("penalty.gradients = true", 'selection.criterion = "aic"', 'use selection.criterion = "none"'),
        ({"selection.criterion": "none"},),
        "`penalty.stop",
    ),
    "gradients without coordinates": Row(
        {"penalty.stop": "gradient", "model.sites": "none"},
        ('penalty.stop = "gradient"', 'model.sites = "none"', 'use model.sites = "after" or "before"'),
        ({"model.sites": "after"}, {"model.sites": "before"}),
        "`penalty.stop",
    ),
    "gradients of bits": Row(
        {**BITS, "penalty.stop": "gradient"},
        ('penalty.stop = "gradient"', "a layer has none", 'use penalty.stop = "validation"'),
        ({"penalty.stop": "validation"},),
        "`penalty.stop",
    ),
    "a path with multipliers": Row(
        {"penalty.stop": "gradient", "penalty.method": "augmented_lagrangian"},
        ('penalty.stop = "gradient"', 'penalty.method = "augmented_lagrangian"', 'use method = "quadratic"'),
        ({"penalty.method": "quadratic"}, {"penalty.stop": "validation"}),
        "`penalty.stop",
    ),
    "a path by the clock": Row(
        {"penalty.stop": "gradient", "penalty.mu_every": 3},
        ('penalty.stop = "gradient"', "penalty.mu_every = 3", 'use mu_every = 0, or stop = "validation"'),
        ({"penalty.mu_every": 0}, {"penalty.stop": "validation"}),
        "`penalty.stop",
    ),
    "a path whose end moves": Row(
        {"penalty.stop": "gradient", "penalty.ridge_scale": "unit"},
        ('penalty.stop = "gradient"', 'penalty.ridge_scale = "unit"', 'use ridge_scale = "objective"'),
        ({"penalty.ridge_scale": "objective"},),
        "`penalty.stop",
    ),
    "a path to points with corners": Row(
        {"penalty.stop": "gradient", "penalty.l1": 0.1, "method.acceleration": "none"},
        ('penalty.stop = "gradient"', "penalty.l1", 'use stop = "validation"'),
        ({"penalty.stop": "validation"},),
        "`penalty.stop",
    ),
    "multipliers of nothing": Row(
        {"penalty.method": "augmented_lagrangian", "model.sites": "none"},
        ('penalty.method = "augmented_lagrangian"', 'model.sites = "none"', 'use model.sites = "after" or "before"'),
        ({"model.sites": "after"}, {"model.sites": "before"}),
        "`augmented_lagrangian`",
    ),
    "multipliers of a list of nothing": Row(
        {"penalty.method": "augmented_lagrangian", "model.sites": ["none", "none"]},
        ("needs constraints", 'use model.sites = "after" or "before"'),
        ({"model.sites": ["none", "after"]}, {"model.sites": "before"}),
        "`augmented_lagrangian`",
    ),
    "variance and the objective's ridge": Row(
        {"penalty.metric": "variance", "penalty.ridge_scale": "objective"},
        ('penalty.metric = "variance"', 'penalty.ridge_scale = "objective"', 'use ridge_scale = "unit"'),
        ({"penalty.ridge_scale": "unit"},),
        "`metric` with",
    ),
    "a refit whose schedule asks the validation points": Row(
        {"run.refit": True, "penalty.mu_every": 0},
        ("run.refit = true", "penalty.mu_every > 0", "use run.refit = false"),
        ({"run.refit": False}, {"penalty.mu_every": 5}),
        "`run.refit = true` with",
    ),
    "curvature and the objective's ridge": Row(
        {"penalty.metric": "curvature", "penalty.ridge_scale": "objective", "model.sites": "before"},
        ('penalty.metric = "curvature"', 'use ridge_scale = "unit"'),
        ({"penalty.ridge_scale": "unit"},),
        "`metric` with",
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
    **{
        f"{solver} and two layers between sites": Row(
            {"w_step.solver": solver, "model.sites": ["none", "after"]},
            (f'w_step.solver = "{solver}"', "segment 1", "holds 2 layers between two sites", ONE_OF),
            (*ANY_OF, {"model.sites": "after"}),
            "a unit solver",
        )
        for solver in sorted(W_SOLVERS.keys() - {*WHOLE, "closed_form"})
    },
    "units and cross-entropy": Row(
        {"w_step.solver": "gauss_newton", "model.loss": "cross_entropy"},
        ('w_step.solver = "gauss_newton"', "segment 3", 'ends in model.loss = "cross_entropy"', ONE_OF),
        (*ANY_OF, {"model.loss": "squared"}),
        "a unit solver",
    ),
    **{
        f"units and {loss}": Row(
            {"w_step.solver": "gauss_newton", "w_step.linear_solver": "same", "model.loss": loss, **keys},
            ('w_step.solver = "gauss_newton"', "segment 3", f'ends in model.loss = "{loss}"{words}', ONE_OF),
            ANY_OF,
            "a unit solver",
        )
        for loss, keys, words in (
            ("huber", {}, ""),
            ("poisson", {}, ""),
            ("squared", {"loss.missing": True}, " with missing outputs"),
        )
    },
    "units and softmax": Row(
        {"w_step.solver": "gauss_newton", "model.activation": ["tanh", "softmax"]},
        ('w_step.solver = "gauss_newton"', "segment 2", "ends in softmax", ONE_OF),
        (*ANY_OF, {"model.sites": "before"}, {"model.activation": "tanh"}),
        "a unit solver",
    ),
    "units and an output of softmax": Row(
        {"w_step.solver": "gauss_newton", "model.output": "softmax"},
        ('w_step.solver = "gauss_newton"', "segment 3", "ends in softmax", ONE_OF),
        (*ANY_OF, {"model.output": "sigmoid"}),
        "a unit solver",
    ),
    # --- layers that trainers fit
    "more centres than points": Row(
        BASIS | {"model.hidden": [38, 2, 6]},
        ("a layer (rbf) has 38 centres", "37 training points", "use at most 37", "model.hidden"),
        ({"model.hidden": [37, 2, 6]},),
        "more centres",
    ),
    "more codewords than points": Row(
        CODES | {"model.words": 64},
        ("a layer (quantiser) has 64 centres", "use at most 37", "model.words"),
        ({"model.words": 37},),
        "more centres",
    ),
    "some points as all points": Row(
        BASIS | {"model.centres": ["kmeans", "points"]},
        ('model.centres = "points"', "a layer (rbf) has 6 centres but there are 37 points", "use 37, or centres ="),
        ({"model.hidden": [6, 2, 37]}, {"model.centres": "subset"}, {"model.centres": "kmeans"}),
        '`centres = "points"`',
    ),
    "coordinates after radial basis functions": Row(
        BASIS | {"model.sites": ["after", "none", "none"]},
        ("segment 1 (rbf) has no weights", 'use model.sites = "none" at that layer'),
        ({"model.sites": ["none", "after", "none"]},),
        "a site after or before",
    ),
    "coordinates before radial basis functions": Row(
        BASIS | {"model.sites": ["before", "after", "none"], "start.method": "model", "start.model": "model.h5"},
        ("segment 1 (nothing) has no weights", 'use model.sites = "none" at that layer'),
        ({"model.sites": ["none", "after", "none"]},),
        "a site after or before",
    ),
    "radial basis functions between others": Row(
        BASIS | {"model.sites": ["none", "none", "after"]},
        ("segment 1 holds a layer without derivatives (rbf)", 'use model.sites = "after" at the layer before it'),
        ({"model.sites": ["none", "after", "none"]},),
        "a layer of radial basis functions",
    ),
    "a codebook between others": Row(
        CODES | {"model.sites": ["none", "after"]},
        ("segment 1 holds", "(quantiser) between others", IT_FIRST, 'with model.sites = "after" there'),
        ({"model.sites": "after"}, {"model.sites": ["after", "none"]}),
        "a layer of radial basis functions",
    ),
    "bits between others": Row(
        {"model.activation": ["tanh", "binary"], "model.sites": ["none", "after"]},
        ("segment 1 holds a layer without derivatives (binary) between others", IT_FIRST, '"none" elsewhere'),
        (BITS,),
        "a `binary` layer",
    ),
    "bits next to other coordinates": Row(
        BITS | {"model.sites": ["after", "after"]},
        ("here are 2 sites, 1 of bits", FIRST),
        (BITS,),
        "a `binary` layer",
    ),
    "bits next to other coordinates, below": Row(
        {"model.activation": ["tanh", "binary"]},
        ("here are 2 sites, 1 of bits", FIRST),
        (BITS,),
        "a `binary` layer",
    ),
    "a solver of bits that are none": Row(
        {"z_step.solver": "binary"},
        ('z_step.solver = "binary"', "2 sites, 0 of bits", FIRST, 'or z_step.solver = "auto"'),
        (BITS, {"z_step.solver": "auto"}),
        "a `binary` layer",
    ),
    **{
        f"bits by {solver}": Row(
            BITS | {"z_step.solver": solver},
            (f'z_step.solver = "{solver}"', "site 1 are bits", 'use z_step.solver = "auto" or "binary"'),
            ({"z_step.solver": "auto"}, {"z_step.solver": "binary"}),
            "`z_step.solver`",
        )
        for solver in sorted(name for name, kind in Z_SOLVERS.items() if not kind.bits)  # type: ignore[attr-defined]
    },
    **{
        f"coordinates before a {kind} layer": Row(
            keys | {"model.sites": "before"},
            ("needs 'jacobian'; segment 2", f"({kind}) does not offer it", IT_FIRST, "with no site before it"),
            ({"model.sites": keys.get("model.sites", "after")},),
            "a site before",
        )
        for kind, keys in {"quantiser": CODES, "binary": BITS}.items()
    },
    "codewords above other coordinates": Row(
        CODES | {"model.activation": ["tanh", "quantise"]},
        ("needs 'jacobian'; segment 2 (quantiser)", IT_FIRST),
        (CODES,),
        "a site before",
    ),
    **{
        f"centres by {solver}": Row(
            CODES | {"w_step.solver": solver},
            (f"w_step.solver = \"{solver}\" needs 'weight_jacobian'", "segment 1 (quantiser)", "model.centres"),
            ({"w_step.solver": "auto"},),
            "`w_step.solver`",
        )
        for solver in sorted(W_SOLVERS.keys() - {"closed_form"})
    },
    # --- starts
    **{
        f"codes of several layers by {start}": Row(
            {"start.method": start} | ({"start.coordinates": "z.h5"} if start == "file" else {}),
            (f'start.method = "{start}"', "makes 2 sites", 'use "after" at the code and "none" elsewhere'),
            ({"model.sites": ["none", "after"]},),
            '`start.method = "elastic_embedding"`',
        )
        for start in ("elastic_embedding", "file")
    },
    "codes of several layers by pca": Row(
        BASIS
        | {"model.sites": ["none", "after", "none", "after"], "model.hidden": [6, 2, 6, 3]}
        | {"model.activation": ["rbf", "linear", "rbf", "tanh"]},
        ('start.method = "pca"', "makes 2 sites"),
        ({"model.sites": ["none", "after", "none", "none"]},),
        '`start.method = "elastic_embedding"`',
    ),
    **{
        f"radial basis functions from {start}": Row(
            BASIS | {"start.method": start},
            (f'start.method = "{start}"', 'use "elastic_embedding", "pca" or "file"'),
            (
                *({"start.method": "elastic_embedding"}, {"start.method": "pca"}),
                {"start.method": "file", "start.coordinates": "z.h5"},
            ),
            '`start.method = "uniform"` or',
        )
        for start in ("uniform", "greedy")
    },
    **{
        f"greedy {kind}": Row(
            keys | {"start.method": "greedy"},
            ('start.method = "greedy"', 'use "pca" or "uniform"'),
            ({"start.method": "pca"}, {"start.method": "uniform"}),
            '`start.method = "greedy"` with',
        )
        for kind, keys in {"codewords": CODES, "bits": BITS}.items()
    },
    **{
        f"a staged {kind}": Row(
            keys | {"start.method": "staged"},
            ('start.method = "staged"', f"a layer ({kind}) is another", 'use "uniform"'),
            ({"start.method": "uniform"},),
            "a layer of codewords, trees",
        )
        for kind, keys in {"quantiser": CODES, "trees": {"model.activation": ["forest", "tanh"]}}.items()
    },
    "staged layers wider than there are points": Row(
        {"model.hidden": [38], "start.method": "staged"},
        ('start.method = "staged"', "38 units of a layer (affine) among 37 patches", "use at most 37"),
        ({"model.hidden": [37]}, {"start.method": "uniform"}),
        "more filters or words",
    ),
    "staged layers of all patches": Row(
        {"start.method": "staged", "model.centres": "points"},
        ('start.method = "staged"', "a word of each", 'use centres = "kmeans" or "subset"'),
        ({"model.centres": "kmeans"}, {"model.centres": "subset"}),
        '`start.method = "staged"` with',
    ),
    # --- alternating optimisation
    "halves of a net that has more": Row(
        HALVES | {"model.sites": "after"},
        ('method.name = "alternating"', "two halves with one site", 'or method.name = "mac"'),
        ({"model.sites": ["after", "none"]}, {"method.name": "mac"}),
        '`method.name = "alternating"`',
    ),
    "halves with another code": Row(
        HALVES | {"model.activation": "tanh"},
        ('method.name = "alternating"', "a linear code between them"),
        ({"method.name": "mac"},),
        '`method.name = "alternating"`',
    ),
    "a half without a gradient": Row(
        HALVES | {"model.activation": ["quantise", "tanh"], "model.words": 8},
        ('method.name = "alternating"', "a layer has none", 'use "mac"'),
        ({"method.name": "mac"},),
        '`method.name = "alternating"`',
    ),
    **{
        f"alternating and {key}": Row(
            {**SELECTED, "method.name": "alternating", "selection.criterion": "none", "selection.epsilon2": [], **keys},
            (f'method.name = "alternating" does not go with {key}', 'use method.name = "mac"'),
            ({"method.name": "mac"},),
            '`method.name = "alternating"`',
        )
        for key, keys in {
            "penalty.method": {"penalty.method": "augmented_lagrangian"},
            "penalty.metric": {"penalty.metric": "variance"},
            "selection.criterion": {"selection.criterion": "bic", "selection.epsilon2": [0.1]},
        }.items()
    },
    # --- acceleration
    **{
        f"acceleration and {key}": Row(
            {"method.acceleration": "momentum", **keys},
            (f'method.acceleration = "momentum" {says}', 'use method.acceleration = "none"'),
            ({"method.acceleration": "none"}, *others),
            "`method.acceleration` with",
        )
        for key, keys, says, others in (
            ("stochastic", {"method.name": "stochastic"}, 'does not go with method.name = "stochastic"', ()),
            ("alternating", HALVES, 'does not go with method.name = "alternating"', ()),
            ("selection", SELECTED, "does not go with selection.criterion", ()),
            ("multipliers", {"penalty.method": "augmented_lagrangian"}, "does not go with penalty.method", ()),
            ("no sites", {"model.sites": "none"}, 'does not go with model.sites = "none"', ({"model.sites": "after"},)),
            ("centres", BASIS, "needs the derivatives of every layer", ()),
            ("codewords", CODES, "needs the derivatives of every layer", ()),
            ("bits", BITS, "needs the derivatives of every layer", ()),
            ("trees", FOREST, "needs the derivatives of every layer", ()),
        )
    },
    # --- layers that fitters fit
    "a forest for a dense layer": Row(
        {"model.fitters": ["forest", "auto", "auto"]},
        ('model.fitters = "forest" fits layers of the kind trees, and a layer is affine; use "auto" there',),
        ({"model.fitters": "auto"}, {"model.activation": ["forest", "tanh"]}),
        "a fitter of another kind of layer",
    ),
    "a classifier of numbers": Row(
        {"model.fitters": ["auto", "auto", "logistic"]},
        ('model.fitters = "logistic" fits bits or labels, and segment 3 should give numbers; use "auto" there',),
        ({"model.fitters": "auto"}, {"model.loss": "cross_entropy"}),
        "a fitter of labels",
    ),
    "a forest without coordinates": Row(
        {**FOREST, "model.sites": ["none", "after"]},
        ('a layer (trees) is fitted by "forest"', "segment 1 holds another layer", 'use model.sites = "after"'),
        ({"model.sites": "after"},),
        "a fitter for a layer that shares",
    ),
    "a classifier that shares its segment": Row(
        {**LABELS, "model.fitters": ["auto", "auto", "linear_svm"], "model.sites": ["after", "none"]},
        ('a layer (affine) is fitted by "linear_svm"', "segment 2 holds another layer", 'model.sites = "after"'),
        ({"model.sites": "after"}, {"model.sites": "before"}),
        "a fitter for a layer that shares",
    ),
    "a classifier under a sigmoid": Row(
        {"model.loss": "cross_entropy", "model.fitters": ["auto", "auto", "logistic"], "model.output": "sigmoid"},
        ("fits no activation behind it (segment 3)", 'use model.output = "linear" there'),
        ({"model.output": "linear"},),
        "a fitter with an activation",
    ),
    "trees behind another layer": Row(
        {"model.activation": ["tanh", "forest"]},
        ("segment 2 (trees) does not offer it", "make it the first of model.hidden"),
        ({"model.activation": ["forest", "tanh"]}, {"model.activation": ["tanh", "kernel_ridge"]}),
        "trees behind",
    ),
    "trees of sharded points": Row(
        {**FOREST, **OWN},
        ('parallel.data = "sharded" and the fitter "forest", which reads all points', TOGETHER),
        ({"parallel.data": "replicated"}, {"parallel.data": "node"}),
        '`parallel.data = "sharded"`',
    ),
    "trees and a full metric": Row(
        {**FOREST, "penalty.metric": "curvature"},
        ('penalty.metric = "curvature"', 'exact; use penalty.metric = "variance"'),
        ({"penalty.metric": "variance"},),
        '`metric = "curvature"`',
    ),
    "trees of principal components": Row(
        {**FOREST, "start.method": "pca"},
        ('start.method = "pca" fits dense layers, and a layer (trees) is another; use "uniform"',),
        ({"start.method": "uniform"},),
        "a convolution, a sparse layer, or a layer of another package that is not dense, or of trees",
    ),
    # --- model selection
    "selection of nothing": Row(
        {"selection.criterion": "bic", "selection.epsilon2": [0.1]},
        (
            'selection.criterion = "bic"',
            "no layer has radial basis functions",
            "selection.sizes or selection.ridges",
            'or criterion = "none"',
        ),
        ({"selection.criterion": "none", "selection.epsilon2": []}, SELECTED, {"selection.sizes": [[2], [3]]}),
        "`selection.criterion` without",
    ),
    "selection of centres that are not nested": Row(
        SELECTED | {"model.centres": ["subset", "kmeans"]},
        ('selection.criterion = "bic"', 'use model.centres = "subset"'),
        ({"model.centres": "subset"},),
        "`selection.criterion` with centres",
    ),
    **{
        f"{name} {kind}": Row(
            keys | {"method.name": name},
            (f'method.name = "{name}" needs the derivatives of every layer', 'use method.name = "mac"'),
            ({"method.name": "mac"},),
            '`method.name = "stochastic"`',
        )
        for kind, keys in {"centres": BASIS, "codewords": CODES, "bits": BITS, "trees": FOREST}.items()
        for name in config.NESTED
    },
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
    "selection from more than there are": Row(
        SELECTED | {"selection.smallest": 150},
        ("selection.smallest = 150", "more than the 6 centres", "use fewer"),
        ({"selection.smallest": 6},),
        "`selection.criterion` with centres",
    ),
    "selection where others read the centres": Row(
        SELECTED | {"model.output": "sigmoid"},
        ('selection.criterion = "bic"', "read by one linear layer", "segment 2", 'or criterion = "none"'),
        ({"model.output": "linear"}, {"selection.criterion": "none", "selection.epsilon2": []}),
        "`selection.criterion` without",
    ),
    "selection in a metric": Row(
        SELECTED | {"penalty.metric": "variance"},
        ('selection.criterion = "bic" needs penalty.metric = "identity"',),
        ({"penalty.metric": "identity"},),
        "`selection.criterion` with centres",
    ),
    "selection where outputs are missing": Row(
        SELECTED | {"loss.missing": True},
        (
            'selection.criterion = "bic"',
            "each has points of its own",
            'use criterion = "none", or loss.missing = false',
        ),
        ({"selection.criterion": "none", "selection.epsilon2": []}, {"loss.missing": False}),
        "`selection.criterion` with `loss.missing = true`",
    ),
    "selection by another solver": Row(
        SELECTED | {"w_step.linear_solver": "same"},
        ('selection.criterion = "bic" needs w_step.linear_solver = "closed_form"',),
        ({"w_step.linear_solver": "closed_form"},),
        "`selection.criterion` with centres",
    ),
    **{
        f"{key} and sizes of units": Row(
            UNITS | {f"selection.{key}": [0.1], **keys},
            (f"selection.{key} are compared by E_Q", "selection.sizes, by E1", "or leave one of them out"),
            ({f"selection.{key}": []},),
            "`selection.widths` or `selection.ridges` with",
        )
        for key, keys in (("widths", {}), ("ridges", {"model.sites": "before"}))
    },
    "widths in numbers and lists": Row(
        SELECTED | {"selection.widths": [1.0, [2.0]]},
        ("selection.widths mixes numbers and lists", "or a list for each"),
        ({"selection.widths": [1.0, 2.0]}, {"selection.widths": [[1.0], [2.0]]}, {"selection.widths": [[], [2.0]]}),
        "`selection.widths` or `selection.ridges` of",
    ),
    "widths of other layers than there are": Row(
        SELECTED | {"selection.widths": [[1.0]]},
        ("selection.widths has 1 lists", "2 layers of radial basis functions", "[] for one that keeps its width"),
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
        ("selection.ridges has 1 lists", "3 layers", "[] for a layer that keeps its ridge"),
        ({"selection.ridges": [[0.1], [], [0.5]]},),
        "`selection.widths` or `selection.ridges` of",
    ),
    "ridges of layers that no closed form fits": Row(
        RIDGES | {"model.sites": "after", "w_step.linear_solver": "same"},
        ("fitted in closed form, and there is none", 'use model.sites = "before"', "or leave it out"),
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
    "ridges of sharded points": Row(
        RIDGES | OWN,
        ('selection.ridges with parallel.data = "sharded"', TOGETHER),
        ({"parallel.data": "replicated"}, {"parallel.data": "node"}),
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
        ("selection.sizes has 1 lists", "2 hidden layers", "give one for each, []"),
        ({"selection.sizes": [[2, 5], []]},),
        "`selection.sizes` with another number",
    ),
    "sizes above the start": Row(
        UNITS | {"selection.sizes": [[2], [3, 8]]},
        ("a candidate of 8 for layer 2", "starts with 4", "leave it out, or start with more (model.hidden)"),
        ({"selection.sizes": [[2], [3]]}, {"model.hidden": [5, 8]}),
        "`selection.sizes` with another number",
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
    **{
        f"sizes by {name}": Row(
            UNITS | {"method.name": name},
            ('of dense layers goes with method.name = "mac"', f'not "{name}"', 'use "mac"'),
            ({"method.name": "mac"},),
            "`selection.sizes` without one",
        )
        for name in config.NESTED
    },
    **{
        f"sizes and {key}": Row(
            UNITS | {key: value},
            ("begins each net with feasible coordinates", f'{key} = "{value}"', f'use {key} = "{needed}"'),
            ({key: needed},),
            "`selection.sizes` without one",
        )
        for key, value, needed in (
            ("penalty.method", "augmented_lagrangian", "quadratic"),
            ("penalty.metric", "variance", "identity"),
        )
    },
    "codewords of sharded points": Row(
        {**OWN, **CODES},
        ('parallel.data = "sharded"', "needs the points themselves", TOGETHER),
        ({"parallel.data": "replicated"},),
        '`parallel.data = "sharded"`',
    ),
    "alternating over sharded points": Row(
        {**OWN, **HALVES},
        ('parallel.data = "sharded"', 'not "alternating"', TOGETHER),
        ({"parallel.data": "replicated"},),
        '`parallel.data = "sharded"`',
    ),
    "a start that reads all sharded points": Row(
        {**OWN, "start.method": "pca"},
        ('start.method = "pca" reads all points', 'use "uniform" or "model"'),
        ({"start.method": "uniform"},),
        '`parallel.data = "sharded"`',
    ),
    "minibatches of single sharded points": Row(
        {**OWN, "w_step.solver": "sgd"},
        ('w_step.solver = "sgd"', "draws points one by one", "use auto"),
        ({"w_step.solver": "auto"}, {"w_step.schedule": "ring"}),
        '`parallel.data = "sharded"`',
    ),
    "a ring of points that every rank holds": Row(
        {"w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', 'parallel.data = "replicated"', 'use parallel.data = "sharded", or'),
        ({"parallel.data": "sharded"}, {"w_step.schedule": "units"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring without a W-step": Row(
        {**OWN, "w_step.schedule": "ring", "method.name": "stochastic", "stochastic.parts": 2},
        ('method.name = "stochastic" has none', 'use w_step.schedule = "units"'),
        ({"w_step.schedule": "units"}, {"method.name": "mac"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring of another solver": Row(
        {**OWN, "w_step.schedule": "ring", "w_step.solver": "gauss_newton"},
        ('w_step.solver = "gauss_newton"', 'use solver = "auto" or "sgd", or schedule = "units"'),
        ({"w_step.solver": "auto"}, {"w_step.solver": "sgd"}, {"w_step.schedule": "units"}),
        '`w_step.schedule = "ring"`',
    ),
    "a ring that nothing goes round": Row(
        {**OWN, "w_step.schedule": "ring", "model.sites": "before"},
        ("nothing travels", 'use w_step.schedule = "units", or w_step.linear_solver = "same"'),
        ({"w_step.linear_solver": "same"}, {"w_step.schedule": "units"}),
        '`w_step.schedule = "ring"`',
    ),
    "a list of another length than the net": Row(
        {"penalty.l1": [0.1, 0.2]},
        ("penalty.l1 has 2 values", "has 3 layers", "give one value, or 3"),
        ({"penalty.l1": 0.1}, {"penalty.l1": [0.1, 0.2, 0.0]}),
        "a list of `penalty.ridge`",
    ),
    **{
        f"{key} without a W-step": Row(
            {f"penalty.{key}": 0.1, "method.name": method},
            (f'penalty.{key} is fitted by the W-step of method.name = "mac"', f'"{method}"', "or leave it out"),
            ({"method.name": "mac"}, {f"penalty.{key}": getattr(Penalty, key)}),
            "`l1`, `group_lasso`, `weights_min` or `weights_max` with",
        )
        for key, method in zip(SHAPING, ("stochastic", "adam", "sgd", "lbfgs"), strict=True)
    },
    "a sparsity for another number of layers": Row(
        {"penalty.sparsity": [0.1, 0.2, 0.3]},
        ("penalty.sparsity has 3 values", "has 2 hidden layers", "give one value, or 2"),
        ({"penalty.sparsity": 0.1}, {"penalty.sparsity": [0.1, 0.2]}),
        "`penalty.sparsity`",
    ),
    "a sparsity without coordinates of its own": Row(
        {"penalty.sparsity": 0.1, "method.name": "stochastic"},
        ("penalty.sparsity draws coordinates to 0", 'use method.name = "mac"'),
        ({"method.name": "mac"}, {"penalty.sparsity": 0.0}),
        "`penalty.sparsity`",
    ),
    "a sparsity of feasible coordinates": Row(
        {"penalty.sparsity": 0.1, "method.acceleration": "momentum"},
        ('method.acceleration = "momentum" makes coordinates feasible', 'use method.acceleration = "none"'),
        ({"method.acceleration": "none"}, {"penalty.sparsity": 0.0}),
        "`penalty.sparsity`",
    ),
    "a sparsity of bits": Row(
        {"penalty.sparsity": 0.1, "model.activation": ["binary", "tanh"]},
        ("penalty.sparsity of coordinates that are bits or codewords", "leave penalty.sparsity out"),
        ({"penalty.sparsity": 0.0},),
        "`penalty.sparsity`",
    ),
    "a sparsity without sites": Row(
        {"penalty.sparsity": 0.1, "model.sites": "none"},
        ("penalty.sparsity needs a site at each hidden layer", 'use model.sites = "after"'),
        ({"model.sites": "after"}, {"penalty.sparsity": 0.0}),
        "`penalty.sparsity`",
    ),
    "a sparsity of a layer without a site": Row(
        {"penalty.sparsity": [0.1, 0.0], "model.sites": ["none", "after"]},
        ("penalty.sparsity names hidden layer 1", "a list with 0.0 there, or a site after it"),
        ({"penalty.sparsity": [0.0, 0.1]}, {"model.sites": "after"}),
        "`penalty.sparsity`",
    ),
    "a sparsity with selection": Row(
        {"penalty.sparsity": 0.1, **DENSE_SELECTION},
        ('selection.criterion = "aic" compares nets without penalty.sparsity', 'use criterion = "none"'),
        ({"selection.criterion": "none", "selection.sizes": []}, {"penalty.sparsity": 0.0}),
        "`penalty.sparsity`",
    ),
    "l1 by another solver": Row(
        {"penalty.l1": 0.1, "w_step.solver": "lbfgs"},
        ('penalty.l1 is fitted by w_step.solver = "proximal"', '"lbfgs"', 'use "proximal" or "auto"'),
        ({"w_step.solver": "proximal"}, {"w_step.solver": "auto"}, {"penalty.l1": 0.0}),
        "`l1`, `group_lasso`, `weights_min` or `weights_max` with",
    ),
    "l1 where a fitter fits": Row(
        {**LABELS, "model.fitters": ["auto", "auto", "linear_svm"], "penalty.l1": 0.1},
        ("penalty.l1", '"linear_svm" fits a layer of segment 3', 'model.fitters = "auto"', "a list without it"),
        ({"model.fitters": "auto"}, {"penalty.l1": [0.1, 0.1, 0.0]}),
        "`l1`, `group_lasso`, `weights_min` or `weights_max` with",
    ),
    "l1 round a ring": Row(
        {**OWN, "penalty.l1": 0.1, "w_step.schedule": "ring"},
        ('w_step.schedule = "ring"', "exactly 0", 'use w_step.schedule = "units"'),
        ({"w_step.schedule": "units"}, {"penalty.l1": 0.0}),
        "`l1`, `group_lasso`, `weights_min` or `weights_max` with",
    ),
    "l1 in a metric": Row(
        {"penalty.l1": 0.1, "penalty.metric": "variance"},
        ('penalty.metric = "variance" with penalty.l1', 'use penalty.metric = "identity"'),
        ({"penalty.metric": "identity"}, {"penalty.l1": 0.0}),
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
    "fewer parts than ranks": Row(
        {**OWN, "method.name": "stochastic", "stochastic.parts": 1},
        ("stochastic.parts = 1", "2 ranks without points", "use stochastic.parts = 2"),
        ({"stochastic.parts": 2},),
        "`stochastic.parts`",
    ),
}


def refusal(keys: Keys) -> str:
    with pytest.raises(UsageError) as caught:
        planned(keys)
    return str(caught.value)


@pytest.mark.parametrize("name", TABLE)
def test_it_is_refused_in_one_sentence_that_names_a_remedy(name: str) -> None:
    text = refusal(TABLE[name].keys)
    assert "\n" not in text
    for words in TABLE[name].says:
        assert words in text


@pytest.mark.parametrize("name", TABLE)
def test_each_remedy_is_accepted(name: str) -> None:
    for remedy in TABLE[name].remedies:
        planned({**TABLE[name].keys, **remedy})


def test_no_ridge_is_another_way_out_with_a_metric() -> None:
    planned({"penalty.metric": "variance", "penalty.ridge_scale": "objective", "penalty.ridge": 0.0})


MODULES = (
    refusals,
    gradient_refusals,
    resizable,
    selectable,
    layer_refusals,
    images,
    masks,
    skips,
    fitted,
    shaping_refusals,
    sharing,
    sharing_refusals,
    sparsity_refusals,
    staged_refusals,
)


def test_the_table_has_a_row_for_every_refusal_of_a_config() -> None:
    """Each UsageError of these modules is raised by some row here or by one of the tests below."""
    raised = {
        (module.__name__, i + 1)
        for module in MODULES
        for i, line in enumerate(inspect.getsource(module).splitlines())
        if "raise UsageError(" in line
    }
    found = set()
    for row in TABLE.values():
        with pytest.raises(UsageError) as caught:
            planned(row.keys)
        last = caught.traceback[-1]
        found.add((last.frame.f_globals["__name__"], last.lineno + 1))
    assert found <= raised
    assert len(raised - found) == 11, (
        "those that no config reaches: a library, a fitter that nobody gives, one of numbers, activations, weights "
        "without a trainer, layers without biases, many points, restraints on layers of other packages that are not "
        "dense, their W-solvers without masks; and two of autoencoders, tested by themselves"
    )


def page() -> list[str]:
    """The rows of the table in docs/refusals.md."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "refusals.md").read_text()
    lines = text.splitlines()
    return [line.removeprefix("| ") for line in lines if line.startswith("| ")][1:]


ELSEWHERE = (
    "`activation` or `sites` of another length",
    '`start.method = "model"`',
    '`"elastic_embedding"` of',
    "a layer of another package that is not dense, or has no biases",
    "a fitter whose library",
    "a fitter of numbers for the output layer",
    "a W-solver of another package with a sparse layer",
)
"""Rows that are tested elsewhere: where files are read, or with layers that no config names."""


def test_the_page_has_a_row_for_every_refusal_and_no_other() -> None:
    rows, used = page(), set()
    for name, row in TABLE.items():
        matching = [i for i, line in enumerate(rows) if line.startswith(row.page)]
        assert len(matching) == 1, (name, row.page)
        used |= set(matching)
    left = [line for i, line in enumerate(rows) if i not in used]
    assert all(line.startswith(ELSEWHERE) for line in left), left


# --- what no config reaches -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opaque(Affine):
    """An affine map that offers what a W-step by gradients needs, and no more."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"weight_jacobian", "linear", "bias"})

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "kind": "opaque"}


class Seen(Opaque):
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian", "weight_jacobian", "bias"})


class Frozen(Opaque):
    capabilities: ClassVar[frozenset[str]] = frozenset({"jacobian"})


def with_maps(monkeypatch: pytest.MonkeyPatch, *maps: Any) -> None:
    monkeypatch.setattr(plan, "build_chain", lambda model, n_in, n_out: Chain(maps, (2,)))


def test_restraints_hold_for_the_weights_of_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2))
    keys = {"method.acceleration": "none", "model.hidden": [3]}
    text = refusal({**keys, "penalty.l1": 0.1})
    assert re.search(r"^penalty.l1 holds for the weights of inputs, .*segment 2 \(opaque\) .*use a list without", text)
    planned({**keys, "penalty.l1": [0.1, 0.0]})


def test_a_need_that_a_map_does_not_offer_is_named_with_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Opaque(3, 2))
    assert re.search(
        r"'jacobian'; segment 2 \(opaque\) does not offer it; make it the first of model.hidden",
        refusal({"method.acceleration": "none"}),
    )


def test_a_layer_whose_units_no_solver_fits_one_by_one_is_named_with_its_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2))
    keys = {"method.acceleration": "none", "w_step.solver": "gauss_newton"}
    assert re.search(r"the units of segment 2 do not separate \(it is opaque, without 'linear'\)", refusal(keys))


@pytest.mark.parametrize("start", ["pca", "greedy"])
def test_a_start_that_fits_dense_layers_is_refused_for_others(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2))
    said = refusal({"method.acceleration": "none", "start.method": start})
    assert said.startswith(f'start.method = "{start}" fits dense layers, and a layer (opaque) is another')


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (Linear(3, 2), r"needs 'bias', which linear does not offer"),
        (Seen(3, 2), r"needs 'linear', which opaque does not offer"),
    ],
)
def test_layers_that_stochastic_mac_cannot_train(layer: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they stand; the remedy takes them."""
    for maps in ((Affine(4, 3), Activation("tanh", 3), layer), (Affine(4, 3), layer, Affine(2, 2))):
        with_maps(monkeypatch, *maps)
        text = refusal({"method.name": "stochastic"})
        assert re.search(rf'method.name = "stochastic" .*{says}; use method.name = "adam"', text)
        planned({"method.name": "adam"})


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted, "find_spec", lambda name: None)
    text = refusal(FOREST)
    assert text.startswith('a layer (trees) is fitted by "forest", which needs scikit-learn, and that is not installed')
    assert text.endswith("pip install scikit-learn")
    planned({"model.activation": "tanh"})


def test_a_fitter_that_nobody_gives_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Seen(3, 2), Kernels(2, 3, 5, 1.0, fitter="mine"))
    assert 'a layer names the fitter "mine", which nobody gives' in refusal({"method.acceleration": "none"})


def test_weights_that_nothing_trains_are_named_with_their_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Frozen(3, 2))
    assert "segment 2 (opaque) has no weights that a regression could fit" in refusal({"method.acceleration": "none"})
    with_maps(monkeypatch, Affine(4, 3), Activation("tanh", 3), Frozen(3, 5), Affine(5, 2))
    assert re.search(
        r"segment 2 \(opaque\) offers neither 'weight_jacobian' nor 'centres'", refusal({"method.acceleration": "none"})
    )


def test_a_solver_that_does_not_say_that_it_keeps_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unaware(W_SOLVERS["lbfgs"]):  # type: ignore[misc]
        masks = False

    monkeypatch.setitem(W_SOLVERS, "lbfgs", Unaware)
    planned({"w_step.solver": "lbfgs"})
    with pytest.raises(UsageError, match=r'"lbfgs" does not say .* segment 1 is sparse; use auto'):
        planned({**SPARSE, "w_step.solver": "lbfgs"})
    planned(SPARSE)


def test_an_activation_that_a_solver_cannot_train_under(monkeypatch: pytest.MonkeyPatch) -> None:
    class Smooth(W_SOLVERS["lbfgs"]):  # type: ignore[misc]
        activations: ClassVar[frozenset[str]] = frozenset({"linear", "tanh"})

    monkeypatch.setitem(W_SOLVERS, "lbfgs", Smooth)
    keys = {"w_step.solver": "lbfgs", "model.activation": ["tanh", "relu"]}
    text = refusal(keys)
    assert 'w_step.solver = "lbfgs" cannot train under "relu" (segment 2); use auto' in text
    for remedy in ({"w_step.solver": "auto"}, {"model.activation": "tanh"}):
        planned({**keys, **remedy})


def test_more_points_than_can_be_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_refusals, "MOST_EMBEDDED", 36)
    keys = {**BASIS, "start.method": "elastic_embedding"}
    text = refusal(keys)
    assert 'start.method = "elastic_embedding" compares all pairs of points: at most 36 of them' in text
    assert 'there are 37; use "pca", or fewer points (data.points)' in text
    planned({**keys, "start.method": "pca"})
    make_plan(configured(keys), 4, 3, 36, 11, 2)


# --- all that a config may say ----------------------------------------------------------------------------------------

WORDS: dict[str, Any] = {
    "model.activation": st.lists(st.sampled_from(config.LAYERS), min_size=2, max_size=2),
    "model.centres": st.sampled_from(config.TRAINERS),
    "model.words": st.just(8),
    "start.method": st.sampled_from(["uniform", "pca", "greedy", "elastic_embedding"]),
    "method.name": st.sampled_from(["mac", "mac", "alternating"]),
    "model.output": st.sampled_from(["linear", "linear", "sigmoid", "softmax"]),
    "model.sites": st.lists(st.sampled_from(["after", "before", "none"]), min_size=2, max_size=2),
    "model.loss": st.sampled_from(["squared", "cross_entropy"]),
    "model.precision": st.sampled_from(["float64", "float32"]),
    "penalty.method": st.sampled_from(["quadratic", "augmented_lagrangian"]),
    "penalty.mu_max": st.sampled_from([1e3, 1e8]),
    "penalty.metric": st.sampled_from(["identity", "variance", "curvature"]),
    "penalty.ridge_scale": st.sampled_from(["unit", "objective"]),
    "penalty.l1": st.sampled_from([0.0, 0.0, 0.1]),
    "penalty.weights_min": st.sampled_from([-1e12, -1e12, 0.0]),
    "z_step.solver": st.sampled_from(sorted(Z_SOLVERS)),
    "w_step.solver": st.sampled_from(["auto", *sorted(W_SOLVERS.keys() - {"closed_form"})]),
    "w_step.linear_solver": st.sampled_from(["closed_form", "same"]),
}


@often
@given(keys=st.fixed_dictionaries(WORDS))
def test_a_combination_is_planned_or_refused_and_a_plan_has_solvers_that_take_its_problems(keys: Keys) -> None:
    try:
        found = planned(keys)
    except UsageError as refused:
        assert "\n" not in str(refused)
        return
    for segment, own in zip(found.chain.segments, found.choices.regressions, strict=True):
        solver, by_unit = own.solver, own.by_unit
        assert ("units" if by_unit else "segment") in solver.takes
        assert segment.separable or not by_unit
        if by_unit and solver.activations is not None:
            assert segment.activation in solver.activations
        assert solver.restrains or not set(segment.regressed) & set(found.choices.shaping.restrained)


@pytest.mark.parametrize("name", NESTED)
def test_keys_of_half_steps_mean_nothing_to_methods_that_take_none(name: str) -> None:
    """Not even what would not fit: the plan is that of the defaults."""
    penalty = Penalty("augmented_lagrangian", metric="curvature")
    method = Method(name)  # type: ignore[arg-type]
    config, plain = Config(method=method, penalty=penalty, z_step=ZStep("binary")), Config(method=method)
    assert make_plan(config, 5, 5, 40, 9, 2) == make_plan(plain, 5, 5, 40, 9, 2)


@pytest.mark.parametrize(
    ("keys", "named", "not_named"),
    [
        ({"model.sites": "before", "w_step.linear_solver": "same"}, "w_step.linear_solver", "model.sites"),
        ({"model.sites": ["before"] * 2, "w_step.linear_solver": "same"}, "w_step.linear_solver", "model.sites"),
        ({"model.sites": "after"}, "model.sites", "w_step.linear_solver"),
    ],
)
def test_a_remedy_names_nothing_that_the_config_has_already(keys: Keys, named: str, not_named: str) -> None:
    text = refusal({"penalty.metric": "curvature", **keys}).rsplit("use ", 1)[1]
    assert named in text
    assert not_named not in text


def test_a_tied_net_has_one_code_and_one_ridge_a_layer() -> None:
    """Refusals of autoencoders, whose targets are as many as their inputs."""

    def autoencoder(keys: Keys) -> Plan:
        return make_plan(configured({**TIED, **keys}), 4, 4, 37, 11, 2)

    with pytest.raises(UsageError) as caught:
        autoencoder({"model.hidden": [5, 2, 2, 5]})
    assert "4-5-2-2-5-4 are no mirror with one code in the middle; use model.hidden = [5, 2, 5]" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        autoencoder({"model.hidden": [5, 2, 5], "penalty.ridge": [0.1] * 8})
    assert "a list penalty.ridge" in str(caught.value)
    assert "give one number" in str(caught.value)
    assert autoencoder({"model.hidden": [5, 2, 5], "penalty.ridge": 0.1}).chain.groups == ((0, 3), (1, 2), (), ())
