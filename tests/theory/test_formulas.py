"""Formulas that no law needs, each against a computation of its own: loops, complex steps, least squares by SVD."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contracts.examples import away_from_kinks
from theory.checks import deviation
from theory.nets import (
    ACTIVATIONS,
    PULLS,
    VALUES,
    anywhere,
    feasible,
    last_features,
    layers,
    method,
    of_sites,
    slopes,
    softmax,
)

from macmpi.mac import Mac
from macmpi.methods.embedding import affinities, elastic_energy, principal_codes
from macmpi.nets.layers.activation import Activation, Softmax
from macmpi.nets.layers.convolution import Convolution
from macmpi.nets.layers.fitted import GaussianBasis
from macmpi.nets.layers.patches import AveragePooling, MaxPooling
from macmpi.nets.losses import LOSSES
from macmpi.state import State
from macmpi.typing import Array

Function = Callable[[Array], Array]


def jacobian(function: Function, a: Array) -> Array:
    """df/da at one point, by a complex step in each number: (outputs, inputs)."""
    h = 1e-30
    return function(a + 1j * h * np.eye(len(a))).imag.T / h


# --- objectives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.1, 30.0])
@pytest.mark.parametrize("sites", ["after", "before"])
def test_e_q_point_by_point_and_unit_by_unit(sites: str, mu: float) -> None:
    mac = method((4, 3), n=7, sites=sites)
    state = anywhere(mac, mu=mu)
    weights, total = mac.parts.weights(state), 0.0
    for x, y, z in zip(mac.data.X, mac.data.Y, state.Z, strict=True):
        known, targets, before = [x, z[:4], z[4:]], [z[:4], z[4:], y], sites == "before"
        for k, (W, inputs, wanted) in enumerate(zip(weights, known, targets, strict=True)):
            for h, w in enumerate(W):
                a = w[-1]
                for d, v in enumerate(inputs):
                    a += w[d] * (1.0 / (1.0 + math.exp(-v)) if before and k else v)
                f = a if before or k == 2 else 1.0 / (1.0 + math.exp(-a))
                total += 0.5 * (mu if k < 2 else 1.0) * (wanted[h] - f) ** 2
    deviation("E_Q", 7 * mac.evaluate(state).E_Q, total)


def test_radial_basis_functions_point_by_point(random: np.random.Generator) -> None:
    A, C, width = random.normal(size=(6, 4)), random.normal(size=(5, 4)), 1.7
    expected = [[math.exp(-sum(((a - c) / width) ** 2 for a, c in zip(x, w, strict=True))) for w in C] for x in A]
    deviation("basis functions", GaussianBasis(4, 5, width).forward(C, A), expected)


# --- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [name for name in LOSSES if type(LOSSES[name]).__name__ in VALUES])
def test_gradients_and_curvatures_of_losses(loss: str) -> None:
    mac = method((3,), n=8, loss=loss)
    own, Y, random = mac.plan.resolved.loss, mac.data.Y, np.random.default_rng(1)
    name, owner = type(own).__name__, SimpleNamespace(F=2.0 * random.normal(size=Y.shape))
    slope = slopes(lambda: np.sum(VALUES[name](Y, owner.F)), owner, "F")
    deviation(f"gradient of {loss}", own.residual(Y, owner.F), -slope)
    if own.curvature != "hessian":
        return
    for y, f in zip(Y, owner.F, strict=True):
        own_pull = partial(PULLS[name] if name != "Logistic" else logistic_pull, np.tile(y, (len(f), 1)))
        deviation(f"curvature of {loss}", own.hessian(y[None], f[None]), -jacobian(own_pull, f))


def logistic_pull(Y: Array, F: Array) -> Array:
    """y - 1 / (1 + exp(-f)), which SciPy's has for real numbers alone."""
    return Y - ACTIVATIONS["sigmoid"](F)


# --- layers -----------------------------------------------------------------------------------------------------------


def assert_derivative(name: str, map_: Any, W: Array | None, function: Function, A: Array) -> None:
    """J of each point, from both sides: columns by jvp, rows by vjp."""
    B = map_.forward(W, A)
    for a, b in zip(A, B, strict=True):
        J = jacobian(function, a)
        n_in, n_out = len(a), len(b)
        columns = map_.tangent(W, np.tile(a, (n_in, 1)), np.tile(b, (n_in, 1))).jvp(np.eye(n_in)).T
        rows = map_.tangent(W, np.tile(a, (n_out, 1)), np.tile(b, (n_out, 1))).vjp(np.eye(n_out))
        deviation(name, columns, J)
        deviation(name, rows, J)


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_derivatives_of_activations(name: str, random: np.random.Generator) -> None:
    assert_derivative(
        f"derivative of {name}", Activation(name, 5), None, ACTIVATIONS[name], away_from_kinks(random, (4, 5))
    )


