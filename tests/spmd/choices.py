"""What split_world.py runs: a config and data for each choice, together everything that a config may name.

`made` makes them, `on_ranks` says which of them run, and on how many ranks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, cycle, product
from typing import Any, get_args, get_type_hints

import numpy as np
from covering import cover
from plans import plan_of

from macmpi import UsageError
from macmpi.config import Activation, Config, Convolution, Method, Parallel, Recurrent, Sparse
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.demand import Demand
from macmpi.methods.starts import Origin
from macmpi.parallel import shared_work, tiles
from macmpi.plan import directions
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import CRITERIA
from macmpi.solvers import W_SOLVERS, Z_SOLVERS, Thresholded, cholesky
from macmpi.solvers.fitters import TRAINERS
from macmpi.typing import Array

tiles.GRAM_WHOLE, tiles.GRAM_ROWS = 40, 12
shared_work.ALONE, shared_work.WIDE = 1, 64
cholesky.WHOLE, cholesky.PANEL, cholesky.LEAST = 40, 12, 4
"""So that the Grams of the wide layers here are cut into rows, and factored in panels, as those of large nets are."""
shared_work.LARGE = 2e3
directions.UNITS, directions.BEGUN, directions.MOVED, directions.JOINED = 8, 0.0, 1.0, 1.0
"""And that ranks share products, and directions in runs of a few units, which others have once minibatches grow."""


def dataset(rows: int, validation: int, columns: int, targets: int, labels: bool = False) -> Dataset:
    """targets = 0: an autoencoder."""
    random = np.random.default_rng(rows)
    X, X_val = (np.tanh(random.standard_normal((n, columns))) for n in (rows, validation))
    Y, Y_val = (X, X_val) if not targets else (np.sin(2.0 * A[:, :targets]) for A in (X, X_val))
    if labels:
        Y, Y_val = (np.eye(targets)[A.argmax(axis=1)] for A in (Y, Y_val))
    scaling = Scaling(np.zeros(columns), np.ones(columns))
    return Dataset(X, Y, X_val, Y_val, scaling, scaling, "")


def remade(data: Dataset, of: Callable[[Array], Array]) -> Dataset:
    """The same inputs with other targets."""
    return replace(data, Y=of(data.Y), Y_val=of(data.Y_val))


def with_gaps(Y: Array) -> Array:
    """A third is missing, of the first point all."""
    gone = np.random.default_rng(len(Y)).uniform(size=Y.shape) < 0.3
    gone[0] = True
    return np.where(gone, np.nan, Y)


SMALL = dataset(37, 11, 9, 4)
CLASSES = dataset(37, 11, 9, 4, labels=True)
TRUTH = remade(SMALL, lambda Y: np.greater(Y, 0.0).astype(float))
COUNTS = remade(SMALL, lambda Y: np.floor(np.exp(2.0 * Y)))
WEIGHTS = np.random.default_rng(3).uniform(0.0, 3.0, size=37)
GAPS, GAPS_TRUTH = (
    replace(remade(data, with_gaps), weights=WEIGHTS, weights_val=WEIGHTS[:11]) for data in (SMALL, TRUTH)
)
GAPS_COUNTS = remade(COUNTS, with_gaps)
OUTPUTS, OUTPUTS_COUNTS = (
    replace(remade(data, lambda Y: np.hstack([Y, np.abs(np.cos(7.0 * Y)).round(1)])), weights=WEIGHTS, outputs=4)
    for data in (SMALL, COUNTS)
)
WIDE = dataset(300, 50, 12, 0)
LONG = dataset(6200, 100, 3, 2)
HIDDEN = {id(WIDE): [50, 5, 50], id(LONG): [4]}
HIDDEN |= {id(data): [7, 5] for data in (SMALL, CLASSES, TRUTH, COUNTS, GAPS, GAPS_TRUTH, GAPS_COUNTS)}
HIDDEN |= {id(OUTPUTS): [7, 5], id(OUTPUTS_COUNTS): [7, 5]}
"""SMALL, CLASSES: nothing divides; WIDE: several tiles of units, and a mirrored autoencoder; LONG: several tiles of
points a block, several chunks."""

ACTIVATIONS = get_args(Activation)
TABLES = get_type_hints(Config)
METHODS = [name for name in get_args(get_type_hints(Method)["name"]) if name != "auto"]
PLACES = get_args(get_type_hints(Parallel)["data"])
WHOLE = sorted(name for name, kind in W_SOLVERS.items() if "segment" in kind.takes)  # type: ignore[attr-defined]
APART = sorted(W_SOLVERS.keys() - {*WHOLE, "closed_form"})
MOVING = [name for name, kind in Z_SOLVERS.items() if Demand.SITE_OF_NUMBERS in kind.handles]  # type: ignore[attr-defined]
BASIS = {
    "model.activation": ["rbf", "linear", "rbf"],
    "model.sites": ["none", "after", "none"],
    "model.width": [3.0, 1.0],
    "penalty.mu0": 1.0,
    "start.method": "elastic_embedding",
    "start.width": 2.0,
}
"""The net of section 4.3."""

FILE = {"start.method": "file", "start.coordinates": "made by Choice.origin"}
SELECTING = {
    "model.centres": "subset",
    "model.hidden": [30, 2, 25],
    "selection.criterion": "aic",
    "selection.epsilon2": [0.6],
    "selection.sizes": [[3, 7, 11, 15, 19, 23, 27], [], [3, 7, 11, 15, 19, 23]],
    "selection.every": 1,
}

UNITS = {"selection.criterion": "aic", "selection.epsilon2": 0.1, "selection.every": 1}


def rows() -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Data and keys of each choice: every word of the config occurs, most of them several times."""
    z, small, loss = cycle(MOVING), cycle((SMALL, CLASSES)), cycle(("squared", "cross_entropy"))
    pairs = [list(pair) for pair in zip(ACTIVATIONS[::2], ACTIVATIONS[1::2], strict=True)]
    for activations, sites in product(pairs, ("after", "before", "both", "none")):
        yield SMALL, {"model.activation": activations, "model.sites": sites, "z_step.solver": next(z)}
    for solver in MOVING:
        keys = {"z_step.solver": solver, "model.activation": ["tanh", "softmax", "relu"]}
        yield WIDE, keys
        yield CLASSES, {**keys, "model.loss": "cross_entropy"}
    same = {"w_step.linear_solver": "same", "w_step.iterations": 2, "w_step.batch": 16, "w_step.rate": 1e-3}
    for solver in (*WHOLE, *APART):
        yield WIDE, {"w_step.solver": solver, "model.activation": "tanh", **same}
    for solver in WHOLE:
        keys = {"model.sites": ["none", "after"], "model.activation": ["softmax", "sigmoid"], "model.loss": next(loss)}
        yield next(small), {"w_step.solver": solver, **keys, **same}
    for data, cg_iterations in ((WIDE, 1), (SMALL, 1), (WIDE, 60), (SMALL, 60)):
        yield data, {"z_step.cg_iterations": cg_iterations, "model.activation": "tanh"}
    lagrangian = {"penalty.method": "augmented_lagrangian"}
    for sites in ("after", "before", ["none", "before", "after"], ["after", "none", "before"]):
        yield WIDE, {**lagrangian, "model.sites": sites, "z_step.solver": next(z)}
    yield CLASSES, {**lagrangian, "model.sites": ["before", "after"], "model.loss": "cross_entropy"}
    for metric, sites in (("variance", "after"), ("curvature", "before")):
        keys = {"penalty.metric": metric, "model.sites": sites}
        yield SMALL, {**keys, "z_step.solver": next(z)}
        yield CLASSES, {**keys, **lagrangian, "model.loss": "cross_entropy", "z_step.solver": next(z)}
    yield SMALL, {"penalty.metric": "variance", "model.activation": "softmax", "model.sites": ["none", "after"]}
    single = {"model.precision": "float32", "penalty.mu_max": 1e4}
    for solver in MOVING:
        keys = {**single, "z_step.solver": solver, "model.loss": next(loss)}
        yield next(small), {**keys, **(lagrangian if solver == "alternating" else {"penalty.metric": "variance"})}
    yield SMALL, {**single, "model.sites": "none", "start.method": "greedy"}
    for method in ("pca", "greedy"):
        keys = {"start.method": method}
        yield WIDE, keys
        yield CLASSES, {**keys, "model.loss": "cross_entropy", "model.activation": "softmax"}
    yield LONG, {}
    yield LONG, {**lagrangian, "penalty.metric": "curvature", "model.sites": "before", "start.method": "pca"}
    yield LONG, {"model.sites": "none", "w_step.solver": "sgd"}
    yield (
        WIDE,
        {"z_step.iterations": 2, "z_step.relaxation": 1.0, "w_step.relaxation": 1.5, "start.gradient_step": False},
    )
    yield WIDE, {"w_step.cg_iterations": 5, "z_step.minibatches": 2}
    yield LONG, {"z_step.minibatches": 3, "parallel.data": "sharded", "method.acceleration": "momentum"}
    for data, place in ((WIDE, "replicated"), (LONG, "node"), (LONG, "sharded")):
        running = {"z_step.minibatches": 3, "w_step.sums": "running", "model.sites": "before"}
        yield data, {**running, "parallel.data": place, "method.acceleration": "none"}
    rounded = {"w_step.cg_precision": "single", "z_step.cg_precision": "single"}
    yield WIDE, rounded
    yield LONG, {**rounded, "w_step.iterations": 2}
    yield SMALL, {**rounded, "parallel.data": "sharded"}
    yield SMALL, {"penalty.ridge_scale": "objective", "penalty.ridge": 0.5}
    yield SMALL, {"penalty.ridge_until_mu": 1.0, "method.acceleration": "none"}
    yield from restrained(single)
    momentum = {"method.acceleration": "momentum"}
    for data, sites in ((SMALL, "before"), (WIDE, "after"), (LONG, "after")):
        yield data, {**momentum, "model.sites": sites}
        yield data, {"method.acceleration": "feasible", "model.sites": sites}
    yield CLASSES, {**momentum, "model.loss": "cross_entropy", "penalty.metric": "variance"}
    yield WIDE, {**momentum, **single, "model.sites": ["none", "after", "before"]}
    yield from basis_functions(single, lagrangian)
    yield from selections(single, lagrangian)
    yield from discrete(single, lagrangian)
    small = {"method.name": "stochastic", "stochastic.batch": 7, "stochastic.parts": 4}
    yield SMALL, {**small, "model.activation": "tanh"}
    yield CLASSES, {**small, "model.loss": "cross_entropy"}
    growing = {"stochastic.batch": 60, "stochastic.grow_every": 1, "stochastic.records": 2}
    yield WIDE, {"method.name": "stochastic", **growing, **single}
    factors = {"method.name": "stochastic", "stochastic.batch": 8, "stochastic.ridge": 0.0, "model.hidden": [70, 50]}
    yield WIDE, {**factors, "stochastic.parts": 3}
    yield WIDE, {**factors, "stochastic.grow_every": 1}
    yield CLASSES, {**factors, **single, "parallel.data": "node", "model.loss": "cross_entropy"}
    yield WIDE, {"method.name": "stochastic", "stochastic.batch": 8, "stochastic.parts": 3, "model.hidden": [400, 5]}
    whole = {"method.name": "stochastic", "stochastic.batch": "all"}
    yield WIDE, whole
    yield LONG, {**whole, **single, "stochastic.cg_iterations": 2, "parallel.data": "sharded"}
    yield CLASSES, {**whole, "stochastic.cg_iterations": 2, "model.loss": "cross_entropy", "parallel.data": "node"}
    yield GAPS, {**whole, "loss.missing": True, "model.activation": "tanh"}
    for i, name in enumerate(("sgd", "adam", "cg", "lbfgs")):
        keys = {"method.name": name, "baseline.batch": 9, "baseline.momentum": 0.5}
        yield WIDE, {**keys, **(single if i % 2 else {})}
        yield CLASSES, {**keys, "model.loss": "cross_entropy", "model.activation": "softmax"}
        yield LONG, {**keys, "baseline.batch": 700}
    path = {"penalty.stop": "gradient", "penalty.gradient_tolerance": 5.0, "method.acceleration": "none"}
    yield WIDE, {**path, "model.sites": ["after", "none", "before"]}
    yield CLASSES, {**path, "model.loss": "cross_entropy", "parallel.data": "sharded"}
    joint = {**path, "method.acceleration": "joint"}
    yield (
        WIDE,
        {**joint, "model.sites": ["after", "none", "before"], "model.skips": [[1, 3]], "model.joining": "append"},
    )
    moved = {**lagrangian, "penalty.mu0": 1e3}
    yield CLASSES, {**joint, **moved, "model.loss": "cross_entropy", "parallel.data": "sharded"}
    yield GAPS, {**joint, "loss.missing": True, "parallel.data": "node"}
    yield SMALL, {**lagrangian, "method.acceleration": "joint", **single}
    yield LONG, {**lagrangian, "penalty.gradients": True, "penalty.metric": "variance", **single}
    yield from losses(single, lagrangian)
    yield from weighted_outputs(single, lagrangian)
    yield from fitted(single, lagrangian)
    yield from sharded(single, lagrangian, {**same, "model.activation": "tanh"})
    yield from shared(single, lagrangian)
    yield from images(single, lagrangian)
    yield from one_block(single, lagrangian)
    yield from cascades(single)
    yield from masks(single, lagrangian)
    yield from skips(single, lagrangian)
    yield from some_units(single, lagrangian)


