"""What same_bits.py trains: small nets on small data, a case for each feature, and larger ones on real data.

A case has keys over the program's own defaults, and names only those that both commits know.  What it `shows` is looked
up in its results, so that no case passes without its feature.
"""

from __future__ import annotations

from same_bits_case import CHANGED, NODE, ONE_BLOCK, OWN, REFIT, ZEROS, Case, Keys, Real, kind, recorded, within

REAL = {
    "digits_mac": Real("digits_mac", 25),
    "usps_mac": Real("usps_mac", 3),
    "usps_pre": Real("usps_pre", 2),
    "usps_al": Real("usps_al", 2),
    "usps_fast": Real("usps_fast", 2),
    "usps_binary": Real("usps_binary", 1),
    "usps_quantise": Real("usps_quantise", 1),
    "usps_ring": Real("usps_ring", 1),
    "usps_classify": Real("usps_classify", 2),
    "coil_mac": Real("coil_mac", 1),
    "coil_select": Real("coil_select", 1, ("selection.every=1",)),
    "usps_fast_sharded": Real("usps_fast", 2, ('parallel.data="sharded"',)),
}


CODE: Keys = {"model.hidden": [14, 3, 14], "model.activation": "tanh"}
"""An autoencoder of dense layers."""

NET: Keys = {"model.hidden": [9, 6], "model.activation": "tanh"}
"""A net for targets."""

MAC: Keys = {"method.name": "mac", "penalty.mu0": 1.0, "penalty.mu_every": 1, "penalty.factor": 4.0}
"""mu grows in every iteration."""

PLAIN: Keys = {**MAC, "method.acceleration": "none"}
STOCHASTIC: Keys = {"method.name": "stochastic", "stochastic.batch": 40, "stochastic.parts": 6}
BASELINE: Keys = {"baseline.batch": 20, "baseline.momentum": 0.5}
LAGRANGIAN: Keys = {**MAC, "penalty.method": "augmented_lagrangian"}
SHARDED: Keys = {"parallel.data": "sharded"}
ON_NODE: Keys = {"parallel.data": "node"}
LABELS: Keys = {"model.loss": "cross_entropy"}
MISSING: Keys = {"loss.missing": True}
MULTIPLIERS = recorded("multiplier")

