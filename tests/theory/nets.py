"""Small MAC problems, and the objectives of the paper written out once more, without the package's own code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from plans import plan_of
from scipy import special
from targets import taken_by

from macmpi.config import Config, Method, Model, Penalty, WStep, ZStep
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.half_steps.problems import renew_metric
from macmpi.mac import Mac
from macmpi.nets.chain import with_data
from macmpi.nets.losses import LOSSES
from macmpi.parallel.team import Team
from macmpi.state import State
from macmpi.typing import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": lambda a: 1.0 / (1.0 + np.exp(-a)) if np.iscomplexobj(a) else special.expit(a),
    "tanh": np.tanh,
    "relu": lambda a: np.where(a.real > 0.0, a, 0.0),
    "leaky_relu": lambda a: np.where(a.real > 0.0, a, 0.01 * a),
    "linear": lambda a: a,
}
SMOOTH = ["sigmoid", "tanh"]
SITES = ["after", "before"]
"""Where the coordinates sit: after a hidden activation, as in the paper, or before it."""

Words = str | Sequence[str]
AUGMENTED = {"method": "augmented_lagrangian"}


def points(seed: int, n: int, d: int, targets: int, loss: str = "squared", dtype: str = "float64") -> Dataset:
    """Targets are a smooth function of the inputs, and noise, made into what the loss takes."""
    random = np.random.default_rng(seed)
    X, X_val = random.normal(size=(n, d)), random.normal(size=(11, d))
    mixing = random.normal(size=(d, targets))
    Y, Y_val = (np.sin(x @ mixing) + 0.1 * random.normal(size=(len(x), targets)) for x in (X, X_val))
    Y, Y_val = (taken_by(LOSSES[loss], y) for y in (Y, Y_val))
    unit_x, unit_y = (Scaling(np.zeros(k), np.ones(k)) for k in (d, targets))
    X, Y, X_val, Y_val = (A.astype(dtype) for A in (X, Y, X_val, Y_val))
    return Dataset(X, Y, X_val, Y_val, unit_x, unit_y, "", np.arange(targets) if LOSSES[loss].labels else None)


def method(
    hidden: Sequence[int] = (7, 5),
    activation: Words = "sigmoid",
    n: int = 37,
    d: int = 4,
    targets: int = 3,
    seed: int = 0,
    data: Dataset | None = None,
    sites: str | Sequence[Any] = "after",
    output: str = "linear",
    loss: str = "squared",
    precision: str = "float64",
    words: int = 6,
    tied: bool = False,
    z_step: dict[str, Any] | None = None,
    w_step: dict[str, Any] | None = None,
    **penalty: Any,
) -> Mac:
    """MAC for one process; keys that are none of the config's are constants of the solver or the schedule."""
    z_step, w_step = z_step or {}, w_step or {}
    lists = [w if isinstance(w, str) else list(w) for w in (activation, sites)]
    config = Config(
        model=Model(list(hidden), lists[0], output, lists[1], words=words, loss=loss, precision=precision, tied=tied),  # type: ignore[arg-type]
        penalty=Penalty(**known(Penalty, penalty)),
        z_step=ZStep(**known(ZStep, z_step)),
        w_step=WStep(**known(WStep, w_step)),
        method=Method("mac"),
    )
    data = data or points(seed, n, d, targets, loss, precision)
    plan = plan_of(config, data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val), 1)
    resolved = replace(
        plan.resolved,
        z_solver=replace(plan.resolved.z_solver, **others(ZStep, z_step)),
        schedule=replace(plan.resolved.schedule, **others(Penalty, penalty)),
    )
    return Mac(replace(plan, resolved=resolved), data, Team())


def known(table: type, keys: dict[str, Any]) -> dict[str, Any]:
    """Those of some keys that a table of the config has."""
    return {key: value for key, value in keys.items() if key in {f.name for f in fields(table)}}


def others(table: type, keys: dict[str, Any]) -> dict[str, Any]:
    """Those that it has not."""
    return {key: value for key, value in keys.items() if key not in known(table, keys)}


