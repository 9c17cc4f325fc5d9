"""Optimisers for minibatches in PyTorch, as run/bench/peers.py trains with them: keys of a candidate -> optimisers.

"adam", "sgd" and "muon" are PyTorch's own, "soap" and "schedule_free" those of the package pytorch-optimizer, "singd"
that of the package singd, "shampoo" that of shampoo.py.  Muon takes matrices alone: biases go by Adam.  PyTorch
iterates Muon's steps in bfloat16, which takes ten times as long and more without instructions for it: here they are
iterated in single precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Candidate = dict[str, Any]

BEGIN = 8
"""An average begins as that of all steps, and has its own length after some times this many."""


def adam(net: nn.Module, keys: Candidate) -> list[Any]:
    betas = (keys.get("beta1", 0.9), keys["beta2"])
    return [torch.optim.Adam(net.parameters(), lr=keys["lr"], betas=betas, fused=True)]


def sgd(net: nn.Module, keys: Candidate) -> list[Any]:
    momentum = keys.get("momentum", 0.0)
    known = {"momentum": momentum, "nesterov": momentum > 0.0, "fused": True}
    return [torch.optim.SGD(net.parameters(), lr=keys["lr"], **known)]


def orthogonal(G: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> torch.Tensor:
    """Muon's step of a gradient (h, d): X <- a X + (b S + c S^2) X with S = X X^T, from G / |G|, in G's precision."""
    a, b, c = coefficients
    turned = G.shape[0] > G.shape[1]
    X = (G.T if turned else G) / G.norm().clamp(min=eps)
    for _ in range(steps):
        S = X @ X.T
        X = a * X + (b * S + c * S @ S) @ X
    return X.T if turned else X


def muon(net: nn.Module, keys: Candidate) -> list[Any]:
    from torch.optim import _muon

    _muon._zeropower_via_newtonschulz = orthogonal
    matrices = [p for p in net.parameters() if p.ndim == 2]
    others = [p for p in net.parameters() if p.ndim != 2]
    known = {"weight_decay": 0.0, "momentum": keys.get("momentum", 0.95), "adjust_lr_fn": "match_rms_adamw"}
    return [
        torch.optim.Muon(matrices, lr=keys["lr"], **known),
        torch.optim.Adam(others, lr=keys["lr"], betas=(0.9, 0.99), fused=True),
    ]


def soap(net: nn.Module, keys: Candidate) -> list[Any]:
    from pytorch_optimizer import SOAP

    betas, every = (keys.get("beta1", 0.95), keys["beta2"]), keys.get("every", 10)
    known = {"betas": betas, "weight_decay": 0.0, "precondition_frequency": every}
    return [SOAP(net.parameters(), lr=keys["lr"], **known)]


def schedule_free(net: nn.Module, keys: Candidate) -> list[Any]:
    from pytorch_optimizer import ScheduleFreeAdamW

    known = {"betas": (keys.get("beta1", 0.9), keys["beta2"]), "weight_decay": 0.0}
    return [ScheduleFreeAdamW(net.parameters(), lr=keys["lr"], **known)]


def singd(net: nn.Module, keys: Candidate) -> list[Any]:
    """Its losses are means over points of sums over outputs."""
    from singd.optim.optimizer import SINGD

    known = {"T": keys.get("every", 10), "loss_average": "batch", "lr_cov": keys.get("lr_cov", 0.05)}
    return [SINGD(net, lr=keys["lr"], momentum=keys.get("momentum", 0.9), damping=keys["damping"], **known)]


def shampoo(net: nn.Module, keys: Candidate) -> list[Any]:
    from shampoo import CorrectedShampoo

    betas, every = (keys.get("beta1", 0.9), keys["beta2"]), keys.get("every", 20)
    return [CorrectedShampoo(net.parameters(), keys["lr"], betas, every)]


MADE: dict[str, Callable[[nn.Module, Candidate], list[Any]]] = {
    "adam": adam,
    "sgd": sgd,
    "muon": muon,
    "soap": soap,
    "schedule_free": schedule_free,
    "singd": singd,
    "shampoo": shampoo,
}


class Stepper:
    """Some optimisers, their rates falling in a line to 0 after `epochs` of them, and an average of the weights.

    keys: lr, ...; averaging: the share of the average that a step leaves (0: none); epochs: 0, the rates stay.
    """

    def __init__(self, net: nn.Module, keys: Candidate, steps_an_epoch: int) -> None:
        self.optimisers, self.batch = MADE[keys["optimiser"]](net, keys), keys["batch"]
        self.weights = [p.detach() for p in net.parameters()]
        self.share, self.done = keys.get("averaging", 0.0), 0
        self.last = keys.get("epochs", 0) * steps_an_epoch
        self.rates = [[group["lr"] for group in o.param_groups] for o in self.optimisers]
        self.average = [w.clone() for w in self.weights] if self.share else []

    def zero(self) -> None:
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)

    def step(self) -> None:
        if self.last:
            left = max(1.0 - self.done / self.last, 0.0)
            for optimiser, rates in zip(self.optimisers, self.rates, strict=True):
                for group, rate in zip(optimiser.param_groups, rates, strict=True):
                    group["lr"] = left * rate
        for optimiser in self.optimisers:
            optimiser.step()
        self.done += 1
        if self.share:
            torch._foreach_lerp_(self.average, self.weights, 1.0 - min(self.share, self.done / (self.done + BEGIN)))

    def show(self) -> None:
        """The net gets the weights that are judged: the average, or what the optimiser shows."""
        for optimiser in self.optimisers:
            getattr(optimiser, "eval", lambda: None)()
        self._exchange()

    def go_on(self) -> None:
        """The net gets back the weights that are trained."""
        self._exchange()
        for optimiser in self.optimisers:
            getattr(optimiser, "train", lambda: None)()

    def _exchange(self) -> None:
        for w, a in zip(self.weights, self.average, strict=False):
            held = w.clone()
            w.copy_(a)
            a.copy_(held)
