"""Small examples of every registered thing.  A row of a registry without its example here fails the contract tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pages import blocks_of_page
from targets import taken_by

from macmpi.config import Model
from macmpi.demand import Demand
from macmpi.nets.build import build_chain
from macmpi.nets.chain import Chain, Segment
from macmpi.nets.layers import KINDS, Map, Tangent
from macmpi.nets.layers.activation import FUNCTIONS, Activation, Softmax
from macmpi.nets.layers.affine import Affine, Linear, Shift, Transposed
from macmpi.nets.layers.carrying import Add, Carrying, Copy, Stack, Turn
from macmpi.nets.layers.codes import Binary, OneHot, Quantiser
from macmpi.nets.layers.convolution import Convolution, GroupedConvolution, TransposedConvolution
from macmpi.nets.layers.fitted import GaussianBasis, Kernels, Neighbours, Trees
from macmpi.nets.layers.masked import Masked, as_text
from macmpi.nets.layers.patches import AveragePooling, MaxPooling, SumPooling
from macmpi.nets.layers.recurrent import FirstState, Remember
from macmpi.nets.losses import LOSSES, Loss, Metric, metric, times
from macmpi.reductions import OverPoints, sum_over
from macmpi.solvers import W_SOLVERS, Z_SOLVERS, z_gauss_newton
from macmpi.solvers.grams import LayerGram
from macmpi.solvers.w_problem import SegmentProblem, UnitProblem
from macmpi.solvers.z_gauss_newton import Linearised
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

EPS = float(np.finfo(float).eps)


def cases(registry: Iterable[str], examples: Mapping[str, Sequence[Any]]) -> list[Any]:
    """One parameter for each example of each row; a row without examples gives one that fails when it is run."""
    return [
        pytest.param((name, i), id=f"{name}-{i}" if len(examples.get(name, ())) > 1 else name)
        for name in registry
        for i in range(max(1, len(examples.get(name, ()))))
    ]


def example_of(case: tuple[str, int], examples: Mapping[str, Sequence[Any]], table: str) -> Any:
    name, i = case
    if not examples.get(name):
        pytest.fail(f"'{name}' is registered, but tests/contracts/examples.py has no example of it: add one to {table}")
    return examples[name][i]


@cache
def worked_example() -> dict[str, Any]:
    """The names of the layer and the activation that docs/extending shows."""
    names: dict[str, Any] = {"__name__": "my_layers"}
    for page in ("docs/extending/layer.md", "docs/extending/activation.md"):
        exec(compile(blocks_of_page(page, "python")[0], page, "exec", dont_inherit=True), names)
    return names


def one_hot(random: np.random.Generator, n: int, size: int) -> Array:
    return np.eye(size)[random.integers(size, size=n)]


def narrow(value: Any) -> Any:
    """Arrays, and what is made of arrays, in float32."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float32)
    if isinstance(value, Metric):
        return metric(value.M, np.float32)
    return tuple(map(narrow, value)) if isinstance(value, tuple) else value


def narrowed(problem: Any, *names: str) -> Any:
    """A problem with these fields in float32."""
    return replace(problem, **{name: narrow(getattr(problem, name)) for name in names})


# --- maps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MapExample:
    """A map, weights and points where it is smooth."""

    map: Map
    W: Array | None
    A: Array

    @property
    def tangent(self) -> Tangent:
        return self.map.tangent(self.W, self.A, self.map.forward(self.W, self.A))


def affine_example(n_in: int, n_out: int, random: np.random.Generator) -> MapExample:
    return MapExample(Affine(n_in, n_out), random.normal(size=(n_out, n_in + 1)), random.normal(size=(9, n_in)))


def activation_example(name: str, random: np.random.Generator) -> MapExample:
    return MapExample(Activation(name, 5), None, away_from_kinks(random, (9, 5)))


def softmax_example(size: int, random: np.random.Generator, groups: int = 1) -> MapExample:
    return MapExample(Softmax(size, groups), None, 2.0 * random.normal(size=(9, size)))


