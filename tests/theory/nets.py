"""Small MAC/QP problems, and the objectives of the paper written out once more, without the package's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from macmpi.config import Config, Model, Penalty, ZStep
from macmpi.data import Dataset, Scaling
from macmpi.layers import Array
from macmpi.mac import MacQP
from macmpi.objective import split_sites
from macmpi.plan import make_plan
from macmpi.record import Clock
from macmpi.state import State
from macmpi.team import Solo

ACTIVATIONS = {
    "sigmoid": expit,
    "tanh": np.tanh,
    "relu": lambda a: np.where(a > 0.0, a, 0.0),
    "linear": lambda a: a,
}
SMOOTH = ["sigmoid", "tanh"]
SITES = ["after", "before"]
"""Where the coordinates sit: after a hidden activation, as in the paper, or before it."""


def points(seed: int, n: int, d: int, targets: int) -> Dataset:
    random = np.random.default_rng(seed)
    X, X_val = random.normal(size=(n, d)), random.normal(size=(11, d))
    # A smooth function of the inputs, and noise.
    mixing = random.normal(size=(d, targets))
    Y, Y_val = (np.sin(x @ mixing) + 0.1 * random.normal(size=(len(x), targets)) for x in (X, X_val))
    unit_x, unit_y = (Scaling(np.zeros(k), np.ones(k)) for k in (d, targets))
    return Dataset(X, Y, X_val, Y_val, unit_x, unit_y, "")


def method(
    hidden: Sequence[int] = (7, 5),
    activation: str = "sigmoid",
    n: int = 37,
    d: int = 4,
    targets: int = 3,
    seed: int = 0,
    data: Dataset | None = None,
    sites: str = "after",
    z_step: dict[str, Any] | None = None,
    **penalty: Any,
) -> MacQP:
    """MAC/QP for one process."""
    config = Config(
        model=Model(hidden=list(hidden), activation=activation, sites=sites),  # type: ignore[arg-type]
        penalty=Penalty(**penalty),
        z_step=ZStep(**(z_step or {})),
    )
    data = data or points(seed, n, d, targets)
    plan = make_plan(config, data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val), 1)
    return MacQP(plan, data, Solo(), Clock())


def started(mac: MacQP, seed: int = 0, wide: float = 2.0) -> State:
    """The method's own start."""
    state = mac.start(wide, True, seed)
    mac.begin(state)
    return state


def anywhere(mac: MacQP, seed: int = 0, mu: float = 10.0, off: float = 0.3) -> State:
    """Random weights, coordinates that are `off` the feasible ones."""
    random = np.random.default_rng(seed)
    state = mac.start(2.0, False, seed)
    state.Z += off * random.normal(size=state.Z.shape)
    state.mu = mu
    mac.begin(state)
    return state


# --- the paper's functions --------------------------------------------------------------------------------------------


def before_activation(mac: MacQP) -> bool:
    return mac.plan.chain.sites[0] == 1


def activation_of(mac: MacQP) -> str:
    return str(mac.plan.chain.maps[1].spec()["name"])


@dataclass(frozen=True)
class Layer:
    """f_k(a) = after(W [before(a); 1])."""

    W: Array
    before: Callable[[Array], Array]
    after: Callable[[Array], Array]

    def features(self, A: Array) -> Array:
        return self.before(A)

    def __call__(self, A: Array) -> Array:
        return self.after(self.before(A) @ self.W[:, :-1].T + self.W[:, -1])


def layers(mac: MacQP, state: State) -> list[Layer]:
    """f_1, ..., f_{K+1}."""
    s, weights = ACTIVATIONS[activation_of(mac)], mac.weights(state)
    identity = ACTIVATIONS["linear"]
    if before_activation(mac):
        return [Layer(W, identity if k == 0 else s, identity) for k, W in enumerate(weights)]
    return [Layer(W, identity, identity if k == len(weights) - 1 else s) for k, W in enumerate(weights)]


def e1(mac: MacQP, state: State) -> float:
    """Eq. (1)."""
    A = mac.data.X
    for f in layers(mac, state):
        A = f(A)
    return 0.5 * float(np.sum((mac.data.Y - A) ** 2))


def e_q(mac: MacQP, state: State) -> float:
    """Eq. (3) at the state's mu."""
    sites = split_sites(mac.plan.chain, state.Z)
    inputs, targets = [mac.data.X, *sites], [*sites, mac.data.Y]
    total = 0.0
    for k, f in enumerate(layers(mac, state)):
        factor = 1.0 if k == len(sites) else state.mu
        total += 0.5 * factor * float(np.sum((targets[k] - f(inputs[k])) ** 2))
    return total


def ridge(mac: MacQP, state: State) -> float:
    """sum_k lambda_k/2 ||V_k||^2, as configured and at the state's mu."""
    penalty, weights = mac.plan.ridge, mac.weights(state)
    total = 0.0
    for k, W in enumerate(weights):
        output = k == len(weights) - 1
        per_unit = 0.0 if state.mu > penalty.until_mu else penalty.value
        in_objective = per_unit if output or penalty.scale == "objective" else state.mu * per_unit
        total += 0.5 * in_objective * float(np.sum(W[:, :-1] ** 2))
    return total


def feasible(mac: MacQP, state: State) -> Array:
    """Z = g(W): (N, sum H)."""
    A, Z = mac.data.X, []
    for f in layers(mac, state)[:-1]:
        A = f(A)
        Z.append(A)
    return np.hstack(Z)


def last_features(mac: MacQP, state: State) -> Array:
    """What the output layer's weights multiply, and a column of ones: (N, H_K + 1)."""
    F = layers(mac, state)[-1].features(split_sites(mac.plan.chain, state.Z)[-1])
    return np.column_stack([F, np.ones(len(F))])


def jacobian_rows(mac: MacQP, state: State, row: int) -> list[Array]:
    """J_1, ..., J_{K+1} at the state's coordinates of one point, by the segments' tangents."""
    inputs = [mac.data.X, *split_sites(mac.plan.chain, state.Z)]
    out = []
    for segment, A in zip(mac.plan.chain.segments, inputs, strict=True):
        _, tangent = segment.linearise(mac.weights(state), np.repeat(A[row : row + 1], A.shape[1], axis=0))
        out.append(tangent.jvp(np.eye(A.shape[1])).T)
    return out


def gradient(function: Any, x: Array, h: float = 1e-6) -> Array:
    """Central differences of a scalar function at x, in place and restored."""
    out = np.empty(x.size)
    flat = x.reshape(-1)
    assert np.shares_memory(flat, x)
    for i in range(x.size):
        kept = flat[i]
        flat[i] = kept + h
        ahead = function()
        flat[i] = kept - h
        out[i] = (ahead - function()) / (2.0 * h)
        flat[i] = kept
    return out