def started(mac: Mac, seed: int = 0, wide: float = 2.0) -> State:
    """The method's own start."""
    state = mac.start(wide, True, seed)
    mac.begin(state)
    renew_metric(mac.parts, state)
    return state


def anywhere(mac: Mac, seed: int = 0, mu: float = 10.0, off: float = 0.3, pull: float = 0.5) -> State:
    """Random weights, coordinates that are `off` the feasible ones, multipliers of size `pull`."""
    random = np.random.default_rng(seed)
    state = mac.start(2.0, False, seed)
    state.Z += (off * random.normal(size=state.Z.shape)).astype(state.Z.dtype)
    state.own.multipliers += (pull * random.normal(size=state.own.multipliers.shape)).astype(state.Z.dtype)
    state.mu = mu
    mac.begin(state)
    renew_metric(mac.parts, state)
    return state


# --- the paper's functions --------------------------------------------------------------------------------------------


def softmax(A: Array) -> Array:
    E = np.exp(A - A.real.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def bits(A: Array) -> Array:
    return np.where(A > 0.0, 1.0, 0.0)


def nearest(C: Array) -> Callable[[Array], Array]:
    """The nearest codeword."""
    return lambda A: C[np.square(A[:, None] - C).sum(axis=2).argmin(axis=1)]


def one_of(words: int) -> Callable[[Array], Array]:
    """1 where a number is the largest of its run of `words`, else 0."""

    def on(A: Array) -> Array:
        runs = A.reshape(len(A), -1, words)
        return np.where(runs == runs.max(axis=2, keepdims=True), 1.0, 0.0).reshape(A.shape)

    return on


OTHERS: dict[str, Callable[[Array], Array]] = {"softmax": softmax, "binary": bits}


def by_columns(sizes: Sequence[int], Z: Array) -> list[Array]:
    return np.split(Z, np.cumsum(sizes)[:-1], axis=1)


def of_sites(mac: Mac, Z: Array) -> list[Array]:
    """z_1, ..., z_K."""
    return by_columns(mac.plan.chain.site_sizes, Z) if mac.plan.chain.sites else []


@dataclass(frozen=True)
class Beside:
    """z -> [z, s(X [V, c]^T)], the units of the first layer that have no coordinates behind those that have."""

    X: Array
    weights: Array
    activation: Callable[[Array], Array]

    def __call__(self, Z: Array) -> Array:
        return np.hstack([Z, self.activation(self.X @ self.weights[:, :-1].T + self.weights[:, -1])])


@dataclass(frozen=True)
class Layer:
    """f_k: weights, A -> W [A; 1], and activations, one after the other."""

    steps: tuple[Any, ...]

    def __call__(self, A: Array) -> Array:
        for step in self.steps:
            A = A @ step[:, :-1].T + step[:, -1] if isinstance(step, np.ndarray) else step(A)
        return A

    def features(self, A: Array) -> Array:
        """What the first weights multiply."""
        for step in self.steps:
            if isinstance(step, np.ndarray):
                return A
            A = step(A)
        return A

    @property
    def weights(self) -> list[Array]:
        found = (step.weights if isinstance(step, Beside) else step for step in self.steps)
        return [step for step in found if isinstance(step, np.ndarray)]


def layers(mac: Mac, state: State) -> list[Layer]:
    """f_1, ..., f_{K+1}."""
    weights = iter(mac.parts.weights(state))
    steps: list[Any] = []
    for map_ in mac.plan.chain.maps:
        spec = map_.spec()
        if spec["kind"] == "carrying" and map_.parameter_shape:
            steps.append(Beside(mac.data.X, next(weights), ACTIVATIONS["linear"]))
        elif spec["kind"] == "carrying":
            steps[-1] = replace(steps[-1], activation=ACTIVATIONS[spec["map"]["name"]])
            steps.append(ACTIVATIONS["linear"])
        elif spec["kind"] == "turn":
            steps.append(ACTIVATIONS["linear"])
        elif spec["kind"] == "argmax":
            steps.append(one_of(spec["words"]))
        elif spec["kind"] == "quantiser":
            steps.append(nearest(next(weights)))
        else:
            steps.append(
                next(weights) if map_.parameter_shape else (OTHERS | ACTIVATIONS)[spec.get("name", spec["kind"])]
            )
    bounds = [0, *mac.plan.chain.sites, len(steps)]
    return [Layer(tuple(steps[a:b])) for a, b in itertools.pairwise(bounds)]


def loss_of(mac: Mac, F: Array) -> float:
    """1/2 ||y - f||^2, or another loss by its formula, over all points."""
    return total(VALUES[type(mac.plan.resolved.loss).__name__](mac.data.Y, F))


def total(values: Any) -> Any:
    """The sum, complex where a complex step is taken (`slopes`)."""
    found = np.sum(values)
    return found if np.iscomplexobj(found) else float(found)


def huber(R: Array) -> Array:
    """r^2 / 2 within 1, |r| - 1/2 beyond."""
    size = R * np.sign(R.real)
    return np.where(size.real <= 1.0, 0.5 * R**2, size - 0.5)


VALUES: dict[str, Callable[[Array, Array], Array]] = {
    "Squared": lambda Y, F: 0.5 * (Y - F) ** 2,
    "CrossEntropy": lambda Y, F: np.log(np.sum(np.exp(F), axis=1)) - np.sum(Y * F, axis=1),
    "Logistic": lambda Y, F: np.log(1.0 + np.exp(F)) - Y * F,
    "Poisson": lambda Y, F: np.exp(F) - Y * F + special.xlogy(Y, Y) - Y,
    "Huber": lambda Y, F: huber(Y - F),
    "Absolute": lambda Y, F: np.sqrt((Y - F) ** 2 + 0.05**2) - 0.05,
}

PULLS: dict[str, Callable[[Array, Array], Array]] = {
    "Squared": lambda Y, F: Y - F,
    "CrossEntropy": lambda Y, F: Y - softmax(F),
    "Logistic": lambda Y, F: Y - special.expit(F),
    "Poisson": lambda Y, F: Y - np.exp(F),
    "Huber": lambda Y, F: np.clip(Y - F, -1.0, 1.0),
    "Absolute": lambda Y, F: (Y - F) / np.sqrt((Y - F) ** 2 + 0.05**2),
}


def loss_pull(mac: Mac, F: Array) -> Array:
    """Minus the gradient of the loss with respect to the outputs: r, for the squared error."""
    return PULLS[type(mac.plan.resolved.loss).__name__](mac.data.Y, F)


def outputs(mac: Mac, state: State) -> Array:
    """f(x) for all points."""
    A = mac.data.X
    for f in layers(mac, state):
        A = f(A)
    return A


def e1(mac: Mac, state: State) -> float:
    """Eq. (1)."""
    return loss_of(mac, outputs(mac, state))


def forms(mac: Mac, state: State) -> list[Array]:
    """mu M_k of each site, as matrices."""
    plan, at, out = mac.plan, 0, []
    for h in plan.chain.site_sizes:
        M = np.eye(h)
        if plan.resolved.metric == "variance":
            M = np.diag(state.own.metric[at : at + h])
        elif plan.resolved.metric == "curvature":
            M = state.own.metric[at : at + h * h].reshape(h, h)
        at += h * h if plan.resolved.metric == "curvature" else h
        out.append(state.mu * M)
    return out


def constraint(mac: Mac, state: State) -> Array:
    """z_k - f_k(z_{k-1}) of all points: (N, sum H)."""
    sites = of_sites(mac, state.Z)
    pairs = zip(layers(mac, state), [mac.data.X, *sites], sites, strict=False)
    return np.hstack([z - f(a) for f, a, z in pairs])


def e_q(mac: Mac, state: State) -> float:
    """Eq. (3) at the state's mu, constraints measured in the state's metric."""
    if not mac.plan.chain.sites:
        return e1(mac, state)
    found = loss_of(mac, layers(mac, state)[-1](of_sites(mac, state.Z)[-1]))
    for M, C in zip(forms(mac, state), of_sites(mac, constraint(mac, state)), strict=True):
        found += 0.5 * total((C @ M) * C)
    return found


def work(mac: Mac, state: State) -> float:
    """sum lambda^T (z - f)."""
    return total(state.own.multipliers * constraint(mac, state)) if state.own.multipliers.size else 0.0


def ridge(mac: Mac, state: State) -> float:
    """The ridge as configured and at the state's mu, in E_Q's scale.

    Scale "unit": each regression of a unit has the ridge, and E_Q holds it times mu m_h, or as tr V^T M V; a
    regression of a whole segment holds its metric itself, so there E_Q holds the ridge times mu.
    """
    plan, net, found = mac.plan, layers(mac, state), 0.0
    weights = [state.mu] * len(net)
    forms_ = [*(M / mu for M, mu in zip(forms(mac, state), weights, strict=False)), None]
    regressions = map(plan.resolved.regressions.get, range(len(net)))
    by_unit = [own is not None and own.by_unit for own in regressions]
    for f, mu, M, apart in zip(net, weights, forms_, by_unit, strict=True):
        value = 0.0 if mu > plan.resolved.shaping.until_mu else next(iter(plan.resolved.shaping.ridges.values()))
        for W in f.weights:
            V = W[:, :-1]
            if M is None or plan.resolved.shaping.scale == "objective":
                found += 0.5 * value * total(V**2)
            else:
                found += 0.5 * value * mu * total((M @ V) * V if apart else V * V)
    return found


def feasible(mac: Mac, state: State) -> Array:
    """Z = g(W): (N, sum H)."""
    A, Z = mac.data.X, [np.empty((len(mac.data.X), 0))]
    for f in layers(mac, state)[:-1]:
        A = f(A)
        Z.append(A)
    return np.hstack(Z)


def last_features(mac: Mac, state: State) -> Array:
    """What the output layer's weights multiply, and a column of ones: (N, H_K + 1)."""
    F = layers(mac, state)[-1].features(of_sites(mac, state.Z)[-1])
    return np.column_stack([F, np.ones(len(F))])


def jacobian_rows(mac: Mac, state: State, row: int) -> list[Array]:
    """J_1, ..., J_{K+1} at the state's coordinates of one point, by the segments' tangents."""
    inputs = [mac.data.X, *of_sites(mac, state.Z)]
    out = []
    for segment, A in zip(mac.plan.chain.segments, inputs, strict=True):
        own = np.repeat(with_data(segment, A, mac.data.X)[row : row + 1], A.shape[1], axis=0)
        _, tangent = segment.linearise(mac.parts.weights(state), own)
        out.append(tangent.jvp(np.eye(A.shape[1])).T)
    return out


def multipliers(mac: Mac, state: State) -> list[Array]:
    """lambda_k = -Phi_k^T r for each point, k = 1..K: eq. (kkt3') for any number of layers, r as in `loss_pull`."""
    sites = of_sites(mac, state.Z)
    residual = loss_pull(mac, layers(mac, state)[-1](sites[-1]))
    out = [np.empty_like(z) for z in sites]
    for row in range(len(residual)):
        J, u = jacobian_rows(mac, state, row), -residual[row]
        for k in range(len(sites), 0, -1):
            u = J[k].T @ u
            out[k - 1][row] = u
    return out


def slopes(function: Callable[[], Any], owner: Any, name: str, h: float = 1e-30) -> Array:
    """Im f(x + i h) / h for each number of the array `name` of `owner`, of which function() is analytic: (size,).

    Nothing is subtracted, so that the derivative is exact to rounding (Squire and Trapp, SIAM Review 1998).
    """
    kept = getattr(owner, name)
    moved, out = kept.astype(complex), np.empty(kept.size)
    setattr(owner, name, moved)
    for i in range(kept.size):
        moved.flat[i] += 1j * h
        out[i] = function().imag / h
        moved.flat[i] = kept.flat[i]
    setattr(owner, name, kept)
    return out


def richardson(function: Callable[[float], float], h: float = 2e-3) -> float:
    """The derivative at 0: central differences at h, h/2 and h/4, extrapolated to h^6."""
    a, b, c = ((function(t) - function(-t)) / (2.0 * t) for t in (h, 0.5 * h, 0.25 * h))
    first, second = (4.0 * b - a) / 3.0, (4.0 * c - b) / 3.0
    return (16.0 * second - first) / 15.0


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