def linear_example(n_in: int, n_out: int, random: np.random.Generator) -> MapExample:
    return MapExample(Linear(n_in, n_out), random.normal(size=(n_out, n_in)), random.normal(size=(9, n_in)))


def rbf_example(n_in: int, n_out: int, width: float, random: np.random.Generator) -> MapExample:
    """Centres among the points, and one of them a point itself."""
    C, A = random.normal(size=(n_out, n_in)), random.normal(size=(9, n_in))
    C[-1] = A[3]
    return MapExample(GaussianBasis(n_in, n_out, width), C, A)


def quantiser_example(size: int, words: int, random: np.random.Generator) -> MapExample:
    return MapExample(Quantiser(size, words), random.normal(size=(words, size)), random.normal(size=(9, size)))


def binary_example(size: int, random: np.random.Generator) -> MapExample:
    return MapExample(Binary(size), None, away_from_kinks(random, (9, size)))


def words_example(size: int, words: int, random: np.random.Generator) -> MapExample:
    return MapExample(OneHot(size, words), None, random.normal(size=(9, size)))


def trees_example(n_in: int, n_out: int, trees: int, depth: int, random: np.random.Generator) -> MapExample:
    map_ = Trees(n_in, n_out, trees, depth)
    columns = random.integers(n_in, size=(trees, map_.nodes))
    rest = random.normal(size=(trees, map_.parameter_shape[1] - map_.nodes))
    return MapExample(map_, np.hstack([columns, rest]), random.normal(size=(9, n_in)))


def kernels_example(n_in: int, n_out: int, examples: int, width: float, random: np.random.Generator) -> MapExample:
    map_ = Kernels(n_in, n_out, examples, width)
    return MapExample(map_, random.normal(size=map_.parameter_shape), random.normal(size=(9, n_in)))