def test_the_derivative_of_softmax(random: np.random.Generator) -> None:
    assert_derivative("derivative of softmax", Softmax(5, 1), None, softmax, random.normal(size=(4, 5)))


def test_the_derivative_of_radial_basis_functions(random: np.random.Generator) -> None:
    C, width = random.normal(size=(6, 4)), 1.4

    def gaussians(A: Array) -> Array:
        return np.exp(-np.sum(((A[:, None] - C) / width) ** 2, axis=2))

    assert_derivative(
        "derivative of basis functions", GaussianBasis(4, 6, width), C, gaussians, random.normal(size=(3, 4))
    )


def patches(image: Array, kernel: int, stride: int) -> list[Array]:
    """Patches of an image (height, width, channels), row by row."""
    down, across = ((size - kernel) // stride + 1 for size in image.shape[:2])
    places = [(stride * i, stride * j) for i in range(down) for j in range(across)]
    return [image[i : i + kernel, j : j + kernel] for i, j in places]


def convolved(W: Array, images: Array, kernel: int, stride: int) -> Array:
    """Patch by patch, unit by unit, channel by channel."""
    out = []
    for image in images:
        for patch in patches(image, kernel, stride):
            for w in W:
                b = w[-1]
                for at, v in enumerate(patch.ravel()):
                    b = b + w[at] * v
                out.append(b)
    return np.array(out)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_patch_by_patch(stride: int, random: np.random.Generator) -> None:
    map_ = Convolution(5, 6, 2, 3, 3, stride, "none")
    owner = SimpleNamespace(W=random.normal(size=map_.parameter_shape))
    images = random.normal(size=(2, 5, 6, 2))
    A = images.reshape(2, -1)
    deviation("convolution", map_.forward(owner.W, A), convolved(owner.W, images, 3, stride))
    pull = random.normal(size=(2, map_.n_out))
    expected = slopes(lambda: np.sum(pull.ravel() * convolved(owner.W, images, 3, stride)), owner, "W")
    deviation("gradient of filters", map_.weight_vjp(owner.W, A, pull), expected)


@pytest.mark.parametrize(
    ("name", "kind", "of"), [("average pooling", AveragePooling, np.mean), ("max pooling", MaxPooling, np.max)]
)
def test_pooling_patch_by_patch(name: str, kind: Any, of: Any, random: np.random.Generator) -> None:
    images = random.normal(size=(3, 4, 6, 2))
    expected = [[of(patch[:, :, c]) for patch in patches(image, 2, 2) for c in range(2)] for image in images]
    deviation(name, kind(4, 6, 2, 2).forward(None, images.reshape(3, -1)), expected)


# --- half steps -------------------------------------------------------------------------------------------------------


def least(A: Array, t: Array, ridge: float, about: Array | None = None) -> Array:
    """argmin over w of 1/2 ||t - A w||^2 + ridge/2 ||v||^2, v = about + w without the last number: by SVD."""
    D = A.shape[1]
    shrunk = np.sqrt(ridge) * np.eye(D)[:-1]
    right = -shrunk @ (np.zeros(D) if about is None else about)
    found: Array = np.linalg.lstsq(np.vstack([A, shrunk]), np.concatenate([t, right]), rcond=None)[0]
    return found


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_w_step_of_linear_units(ridge: float) -> None:
    """Of pre-activations, and of the output layer, each unit by itself."""
    mac = method((6, 4), "tanh", n=40, sites="before", ridge=ridge, ridge_scale="unit")
    state = anywhere(mac)
    inputs = [mac.data.X, *(np.tanh(z) for z in of_sites(mac, state.Z))]
    mac.w_step(state)
    for W, A, T in zip(mac.parts.weights(state), inputs, [*of_sites(mac, state.Z), mac.data.Y], strict=True):
        A1 = np.column_stack([A, np.ones(len(A))])
        deviation("W-step of a linear unit", W, [least(A1, t, ridge) for t in T.T])


def test_the_w_step_of_sigmoid_units_is_a_gauss_newton_step() -> None:
    """One linearisation whose system is solved; targets near the outputs, so that no unit steps back."""
    keys = {"iterations": 1, "cg_iterations": 200, "cg_tolerance": 1e-14, "tolerance": 0.0}
    mac = method((5,), "sigmoid", n=60, w_step=keys, ridge=0.2, ridge_scale="unit")
    state = anywhere(mac, off=0.02)
    W = mac.parts.weights(state)[0].copy()
    A = np.column_stack([mac.data.X, np.ones(60)])
    F = ACTIVATIONS["sigmoid"](A @ W.T)
    expected = []
    for w, f, t in zip(W, F.T, state.Z.T, strict=True):
        slope = f * (1.0 - f)
        expected.append(w + least(slope[:, None] * A, t - f, 0.2, w))
    mac.w_step(state)
    deviation("W-step of a sigmoid unit", mac.parts.weights(state)[0] - W, np.array(expected) - W)


def gauss_newton(mac: Mac, state: State) -> Array:
    """z + dz of each point: 1/2 ||r - J_{K+1} dz_K||^2 + mu/2 sum ||c_k + J_k dz_{k-1} - dz_k||^2, by SVD."""
    net, root, out = layers(mac, state), np.sqrt(state.mu), []
    sizes = mac.plan.chain.site_sizes
    bounds = np.cumsum([0, *sizes])
    for x, y, z in zip(mac.data.X, mac.data.Y, state.Z, strict=True):
        sites = [z[a:b] for a, b in pairwise(bounds)]
        rows, right = [], []
        for k, (f, a) in enumerate(zip(net, [x, *sites], strict=True)):
            value = f(a[None])[0]
            block = np.zeros((len(value), bounds[-1]))
            if k:
                block[:, bounds[k - 1] : bounds[k]] = jacobian(f, a)
            if k < len(sites):
                block[:, bounds[k] : bounds[k + 1]] = -np.eye(len(value))
            scale = root if k < len(sites) else 1.0
            rows.append(scale * block)
            right.append(scale * ((sites[k] if k < len(sites) else y) - value))
        out.append(np.linalg.lstsq(np.vstack(rows), np.concatenate(right), rcond=None)[0])
    return np.array(out)


@pytest.mark.parametrize(("name", "direction"), [("Z-step", "direct"), ("Z-step by the dual", "dual")])
@pytest.mark.parametrize("sites", ["after", "before"])
def test_the_z_step_is_a_gauss_newton_step(sites: str, name: str, direction: str) -> None:
    """From coordinates near feasible ones, where every point takes the whole step."""
    exact = {"iterations": 1, "relaxation": 1.0, "cg_iterations": 100, "cg_tolerance": 0.0, "direction": direction}
    mac = method((4, 3), "tanh", n=9, sites=sites, z_step=exact)
    state = anywhere(mac, mu=5.0, off=0.01)
    expected, before = gauss_newton(mac, state), state.Z.copy()
    mac.z_step(state)
    deviation(name, state.Z - before, expected)


@pytest.mark.parametrize("sites", ["after", "before"])
def test_postprocessing_fits_the_output_layer(sites: str) -> None:
    mac = method((6, 4), "tanh", n=40, sites=sites, ridge=0.1, ridge_scale="objective")
    after = mac.finish(anywhere(mac))
    deviation("feasible coordinates", after.Z, feasible(mac, after))
    A = last_features(mac, after)
    deviation("postprocessing", mac.parts.weights(after)[-1], [least(A, y, 0.1) for y in mac.data.Y.T])


# --- starts -----------------------------------------------------------------------------------------------------------


def energy(Z: Any, X: Array, width: float, repulsion: float) -> Any:
    """The elastic embedding, pair by pair."""
    total = 0.0
    for n, z in enumerate(Z):
        for m, other in enumerate(Z):
            if n != m:
                square = np.sum((z - other) ** 2)
                near = math.exp(-float(np.sum((X[n] - X[m]) ** 2)) / (2.0 * width**2))
                total = total + near * square + repulsion * np.exp(-square)
    return total


def test_the_elastic_embedding_pair_by_pair(random: np.random.Generator) -> None:
    X, owner = random.normal(size=(9, 4)), SimpleNamespace(Z=random.normal(size=(9, 2)))
    found, slope = elastic_energy(owner.Z, affinities(X, 1.5), 7.0)
    deviation("elastic embedding", found, energy(owner.Z, X, 1.5, 7.0))
    deviation("gradient of the embedding", slope, slopes(lambda: energy(owner.Z, X, 1.5, 7.0), owner, "Z"))


@pytest.mark.parametrize("shape", [(30, 6), (5, 12)], ids=["tall", "wide"])
def test_principal_codes_are_scores_by_svd(shape: tuple[int, int], random: np.random.Generator) -> None:
    X = random.normal(size=shape) * np.linspace(3.0, 1.0, shape[1])
    U, s, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    signs = np.sign(Vt[np.arange(2), np.abs(Vt[:2]).argmax(axis=1)])
    scores = U[:, :2] * s[:2] * signs
    deviation("principal codes", principal_codes(X, 2, 0.7), 0.7 * scores / scores[:, 0].std())
