"""Small nets with radial basis functions, and their objectives written out once more (section 4.3, eq. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np
from plans import plan_of
from theory.nets import points, softmax

from macmpi.config import Config, Method, Start
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.mac import Mac
from macmpi.plan.plan import Plan
from macmpi.state import State
from macmpi.typing import Array

TABLES = get_type_hints(Config)
NET = {"activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"], "width": [2.5, 1.5]}


def config(hidden: tuple[int, ...] = (12, 2, 10), **tables: Any) -> Config:
    """Weights and coordinates come from `begun`, so the start is one that any net may have."""
    model = {"hidden": list(hidden), "centres": "subset", **NET, **tables.pop("model", {})}
    made = {name: TABLES[name](**keys) for name, keys in tables.items()}
    return Config(
        **{
            "method": Method("mac"),
            "start": Start(method="model", model="none.h5"),
            **made,
            "model": TABLES["model"](**model),
        }
    )


def planned(keys: Config, data: Dataset) -> Plan:
    return plan_of(keys, data.X.shape[1], data.Y.shape[1], len(data.X), len(data.X_val), 1)


def autoencoder(seed: int = 0, n: int = 37, d: int = 5) -> Dataset:
    """Points near a closed curve."""
    random = np.random.default_rng(seed)
    angles = random.uniform(0.0, 2.0 * np.pi, n + 11)
    X = np.column_stack([f(k * angles) for k in (1, 2, 3) for f in (np.cos, np.sin)])[:, :d]
    X += 0.05 * random.normal(size=X.shape)
    unit = Scaling(np.zeros(d), np.ones(d))
    return Dataset(X[:n], X[:n], X[n:], X[n:], unit, unit, "")


def regression(seed: int = 0, targets: int = 3) -> Dataset:
    return points(seed, 37, 4, targets)


def begun(mac: Mac, seed: int = 1) -> State:
    """Smooth coordinates and their first W-step; multipliers, if there are any, that pull."""
    random = np.random.default_rng(seed)
    H = sum(mac.plan.chain.site_sizes)
    Z = np.tanh(mac.data.X @ random.normal(size=(mac.data.X.shape[1], H)))
    state = mac.start_from(Z, seed, 1.0)
    state.own.multipliers += 0.1 * random.normal(size=state.own.multipliers.shape)
    return state


# --- the nets' functions ----------------------------------------------------------------------------------------------


def gaussians(A: Array, C: Array, width: float) -> Array:
    """exp(-||(a - c) / width||^2), point by point."""
    return np.exp(-np.sum((A[:, None, :] - C[None]) ** 2, axis=2) / width**2)


@dataclass(frozen=True)
class Half:
    """f_1 or f_2: centres C (M, d) or None, and what is linear in it."""

    C: Array | None
    W: Array
    width: float

    def __call__(self, A: Array) -> Array:
        Phi = A if self.C is None else gaussians(A, self.C, self.width)
        D = Phi.shape[1]
        return Phi @ self.W[:, :D].T + (self.W[:, D] if self.W.shape[1] > D else 0.0)

    @property
    def square(self) -> float:
        D = self.W.shape[1] if self.C is None else len(self.C)
        return float(np.sum(self.W[:, :D] ** 2))


def halves(mac: Mac, state: State, keys: Config) -> tuple[Half, Half]:
    """Of a net with radial basis functions in both halves."""
    C1, W1, C3, W3 = mac.parts.weights(state)
    first, second = keys.model.each("width", 2)
    return Half(C1, W1, first), Half(C3, W3, second)


def own_ridges(mac: Mac, state: State) -> tuple[float, float]:
    """Of the regression of a unit of f_1 and of f_2: 1/2 sum r^2 + ridge/2 ||w||^2."""
    shaping, mu = mac.plan.resolved.shaping, state.mu
    if mu > shaping.until_mu:
        return 0.0, 0.0
    (ridge, last) = shaping.ridges.values()
    return (ridge / mu if shaping.scale == "objective" else ridge), last


def e_q(mac: Mac, state: State, keys: Config) -> float:
    """Eq. (3) at the state's mu, with the ridge, and the multipliers where there are any."""
    f1, f2 = halves(mac, state, keys)
    mu, (ridge1, ridge2) = state.mu, own_ridges(mac, state)
    C = state.Z - f1(mac.data.X)
    total = 0.5 * np.sum((mac.data.Y - f2(state.Z)) ** 2) + 0.5 * mu * np.sum(C**2)
    total += 0.5 * mu * ridge1 * f1.square + 0.5 * ridge2 * f2.square
    return float(total - (np.sum(state.own.multipliers * C) if state.own.multipliers.size else 0.0))


def loss(mac: Mac, F: Array) -> float:
    Y = mac.data.Y
    if mac.plan.resolved.loss.labels:
        return -float(np.sum(Y * np.log(softmax(F))))
    return 0.5 * float(np.sum((Y - F) ** 2))


def e1(mac: Mac, state: State, keys: Config) -> float:
    """Eq. (6): the nested error with the ridge."""
    f1, f2 = halves(mac, state, keys)
    mu, (ridge1, ridge2) = state.mu, own_ridges(mac, state)
    return loss(mac, f2(f1(mac.data.X))) + 0.5 * mu * ridge1 * f1.square + 0.5 * ridge2 * f2.square


def fitted(Phi: Array, T: Array, ridge: float) -> tuple[Array, float]:
    """The ridge regression of T on Phi by itself: its weights and its least objective."""
    D = Phi.shape[1]
    tall, right = np.vstack([Phi, np.sqrt(ridge) * np.eye(D)]), np.vstack([T, np.zeros((D, T.shape[1]))])
    W = np.linalg.lstsq(tall, right, rcond=None)[0]
    return W.T, 0.5 * float(np.sum((right - tall @ W) ** 2))