def away_from_kinks(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of either sign, none near 0, where an activation may have no derivative."""
    return random.uniform(0.1, 3.0, shape) * random.choice([-1.0, 1.0], shape)


def first_state_example(n_in: int, units: int, random: np.random.Generator) -> MapExample:
    return MapExample(FirstState(n_in, units), None, random.normal(size=(9, n_in)))


def weighted_example(kind: Callable[..., Map], keys: tuple[Any, ...], random: np.random.Generator) -> MapExample:
    map_ = kind(*keys)
    assert map_.parameter_shape is not None
    return MapExample(map_, random.normal(size=map_.parameter_shape), random.normal(size=(9, map_.n_in)))


def grouped_example(keys: tuple[Any, ...], random: np.random.Generator) -> MapExample:
    found = weighted_example(GroupedConvolution, keys, random)
    return replace(found, W=found.W * found.map.connected)


def pooling_example(kind: Callable[..., Map], shape: tuple[int, ...], random: np.random.Generator) -> MapExample:
    """Pixels that are all different, by more than the steps of a difference quotient."""
    map_ = kind(*shape)
    return MapExample(map_, None, random.permuted(np.tile(np.arange(map_.n_in) / 4.0, (9, 1)), axis=1))


def masked_example(n_in: int, n_out: int, share: float, random: np.random.Generator) -> MapExample:
    """Each unit reads at least one input."""
    connections = random.uniform(size=(n_out, n_in)) < share
    connections[np.arange(n_out), random.integers(n_in, size=n_out)] = True
    map_ = Masked(n_in, n_out, as_text(connections))
    return MapExample(map_, random.normal(size=map_.parameter_shape) * map_.connected, random.normal(size=(9, n_in)))


def carrying_example(
    inner: Callable[[np.random.Generator], MapExample], carried: int, random: np.random.Generator
) -> MapExample:
    own = inner(random)
    return MapExample(Carrying(own.map, carried), own.W, np.hstack([own.A, random.normal(size=(9, carried))]))


def weightless_example(map_: Map, random: np.random.Generator) -> MapExample:
    return MapExample(map_, None, random.normal(size=(9, map_.n_in)))


def low_rank_example(n_in: int, n_out: int, random: np.random.Generator) -> MapExample:
    map_ = worked_example()["LowRank"](n_in, n_out, 2)
    return MapExample(map_, random.normal(size=map_.parameter_shape), random.normal(size=(9, n_in)))


MAPS: dict[str, list[Callable[[np.random.Generator], MapExample]]] = {
    "affine": [partial(affine_example, 4, 3), partial(affine_example, 1, 6), partial(affine_example, 3, 1)],
    "grouped_convolution": [
        partial(grouped_example, (4, 3, 2, 2, 3, 1, "same", 2)),
        partial(grouped_example, (3, 4, 4, 2, 2, 2, "same", 2)),
        partial(grouped_example, (4, 4, 3, 6, 2, 1, "none", 3)),
    ],
    "convolution": [
        partial(weighted_example, Convolution, (4, 3, 2, 3, 3)),
        partial(weighted_example, Convolution, (5, 4, 1, 2, 3, 2)),
        partial(weighted_example, Convolution, (5, 6, 1, 2, 2, 3, "none")),
        partial(weighted_example, Convolution, (3, 3, 2, 2, 1, 2)),
    ],
    "transposed_convolution": [
        partial(weighted_example, TransposedConvolution, (2, 3, 2, 1, 3, 2)),
        partial(weighted_example, TransposedConvolution, (3, 2, 1, 2, 4, 3)),
        partial(weighted_example, TransposedConvolution, (2, 2, 2, 2, 2, 3)),
        partial(weighted_example, TransposedConvolution, (3, 2, 2, 3, 5, 2)),
    ],
    "average_pooling": [
        partial(pooling_example, AveragePooling, (4, 4, 2, 2)),
        partial(pooling_example, AveragePooling, (5, 3, 1, 2)),
    ],
    "max_pooling": [
        partial(pooling_example, MaxPooling, (4, 4, 2, 2)),
        partial(pooling_example, MaxPooling, (5, 7, 1, 3)),
    ],
    "sum_pooling": [
        partial(pooling_example, SumPooling, (4, 4, 2, 2)),
        partial(pooling_example, SumPooling, (5, 3, 1, 2)),
    ],
    "activation": [partial(activation_example, name) for name in FUNCTIONS],
    "softmax": [*(partial(softmax_example, size, groups=groups) for size, groups in ((5, 1), (1, 1), (12, 3), (4, 4)))],
    "linear": [partial(linear_example, 4, 3), partial(linear_example, 1, 5), partial(linear_example, 3, 1)],
    "masked": [
        partial(masked_example, 4, 3, 0.4),
        partial(masked_example, 7, 5, 0.6),
        partial(masked_example, 1, 6, 1.0),
    ],
    "rbf": [partial(rbf_example, 4, 6, 1.7), partial(rbf_example, 1, 3, 0.6), partial(rbf_example, 3, 1, 4.0)],
    "carrying": [
        partial(carrying_example, partial(affine_example, 4, 3), 2),
        partial(carrying_example, partial(masked_example, 5, 3, 0.5), 1),
        partial(carrying_example, partial(activation_example, "tanh"), 3),
        partial(carrying_example, partial(softmax_example, 4), 2),
        partial(carrying_example, partial(weighted_example, Convolution, (4, 3, 2, 3, 3)), 2),
        partial(carrying_example, partial(pooling_example, MaxPooling, (4, 4, 2, 2)), 3),
        partial(carrying_example, partial(weightless_example, Add(2)), 3),
    ],
    "copy": [partial(weightless_example, Copy(3)), partial(weightless_example, Copy(2, 4))],
    "stack": [partial(weightless_example, Stack(4, 2, 3)), partial(weightless_example, Stack(1, 1, 2))],
    "add": [partial(weightless_example, Add(3)), partial(weightless_example, Add(1))],
    "quantiser": [partial(quantiser_example, 3, 5), partial(quantiser_example, 1, 4), partial(quantiser_example, 4, 1)],
    "binary": [partial(binary_example, 5)],
    "argmax": [partial(words_example, 6, 3), partial(words_example, 4, 4), partial(words_example, 6, 2)],
    "trees": [partial(trees_example, 4, 3, 5, 3), partial(trees_example, 1, 1, 1, 1)],
    "kernels": [partial(kernels_example, 4, 3, 6, 1.7), partial(kernels_example, 1, 2, 1, 0.6)],
    "nearest_neighbours": [
        partial(weighted_example, Neighbours, (4, 3, 9)),
        partial(weighted_example, Neighbours, (1, 2, 3)),
    ],
    "transposed": [partial(weighted_example, Transposed, (4, 3)), partial(weighted_example, Transposed, (1, 5))],
    "shift": [partial(weighted_example, Shift, (4,))],
    "turn": [partial(weightless_example, Turn(5, 2))],
    "remember": [partial(weightless_example, Remember(3, past, 2)) for past in (0, 6)],
    "first_state": [partial(first_state_example, 3, 4), partial(first_state_example, 1, 1)],
    "low rank": [partial(low_rank_example, 4, 3), partial(low_rank_example, 1, 5)],
}

WITH_EXAMPLE = (*KINDS, "low rank")
"""The kinds of the registry, and that of the worked example."""


# --- losses and metrics -----------------------------------------------------------------------------------------------

METRICS = ("number", "diagonal", "full")


def metric_example(kind: str, size: int, random: np.random.Generator, scale: float = 1.0) -> Metric:
    """A form with eigenvalues between about `scale` / 3 and 3 `scale`."""
    if kind == "number":
        return metric(scale)
    diagonal = scale * 3.0 ** random.uniform(-1.0, 1.0, size)
    if kind == "diagonal":
        return metric(diagonal)
    assert kind == "full"
    Q = np.linalg.qr(random.normal(size=(size, size)))[0]
    M = (Q * diagonal) @ Q.T
    return metric(0.5 * (M + M.T))


def targets_of(loss: Loss, random: np.random.Generator, n: int, size: int) -> Array:
    return taken_by(loss, random.normal(size=(n, size)))


# --- W-solvers --------------------------------------------------------------------------------------------------------

EXACT_DIRECTION = {"iterations": 100, "tolerance": 0.0, "halvings": 60}
W_THOROUGH: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {"iterations": 1000, "cg_iterations": 30, "cg_tolerance": 0.0, "tolerance": 0.0, "halvings": 60},
    ],
    "closed_form": [{}],
    "hessian_free": [EXACT_DIRECTION | {"iterations": 160, "cg_iterations": 20, "cg_tolerance": 0.1}],
    "newton": [{"iterations": 60, "cg_iterations": 30, "cg_tolerance": 1e-3, "tolerance": 0.0, "halvings": 60}],
    "lbfgs": [{"iterations": 1000, "tolerance": 0.0, "halvings": 60}],
    "ncg": [{"iterations": 1000, "tolerance": 0.0, "halvings": 60}],
    "gradient": [{"iterations": 400, "tolerance": 0.0, "halvings": 60}],
    "sgd": [{"iterations": 600, "batch": 1000, "rate": 0.1, "momentum": 0.9}],
    "proximal": [{"iterations": 1000, "tolerance": 0.0}],
}
"""Arguments with which a W-solver goes on until it has a minimum."""

W_ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {},
        {"iterations": 6, "cg_iterations": 3, "relaxation": 1.5},
        {"iterations": 4, "cg_iterations": 2, "halvings": 0},
        {"cg_precision": "single"},
        {"iterations": 5, "cg_iterations": 3, "relaxation": 1.5, "cg_precision": "single"},
    ],
    "closed_form": [{}, {"relaxation": 1.9}],
    "hessian_free": [{}, {"iterations": 3, "cg_iterations": 40, "cg_tolerance": 0.0, "tolerance": 0.0}],
    "lbfgs": [{}, {"iterations": 4, "halvings": 0}],
    "sgd": [{}, {"iterations": 2, "batch": 7, "rate": 1.0, "momentum": 0.0}],
}
"""Other arguments under which the contract must hold; a solver that is not here is taken as it comes."""

W_EXCESS: dict[str, float] = {"gradient": 1e-2, "sgd": 5e-2, "proximal": 2e-3}
"""Share of an objective by which a thorough first-order solver may miss the minimum; the others end in it."""


"""Largest ridge under which a first-order solver gets to the minimum; the others bear any."""

"""Slow on segments where a loss is curved unevenly."""

"""Solvers under whose ridge weights vanish in one step, which may leave a rectifier dead: a minimum, not the least."""

"""Solvers whose steps depend on which points they draw together: no sums over points but the final check."""


def solvers_of(takes: str) -> list[str]:
    """The W-solvers that take such problems, by name."""
    return [name for name, kind in W_SOLVERS.items() if takes in kind.takes]  # type: ignore[attr-defined]


def inputs(random: np.random.Generator, n: int, d: int, kind: str) -> Array:
    """Inputs (n, d) that a least-squares problem may meet."""
    A = random.normal(size=(n, d))
    if kind == "ill-conditioned":
        A *= 10.0 ** np.linspace(-6.0, 6.0, d)
    elif kind == "duplicates":
        A[:, d // 2 :] = A[:, : d - d // 2]
    elif kind == "dead":
        A[:, ::2] = 0.0
    elif kind == "constant":
        A[:, ::2] = 1.0
    elif kind == "far":
        A += 1e4
    elif kind == "alike":
        A = np.outer(A[:, 0], random.normal(size=d))
    elif kind == "saturated":
        A = 1.0 / (1.0 + np.exp(-30.0 * A))
    else:
        assert kind == "plain"
    return A


INPUTS = ("plain", "ill-conditioned", "duplicates", "dead", "constant", "far", "alike", "saturated")


def w_problem(
    solver: Any,
    A: Array,
    T: Array,
    W: Array,
    activation: str,
    ridge: float = 0.0,
    chunks: int = 2,
) -> tuple[UnitProblem, OverPoints]:
    """The problem of one dense layer and the sum over its points, cut into chunks."""
    over_points, single = summed(len(A), chunks), solver.system and solver.system.single
    problem = UnitProblem(A, T, ridge, W, activation, A.astype(np.float32) if single else None)
    return sharing(solver, problem, over_points), over_points


def sharing(solver: Any, problem: UnitProblem, over_points: OverPoints) -> UnitProblem:
    """The problem with the Gram that its units share under a solver, and its factor."""
    if not solver.system:
        return problem
    return factored(solver, replace(problem, shared=solver.system.sum(problem.read, over_points, problem.bias)))


def factored(solver: Any, problem: UnitProblem) -> UnitProblem:
    """The problem with the factor of the Gram that it has."""
    dtype = problem.read.dtype
    sparse = problem.exists is not None
    gram = LayerGram(problem.shared, problem.ridge, dtype, problem.bias, problem.activation, sparse)
    return replace(problem, factor=solver.system.prepare(gram))


def summed(n: int, chunks: int) -> OverPoints:
    bounds = [n * i // chunks for i in range(chunks + 1)]
    return sum_over([slice(a, b) for a, b in pairwise(bounds)])


RANGES = {"sigmoid": (0.05, 0.95), "tanh": (-0.9, 0.9)}
"""What an activation can reach; all others reach what they are asked for here."""


def reachable(random: np.random.Generator, shape: tuple[int, int], activation: str) -> Array:
    low, high = RANGES.get(activation, (0.1, 2.0))
    return random.uniform(low, high, shape)


def value(activation: str, a: Array) -> Array:
    return FUNCTIONS[activation].value(a.copy(), np.empty_like(a))


def unit_objectives(problem: UnitProblem, W: Array) -> Array:
    """1/2 sum over points of (t - s(W [a; 1]))^2 and the ridge, recomputed: (w,)."""
    total = 0.5 * problem.ridge * np.sum(W[:, :-1] ** 2, axis=1)
    r = problem.targets - value(problem.activation, problem.inputs @ W[:, :-1].T + W[:, -1])
    total += 0.5 * np.sum(r * r, axis=0)
    return total


SEGMENTS: dict[str, tuple[str, ...]] = {
    "linear": ("affine",),
    "before": ("tanh", "affine"),
    "after": ("affine", "sigmoid"),
    "softmax": ("affine", "softmax"),
    "two layers": ("affine", "tanh", "affine"),
    "three layers": ("sigmoid", "affine", "softmax", "affine", "tanh", "affine"),
    "low rank": ("low rank", "tanh"),
    "low rank between": ("affine", "tanh", "low rank"),
}
"""Maps of a segment: what may lie between two sites."""


def segment_problem(
    random: np.random.Generator, kind: str, loss: str = "squared", ridge: float = 0.1, n: int = 40, scale: float = 0.5
) -> tuple[SegmentProblem, OverPoints]:
    """A segment of inputs 4, hidden layers 5 and outputs 3, fitted to those of another and noise, or to labels."""
    weighted = {"affine": Affine, "low rank": lambda n_in, n_out: worked_example()["LowRank"](n_in, n_out, 2)}
    sizes, maps, layers = [4], [], sum(name in weighted for name in SEGMENTS[kind])
    for name in SEGMENTS[kind]:
        if name in weighted:
            sizes.append(3 if len(sizes) == layers else 5)
            maps.append(weighted[name](sizes[-2], sizes[-1]))
        else:
            maps.append(Softmax(sizes[-1]) if name == "softmax" else Activation(name, sizes[-1]))
    numbers = iter(range(layers))
    segment = Segment(tuple(maps), tuple(next(numbers) if m.parameter_shape else None for m in maps))
    shapes = tuple(m.parameter_shape for m in maps if m.parameter_shape)
    A = random.normal(size=(n, sizes[0]))
    T = segment.forward([random.normal(size=s) for s in shapes], A) + 0.1 * random.normal(size=(n, sizes[-1]))
    if LOSSES[loss].link != "identity":
        T = taken_by(LOSSES[loss], T - T.mean(axis=0))
    flat = scale * random.normal(size=sum(h * d for h, d in shapes))
    return SegmentProblem(A, T, ridge, flat[None], segment, LOSSES[loss], shapes), summed(n, 3)


# --- Z-solvers --------------------------------------------------------------------------------------------------------

CONTINUOUS = [name for name, kind in Z_SOLVERS.items() if Demand.SITE_OF_NUMBERS in kind.handles]  # type: ignore[attr-defined]
BITS = [name for name in Z_SOLVERS if name not in CONTINUOUS]
"""Each row of Z_SOLVERS has the contract of its kind."""

DIRECTIONS = ("dual", "direct_dual", "direct_primal")
Z_THOROUGH: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {
            "iterations": 60,
            "direction": direction,
            "relaxation": 1.0,
            "cg_iterations": cg_iterations,
            "cg_tolerance": 0.0,
            "halvings": 12,
        }
        for direction, cg_iterations in (("dual", 8), ("direct", 1), ("auto", 8))
    ],
    "alternating": [{"iterations": 60, "cg_iterations": 8, "cg_tolerance": 0.0}],
    "newton": [{"iterations": 60, "halvings": 60, "cg_iterations": 30, "cg_tolerance": 1e-3}],
    "lbfgs": [{"iterations": 300, "halvings": 60}],
    "ncg": [{"iterations": 600, "halvings": 60}],
    "gradient": [{"iterations": 600, "halvings": 60}],
}
"""Arguments with which a Z-solver goes on until it has a minimum."""

Z_ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {},
        {"direction": "dual", "iterations": 3, "relaxation": 1.0, "cg_iterations": 8, "cg_tolerance": 0.3},
        {"direction": "dual", "iterations": 2, "relaxation": 1.9, "cg_iterations": 1, "halvings": 0},
        {"direction": "direct", "iterations": 2},
    ],
    "alternating": [{}, {"iterations": 2, "relaxation": 1.5, "cg_iterations": 1}],
}
"""Other arguments under which the contract must hold; a solver that is not here is taken as it comes."""

Z_EXCESS: dict[str, float] = {"alternating": 1e-2, "gradient": 1e-2}
"""Share of an objective by which a thorough solver that converges slowly may miss the minimum; the others end in it."""

SITES = ("after", "before", "sparse")
"""Where coordinates may sit: after a hidden layer's activation, before it, or after every other hidden layer alone."""


def dense_net(
    random: np.random.Generator, sizes: Sequence[int], activation: str, wide: float = 1.5, cut: str = "after"
) -> tuple[Chain, tuple[Array, ...]]:
    """A net of these sizes and sites, weights of about wide / sqrt(fan-in)."""
    sites = [
        "none" if cut == "sparse" and k % 2 else "before" if cut == "before" else "after" for k in range(len(sizes) - 2)
    ]
    model = Model(hidden=list(sizes[1:-1]), activation=activation, sites=sites)  # type: ignore[arg-type]
    chain = build_chain(model, sizes[0], sizes[-1])
    return chain, tuple(wide * random.normal(size=(h, d)) / np.sqrt(d - 1) for h, d in chain.block_shapes)


def z_problem(
    random: np.random.Generator,
    sizes: Sequence[int],
    activation: str = "sigmoid",
    n: int = 7,
    mu: Sequence[float] | float = 10.0,
    off: float = 0.5,
    wide: float = 1.5,
    cut: str = "after",
    loss: str = "squared",
    forms: Sequence[str] = ("number",),
    shifted: bool = False,
) -> ZProblem:
    """Eq. (4) for n points whose coordinates are `off` feasible ones; forms: of the metrics, site by site in turn."""
    net = dense_net(random, sizes, activation, wide, cut)
    return problem_of_net(random, *net, n=n, mu=mu, off=off, loss=loss, forms=forms, shifted=shifted)


def point_gradients(problem: ZProblem, Z: Array) -> tuple[Array, Array]:
    """The objective (n,) of eq. (4) and its gradient (n, sum H) for all points."""
    F, tangents = problem.linearise(Z)
    G = np.empty_like(Z)
    pairs = list(zip(problem.sites(G), problem.sites(Z), F, problem.metrics, strict=False))
    for g, z, f, form in pairs:
        times(z - f, form.M, out=g)
    pulls = [g for g, *_ in pairs[1:]] + [problem.loss.residual(problem.Y, F[-1])]
    for (g, *_), pull, tangent in zip(pairs, pulls, tangents, strict=True):
        g -= tangent.vjp(pull)
    return problem.weigh(Z, problem.missed(Z, F), F[-1]), G


def basis_problem(random: np.random.Generator, mu: Sequence[float] = (0.7, 20.0), **scene: Any) -> ZProblem:
    """Coordinates at a code of 2 and at a layer of 3; radial basis functions between them, and before the 4 outputs."""
    model = Model(
        hidden=[2, 5, 3, 6],
        activation=["linear", "rbf", "tanh", "rbf"],
        sites=["after", "none", "after", "none"],
        width=[1.3, 2.0],
    )
    chain = build_chain(model, 3, 4)
    weights = tuple(random.normal(size=shape) for shape in chain.block_shapes)
    return problem_of_net(random, chain, weights, n=4, mu=mu, off=0.7, **scene)


def problem_of_net(
    random: np.random.Generator,
    chain: Chain,
    weights: tuple[Array, ...],
    n: int,
    mu: Sequence[float] | float,
    off: float,
    loss: str = "squared",
    forms: Sequence[str] = ("number",),
    shifted: bool = False,
) -> ZProblem:
    X, Y = random.normal(size=(n, chain.n_in)), targets_of(LOSSES[loss], random, n, chain.n_out)
    Z = np.hstack(chain.coordinates(weights, X))
    Z += off * random.normal(size=Z.shape)
    per_site = (mu,) * len(chain.site_sizes) if isinstance(mu, float) else tuple(mu)
    metrics = tuple(
        metric_example(forms[k % len(forms)], h, random, scale)
        for k, (h, scale) in enumerate(zip(chain.site_sizes, per_site, strict=True))
    )
    shift = 0.3 * random.normal(size=Z.shape) if shifted else None
    return ZProblem(chain.segments, chain.site_sizes, weights, LOSSES[loss], metrics, X, Y, Z, shift)


Z_BITS: dict[str, list[dict[str, Any]]] = {
    "binary": [{}, {"enumerated": 0, "iterations": 1}, {"enumerated": 0, "iterations": 50}, {"enumerated": 2}],
}
"""Arguments under which the contract of a Z-solver that keeps bits must hold."""

DECODERS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "deep": ("sigmoid", "tanh"),
    "softmax": ("softmax",),
    "basis": ("rbf",),
}
"""Hidden layers, of 3 units each, between a code of bits and the outputs."""


