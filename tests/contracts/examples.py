"""Small examples of every registered thing.  A row of a registry without its example here fails the contract tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from macmpi.chain import Chain
from macmpi.config import Model
from macmpi.layers import Array, Map
from macmpi.layers.activation import FUNCTIONS, Activation
from macmpi.layers.affine import Affine
from macmpi.objective import LOSSES, OverPoints, Term, WProblem, ZProblem, sum_over
from macmpi.plan import build_chain

EPS = float(np.finfo(float).eps)


def cases(registry: Mapping[str, Any], examples: Mapping[str, Sequence[Any]]) -> list[Any]:
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


# --- maps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MapExample:
    """A map, weights and points where it is smooth."""

    map: Map
    W: Array | None
    A: Array


def affine_example(n_in: int, n_out: int, random: np.random.Generator) -> MapExample:
    return MapExample(Affine(n_in, n_out), random.normal(size=(n_out, n_in + 1)), random.normal(size=(9, n_in)))


def activation_example(name: str, random: np.random.Generator) -> MapExample:
    return MapExample(Activation(name, 5), None, away_from_kinks(random, (9, 5)))


def away_from_kinks(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of either sign, none near 0, where an activation may have no derivative."""
    return random.uniform(0.1, 3.0, shape) * random.choice([-1.0, 1.0], shape)


MAPS: dict[str, list[Callable[[np.random.Generator], MapExample]]] = {
    "affine": [partial(affine_example, 4, 3), partial(affine_example, 1, 6), partial(affine_example, 3, 1)],
    "activation": [partial(activation_example, name) for name in FUNCTIONS],
}


# --- W-solvers --------------------------------------------------------------------------------------------------------

W_THOROUGH: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {"iterations": 1000, "cg_iterations": 30, "cg_tolerance": 0.0, "tolerance": 0.0, "halvings": 60},
    ],
    "closed_form": [{}],
}
"""Arguments with which a W-solver goes on until it has a minimum."""

W_ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {},
        {"iterations": 6, "cg_iterations": 3},
        {"iterations": 4, "cg_iterations": 2, "halvings": 0},
    ],
}
"""Other arguments under which the contract must hold; a solver that is not here is taken as it comes."""


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
    shared: Array | None = None,
) -> tuple[WProblem, OverPoints]:
    """The problem of one dense layer and the sum over its points, cut into chunks."""
    over_points = summed(len(A), chunks)
    if shared is None:
        shared = solver.prepare(A, over_points)
    return WProblem((Term(A, T),), activation, ridge, W, shared), over_points


def summed(n: int, chunks: int) -> OverPoints:
    bounds = [n * i // chunks for i in range(chunks + 1)]
    return sum_over([slice(a, b) for a, b in pairwise(bounds)])


def value(activation: str, a: Array) -> Array:
    return FUNCTIONS[activation].value(a.copy(), np.empty_like(a))


def unit_errors(problem: WProblem, W: Array) -> Array:
    """sum over terms and points of (t - s(W [a; 1]))^2, recomputed: (w,)."""
    total = np.zeros(len(W))
    for term in problem.terms:
        r = term.targets - value(problem.activation, term.inputs @ W[:, :-1].T + W[:, -1])
        total += np.sum(r * r, axis=0)
    return total


def unit_objectives(problem: WProblem, W: Array) -> Array:
    return 0.5 * unit_errors(problem, W) + 0.5 * problem.ridge * np.sum(W[:, :-1] ** 2, axis=1)


def error_rounding(problem: WProblem, found: Array) -> Array:
    """What rounding may do to the errors of units that moved from problem.W to `found`: (w,).

    Either in the residuals at `found`, or in the quadratic form of the step.
    """
    n = sum(len(t.targets) for t in problem.terms)
    largest = max(float(np.abs(t.inputs).max()) for t in problem.terms) + 1.0
    reach, step = (largest * np.abs(W).sum(axis=1) for W in (found, found - problem.W))
    errors = unit_errors(problem, problem.W)
    return 50.0 * EPS * (n * errors + 2.0 * reach * np.sqrt(n * errors) + n * step**2)


# --- Z-solvers --------------------------------------------------------------------------------------------------------

Z_THOROUGH: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {"iterations": 80, "relaxation": 1.0, "cg_iterations": 8, "cg_tolerance": 0.0, "halvings": 60},
    ],
}
"""Arguments with which a Z-solver goes on until it has a minimum."""

Z_ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "gauss_newton": [
        {},
        {"iterations": 3, "relaxation": 1.0, "cg_iterations": 8, "cg_tolerance": 0.3},
        {"iterations": 2, "relaxation": 1.9, "cg_iterations": 1, "halvings": 0},
    ],
}
"""Other arguments under which the contract must hold; a solver that is not here is taken as it comes."""


SITES = ("after", "before")
"""Where the coordinates of a dense hidden layer may sit: after its activation or before it."""


def dense_net(
    random: np.random.Generator, sizes: Sequence[int], activation: str, wide: float = 1.5, cut: str = "after"
) -> tuple[Chain, tuple[Array, ...]]:
    """A net of these sizes, a site after or before each hidden activation, weights of about wide / sqrt(fan-in)."""
    model = Model(hidden=list(sizes[1:-1]), activation=activation, sites=cut)  # type: ignore[arg-type]
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
) -> ZProblem:
    """Eq. (4) for n points whose coordinates are `off` the feasible ones."""
    chain, weights = dense_net(random, sizes, activation, wide, cut)
    X, Y = random.normal(size=(n, sizes[0])), random.normal(size=(n, sizes[-1]))
    Z = np.hstack(chain.coordinates(weights, X))
    Z += off * random.normal(size=Z.shape)
    per_site = (mu,) * len(chain.site_sizes) if isinstance(mu, float) else tuple(mu)
    return ZProblem(chain, weights, LOSSES["squared"], per_site, X, Y, Z)
