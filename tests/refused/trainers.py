"""Refused: solvers, centres, bits, fitters."""

from __future__ import annotations

from macmpi.demand import Demand
from macmpi.solvers import W_SOLVERS, Z_SOLVERS
from refused.case import ANY_OF, BASIS, BITS, CODES, FOREST, IT_FIRST, LABELS, WHOLE, WORDS, Keys, Row

COMBINATIONS = [
    (
        "a unit solver (gauss_newton) if units do not separate: several layers between two sites, softmax, "
        "a loss other than the squared error, missing outputs"
    ),
    "more centres or codewords than training points",
    '`centres = "points"` if the number of units is not the number of points',
    "a site after or before a layer of radial basis functions",
    "a layer of radial basis functions or codewords between other layers of the same segment",
    (
        "a `binary` or `argmax` layer that is not the only site, or follows layers other than radial basis functions, "
        'and `z_step.solver = "binary"` without such a layer'
    ),
    "`z_step.solver` other than auto and binary with a `binary` or `argmax` layer",
    "a site before a `binary`, `argmax` or `quantise` layer",
    "an `argmax` layer whose number of units is not a multiple of `words`, or `words` below 2",
    "`w_step.solver` other than auto with radial basis functions or codewords",
    "a fitter named for a layer that it does not fit, such as a forest for a dense layer",
    "a fitter of labels or bits for targets that are numbers, or of numbers for labels",
    "a fitter for a layer that shares its segment with another",
    "a fitter of a layer with an activation after it",
    "trees after another layer",
    '`w_step.sums = "running"` without closed forms, or with convolutions, multipliers, acceleration, selection',
]

RUNNING: Keys = {"w_step.sums": "running", "model.sites": "before"}

TABLE = {
    "running sums of sigmoid units": Row(
        {**RUNNING, "model.sites": "after"},
        ("hidden layers that are not fitted in closed form", 'use w_step.sums = "whole", or model.sites = "before"'),
        ({"w_step.sums": "whole"}, {"model.sites": "before"}),
        '`w_step.sums = "running"`',
    ),
    **{
        f"running sums of {what}": Row(
            {**RUNNING, **keys},
            ('w_step.sums = "running": the output layer (loss', 'use w_step.sums = "whole"'),
            ({"w_step.sums": "whole"},),
            '`w_step.sums = "running"`',
        )
        for what, keys in (("labels", {"model.loss": "cross_entropy"}), ("gaps", {"loss.missing": True}))
    },
    **{
        f"running sums and {value}": Row(
            {**RUNNING, key: value}, (), ({"w_step.sums": "whole"}, {key: usual}), '`w_step.sums = "running"`'
        )
        for key, value, usual in (
            ("penalty.method", "augmented_lagrangian", "quadratic"),
            ("method.acceleration", "momentum", "none"),
        )
    },
    **{
        f"{solver} and two layers between sites": Row(
            {"w_step.solver": solver, "model.sites": ["none", "after"]},
            (),
            (*ANY_OF, {"model.sites": "after"}),
            "a unit solver",
        )
        for solver in sorted(W_SOLVERS.keys() - {*WHOLE, "closed_form"})
    },
    "units and cross-entropy": Row(
        {"w_step.solver": "gauss_newton", "model.loss": "cross_entropy"},
        (),
        (*ANY_OF, {"model.loss": "squared"}),
        "a unit solver",
    ),
    **{
        f"units and {loss}": Row(
            {"w_step.solver": "gauss_newton", "w_step.linear_solver": "same", "model.loss": loss, **keys},
            (),
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
        (),
        (*ANY_OF, {"model.sites": "before"}, {"model.activation": "tanh"}),
        "a unit solver",
    ),
    "units and an output of softmax": Row(
        {"w_step.solver": "gauss_newton", "model.output": "softmax"},
        (),
        (*ANY_OF, {"model.output": "sigmoid"}),
        "a unit solver",
    ),
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
        "a `binary` or `argmax` layer",
    ),
    "bits next to other coordinates": Row(
        BITS | {"model.sites": ["after", "after"]},
        (),
        (BITS,),
        "a `binary` or `argmax` layer",
    ),
    "bits next to other coordinates, below": Row(
        {"model.activation": ["tanh", "binary"]},
        (),
        (BITS,),
        "a `binary` or `argmax` layer",
    ),
    "a solver of bits that are none": Row(
        {"z_step.solver": "binary"},
        (),
        (BITS, {"z_step.solver": "auto"}),
        "a `binary` or `argmax` layer",
    ),
    **{
        f"bits by {solver}": Row(
            BITS | {"z_step.solver": solver},
            (),
            ({"z_step.solver": "auto"}, {"z_step.solver": "binary"}),
            "`z_step.solver`",
        )
        for solver in sorted(name for name, kind in Z_SOLVERS.items() if Demand.SITE_OF_NUMBERS in kind.handles)  # type: ignore[attr-defined]
    },
    **{
        f"coordinates before a {kind} layer": Row(
            keys | {"model.sites": "before"},
            (),
            ({"model.sites": keys.get("model.sites", "after")},),
            "a site before",
        )
        for kind, keys in {"quantiser": CODES, "binary": BITS, "argmax": WORDS}.items()
    },
    **{
        f"units in runs of {words} words": Row(
            WORDS | {"model.words": words},
            ('model.activation = "argmax"', f"one of every {words} units", "model.hidden.0 has 5 units"),
            ({"model.words": 5}, {"model.words": 3, "model.hidden": [9, 4]}),
            "an `argmax` layer",
        )
        for words in (1, 3)
    },
    "codewords above other coordinates": Row(
        CODES | {"model.activation": ["tanh", "quantise"]},
        (),
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
    "a forest for a dense layer": Row(
        {"model.fitters": ["forest", "auto", "auto"]},
        ('model.fitters = "forest" fits layers of the kind trees, and a layer is affine; use "auto" there',),
        ({"model.fitters": "auto"}, {"model.activation": ["forest", "tanh"]}),
        "a fitter named for a layer",
    ),
    "a classifier of numbers": Row(
        {"model.fitters": ["auto", "auto", "logistic"]},
        ('a layer (affine) is fitted by "logistic", which fits bits or labels, and segment 3 should give numbers',),
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
        ("fits no activation after it (segment 3)", 'use model.output = "linear" there'),
        ({"model.output": "linear"},),
        "a fitter of a layer with an activation",
    ),
    "trees after another layer": Row(
        {"model.activation": ["tanh", "forest"]},
        (),
        ({"model.activation": ["forest", "tanh"]}, {"model.activation": ["tanh", "kernel_ridge"]}),
        "trees after",
    ),
}
