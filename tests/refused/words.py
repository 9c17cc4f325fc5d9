"""What drawn configs may say: words of every key that speaks for or against others, for nets of two hidden layers."""

from __future__ import annotations

from typing import Any

from macmpi import config
from macmpi.solvers import W_SOLVERS, Z_SOLVERS
from refused.case import IMAGES, SPARSE, STEPS

SITES = ["after", "before", "both", "none"]
WORDS: dict[str, list[Any]] = {
    "model.activation": [*config.LAYERS, *([a, b] for a in config.LAYERS for b in ("tanh", "linear", "softmax", a))],
    "model.hidden": [*(keys["model.hidden"] for keys in (SPARSE, IMAGES)), [STEPS, 4], [6, 2]],
    "model.skips": [[[1, 3]], [[0, 2]]],
    "model.joining": ["append"],
    "model.tied": [True],
    "model.centres": config.TRAINERS,
    "model.fitters": [["auto", "auto", name] for name in ("logistic", "linear_svm", "kernel_ridge")],
    "model.words": [2, 8],
    "model.output": ["sigmoid", "softmax"],
    "model.sites": [*SITES, *([a, b] for a in SITES for b in SITES), [{"after": 2}, "after"], [{"before": 1}, "none"]],
    "model.loss": config.LOSSES,
    "loss.missing": [True],
    "model.precision": ["float32"],
    "start.method": ["uniform", "stochastic", "pca", "itq", "neighbours", "greedy", "staged", "elastic_embedding"],
    "method.name": ["stochastic", "adam", "alternating"],
    "method.acceleration": ["feasible", "momentum", "joint"],
    "penalty.method": ["augmented_lagrangian"],
    "penalty.mu_max": [1e3],
    "penalty.mu_every": [2],
    "penalty.stop": ["gradient"],
    "penalty.gradients": [True],
    "penalty.metric": ["variance", "curvature"],
    "penalty.ridge_scale": ["unit", "objective"],
    "penalty.l1": [0.1, [0.0, 0.0, 0.1]],
    "penalty.weights_min": [0.0],
    "z_step.solver": sorted(Z_SOLVERS),
    "w_step.solver": sorted(W_SOLVERS.keys() - {"closed_form"}),
    "w_step.linear_solver": ["closed_form", "same"],
    "w_step.schedule": ["ring"],
    "w_step.sums": ["running"],
    "selection.criterion": ["aic"],
    "selection.epsilon2": [0.1],
    "selection.sizes": [[[2], []], [[3], [2]]],
    "stochastic.stream": [True],
    "parallel.data": ["node", "sharded"],
    "run.finish": [True],
    "run.refit": [True],
}