def images(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Convolutions, pooling and transposed convolutions, by units and by segments, with every kind of points."""
    encoder = [Convolution(3, 3, pool=2), Convolution(2, 2, image=[2, 1, 3])]
    code = {"model.image": [4, 3], "model.hidden": [*encoder, 3, Convolution(2, 3, upsample=3, image=[1, 1, 3])]}
    label = {"model.image": [3, 3], "model.hidden": [Convolution(5, 3, 2, pool=2), 4]}
    average = [Convolution(5, 2, padding="none", pool=2, pooling="average")]
    back = {"model.readout": Convolution(1, 2, image=[4, 3, 2])}
    drawn = {"method.name": "stochastic", "stochastic.batch": 20, "stochastic.parts": 5}
    for keys in ({}, {**lagrangian, "model.sites": "before"}, {"model.sites": ["none", "none", "after", "none"]}):
        yield WIDE, {**code, "model.activation": "tanh", **keys}
    yield WIDE, {**code, "model.activation": "tanh", "parallel.data": "node", "w_step.cg_precision": "single"}
    yield WIDE, {**code, "model.activation": "tanh", "parallel.data": "sharded", **lagrangian}
    sparse = {"penalty.l1": 0.05, "penalty.ridge_scale": "objective"}
    for place in ("replicated", "sharded"):
        yield WIDE, {**code, **sparse, "model.activation": "tanh", "parallel.data": place}
    yield SMALL, {**label, "model.hidden": average, "model.activation": "relu", "parallel.data": "sharded"}
    yield WIDE, {"model.hidden": [24], **back, "model.activation": "tanh", "method.acceleration": "momentum"}
    yield CLASSES, {**label, "model.activation": "relu", "model.loss": "cross_entropy"}
    for keys in ({}, {"parallel.data": "sharded"}, {"parallel.data": "node", **single}):
        yield WIDE, {**code, **drawn, "model.activation": "relu", **keys}
        yield CLASSES, {**label, **drawn, "model.activation": "relu", "model.loss": "cross_entropy", **keys}
    yield WIDE, {"model.hidden": [24], **back, **drawn, "model.activation": "tanh"}
    yield WIDE, {**code, "method.name": "adam", "baseline.batch": 9, "model.activation": "tanh"}
    by_group = {"model.image": [2, 3, 2], "model.hidden": [Convolution(4, 2, groups=2), 5], "model.activation": "tanh"}
    for keys in ({}, {**lagrangian, "model.sites": "before"}, {"parallel.data": "sharded"}, sparse, drawn):
        yield WIDE, {**by_group, **keys}
    yield WIDE, {**by_group, **drawn, "parallel.data": "node"}


def one_block(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Recurrent layers and tied ones, by units and by segments, with every kind of points."""
    steps = {"model.hidden": [Recurrent(6, 4), 5], "model.activation": "tanh"}
    tied = {"model.hidden": [7, 3, 7], "model.activation": "sigmoid", "model.tied": True}
    drawn = {"method.name": "stochastic", "stochastic.batch": 20, "stochastic.parts": 5}
    for net in (steps, tied):
        for keys in ({}, {**lagrangian, "model.sites": "before"}, {"model.sites": "none"}, {"w_step.solver": "sgd"}):
            yield WIDE, {**net, **keys}
        yield WIDE, {**net, "z_step.solver": "alternating", "parallel.data": "node", **single}
        for place in ("replicated", "sharded"):
            yield WIDE, {**net, **drawn, "parallel.data": place}
            yield WIDE, {**net, "parallel.data": place, "w_step.cg_precision": "single"}
        yield WIDE, {**net, "method.acceleration": "momentum"}
        yield WIDE, {**net, "method.name": "adam", "baseline.batch": 9}
    yield CLASSES, {**steps, "model.hidden": [Recurrent(4, 3)], "model.loss": "cross_entropy"}


def cascades(single: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Filters, a codebook and its histogram, begun stage by stage, by each kind of method."""
    words = Convolution(4, 2, pool=2, pooling="sum")
    net = {"model.image": [3, 3], "model.hidden": [Convolution(5, 2, pool=2), words], "start.method": "staged"}
    keys = {**net, "model.activation": ["relu", "softmax"], "model.loss": "cross_entropy"}
    net_of_one = {**keys, "model.hidden": [Convolution(5, 3, pool=3, pooling="average")], "model.activation": "softmax"}
    drawn = {"method.name": "stochastic", "stochastic.batch": 20, "stochastic.parts": 5}
    whole = {**keys, "model.hidden": [Convolution(5, 2), words]}
    yield CLASSES, {**whole, **drawn}
    yield CLASSES, {**net_of_one, **drawn, **single, "parallel.data": "node"}
    yield CLASSES, {**whole, "method.name": "adam", "baseline.batch": 9, "model.centres": "subset"}
    for sites in ("after", "before", ["none", "after"]):
        yield CLASSES, {**whole, "model.sites": sites}
    yield CLASSES, {**net_of_one, "parallel.data": "node"}
    yield SMALL, {"start.method": "staged", "model.activation": ["tanh", "softmax"]}
    yield SMALL, {"start.method": "stochastic", "parallel.data": "sharded"}
    yield CLASSES, {**whole, **drawn, "start.method": "uniform", "parallel.data": "sharded"}


def masks(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Sparse layers, one mask a unit and one for several, by every W-solver, by each kind of method and of points."""
    wide = [Sparse(50, "random", 0.3), 5, Sparse(50, "banded", width=3, groups=7)]
    code = {"model.hidden": wide, "model.activation": "tanh"}
    narrow = {"model.hidden": [Sparse(70, "local", width=2, image=[3, 3, 1]), Sparse(5, "random", seed=3)]}
    places = cycle(("replicated", "sharded", "node"))
    for keys in ({}, {**lagrangian, "model.sites": "before"}, {"model.sites": ["none", "after", "before"]}, single):
        for place in ("replicated", "sharded"):
            yield WIDE, {**code, **keys, "parallel.data": place}
    for solver in (*WHOLE, *APART):
        yield SMALL, {**narrow, "model.activation": "tanh", "w_step.solver": solver, "parallel.data": next(places)}
    yield CLASSES, {**narrow, "model.activation": "relu", "model.loss": "cross_entropy", "model.sites": "none"}
    for keys in ({"penalty.l1": 0.05}, {"penalty.group_lasso": 0.05}, {"method.acceleration": "momentum"}):
        yield WIDE, {**code, **keys, "parallel.data": next(places)}
    drawn = {"method.name": "stochastic", "stochastic.batch": 20, "stochastic.parts": 5}
    for keys in ({}, {"parallel.data": "sharded"}, {"parallel.data": "node", **single}):
        yield WIDE, {**code, **drawn, **keys}
        yield CLASSES, {**narrow, **drawn, "model.activation": "relu", "model.loss": "cross_entropy", **keys}
    for name in ("adam", "lbfgs"):
        yield WIDE, {**code, "method.name": name, "baseline.batch": 9}


def skips(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Residual layers, and columns carried past sites, added or appended, with every kind of points."""
    residual = {"model.hidden": [50, 50, 50], "model.skips": [[1, 3], [2, 4]], "model.activation": "tanh"}
    appended = {"model.hidden": [Sparse(7, "random", 0.5), 5, 6], "model.skips": [[0, 3], [1, 4]]}
    appended |= {"model.joining": "append", "model.activation": "sigmoid"}
    places = cycle(("replicated", "sharded", "node"))
    for keys in ({}, lagrangian, {"model.sites": "before"}, {"model.sites": ["none", "after", "before"]}, single):
        for place in ("replicated", "sharded"):
            yield WIDE, {**residual, **keys, "parallel.data": place}
        yield SMALL, {**appended, **keys, "parallel.data": next(places)}
    yield CLASSES, {**appended, "model.loss": "cross_entropy", "model.sites": "none"}
    yield WIDE, {**residual, "penalty.l1": 0.05, "parallel.data": "sharded"}
    yield WIDE, {**residual, "method.acceleration": "momentum", "w_step.cg_precision": "single"}
    drawn = {"method.name": "stochastic", "stochastic.batch": 20, "stochastic.parts": 5}
    for keys in ({}, {"parallel.data": "sharded"}, {"parallel.data": "node", **single}):
        yield WIDE, {**residual, **drawn, **keys}
        yield CLASSES, {**appended, **drawn, "model.loss": "cross_entropy", **keys}
    yield WIDE, {**residual, "method.name": "adam", "baseline.batch": 9}
    images = {"model.image": [4, 3], "model.hidden": [Convolution(3, 3), Convolution(3, 3), Convolution(2, 3), 9]}
    yield WIDE, {**images, "model.skips": [[1, 3]], "model.activation": "tanh", "parallel.data": "sharded"}
    images |= {"model.skips": [[0, 2], [1, 3], [1, 5]], "model.joining": "append", "model.activation": "tanh"}
    yield WIDE, {**images, **drawn}


def some_units(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Coordinates of some units of the first layer, with every kind of points."""
    for place in ("replicated", "sharded", "node"):
        yield WIDE, {"model.sites": [{"after": 20}, "after", "before"], "parallel.data": place}
    yield SMALL, {"model.sites": [{"before": 3}, "none"], "start.method": "staged", **single}
    yield CLASSES, {"model.sites": [{"after": 4}, "after"], **lagrangian, "model.loss": "cross_entropy"}


def losses(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Every loss that is neither of squares alone nor of labels, by each kind of method; missing outputs, weights."""
    sums = {"logistic": (TRUTH, GAPS_TRUTH), "poisson": (COUNTS, GAPS_COUNTS)}
    sums |= dict.fromkeys(("huber", "absolute"), (SMALL, GAPS)) | {"squared": (SMALL, GAPS)}
    drawn = {"method.name": "stochastic", "stochastic.batch": 9, "stochastic.parts": 5}
    adam = {"method.name": "adam", "baseline.batch": 9, "baseline.momentum": 0.5}
    own = {"parallel.data": "sharded"}
    starts = cycle(({}, {"start.method": "pca"}))
    weighed = cycle(({"penalty.metric": "curvature", "model.sites": "before"}, lagrangian, {"model.sites": "none"}))
    for z, (loss, (whole, gaps)) in zip(cycle(MOVING), sums.items()):
        keys = {"model.loss": loss}
        for data, also in ((whole, keys), (gaps, {**keys, "loss.missing": True})):
            if also == {"model.loss": "squared"}:
                continue
            yield data, {**also, "z_step.solver": z, "method.acceleration": "momentum", **next(starts)}
            yield data, {**also, **next(weighed)}
            yield data, {**also, **drawn, **next(starts)}
            yield data, {**also, **adam, **single}
            yield data, {**also, **own}
            yield data, {**also, **own, **drawn}
        yield gaps, {**keys, "loss.missing": True, **single, "parallel.data": "node", **drawn}
    ring = {**own, "w_step.schedule": "ring", "w_step.batch": 9, "w_step.rate": 0.01}
    yield GAPS, {**ring, "loss.missing": True}
    bits = {"model.activation": "binary", "penalty.mu0": 0.1, "model.hidden": [5], "start.method": "pca"}
    yield GAPS, {**bits, "model.loss": "huber", "loss.threshold": 0.3, "loss.missing": True, "start.method": "itq"}


def weighted_outputs(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """A weight for each point and output, by each kind of method, start, net and place of the points."""
    own, counts = {"parallel.data": "sharded"}, {"model.loss": "poisson"}
    drawn = {"method.name": "stochastic", "stochastic.batch": 9, "stochastic.parts": 5}
    yield OUTPUTS, {"method.acceleration": "momentum", "start.method": "pca"}
    yield OUTPUTS, {**lagrangian, **single, "penalty.metric": "curvature", "model.sites": "before"}
    yield OUTPUTS, {"model.hidden": [3], "method.name": "alternating", "model.activation": "linear"}
    yield OUTPUTS, {"model.loss": "huber", **own, "w_step.schedule": "ring", "w_step.batch": 9, "w_step.rate": 0.01}
    yield OUTPUTS_COUNTS, {**counts, **own}
    for keys in ({}, own, {"parallel.data": "node"}):
        yield OUTPUTS_COUNTS, {**counts, **drawn, **keys}
    yield OUTPUTS_COUNTS, {**counts, "start.method": "greedy"}
    yield OUTPUTS, {"method.name": "lbfgs", "model.sites": "none"}
    yield OUTPUTS, {"model.hidden": [5], "model.activation": "binary", "penalty.mu0": 0.1}
    yield OUTPUTS, {"model.hidden": [Recurrent(4, 3)], "model.activation": "tanh"}
    for keys in ({}, {"parallel.data": "sharded"}):
        stacked = [Recurrent(4, 3, states="all"), Recurrent(3, 3)]
        yield SMALL, {"model.hidden": stacked, "model.activation": "tanh", **keys}


def fitted(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Layers by fitters, of one rank each, among others."""
    trees: dict[str, Any] = {"model.trees": 3, "model.depth": 3}
    for kind, data in zip(("forest", "boosted"), cycle((WIDE, CLASSES))):
        loss = "cross_entropy" if data is CLASSES else "squared"
        yield data, {**trees, "model.activation": [kind, "tanh", "tanh"], "model.loss": loss}
        yield SMALL, {**trees, "model.activation": [kind, "kernel_ridge"], "model.examples": 9, **lagrangian}
    yield WIDE, {"model.activation": ["nearest_neighbours", "tanh", "tanh"], "model.examples": 40}
    yield SMALL, {**trees, **single, "model.activation": ["forest", "sigmoid"], "penalty.metric": "variance"}
    yield WIDE, {**trees, "model.activation": ["boosted", "tanh", "tanh"], "parallel.data": "node"}
    for name in ("linear_svm", "logistic"):
        yield CLASSES, {"model.fitters": ["auto", "auto", name], "model.loss": "cross_entropy"}
    bits = {"model.hidden": [5], "model.activation": "binary", "penalty.mu0": 0.1}
    yield SMALL, {**bits, "model.fitters": ["linear_svm", "auto"]}
    keys = {"model.fitters": ["auto", "logistic"], "model.loss": "cross_entropy", "model.hidden": [7]}
    yield CLASSES, {**keys, "model.sites": "before", "model.activation": "tanh"}


def restrained(single: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Each key that shapes weights, for units and segments, on points that every rank, a node and each rank holds."""
    asked: list[dict[str, Any]] = [
        {"penalty.l1": 0.05, "penalty.ridge_scale": "objective"},
        {"penalty.group_lasso": 0.05, "penalty.weights_min": 0.0},
        {"penalty.weights_min": -0.2, "penalty.weights_max": 0.3},
        {"penalty.l1": 0.02, "penalty.group_lasso": 0.02, "penalty.ridge_until_mu": 1.0},
    ]
    places = cycle(("replicated", "sharded", "node"))
    for keys in asked:
        for data in (WIDE, SMALL, LONG):
            yield data, {**keys, "parallel.data": next(places)}
        yield CLASSES, {**keys, "model.loss": "cross_entropy", "parallel.data": next(places)}
        yield CLASSES, {**keys, "model.sites": ["none", "after"], "model.activation": ["softmax", "sigmoid"]}
    by_layer = {"penalty.ridge": [0.1, 0.0, 0.2, 0.3], "penalty.l1": [0.0, 0.05, 0.0, 0.1]}
    for place in ("replicated", "sharded"):
        yield WIDE, {**by_layer, "penalty.weights_max": [1e12, 1.0, 1e12, 0.4], "parallel.data": place}
    yield WIDE, {**asked[0], "method.acceleration": "momentum"}
    yield WIDE, {**asked[0], **single, "model.sites": ["none", "after", "before"]}
    yield SMALL, {"penalty.ridge": [0.1, 0.0, 0.3], "model.sites": ["none", "after"]}


def shared(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """One copy a node: each way to write rows of points, every kind of data, every start that does."""
    node = {"parallel.data": "node"}
    yield WIDE, node
    yield WIDE, {**node, "w_step.cg_precision": "single"}
    yield LONG, {**node, "start.method": "greedy"}
    yield LONG, {**node, **lagrangian, "model.sites": "before", "penalty.metric": "curvature", "start.method": "pca"}
    yield CLASSES, {**node, **lagrangian, **single, "model.loss": "cross_entropy", "penalty.metric": "variance"}
    yield WIDE, {**node, "method.acceleration": "momentum", "model.sites": "before"}
    yield SMALL, {**node, "model.activation": "quantise", "model.words": 6, "model.hidden": [3], **lagrangian}
    yield WIDE, {**node, "model.activation": "binary", "penalty.mu0": 0.1, "model.hidden": [5], "start.method": "pca"}
    yield WIDE, {**node, **BASIS, **SELECTING, "model.hidden": [55, 70, 45], **FILE}
    halves = {"model.centres": "subset", "model.hidden": [9, 4, 7]}
    yield SMALL, {**node, **BASIS, **halves, "method.name": "alternating"}
    yield CLASSES, {**node, "method.name": "stochastic", "stochastic.batch": 9, "model.loss": "cross_entropy"}
    growing = {"stochastic.batch": 8, "stochastic.grow_every": 1, "stochastic.ridge": 0.0, "model.hidden": [70, 50]}
    yield WIDE, {**node, "method.name": "stochastic", **growing}
    yield SMALL, {**node, "method.name": "stochastic", "stochastic.batch": 9, "stochastic.parts": 5, **single}
    yield SMALL, {**node, "method.name": "lbfgs", **single}
    for data, name in product((WIDE, SMALL), ("sgd", "adam", "cg")):
        yield data, {**node, "method.name": name, "baseline.batch": 9}


def sharded(
    single: dict[str, Any], lagrangian: dict[str, Any], same: dict[str, Any]
) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Each rank holds its own points: every solver that sums over points, every way to place and weigh constraints."""
    own = {"parallel.data": "sharded"}
    for data in (WIDE, LONG):
        yield data, own
        yield data, {**own, **lagrangian, "model.sites": "before", "penalty.metric": "curvature"}
    for solver in sorted(
        name for name, kind in W_SOLVERS.items() if Demand.SHARDED in kind.handles and name != "closed_form"
    ):  # type: ignore[attr-defined]
        yield SMALL, {**own, **same, "w_step.solver": solver}
    for cg_iterations in (1, 60):
        keys = {"z_step.cg_iterations": cg_iterations, "model.activation": ["softmax", "tanh"]}
        yield CLASSES, {**own, **keys, "model.loss": "cross_entropy"}
    for solver in MOVING:
        yield SMALL, {**own, **single, "z_step.solver": solver, "penalty.metric": "variance"}
    yield CLASSES, {**own, "model.loss": "cross_entropy", "model.sites": "none"}
    yield WIDE, {**own, "method.acceleration": "momentum"}
    ring = {**own, "w_step.schedule": "ring", "w_step.batch": 9, "w_step.rate": 0.05}
    for data, linear in ((WIDE, "same"), (LONG, "closed_form")):
        yield data, {**ring, "w_step.linear_solver": linear, "w_step.iterations": 2}
    yield WIDE, {**ring, **single, "model.sites": "before", "w_step.linear_solver": "same"}
    yield SMALL, {**ring, **lagrangian, "penalty.metric": "variance", "model.activation": "tanh"}
    yield CLASSES, {**ring, "model.loss": "cross_entropy", "model.sites": ["none", "after"], "w_step.rate": 1e-3}
    yield WIDE, {**ring, "method.acceleration": "momentum"}
    yield SMALL, {**ring, "model.hidden": [5, 5, 5], "model.skips": [[1, 3]], "w_step.linear_solver": "same"}
    yield WIDE, {**ring, "model.hidden": [6, 4, 6], "model.tied": True, "w_step.linear_solver": "same"}
    yield SMALL, {**ring, "model.hidden": [Sparse(6, "random"), 4], "model.activation": "tanh"}
    drawn = {"method.name": "stochastic", "stochastic.batch": 9, "stochastic.parts": 5}
    yield SMALL, {**own, **drawn, "model.activation": "tanh"}
    yield CLASSES, {**own, **drawn, **single, "model.loss": "cross_entropy"}
    for i, name in enumerate(("sgd", "adam", "cg", "lbfgs")):
        yield (WIDE, SMALL)[i % 2], {**own, "method.name": name, "baseline.batch": 9}
    codes = {"model.activation": ["quantise", "tanh"], "model.words": 6}
    yield SMALL, {**own, **codes, "model.centres": "kmeans"}
    yield (
        WIDE,
        {**own, "model.hidden": [5], "model.activation": "binary", "penalty.mu0": 0.1, "start.method": "neighbours"},
    )
    yield SMALL, {**own, "model.activation": ["forest", "kernel_ridge"], "model.trees": 3, "model.examples": 9}
    yield SMALL, {**own, "w_step.solver": "sgd", "start.method": "greedy"}
    for method in ("mac", "alternating"):
        yield WIDE, {**own, **BASIS, "method.name": method, "model.hidden": [50, 2, 45]}
    yield SMALL, {**own, **BASIS, **SELECTING}
    yield SMALL, {"w_step.schedule": "ring", "parallel.data": "node", "w_step.batch": 9, "w_step.rate": 0.05}


def basis_functions(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Nets of radial basis functions, by MAC and by alternating optimisation."""
    for method in ("mac", "alternating"):
        keys = {**BASIS, "method.name": method}
        yield SMALL, {**keys, "model.centres": "points", "model.hidden": [37, 2, 37]}
        yield WIDE, {**keys, "model.centres": "subset", "model.hidden": [60, 3, 50]}
        yield WIDE, {**keys, "model.centres": "kmeans", "model.hidden": [50, 2, 45]}
        yield SMALL, {**keys, "model.centres": ["kmeans", "subset"], "model.hidden": [11, 2, 13], **single}
        file = {**FILE, "model.centres": "subset", "model.hidden": [9, 4, 7]}
        yield CLASSES, {**keys, **file, "model.loss": "cross_entropy"}
    yield LONG, {**BASIS, "model.hidden": [6, 2, 5], "start.method": "pca"}
    net = {**BASIS, "model.centres": "subset", "model.hidden": [20, 2, 15]}
    for solver, metric in zip(MOVING, cycle(("variance", "curvature"))):
        yield SMALL, {**net, "z_step.solver": solver, "penalty.metric": metric}
    yield SMALL, {**net, **lagrangian}
    yield SMALL, {**net, "model.activation": ["rbf", "sigmoid", "rbf"]}
    halves = {"model.hidden": [2, 9], "model.activation": ["linear", "rbf"], "model.sites": ["after", "none"]}
    for method in ("mac", "alternating"):
        yield SMALL, {**net, **halves, "model.width": 1.0, "start.method": "pca", "method.name": method}


def selections(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Model selection: in every iteration and in the second, with Grams whole and in rows."""
    for criterion, data in zip(CRITERIA, cycle((SMALL, WIDE))):
        yield data, {**BASIS, **SELECTING, "selection.criterion": criterion}
    yield WIDE, {**BASIS, **SELECTING, "model.hidden": [70, 2, 55], "selection.epsilon2": [0.6, 0.1]}
    yield WIDE, {**BASIS, **SELECTING, "model.hidden": [55, 70, 45], **FILE}
    yield SMALL, {**BASIS, **SELECTING, "selection.every": 2, **lagrangian}
    yield SMALL, {**BASIS, **SELECTING, "start.method": "pca", **single}
    halves = {"model.activation": ["rbf", "linear", "sigmoid"], "model.hidden": [30, 2, 7], "model.width": 3.0}
    yield SMALL, {**BASIS, **SELECTING, **halves, "selection.sizes": [[3, 7, 11, 15, 19, 23, 27], [], []]}
    yield SMALL, {**BASIS, **SELECTING, **halves, "selection.sizes": [[5, 12], [], []], "selection.widths": [1.0, 5.0]}
    yield from widths_and_ridges(lagrangian)
    yield from units(single)


def widths_and_ridges(lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Widths and ridges of radial basis functions, and ridges of a dense net."""
    ridges = {"selection.ridges": [1e-3, 1.0]}
    yield SMALL, {**BASIS, **SELECTING, **ridges, "selection.widths": [[1.0, 5.0], [0.5]], **lagrangian}
    yield WIDE, {**BASIS, **SELECTING, **ridges, "model.hidden": [70, 2, 55], "parallel.data": "node"}
    dense = {"selection.criterion": "bic", "selection.epsilon2": 0.2, "selection.every": 1, "model.sites": "before"}
    yield WIDE, {**dense, **ridges, "model.activation": "tanh"}


def units(single: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Sizes of dense layers, by every kind of points, sites, output layers and trials."""
    keys = {**UNITS, "model.activation": "tanh"}
    few, wide = {"selection.sizes": [[2, 4], [2, 3, 4]]}, {"selection.sizes": [[9, 45], [2, 4], []]}
    for place in ("replicated", "node", "sharded"):
        own = {"parallel.data": place}
        yield WIDE, {**keys, **wide, **own}
        yield SMALL, {**keys, **few, **own, "model.sites": "before"}
        labels = {"model.loss": "cross_entropy", "selection.epsilon2": 1.0}
        yield CLASSES, {**keys, **few, **own, **labels}
        yield WIDE, {**keys, **wide, **own, "method.acceleration": "momentum", "selection.every": 2}
    yield SMALL, {**keys, **few, **single, "model.sites": "none"}
    yield LONG, {**keys, "selection.sizes": [[1, 2]], "selection.epsilon2": 200.0}
    ring = {"parallel.data": "sharded", "w_step.schedule": "ring", "w_step.batch": 9, "w_step.rate": 0.05}
    yield WIDE, {**keys, **wide, **ring}
    code = {"model.image": [4, 3], "model.hidden": [Convolution(3, 3, pool=2), 9, 5], "selection.sizes": [[], [4], []]}
    yield WIDE, {**keys, **code}


def discrete(single: dict[str, Any], lagrangian: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Quantising and binary layers, and words."""
    codes = {"model.activation": "quantise", "model.words": 6}
    for data, trainer in ((SMALL, "kmeans"), (WIDE, "subset")):
        yield data, {**codes, "model.hidden": [3], "model.centres": trainer, "start.method": "pca"}
    deep = {"model.hidden": [3, 5], "model.sites": ["after", "none"], "w_step.linear_solver": "same"}
    yield CLASSES, {**codes, **deep, "model.activation": ["quantise", "tanh"], "model.loss": "cross_entropy"}
    yield SMALL, {**codes, "model.hidden": [3], **lagrangian, **single}
    bits: dict[str, Any] = {"model.activation": "binary", "penalty.mu0": 0.1}
    for data, hidden, word in ((WIDE, 5, "pca"), (WIDE, 11, "pca"), (SMALL, 12, "neighbours"), (WIDE, 70, "pca")):
        yield data, {**bits, "model.hidden": [hidden], "start.method": word}
    for loss, linear in (("squared", "same"), ("cross_entropy", "closed_form")):
        data = CLASSES if loss == "cross_entropy" else SMALL
        keys = {"model.hidden": [6], "model.loss": loss, "w_step.linear_solver": linear}
        yield data, {**bits, **keys, "model.hidden": [11]}
        yield data, {**bits, **keys, **deep, "model.activation": ["binary", "sigmoid"], "start.method": "uniform"}
    words = {**bits, "model.activation": "argmax", "model.words": 4, "start.method": "staged"}
    yield SMALL, {**words, "model.hidden": [8]}
    yield WIDE, {**words, "model.hidden": [24]}
    yield SMALL, {**words, **deep, "model.hidden": [8, 5], "model.activation": ["argmax", "sigmoid"]}
    for solver, size in zip(APART, cycle((5, 11))):
        yield SMALL, {**bits, "model.hidden": [size], "w_step.solver": solver}
    yield SMALL, {**bits, "model.hidden": [5], **lagrangian, **single}


@dataclass(frozen=True)
class Choice:
    """A config and data, named after what its plan for one rank makes of it."""

    name: str
    config: Config
    data: Dataset
    keys: tuple[str, ...]

    def plan(self, ranks: int) -> Plan:
        data = self.data
        return plan_of(self.config, *data.sizes.counts, ranks, weighted="outputs" if data.outputs else False)

    @property
    def origin(self) -> Origin:
        """Coordinates for a start from a file."""
        if self.config.start.method != "file":
            return Origin()
        (H,) = self.plan(1).chain.site_sizes
        X = self.data.X
        return Origin(coordinates=np.tanh(X @ np.random.default_rng(3).normal(size=(X.shape[1], H))))


def made() -> Iterator[Choice]:
    for i, (data, keys) in enumerate((*rows(), *placed())):
        yield choice_of(i, data, keys)


def choice_of(i: int, data: Dataset, keys: dict[str, Any]) -> Choice:
    hidden = keys.get("model.hidden", HIDDEN[id(data)])
    usual = {"hidden": hidden, "activation": "sigmoid", "loss": "squared"}
    table: dict[str, dict[str, Any]] = {"model": usual, "penalty": {"mu0": 7.0}}
    for name, value in keys.items():
        part, key = name.split(".")
        most = len(hidden) + (key == "fitters")
        each = isinstance(value, list) and part == "model" and key not in ("image", "skips")
        table.setdefault(part, {})[key] = value[:most] if each else value
    tables = {name: TABLES[name](**values) for name, values in table.items()}
    config = Config(**{"method": Method("mac"), **tables})
    kinds = {type(layer).__name__ for layer in hidden if not isinstance(layer, int)}
    choice = Choice("", config, in_precision(data, table), (*keys, *sorted(kinds), f"{len(data.X)} points"))
    return replace(choice, name=f"{i} {' '.join(words(choice))}")


def placed() -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """Every method with every place of the data, but for those pairs that are refused."""
    minibatches = {"baseline.batch": 60, "stochastic.batch": 60, "stochastic.parts": 4}
    for name, place in product(METHODS, PLACES):
        own = BASIS | {"model.centres": "subset", "model.hidden": [60, 3, 50]} if name == "alternating" else {}
        keys = {**own, **minibatches, "method.name": name, "parallel.data": place}
        if not refused(WIDE, keys):
            yield WIDE, keys


def refused(data: Dataset, keys: dict[str, Any]) -> bool:
    try:
        choice_of(0, data, keys)
    except UsageError:
        return True
    return False


SOME = "MACMPI_TEST_CHOICES"
"""The environment variable that names words of choices, of which those that have all of them are the only ones."""


@cache
def choices() -> tuple[Choice, ...]:
    asked = set(os.environ.get(SOME, "").split())
    return tuple(choice for choice in made() if asked <= set(choice.name.split()))


SIZES = (3, 5, 2)
"""Numbers of ranks."""


def on_ranks(many: str) -> dict[int, list[Choice]]:
    """The choices for each number of ranks.

    many: "all": every choice on 5 and on 2 or 3; "": enough to hold every word, every method, place of the data and
    number of ranks, and every key or kind of layer with every method and with every place of the data; "pairs": also
    any two words in one choice, and every word on each number of ranks.
    """
    if many == "all":
        return {5: list(choices()), 3: list(choices()[1::2]), 2: list(choices()[::2])}
    runs = [(size, choice) for choice in choices() for size in SIZES]
    held = []
    for size, choice in runs:
        of, where = choice.name.split()[1:], (choice.config.method.name, choice.config.parallel.data)
        held.append({*of, (*where, size), *product(choice.keys, where)})
        held[-1].update([*combinations(of, 2), *product(of, [size])] if many else ())
    found: dict[int, list[Choice]] = {size: [] for size in SIZES}
    for size, choice in (runs[k] for k in cover(held)):
        found[size].append(choice)
    return found


def in_precision(data: Dataset, table: dict[str, dict[str, Any]]) -> Dataset:
    if table["model"].get("precision") != "float32":
        return data
    X, X_val, Y, Y_val = (A.astype(np.float32) for A in (data.X, data.X_val, data.Y, data.Y_val))
    if data.autoencoder:
        Y, Y_val = X, X_val
    return Dataset(X, Y, X_val, Y_val, data.scaling_x, data.scaling_y, "")


def words(choice: Choice) -> list[str]:
    """What the plan has in it, a word each."""
    c, plan = choice.config, choice.plan(1)
    z, w = ({kind: name for name, kind in solvers.items()} for solvers in (Z_SOLVERS, W_SOLVERS))
    found = [
        f"loss={c.model.loss}",
        f"method={c.penalty.method}",
        f"metric={plan.resolved.metric}",
        f"start={c.start.method}",
    ]
    found += [f"precision={plan.dtype}", f"by={c.method.name}", *(["batch=all"] if plan.resolved.whole_steps else [])]
    found += [f"acceleration={c.method.acceleration}", f"schedule={c.w_step.schedule}", f"data={c.parallel.data}"]
    found += [f"sums={c.w_step.sums}"] if c.w_step.sums != "whole" else []
    trainers = {kind: name for name, kind in TRAINERS.items()}
    found += [f"centres={trainers[type(t)]}" for t in plan.resolved.trainers.values()]
    found += [f"criterion={c.selection.criterion}"]
    grams = [gram.rows is not None for gram in plan.work.w_step.grams]
    found += ["gram=rows"] if any(grams) else []
    if plan.chain.sites and Demand.SITE_OF_BITS in plan.resolved.z_solver.handles:
        found.append(
            "bits=enumerated" if plan.resolved.z_solver.enumerated >= plan.chain.site_sizes[0] else "bits=alternating"
        )
    found += [f"activation={activation}" for _, activation, _ in c.model.layers()]
    found += ["sites=mixed"] if isinstance(c.model.sites, list) else [f"sites={c.model.sites}"]
    found += ["sites=some"] if plan.chain.undivided else []
    found += [f"Z={z[type(plan.resolved.z_solver)]}"] if plan.chain.sites else []
    regressions = plan.resolved.regressions.values()
    inner = [r.solver.inner if isinstance(r.solver, Thresholded) else r.solver for r in regressions]
    found += [
        f"W={w[type(s)]}:{'units' if apart else 'segment'}"
        for s, apart in zip(inner, [r.by_unit for r in regressions], strict=True)
        if type(s) in w
    ]
    found += [f"fitter={r.name}" for r in regressions if r.by_fitter]
    return list(dict.fromkeys(found))
