"""K-FAC by the package kfac-jax on the nets of run/bench/peers.py, which imports this where a candidate asks for it.

A candidate's "adaptive" takes the settings of the package's own example of an autoencoder: all points at once ("batch"
0), rate, momentum and damping adapted, from a damping of 150 there, of the grid here, whose losses are smaller.  The
package advises against them on minibatches, which have the grid's rate, momentum and damping.  Either way curvature is
averaged with 0.95, and inverted every 5 steps.  It needs torch, jax and kfac-jax (extra: family).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import kfac_jax
import numpy as np
import torch
from jax import numpy as jnp
from rivals import BEGIN
from torch import nn

ACTIVATIONS = {nn.Sigmoid: jax.nn.sigmoid, nn.Tanh: jnp.tanh, nn.ReLU: jax.nn.relu}
EVERY, CURVATURE = 5, 0.95
ADAPTIVE = {
    "use_adaptive_learning_rate": True,
    "use_adaptive_momentum": True,
    "use_adaptive_damping": True,
    "damping_adaptation_interval": 5,
    "damping_adaptation_decay": 0.95,
    "min_damping": 1e-5,
    "max_damping": 1000.0,
}
"""Of the package's example of an autoencoder."""

Weights = list[tuple[Any, Any]]
"""Of each layer the matrix (d, h) and the bias (h,)."""


class Kfac:
    """The optimiser, its state, and the weights of a torch net.  batches: of points, without end."""

    def __init__(self, net: nn.Module, labels: bool, keys: dict[str, Any], batches: Iterator[tuple[Any, Any]]) -> None:
        self.linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
        bends = [ACTIVATIONS[type(m)] for m in net.modules() if type(m) in ACTIVATIONS]

        def loss(weights: Weights, batch: tuple[Any, Any]) -> Any:
            F, Y = batch
            for i, (W, b) in enumerate(weights):
                F = F @ W + b
                F = bends[i](F) if i < len(bends) else F
            if labels:
                kfac_jax.register_softmax_cross_entropy_loss(F, Y)
                return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(F), Y[:, None], axis=1))
            kfac_jax.register_squared_error_loss(F, Y, weight=0.5)
            return 0.5 * jnp.mean(jnp.sum((F - Y) ** 2, axis=1))

        adaptive = bool(keys.get("adaptive"))
        self.optimiser = kfac_jax.Optimizer(
            value_and_grad_func=jax.value_and_grad(loss),
            l2_reg=0.0,
            inverse_update_period=EVERY,
            curvature_ema=CURVATURE,
            num_burnin_steps=EVERY,
            **(ADAPTIVE | {"initial_damping": keys["damping"]} if adaptive else {}),
        )
        names = {"learning_rate": "lr", "momentum": "momentum", "damping": "damping"}
        self.keys = {} if adaptive else {name: jnp.asarray(keys[key]) for name, key in names.items()}
        self.random, self.batches = jax.random.PRNGKey(keys.get("seed", 0)), batches
        self.share = keys.get("averaging", 0.0)
        self.mixed = jax.jit(lambda a, b, share: jax.tree.map(lambda x, y: x + share * (y - x), a, b))
        self.begin()

    def begin(self) -> None:
        """From the torch net's weights."""
        self.weights: Weights = [
            (jnp.array(m.weight.detach().numpy().T), jnp.array(m.bias.detach().numpy())) for m in self.linear
        ]
        self.average: Weights = [(jnp.array(W), jnp.array(b)) for W, b in self.weights]
        self.state = self.optimiser.init(self.weights, self.random, next(self.batches))
        self.done = 0

    def step(self) -> None:
        """On a batch; the first step averages curvature over others before."""
        self.random, own = jax.random.split(self.random)
        self.weights, self.state, _ = self.optimiser.step(
            self.weights, self.state, own, data_iterator=self.batches, **self.keys
        )
        self.done += 1
        if self.share:
            part = 1.0 - min(self.share, self.done / (self.done + BEGIN))
            self.average = self.mixed(self.average, self.weights, part)

    def show(self) -> None:
        """The torch net gets the weights that are judged."""
        with torch.no_grad():
            for (W, b), m in zip(self.average if self.share else self.weights, self.linear, strict=True):
                m.weight.copy_(torch.from_numpy(np.array(W).T))
                m.bias.copy_(torch.from_numpy(np.array(b)))


def kfac(task: Any, net: nn.Module, candidate: dict[str, Any], rank: int, ranks: int) -> Iterator[None]:
    """Trains a torch net a part of an epoch at a time.  What is compiled is compiled before."""
    X, Y = task.X.numpy(), task.Y.numpy()
    size = candidate["batch"] or len(X)
    steps, records = max(len(X) // size, 1), candidate["records"]
    order, ends = np.random.default_rng(candidate.get("seed", 0)), {steps * (i + 1) // records for i in range(records)}

    def batches() -> Iterator[tuple[Any, Any]]:
        whole = (jnp.asarray(X), jnp.asarray(Y)) if size == len(X) else None
        while whole:
            yield whole
        while True:
            places = order.permutation(len(X))
            for done in range(steps):
                rows = places[done * size : (done + 1) * size]
                yield jnp.asarray(X[rows]), jnp.asarray(Y[rows])

    optimiser = Kfac(net, task.labels, candidate, batches())
    for _ in range(2 * EVERY + 2):
        optimiser.step()
    optimiser.begin()

    def parts() -> Iterator[None]:
        while True:
            for done in range(steps):
                optimiser.step()
                if done + 1 in ends:
                    optimiser.show()
                    yield

    return parts()
