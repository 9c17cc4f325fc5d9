"""Refused: starts and methods."""

from __future__ import annotations

from refused.case import BASIS, BITS, CODES, FOREST, HALVES, SELECTED, SKIPS, WORDS, Row

COMBINATIONS = [
    (
        '`start.method = "elastic_embedding"` or `"file"` without exactly one site; `"pca"` or `"itq"` with '
        "radial basis functions and several sites"
    ),
    '`start.method = "uniform"` or `"greedy"` with radial basis functions',
    '`start.method = "greedy"` with codewords or bits',
    '`start.method = "itq"` or `"neighbours"` without a layer of bits',
    (
        "a layer of codewords, trees, kernels or radial basis functions, a transposed convolution, or skips, with "
        '`start.method = "staged"`'
    ),
    "`stochastic.stream` with a method other than stochastic",
    "`run.refit = true` with `stochastic.stream`",
    (
        "more filters or words than patches of training points, or groups of words than columns, with "
        '`start.method = "staged"`'
    ),
    '`start.method = "staged"` with `centres = "points"`',
    '`method.name = "alternating"` in a net without exactly one site, at a dense linear code',
    (
        "`method.acceleration` with another method than mac, with selection, multipliers (not `joint`), "
        '`sites = "none"` or a layer without derivatives'
    ),
    (
        '`method.name = "stochastic"`, `"sgd"`, `"adam"`, `"cg"`, `"lbfgs"` with a layer that has no derivatives,'
        " in its weights or its inputs"
    ),
]