TIED: Keys = {**CODE, "model.tied": True}
RECURRENT: Keys = {"model.hidden": [{"recurrent": 6, "steps": 4}, 5], "model.activation": "tanh"}
ADDED: Keys = {"model.hidden": [12, 12, 12], "model.skips": [[1, 3], [2, 4]], "model.activation": "tanh"}
APPENDED: Keys = {
    "model.hidden": [{"units": 7, "connections": "random", "share": 0.5}, 5, 6],
    "model.skips": [[0, 3], [1, 4]],
    "model.joining": "append",
    "model.activation": "sigmoid",
}
MASKS: Keys = {
    "model.hidden": [
        {"units": 20, "connections": "random", "share": 0.3},
        4,
        {"units": 16, "connections": "banded", "width": 3, "groups": 4},
    ],
    "model.activation": "tanh",
}
GROUPED: Keys = {
    "model.image": [6, 6],
    "model.hidden": [{"channels": 3, "kernel": 3, "pool": 2}, {"channels": 6, "kernel": 2, "groups": 3}, 8],
    "model.activation": "tanh",
}
LOCAL: Keys = {
    "model.image": [6, 6],
    "model.hidden": [{"units": 36, "connections": "local", "width": 3}, 8],
    "model.activation": "relu",
}
PICTURES: Keys = {
    "model.image": [6, 6],
    "model.hidden": [
        {"channels": 3, "kernel": 3, "pool": 2},
        {"channels": 2, "kernel": 2},
        27,
        {"channels": 2, "kernel": 3, "upsample": 2, "image": [3, 3, 3]},
    ],
    "model.activation": "tanh",
}
APPENDED_PICTURES: Keys = {
    "model.image": [6, 6],
    "model.hidden": [{"channels": 3, "kernel": 3}, {"channels": 3, "kernel": 3}, {"channels": 2, "kernel": 3}, 9],
    "model.skips": [[0, 2], [1, 3], [1, 5]],
    "model.joining": "append",
    "model.activation": "tanh",
}
PICTURE_LABELS: Keys = {
    **LABELS,
    "model.image": [6, 6],
    "model.hidden": [{"channels": 5, "kernel": 3, "stride": 2, "pool": 2}, 6],
    "model.activation": "relu",
}
CASCADE: Keys = {
    **LABELS,
    "model.image": [6, 6],
    "model.hidden": [{"channels": 5, "kernel": 2}, {"channels": 4, "kernel": 2, "pool": 2, "pooling": "sum"}],
    "model.activation": ["relu", "softmax"],
    "start.method": "staged",
}
BASIS: Keys = {
    **MAC,
    "model.hidden": [24, 2, 20],
    "model.activation": ["rbf", "linear", "rbf"],
    "model.sites": ["none", "after", "none"],
    "model.width": [3.0, 1.0],
    "start.method": "elastic_embedding",
    "start.width": 2.0,
}
SELECTING: Keys = {
    **BASIS,
    "model.centres": "subset",
    "model.hidden": [40, 2, 30],
    "selection.criterion": "aic",
    "selection.epsilon2": [0.6],
    "selection.sizes": [[*range(3, 40, 4), 40], [], [*range(3, 30, 4), 30]],
    "selection.every": 1,
}
UNITS: Keys = {
    "selection.criterion": "aic",
    "selection.epsilon2": 0.4,
    "selection.every": 1,
    "selection.sizes": [[3, 8], [2], [3, 8]],
}
BITS: Keys = {"method.name": "mac", "model.activation": "binary", "penalty.mu0": 0.1, "penalty.mu_every": 1}
TREES: Keys = {**PLAIN, "model.trees": 3, "model.depth": 3}
RING: Keys = {**PLAIN, **SHARDED, "w_step.schedule": "ring", "w_step.batch": 9, "w_step.rate": 0.05}


def solved_by(name: str) -> Keys:
    """A W-solver for all layers, the output layer included."""
    return {"w_step.solver": name, "w_step.linear_solver": "same", "w_step.iterations": 2, "w_step.rate": 1e-3}


