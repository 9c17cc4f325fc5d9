"""PyTorch's optimisers on the nets of run/bench/compare.py, which writes the job: data, start, candidates, seconds.

    python run/bench/peers.py JOB.json        # leaves the learning curves in JOB.out.json; needs NumPy and torch

Other optimisers than PyTorch's own need their packages (rivals.py).
A curve is a list of [seconds of training, E1 train, E1 validation, misclassified validation points (a share), record],
E1 per point with the 1/2, or the cross-entropy per point.  Evaluation is not counted.  Minibatches are slices of a copy
of the data permuted once an epoch; Adam is PyTorch's fused one.  A job with "paces" asks for what an epoch takes
instead, on its threads and processes.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from rivals import MADE, Stepper
from torch import nn
from torch.nn import functional

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
Candidate = dict[str, Any]
CHUNK = 500
"""Points at a time where all are wanted: faster than all at once."""


class Task:
    """Data and loss in one precision.

    arrays: X, Y, X_val, Y_val, Y one-hot where the loss is cross-entropy; without Y an autoencoder.
    """

    def __init__(self, job: dict[str, Any], precision: str) -> None:
        dtype = getattr(torch, precision)
        arrays = np.load(job["data"])
        X, X_val = (torch.from_numpy(arrays[name]).to(dtype) for name in ("X", "X_val"))
        Y, Y_val = (
            (torch.from_numpy(arrays[name]).to(dtype) for name in ("Y", "Y_val")) if "Y" in arrays else (X, X_val)
        )
        self.labels, self.same = job["loss"] == "cross_entropy", "Y" not in arrays
        if self.labels:
            Y, Y_val = Y.argmax(1), Y_val.argmax(1)
        self.X, self.Y, self.validation, self.dtype = X, Y, (X_val, Y_val), dtype

    def loss(self, F: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        """Mean over points."""
        if self.labels:
            return functional.cross_entropy(F, Y)
        return functional.mse_loss(F, Y, reduction="sum") * (0.5 / len(Y))

    def shuffled(self, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        X = self.X[order]
        return X, X if self.same else self.Y[order]

    def record(self, net: nn.Module, seconds: float, epoch: int) -> list[float]:
        net.eval()
        with torch.no_grad():
            (train, _), (validation, wrong) = (self._errors(net, *of) for of in ((self.X, self.Y), self.validation))
        net.train()
        return [seconds, train, validation, wrong, epoch]

    def _errors(self, net: nn.Module, X: torch.Tensor, Y: torch.Tensor) -> tuple[float, float]:
        """The mean loss, and the share of misclassified points."""
        total = wrong = 0.0
        for x, y in zip(X.split(CHUNK), Y.split(CHUNK), strict=True):
            F = net(x)
            total += float(self.loss(F, y)) * len(x)
            wrong += float((F.argmax(1) != y).sum()) if self.labels else 0.0
        return total / len(X), wrong / len(X)


class Joined(nn.ModuleList):
    """Layers one after the other; skips: pairs [i, j], what layer i + 1 reads (0: the inputs) is added to that of j."""

    def __init__(self, layers: Sequence[nn.Module], skips: Sequence[Sequence[int]]) -> None:
        super().__init__(layers)
        self.joins: dict[int, list[int]] = {}
        for i, j in skips:
            self.joins.setdefault(j, []).append(i)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        reads = [X]
        for j, layer in enumerate(self, 2):
            reads.append(sum((reads[i] for i in self.joins.get(j, ())), layer(reads[-1])))
        return reads[-1]


def network(job: dict[str, Any], candidate: Candidate, dtype: torch.dtype) -> nn.Module:
    """The net with the weights [V, c] of each layer of the start's file; "norm": batch normalisation of its layers."""
    with np.load(candidate["start"]) as file:
        weights = [file[f"W{i}"] for i in range(len(file.files))]
    layers = []
    for i, W in enumerate(weights):
        layer = nn.Linear(W.shape[1] - 1, W.shape[0], dtype=dtype)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(W[:, :-1]))
            layer.bias.copy_(torch.from_numpy(W[:, -1]))
        bent = [ACTIVATIONS[job["activations"][i]]()] if i + 1 < len(weights) else []
        norm = [nn.BatchNorm1d(len(W), dtype=dtype)] if bent and candidate.get("norm") else []
        layers.append([layer, *norm, *bent])
    if job.get("skips"):
        return Joined([nn.Sequential(*own) for own in layers], job["skips"])
    return nn.Sequential(*(m for own in layers for m in own))