def bits_problem(
    random: np.random.Generator,
    bits: int = 4,
    decoder: str = "linear",
    n: int = 9,
    mu: float = 0.5,
    flips: float = 0.5,
    loss: str = "squared",
    form: str = "number",
    shifted: bool = False,
    wide: float = 1.5,
    words: int = 1,
) -> ZProblem:
    """Eq. (4) for n points with a code of bits, a share `flips` of them not those of the encoder; 3 outputs.

    words: above 1 of as many words each, of runs of that many units.
    """
    hidden = DECODERS[decoder]
    model = Model(
        hidden=[bits * words, *[3] * len(hidden)],
        activation=["binary" if words == 1 else "argmax", *hidden],
        words=words,
        sites=["after", *["none"] * len(hidden)],  # type: ignore[arg-type]
        loss=loss,  # type: ignore[arg-type]
    )
    chain = build_chain(model, 5, 3)
    weights = tuple(wide * random.normal(size=shape) for shape in chain.block_shapes)
    X, Y = random.normal(size=(n, 5)), targets_of(LOSSES[loss], random, n, 3)
    (Z,) = chain.coordinates(weights, X)
    if words > 1:
        own = Z.reshape(n, bits, words)
        moved = random.random((n, bits)) < flips
        own[moved] = np.eye(words)[random.integers(words, size=int(moved.sum()))]
    else:
        Z = np.abs(Z - (random.random(Z.shape) < flips))
    shift = 0.3 * random.normal(size=Z.shape) if shifted else None
    metrics = (metric_example(form, bits * words, random, mu),)
    return ZProblem(chain.segments, chain.site_sizes, weights, LOSSES[loss], metrics, X, Y, Z, shift)


def some(problem: ZProblem, rows: Any) -> ZProblem:
    """The problem of some of the points."""
    shift = None if problem.shift is None else problem.shift[rows]
    return replace(problem, X=problem.X[rows], Y=problem.Y[rows], Z=problem.Z[rows], shift=shift)


def linearised(problem: ZProblem) -> Linearised:
    """The Gauss-Newton model of a problem at its coordinates."""
    return z_gauss_newton.linearised(problem, problem.Z, None)[1]


SCENES: tuple[dict[str, Any], ...] = (
    {},
    {"shifted": True, "forms": ("full",)},
    {"loss": "cross_entropy"},
    {"forms": ("number", "full", "diagonal"), "loss": "cross_entropy", "shifted": True},
    {"forms": ("diagonal",)},
)
"""Parts that a Z-problem may have in addition to its net: metrics, equal or different by site, shifts, another loss."""
