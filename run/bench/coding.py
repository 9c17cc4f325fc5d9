"""Predictive coding of nets with skip connections by the package pcx: coordinates relaxed, then a step of the weights.

Of every minibatch the coordinates h_l begin with what the net gives, the last one at the target; `relaxed` gradient
steps lower the sum of 1/2 ||h_l - f_l(h_{l-1})||^2 and of the loss, and Adam moves the weights by the gradient of that
sum.  As in muPC, of L layers that are added to a skip each is multiplied by 1 / sqrt(L), and learns with that number in
it.  run/bench/peers.py imports this where a candidate asks for it; it needs torch, jax and pcx.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import numpy as np
import optax
import pcx.functional as pxf
import pcx.nn as pxnn
import pcx.predictive_coding as pxc
import pcx.utils as pxu
import torch
from jax import numpy as jnp
from pcx import static
from torch import nn

ACTIVATIONS = {nn.Sigmoid: jax.nn.sigmoid, nn.Tanh: jax.nn.tanh, nn.ReLU: jax.nn.relu}
OF_POINTS = pxu.M(pxc.VodeParam | pxc.VodeParam.Cache).to((None, 0))
"""What pcx maps over the points of a minibatch."""


class Net(pxc.EnergyModule):
    """The layers of a torch net (peers.Joined), a coordinate behind each.  scales: by which they are multiplied."""

    def __init__(
        self, linear: Sequence[nn.Linear], bends: Sequence[Any], joins: dict[int, list[int]], labels: bool
    ) -> None:
        super().__init__()
        added = [j for j in joins if j <= len(linear)]
        scales = [len(added) ** -0.5 if j + 2 in joins else 1.0 for j in range(len(linear))]
        self.layers = [pxnn.Linear(m.in_features, m.out_features) for m in linear]
        for layer, m, scale in zip(self.layers, linear, scales, strict=True):
            layer.nn.weight.set(jnp.asarray(m.weight.detach().numpy() / scale))
            layer.nn.bias.set(jnp.asarray(m.bias.detach().numpy() / scale))
        self.scales, self.bends, self.joins = static(scales), static(bends), static(joins)
        self.vodes = [*(pxc.Vode() for _ in linear[1:]), pxc.Vode(pxc.ce_energy if labels else pxc.se_energy)]
        self.vodes[-1].h.frozen = True

    def __call__(self, x: Any, y: Any = None) -> Any:
        reads = [x]
        for j, (layer, vode) in enumerate(zip(self.layers, self.vodes, strict=True), 1):
            given = self.scales.get()[j - 1] * layer(reads[-1])
            if j < len(self.layers):
                given = self.bends.get()[j - 1](given)
                for i in self.joins.get().get(j + 1, ()):
                    given = given + reads[i]
            reads.append(vode(given))
        if y is not None:
            self.vodes[-1].set("h", y)
        return self.vodes[-1].get("u")

    def put(self, linear: Sequence[nn.Linear]) -> None:
        """The torch net gets the weights."""
        with torch.no_grad():
            for layer, m, scale in zip(self.layers, linear, self.scales.get(), strict=True):
                m.weight.copy_(torch.from_numpy(scale * np.asarray(layer.nn.weight.get())))
                m.bias.copy_(torch.from_numpy(scale * np.asarray(layer.nn.bias.get())))


@pxf.vmap(OF_POINTS, in_axes=(0, 0), out_axes=0)
def forward(x: Any, y: Any, *, model: Net) -> Any:
    return model(x, y)


@pxf.vmap(OF_POINTS, in_axes=(0,), out_axes=None, axis_name="points")
def energy(x: Any, *, model: Net) -> Any:
    model(x)
    return jax.lax.psum(model.energy(), "points")


@pxf.jit(static_argnums=0)
def trained(relaxed: int, x: Any, y: Any, *, model: Net, by_weights: pxu.Optim, by_values: pxu.Optim) -> None:
    """One minibatch."""
    with pxu.step(model, (pxc.STATUS.INIT, None), clear_params=pxc.VodeParam.Cache):
        forward(x, y, model=model)
    by_values.init(pxu.M_hasnot(pxc.VodeParam, frozen=True)(model))

    def relax(_: Any, *, model: Net, by_values: pxu.Optim) -> tuple[Any, None]:
        with pxu.step(model, clear_params=pxc.VodeParam.Cache):
            _, g = pxf.value_and_grad(pxu.M_hasnot(pxc.VodeParam, frozen=True).to([False, True]))(energy)(
                x, model=model
            )
        by_values.step(model, g["model"])
        return (), None

    pxf.scan(relax, xs=jnp.arange(relaxed))(model=model, by_values=by_values)
    with pxu.step(model, clear_params=pxc.VodeParam.Cache):
        _, g = pxf.value_and_grad(pxu.M(pxnn.LayerParam).to([False, True]))(energy)(x, model=model)
    by_weights.step(model, g["model"], scale_by=1.0 / len(x))


def predictive_coding(task: Any, net: Any, candidate: dict[str, Any], rank: int, ranks: int) -> Iterator[None]:
    """Trains a torch net an epoch at a time.  What is compiled is compiled before."""
    linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
    bends = [ACTIVATIONS[type(m)] for m in net.modules() if type(m) in ACTIVATIONS]
    model = Net(linear, bends, getattr(net, "joins", {}), task.labels)
    X = task.X.numpy()
    Y = np.eye(linear[-1].out_features, dtype=X.dtype)[task.Y.numpy()] if task.labels else task.Y.numpy()
    weights = pxu.Optim(lambda: optax.adam(candidate["lr"]), pxu.M(pxnn.LayerParam)(model))
    values = pxu.Optim(lambda: optax.sgd(candidate["rate"]))
    step = partial(trained, candidate["relaxed"], model=model, by_weights=weights, by_values=values)
    size, order = candidate["batch"], np.random.default_rng(candidate.get("seed", 0))

    def epochs() -> Iterator[None]:
        while True:
            places = order.permutation(len(X))
            for first in range(0, len(X) - size + 1, size):
                rows = places[first : first + size]
                step(jnp.asarray(X[rows]), jnp.asarray(Y[rows]))
            model.put(linear)
            yield

    for _ in range(2):  # pcx compiles again once optimisers have states
        step(jnp.asarray(X[:size]), jnp.asarray(Y[:size]))
    return epochs()