TABLE = {
    **{
        f"codes of several layers by {start}": Row(
            {"start.method": start} | ({"start.coordinates": "z.h5"} if start == "file" else {}),
            (f'start.method = "{start}"', "makes 2 sites", 'use "after" at the code and "none" elsewhere'),
            ({"model.sites": ["none", "after"]},),
            '`start.method = "elastic_embedding"`',
        )
        for start in ("elastic_embedding", "file")
    },
    "codes for a method without coordinates": Row(
        {"start.method": "elastic_embedding", "method.name": "adam"},
        ('start.method = "elastic_embedding"', 'method.name = "adam" has none; use "mac", or'),
        ({"start.method": "uniform"}, {"method.name": "mac", "model.sites": ["after", "none"]}),
        '`start.method = "elastic_embedding"`',
    ),
    "codes of several layers by pca": Row(
        BASIS
        | {"model.sites": ["none", "after", "none", "after"], "model.hidden": [6, 2, 6, 3]}
        | {"model.activation": ["rbf", "linear", "rbf", "tanh"]},
        ('start.method = "pca"', "makes 2 sites"),
        ({"model.sites": ["none", "after", "none", "none"]},),
        '`start.method = "elastic_embedding"`',
    ),
    "radial basis functions from random weights": Row(
        BASIS | {"start.method": "uniform"},
        (),
        (
            *({"start.method": "elastic_embedding"}, {"start.method": "pca"}),
            {"start.method": "file", "start.coordinates": "z.h5"},
        ),
        '`start.method = "uniform"` or',
    ),
    **{
        f"greedy {kind}": Row(
            keys | {"start.method": "greedy"},
            (),
            ({"start.method": "pca"}, {"start.method": "uniform"}),
            '`start.method = "greedy"` with',
        )
        for kind, keys in {"codewords": CODES, "bits": BITS}.items()
    },
    **{
        f"a staged {kind}": Row(
            keys | {"start.method": "staged"},
            (f'start.method = "staged" does not go with {named}: it finds dense layers and convolutions',),
            ({"start.method": "uniform"},),
            "a layer of codewords, trees",
        )
        for kind, keys, named in (
            ("quantiser", CODES, "a layer of the kind quantiser"),
            ("trees", {"model.activation": ["forest", "tanh"]}, "a layer of the kind trees"),
            ("net with skips", SKIPS, "model.skips"),
        )
    },
    "a rotation towards bits that there are not": Row(
        {"start.method": "itq"},
        ('start.method = "itq"', "a net without a layer of bits", "towards the bits of a layer"),
        ({"start.method": "pca"}, {"start.method": "uniform"}),
        '`start.method = "itq"`',
    ),
    "neighbours for bits that there are not": Row(
        {"start.method": "neighbours"},
        ('start.method = "neighbours"', "a net without a layer of bits", "a layer of bits to the neighbours"),
        ({"start.method": "pca"}, {"start.method": "uniform"}),
        '`start.method = "itq"`',
    ),
    "a piece of a stream for full MAC": Row(
        {"stochastic.stream": True, "method.name": "mac"},
        ('by "mac"; use method.name = "stochastic"', "on all points (stochastic.stream = false)"),
        ({"stochastic.stream": False}, {"method.name": "stochastic"}),
        "`stochastic.stream` with",
    ),
    "a refit of a stream": Row(
        {"stochastic.stream": True, "run.refit": True, "method.name": "stochastic"},
        ("run.refit = true does not go with stochastic.stream = true", "use run.refit = false"),
        ({"run.refit": False}, {"stochastic.stream": False}),
        "`run.refit = true` with",
    ),
    "staged layers wider than there are points": Row(
        {"model.hidden": [38], "start.method": "staged"},
        ('start.method = "staged"', "38 units of a layer (affine) among 37 patches", "use at most 37"),
        ({"model.hidden": [37]}, {"start.method": "uniform"}),
        "more filters or words",
    ),
    "runs of words of no columns": Row(
        WORDS | {"model.words": 2, "model.hidden": [10, 4], "start.method": "staged"},
        ('start.method = "staged"', "10 units (model.hidden) are 5 runs, of 4 columns", "use at most 8 units"),
        ({"model.hidden": [8, 4]}, {"start.method": "uniform"}),
        "more filters or words",
    ),
    "staged layers of all patches": Row(
        {"start.method": "staged", "model.centres": "points"},
        (),
        ({"model.centres": "kmeans"}, {"model.centres": "subset"}),
        '`start.method = "staged"` with',
    ),
    "halves of a net that has more": Row(
        HALVES | {"model.sites": "after"},
        ('method.name = "alternating"', "needs one site, at a linear code", 'or method.name = "mac"'),
        ({"model.sites": ["after", "none"]}, {"method.name": "mac"}),
        '`method.name = "alternating"`',
    ),
    "halves with another code": Row(
        HALVES | {"model.activation": "tanh"},
        ('method.name = "alternating"', "a linear code that one layer computes"),
        ({"method.name": "mac"},),
        '`method.name = "alternating"`',
    ),
    "halves of which one has layers": Row(
        {"method.name": "alternating", "model.hidden": [5, 2, 5], "model.sites": ["none", "after", "none"]}
        | {"model.activation": ["tanh", "linear", "tanh"]},
        ('method.name = "alternating"', "a linear code that one layer computes"),
        ({"model.hidden": [2, 5], "model.sites": ["after", "none"], "model.activation": ["linear", "tanh"]},),
        '`method.name = "alternating"`',
    ),
    "a half without a gradient": Row(
        HALVES | {"model.activation": ["quantise", "tanh"], "model.words": 8},
        (),
        ({"method.name": "mac"},),
        '`method.name = "alternating"`',
    ),
    "halves that sites leave codewords in": Row(
        HALVES | {"model.activation": ["quantise", "linear"], "model.words": 8, "model.sites": ["none", "after"]},
        ('method.name = "alternating" does not go with', "(quantiser)", 'use method.name = "mac"'),
        ({"method.name": "mac", "model.sites": "after"},),
        '`method.name = "alternating"`',
    ),
    "a code of bits between halves": Row(
        HALVES | {"model.activation": ["binary", "tanh"]},
        ('method.name = "alternating" does not go with', "(binary)", 'use method.name = "mac"'),
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
    "joint and stochastic": Row(
        {"method.acceleration": "joint", "method.name": "stochastic"},
        (),
        ({"method.acceleration": "none"}, {"method.name": "mac"}),
        "`method.acceleration` with",
    ),
    **{
        f"{name} {kind}": Row(
            keys | {"method.name": name},
            (),
            ({"method.name": "mac"},),
            '`method.name = "stochastic"`',
        )
        for kind, keys in {"centres": BASIS, "codewords": CODES, "bits": BITS, "trees": FOREST}.items()
        for name in ("stochastic", "sgd")
    },
}