CASES: dict[str, Case] = {
    "dense": Case("codes", {**MAC, **CODE}),
    "digits": Case("digits", {**MAC, **CODE, "model.activation": "sigmoid"}, iterations=2),
    "table": Case("table", {**MAC, **NET, "data.target": "price"}, {"columns": lambda s: "columns" in s.datasets}),
    "wide": Case("codes", {**MAC, "model.hidden": [540], "model.activation": "sigmoid"}, iterations=2),
    "long": Case("long", {**MAC, "model.hidden": [5], "model.activation": "tanh"}, iterations=2),
    "float32": Case("codes", {**MAC, **CODE, "model.precision": "float32", "penalty.mu_max": 1e4}),
    # nets
    "tied": Case("codes", {**MAC, **TIED}, kind("transposed") | ONE_BLOCK),
    "tied_sharded": Case("codes", {**MAC, **TIED, **SHARDED}, ONE_BLOCK),
    "recurrent": Case("numbers", {**MAC, **RECURRENT}, ONE_BLOCK),
    "recurrent_sharded": Case("numbers", {**MAC, **RECURRENT, **SHARDED}, ONE_BLOCK),
    "skips": Case("codes", {**MAC, **ADDED}, kind("add")),
    "skips_appended": Case("numbers", {**MAC, **APPENDED}, kind("copy", "masked")),
    "skips_pictures": Case("pictures", {**MAC, **APPENDED_PICTURES}, kind("convolution", "stack")),
    "skips_sharded": Case("codes", {**LAGRANGIAN, **ADDED, **SHARDED}, kind("add")),
    "convolution": Case("pictures", {**MAC, **PICTURES}, kind("convolution", "transposed_convolution", "max_pooling")),
    "convolution_labels": Case("pictures_labels", {**MAC, **PICTURE_LABELS}, kind("convolution")),
    "convolution_sharded": Case("pictures", {**LAGRANGIAN, **PICTURES, **SHARDED}, kind("convolution")),
    "grouped": Case("pictures", {**MAC, **GROUPED}, kind("grouped_convolution")),
    "grouped_sharded": Case("pictures_labels", {**MAC, **GROUPED, **LABELS, **SHARDED}, kind("grouped_convolution")),
    "masks": Case("codes", {**MAC, **MASKS}, kind("masked")),
    "masks_local": Case("pictures_labels", {**MAC, **LABELS, **LOCAL}, kind("masked")),
    "masks_sharded": Case("codes", {**MAC, **MASKS, **SHARDED}, kind("masked")),
    "sites": Case("codes", {**MAC, **CODE, "model.sites": ["none", "after", "before"]}),
    "softmax": Case("numbers", {**MAC, **NET, "model.activation": ["softmax", "leaky_relu"]}, kind("softmax")),
    # losses, points
    "labels": Case("labels", {**MAC, **NET, **LABELS}, recorded("error_val", "is told")),
    "weighted": Case("weighted", {**MAC, **NET}),
    "weighted_labels_sharded": Case("weighted_labels", {**MAC, **NET, **LABELS, **SHARDED}),
    "weighted_outputs": Case("weighted_outputs", {**MAC, **NET}),
    "weighted_outputs_sharded": Case("weighted_outputs", {**MAC, **NET, **SHARDED, "model.loss": "huber"}),
    "stochastic_weighted_outputs": Case("weighted_outputs", {**STOCHASTIC, **NET}),
    "missing": Case("gaps", {**MAC, **NET, **MISSING}),
    "missing_weighted_sharded": Case("weighted_gaps", {**MAC, **NET, **MISSING, **SHARDED}),
    "logistic": Case("truth", {**MAC, **NET, "model.loss": "logistic"}),
    "poisson": Case("counts", {**MAC, **NET, "model.loss": "poisson"}),
    "huber": Case("numbers", {**MAC, **NET, "model.loss": "huber"}),
    "absolute": Case("gaps", {**MAC, **NET, **MISSING, "model.loss": "absolute"}),
    # restraints, penalties
    "l1": Case("codes", {**MAC, **CODE, "penalty.l1": 0.05, "penalty.ridge_scale": "objective"}, ZEROS),
    "group_lasso": Case("codes", {**MAC, **CODE, "penalty.group_lasso": 0.05, "penalty.weights_min": 0.0}, ZEROS),
    "bounds": Case(
        "codes", {**MAC, **CODE, "penalty.weights_min": -0.2, "penalty.weights_max": 0.3}, within(-0.2, 0.3)
    ),
    "ridges": Case("codes", {**MAC, **CODE, "penalty.ridge": [0.1, 0.0, 0.2, 0.3], "penalty.ridge_until_mu": 8.0}),
    "l1_sharded": Case("codes", {**MAC, **CODE, **SHARDED, "penalty.l1": 0.05}, ZEROS),
    "l1_convolution": Case("pictures", {**MAC, **PICTURES, "penalty.l1": 2.0}, ZEROS),
    "lagrangian": Case("codes", {**LAGRANGIAN, **CODE}, MULTIPLIERS),
    "lagrangian_before": Case(
        "labels", {**LAGRANGIAN, **NET, **LABELS, "model.sites": "before", "penalty.metric": "curvature"}, MULTIPLIERS
    ),
    "variance": Case("codes", {**MAC, **CODE, "penalty.metric": "variance", "model.sites": "before"}),
    "path": Case(
        "codes",
        {"method.name": "mac", "method.acceleration": "none", **CODE}
        | {"penalty.stop": "gradient", "penalty.gradient_tolerance": 5.0},
        recorded("gradient_E_Q"),
    ),
    # half steps
    "momentum": Case("numbers", {**MAC, **NET, "method.acceleration": "momentum"}),
    "feasible": Case("codes", {**MAC, **CODE, "method.acceleration": "feasible"}),
    "joint": Case("codes", {**MAC, **CODE, "method.acceleration": "joint"}),
    "plain": Case("numbers", {**PLAIN, **NET}),
    "closed_form": Case("codes", {**PLAIN, **CODE, "model.sites": "before"}),
    "single_directions": Case(
        "codes", {**PLAIN, **CODE, "w_step.cg_precision": "single", "z_step.cg_precision": "single"}
    ),
    **{
        f"w_{name}": Case("numbers", {**PLAIN, **NET, **solved_by(name)})
        for name in ("gauss_newton", "hessian_free", "newton", "lbfgs", "ncg", "gradient", "sgd", "proximal")
    },
    "w_hessian_free_sharded": Case("numbers", {**PLAIN, **NET, **SHARDED, **solved_by("hessian_free")}),
    "z_gauss_newton": Case("numbers", {**PLAIN, **NET, "z_step.solver": "gauss_newton", "z_step.iterations": 2}),
    "z_cg": Case("codes", {**PLAIN, "model.hidden": [150], "model.activation": "sigmoid", "z_step.cg_iterations": 1}),
    "z_alternating": Case("labels", {**PLAIN, **NET, **LABELS, "z_step.solver": "alternating"}),
    # radial basis functions, codewords, bits, fitters
    "rbf": Case("codes", BASIS, kind("rbf")),
    "rbf_subset": Case("codes", {**BASIS, "model.centres": "subset", "start.method": "pca"}, kind("rbf")),
    "rbf_points": Case("few", {**BASIS, "model.centres": "points", "model.hidden": [60, 2, 60]}, kind("rbf")),
    "alternating": Case("codes", {**BASIS, "method.name": "alternating"}, kind("rbf")),
    "quantiser": Case(
        "numbers",
        {**PLAIN, "model.activation": "quantise", "model.words": 6, "model.hidden": [3], "start.method": "pca"},
        kind("quantiser"),
    ),
    "binary": Case("codes", {**BITS, "model.hidden": [6], "start.method": "pca"}, kind("binary")),
    "binary_long": Case("codes", {**BITS, "model.hidden": [20]}, kind("binary")),
    "binary_sharded": Case("codes", {**BITS, "model.hidden": [6], "parallel.data": "sharded"}, kind("binary")),
    "words": Case(
        "codes", {**BITS, "model.activation": "argmax", "model.words": 4, "model.hidden": [24]}, kind("argmax")
    ),
    "forest": Case("numbers", {**TREES, **NET, "model.activation": ["forest", "tanh"]}, kind("trees")),
    "boosted": Case("labels", {**TREES, **NET, **LABELS, "model.activation": ["boosted", "tanh"]}, kind("trees")),
    "kernel_ridge": Case(
        "numbers", {**PLAIN, **NET, "model.activation": ["kernel_ridge", "tanh"], "model.examples": 30}, kind("kernels")
    ),
    "nearest_neighbours": Case(
        "numbers",
        {**PLAIN, **NET, "model.activation": ["nearest_neighbours", "tanh"], "model.examples": 40},
        kind("nearest_neighbours"),
    ),
    "linear_svm": Case("labels", {**PLAIN, **NET, **LABELS, "model.fitters": ["auto", "auto", "linear_svm"]}),
    "logistic_fitter": Case("labels", {**PLAIN, **NET, **LABELS, "model.fitters": ["auto", "auto", "logistic"]}),
    # selection
    "selection": Case("codes", SELECTING, CHANGED),
    "selection_widths": Case(
        "codes",
        {**SELECTING, "selection.widths": [[1.0, 5.0], [0.5]], "selection.ridges": [1e-3, 1.0]},
        CHANGED | recorded("widths", "are told") | recorded("ridges", "are told"),
    ),
    "selection_units": Case("codes", {**MAC, **CODE, **UNITS}, CHANGED),
    "selection_units_sharded": Case("codes", {**MAC, **CODE, **UNITS, **SHARDED}, CHANGED),
    # stochastic MAC
    "stochastic": Case("codes", {**STOCHASTIC, **CODE}),
    "stochastic_labels": Case("labels", {**STOCHASTIC, **NET, **LABELS}),
    "stochastic_numbers": Case("numbers", {**STOCHASTIC, **NET}),
    "stochastic_grown": Case("codes", {**STOCHASTIC, **CODE, "stochastic.grow_every": 1, "stochastic.records": 2}),
    "stochastic_wide": Case(
        "codes", {**STOCHASTIC, "model.hidden": [400, 4], "model.activation": "tanh"}, iterations=2
    ),
    "stochastic_float32": Case("codes", {**STOCHASTIC, **CODE, "model.precision": "float32"}),
    "stochastic_tied": Case("codes", {**STOCHASTIC, **TIED}, ONE_BLOCK),
    "stochastic_recurrent": Case("numbers", {**STOCHASTIC, **RECURRENT}, ONE_BLOCK),
    "stochastic_skips": Case("numbers", {**STOCHASTIC, **APPENDED}, kind("copy")),
    "stochastic_skips_pictures": Case("pictures", {**STOCHASTIC, **APPENDED_PICTURES}, kind("stack")),
    "stochastic_convolution": Case("pictures", {**STOCHASTIC, **PICTURES}, kind("convolution")),
    "stochastic_grouped": Case("pictures", {**STOCHASTIC, **GROUPED}, kind("grouped_convolution")),
    "stochastic_masks": Case("codes", {**STOCHASTIC, **MASKS}, kind("masked")),
    "stochastic_weighted": Case("weighted_labels", {**STOCHASTIC, **NET, **LABELS}),
    "stochastic_missing": Case("weighted_gaps", {**STOCHASTIC, **NET, **MISSING}),
    "stochastic_sharded": Case("labels", {**STOCHASTIC, **NET, **LABELS, **SHARDED}),
    "cascade": Case("pictures_labels", {**STOCHASTIC, **CASCADE}, kind("sum_pooling", "softmax")),
    # backpropagation
    **{name: Case("codes", {**CODE, "method.name": name, **BASELINE}) for name in ("sgd", "adam")},
    **{name: Case("codes", {**CODE, "method.name": name}, iterations=9) for name in ("cg", "lbfgs")},
    "adam_convolution": Case("pictures_labels", {**PICTURE_LABELS, "method.name": "adam", **BASELINE}),
    # points over ranks
    "ring": Case("numbers", {**RING, **NET, "w_step.iterations": 2}),
    "node": Case("codes", {**MAC, **CODE, **ON_NODE}, NODE, as_case="dense"),
    "node_selection": Case("codes", {**SELECTING, **ON_NODE}, NODE | CHANGED, as_case="selection"),
    "node_stochastic": Case("labels", {**STOCHASTIC, **NET, **LABELS, **ON_NODE}, NODE, as_case="stochastic_labels"),
    "node_adam": Case("codes", {**CODE, "method.name": "adam", **BASELINE, **ON_NODE}, NODE, as_case="adam"),
    "sharded": Case("codes", {**MAC, **CODE, **SHARDED}, OWN),
    "sharded_long": Case(
        "long", {**LAGRANGIAN, "model.hidden": [5], "model.activation": "tanh", **SHARDED}, MULTIPLIERS
    ),
    "sharded_labels": Case("labels", {**MAC, **NET, **LABELS, **SHARDED}),
    # starts, refit, runs that go on
    "pca": Case("codes", {**MAC, **CODE, "start.method": "pca"}),
    "greedy": Case("codes", {**MAC, **CODE, "start.method": "greedy"}),
    "staged": Case("numbers", {**MAC, **NET, "start.method": "staged"}),
    "from_model": Case(
        "codes",
        {**MAC, **CODE},
        runs=(
            ("--output", "first", "--iterations", "1", "--overwrite"),
            ("--set", "start.method=model", "--set", "start.model=first/model.h5"),
        ),
    ),
    "refit": Case("few_numbers", {**PLAIN, **NET, "run.refit": True}, REFIT),
    "refit_adam": Case("numbers", {**NET, "method.name": "adam", **BASELINE, "run.refit": True}, REFIT),
    "resumed": Case("numbers", {**LAGRANGIAN, **NET}, runs=(("--iterations", "1"), ("--resume", "auto"))),
    "resumed_sharded": Case("numbers", {**MAC, **NET, **SHARDED}, runs=(("--iterations", "1"), ("--resume", "auto"))),
}
"""Small data, on which each takes less than a second."""