def predictive_coding(*args: Any) -> Iterator[None]:
    """Of coding.py, which needs pcx and jax."""
    import coding

    return coding.predictive_coding(*args)


def kfac_jax(*args: Any) -> Iterator[None]:
    """Of kfac.py, which needs kfac-jax."""
    import kfac

    return kfac.kfac(*args)


def minibatches(task: Task, net: nn.Module, candidate: Candidate, rank: int, ranks: int) -> Iterator[None]:
    """A part of an epoch at a time, as many as records are asked for; each rank takes its share of every minibatch."""
    records, steps = candidate["records"], max(len(task.X) // candidate["batch"], 1)
    stepper, ends = Stepper(net, candidate, steps), {steps * (i + 1) // records for i in range(records)}
    order = torch.Generator().manual_seed(candidate.get("seed", 0))
    while True:
        X, Y = task.shuffled(torch.randperm(len(task.X), generator=order))
        for done in range(steps):
            move(task, net, stepper, (X, Y), share(done, candidate["batch"], rank, ranks), ranks)
            if done + 1 in ends:
                stepper.show()
                yield
                stepper.go_on()


def share(step: int, batch: int, rank: int, ranks: int) -> slice:
    """The points of a rank in a minibatch."""
    return slice(step * batch + batch * rank // ranks, step * batch + batch * (rank + 1) // ranks)


def move(task: Task, net: nn.Module, stepper: Stepper, points: Sequence[torch.Tensor], rows: slice, ranks: int) -> None:
    """A step on a minibatch, of which this rank has some rows; ranks' gradients are averaged, their points may differ
    by one."""
    X, Y = (A[rows] for A in points)
    stepper.zero()
    loss = task.loss(net(X), Y)
    (loss * (len(X) * ranks / stepper.batch) if ranks > 1 else loss).backward()
    stepper.step()


CHECKED, TOGETHER = 10, 10
"""Steps after which the error is looked at; steps that are timed together: SOAP turns its bases once in as many."""


def pace(job: dict[str, Any], candidate: Candidate, rank: int = 0, ranks: int = 1) -> dict[str, float]:
    """Seconds of an epoch: of the shuffle of a rank's points and, by the median, of steps, timed for job["seconds"]."""
    task = Task(job, candidate["precision"])
    plain = network(job, candidate, task.dtype)
    net = nn.parallel.DistributedDataParallel(plain) if ranks > 1 else plain
    steps = max(len(task.X) // candidate["batch"], 1)
    stepper, order = Stepper(net, candidate, steps), torch.Generator().manual_seed(candidate.get("seed", 0))
    permutation = torch.randperm(len(task.X), generator=order)
    began = time.perf_counter()
    task.shuffled(permutation[rank::ranks])
    shuffle, points = time.perf_counter() - began, task.shuffled(permutation)
    times, done, error, go_on = list[float](), 0, 0.0, True
    while go_on:
        began = time.perf_counter()
        for _ in range(TOGETHER):
            move(task, net, stepper, points, share(done % steps, candidate["batch"], rank, ranks), ranks)
            done += 1
        times.append(time.perf_counter() - began)
        if done == CHECKED:
            with torch.no_grad():
                error = float(task.loss(plain(task.X[:CHUNK]), task.Y[:CHUNK]))
        go_on = agreed(len(times) < 2 or sum(times[1:]) < job["seconds"], ranks)
    return {"seconds": shuffle + steps * statistics.median(times[1:]) / TOGETHER, "error": error}


def agreed(go_on: bool, ranks: int) -> bool:
    """What rank 0 has decided."""
    if ranks > 1:
        flag = torch.tensor([float(go_on)])
        dist.broadcast(flag, 0)
        go_on = bool(flag)
    return go_on


def lbfgs(task: Task, net: nn.Module, candidate: Candidate, rank: int, ranks: int) -> Iterator[None]:
    """L-BFGS with PyTorch's strong Wolfe line search, on all points, ten steps at a time."""
    keys = {"history_size": candidate["memory"], "line_search_fn": "strong_wolfe"}
    optimiser = torch.optim.LBFGS(net.parameters(), max_iter=10, tolerance_grad=0.0, tolerance_change=0.0, **keys)

    def closure() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        total = torch.zeros((), dtype=task.dtype)
        for X, Y in zip(task.X.split(CHUNK), task.Y.split(CHUNK), strict=True):
            loss = task.loss(net(X), Y) * (len(X) / len(task.X))
            loss.backward()
            total += loss.detach()
        return total

    while True:
        optimiser.step(closure)
        yield


def hessian_free(task: Task, net: nn.Sequential, candidate: Candidate, rank: int, ranks: int) -> Iterator[None]:
    """The hessianfree package, single precision; its weights are copied into the net for evaluation."""
    import hessianfree as hf

    layers = [m for m in net if isinstance(m, nn.Linear)]
    shape = [layers[0].in_features, *(m.out_features for m in layers)]
    names = {nn.Sigmoid: hf.nl.Logistic, nn.Tanh: hf.nl.Tanh, nn.ReLU: hf.nl.ReLU}
    hidden = [names[type(m)]() for m in net if not isinstance(m, nn.Linear)]
    begin = [A for m in layers for A in (m.weight.detach().numpy().T.ravel(), m.bias.detach().numpy())]
    ff = hf.FFNet(shape, layers=[hf.nl.Linear(), *hidden, hf.nl.Linear()], load_weights=np.concatenate(begin))
    optimiser = hf.opt.HessianFree(CG_iter=candidate["cg"], init_damping=candidate["damping"])
    X, Y = task.X.numpy(), task.Y.numpy()
    keys = {"max_epochs": 1, "test": (X[:8], Y[:8]), "target_err": -1.0, "print_period": None}
    while True:
        ff.run_epochs(X, Y, optimiser, minibatch_size=candidate["batch"], **keys)
        for i, layer in enumerate(layers):
            W, b = ff.get_weights(ff.W, (i, i + 1))
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(W.T))
                layer.bias.copy_(torch.from_numpy(b))
        yield


OPTIMISERS: dict[str, Callable[..., Iterator[None]]] = {
    **dict.fromkeys(MADE, minibatches),
    "lbfgs": lbfgs,
    "hessian_free": hessian_free,
    "predictive_coding": predictive_coding,
    "kfac": kfac_jax,
}


def train(job: dict[str, Any], candidate: Candidate, rank: int = 0, ranks: int = 1) -> list[list[float]]:
    """The learning curve of a candidate over job["seconds"] of training."""
    task = Task(job, candidate["precision"])
    plain = network(job, candidate, task.dtype)
    net = nn.parallel.DistributedDataParallel(plain) if ranks > 1 else plain
    epochs = OPTIMISERS[candidate["optimiser"]](task, net, candidate | {"records": job["records"]}, rank, ranks)
    clock = time.process_time if job["clock"] == "cpu" and ranks == 1 else time.perf_counter
    curve, seconds, epoch = [task.record(plain, 0.0, 0)], 0.0, 0
    go_on = True
    while go_on:
        began = clock()
        next(epochs)
        seconds, epoch = seconds + clock() - began, epoch + 1
        if rank == 0:
            curve.append(task.record(plain, seconds, epoch))
        go_on = agreed(seconds < job["seconds"] and bool(np.isfinite(curve[-1][1])), ranks)
    return curve


def together(rank: int, job: dict[str, Any], meeting: str, output: str) -> None:
    """One of several processes by DistributedDataParallel over gloo."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=job["ranks"])
    made = pace if job.get("paces") else train
    curves = [made(job, candidate, rank, job["ranks"]) for candidate in job["candidates"]]
    if rank == 0:
        Path(output).write_text(json.dumps(curves))
    dist.barrier()
    os._exit(0)  # threads of gloo that still wait as Python ends are an error now and then


def gemm_rate(dtype: torch.dtype, n: int = 700) -> float:
    """GFLOP/s of an n x n product."""
    A, best = torch.ones(n, n, dtype=dtype), float("inf")
    for _ in range(20):
        began = time.perf_counter()
        A @ A
        best = min(best, time.perf_counter() - began)
    return 2e-9 * n**3 / best


def main() -> None:
    path = Path(sys.argv[1])
    job = json.loads(path.read_text())
    torch.set_num_threads(job.get("threads", 1))
    facts = {"torch": torch.__version__, "sgemm": gemm_rate(torch.float32), "dgemm": gemm_rate(torch.float64)}
    if job["ranks"] == 1 and job.get("paces"):
        curves = [pace(job, candidate) for candidate in job["candidates"]]
    elif job["ranks"] == 1:
        train({**job, "seconds": 0.0}, job["candidates"][0])  # an epoch to warm up
        curves = [train(job, candidate) for candidate in job["candidates"]]
    else:
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "curves.json")
            arguments = (job, os.path.join(folder, "meeting"), output)
            torch.multiprocessing.spawn(together, arguments, nprocs=job["ranks"])
            curves = json.loads(Path(output).read_text())
    path.with_suffix(".out.json").write_text(json.dumps({"curves": curves, "facts": facts}))


if __name__ == "__main__":
    main()
