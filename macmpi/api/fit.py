"""`macmpi.fit` trains on arrays: in this process, on all ranks of a communicator, or on ranks started for it.

Batches are pieces of a stream: training on each goes on from the model of the piece before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, shown
from macmpi.api.given import Layers, Settings, config_of, flat, keys_given, points_of
from macmpi.api.heard import drawing, in_notebook, listening
from macmpi.api.on_ranks import fit_on_ranks, launcher_of
from macmpi.config import Config
from macmpi.config.reading import path_of
from macmpi.console import warn
from macmpi.data.checks import as_flag
from macmpi.data.series import is_frame
from macmpi.files import as_path
from macmpi.parallel.clock import now
from macmpi.parallel.kernels import limited
from macmpi.parallel.mpi import team_of
from macmpi.parallel.team import Team, on_root
from macmpi.results.model import Model
from macmpi.training.launch import launch_training
from macmpi.training.process import INTERRUPTED as INTERRUPTED
from macmpi.training.process import interruptible
from macmpi.training.request import Callback, Request, planned

STREAM = "stochastic.stream"
"""The key that makes points a piece of a stream."""


def fit(
    X: Any = None,
    Y: Any = None,
    *,
    hidden: Any = "auto",
    layers: Layers = "auto",
    loss: str = "auto",
    validation: Any = None,
    weights: Any = None,
    batches: Iterable[Any] | None = None,
    classes: Any = None,
    config: Settings | None = None,
    start: Model | str | Path | None = None,
    seed: int | None = None,
    max_time: float = float("inf"),
    ranks: int | None = None,
    comm: Any = None,
    output: str | Path | None = None,
    overwrite: bool = False,
    callback: Callback | None = None,
    verbose: bool | None = None,
) -> Model:
    """Trains a net f on points: Y ~ f(X), or without Y an autoencoder, X ~ f(X).

    Arguments that are "auto" or None are chosen from the data.  `Model.history` has the curve.  On several ranks each
    gets the same Model.

    X: (N, D), images (N, h, w), a matrix of scipy.sparse, or a table of pandas, polars or pyarrow, whose columns become
        numbers (docs/data.md).  Without X the config names the data.
    Y: (N, L) or (N,), numbers, or class labels (text, truth values, or whole numbers with loss="cross_entropy"); with a
        table also the name of one of its columns.
    hidden: the units of the hidden layers, [100] or 100.
    layers: the kind of the hidden layers, one word for all or one for each ("relu", "tanh", "rbf", "binary", ...).
    loss: "squared", "cross_entropy", "logistic", "poisson", "huber" or "absolute".
    validation: the share of the points that is held out (0.2); or a pair (X_val, Y_val), which weights_val may follow;
        without Y an array X_val, or (X_val, None, weights_val).  With a table Y_val may be the name of one of its
        columns.
    weights: the weights of the points (N,), at least 0; a point of weight 2 counts as two equal points (docs/data.md).
        Or the weights of points and outputs, (N, L).  With a table also the name of a column.
    batches: an iterable of X, (X, Y) or (X, Y, weights), instead of X: pieces of a stream.  Stochastic MAC trains on
        each piece once and drops it.  With tables, Y and weights may name columns.
    classes: the labels that a stream may have, if the first piece lacks some.
    config: further settings, for instance {"method.name": "mac"}, the path of a TOML file, or the name of a documented
        config such as "digits_mac"; run/defaults.toml explains all settings.
    start: a Model, or the path of one, whose weights are trained further, also of a stream (docs/python.md).
    seed: the seed of the drawn points and weights.
    max_time: the seconds after which the fit ends with the best net so far, as it does after Ctrl-C.
    ranks: the number of processes to start by mpiexec.
    comm: a communicator of mpi4py, all of whose ranks call this; the other arguments of its rank 0 count.  None: all
        ranks under mpiexec.
    output, overwrite: a run directory for curve, checkpoints and model.h5, and whether to replace a run in it.
    callback: is called on rank 0 with a dict for the start, each iteration and the end ("phase" says which); a true
        result ends the fit.
    verbose: whether to print a line for each iteration; None: no, but in a notebook show a curve.

    Raises UsageError for data or settings that cannot be trained, NumericalError if the error of the start is not
    finite or ranks disagree.  A fit that goes wrong later warns, and gives its best model.
    Collective: yes.
    """
    began = now()

    def told() -> tuple[dict[str, Any], bool, bool]:
        """Returns what all ranks need from rank 0: keys of the request; whether lines are printed; batches."""
        if isinstance(max_time, bool) or not isinstance(max_time, int | float | np.number) or not max_time > 0.0:
            raise UsageError(f"max_time = {shown(max_time)}: seconds above 0 are needed")
        if callback is not None and not callable(callback):
            raise UsageError(f"callback = {shown(callback)}: a function of one record is needed")
        if as_flag(overwrite, "overwrite") and output is None:
            raise UsageError("overwrite = True replaces the run in a folder, and none is given: give output, too")
        if batches is not None and (X is not None or output is not None):
            raise UsageError("batches stand for X, and no run directory holds them: leave X and output out")
        if batches is not None and not isinstance(config, Config) and flat(config).get(STREAM) is False:
            raise UsageError(f"{STREAM} = False in config, and batches are given: leave one of them out")
        keys: dict[str, Any] = {"output": None if output is None else as_path(output, "output"), "overwrite": overwrite}
        keys |= {"max_time": max_time, "inputs": (path_of(Path(config)),) if isinstance(config, str | Path) else ()}
        return keys, verbose is not None and as_flag(verbose, "verbose"), batches is not None

    with team_of(comm) as team:
        launcher = team.all_or_raise(lambda: None if ranks is None else launcher_of(ranks, comm))
        own, talks, pieces = team.from_root(told)
        if pieces:
            keys = partial(fit, hidden=hidden, layers=layers, loss=loss, validation=validation, seed=seed)
            settings = on_root(team, lambda: {**flat(config), STREAM: True})
            piece = partial(keys, classes=classes, config=settings, ranks=ranks, comm=comm, callback=callback)
            return fit_batches(batches, Y, weights, partial(piece, verbose=verbose), start, own["max_time"], team)
        request = Request(
            began,
            ends_with_model=True,
            is_program=False,
            callback=drawing(callback) if verbose is None and in_notebook() else callback,
            start=start if isinstance(start, Model) else None,
            **own,
        )
        with listening(talks, partial(keys_given, config)):
            settled = team.from_root(partial(config_of, config, hidden, layers, loss, validation, start, seed, classes))
            given = on_root(team, lambda: points_of(X, Y, validation, weights, settled, start))
            if launcher is not None and ranks is not None:
                return _told(fit_on_ranks(launcher, ranks, settled, given, request), settled)
            plan, source, chosen = planned(settled, team, given, request.start)
            with interruptible() as wish, limited(plan.resolved.run.threads):
                heard = replace(request, chosen=chosen, listen=lambda: wish)
                outcome = launch_training(heard, source, plan, team)
            return team.from_root(lambda: _told(outcome.model, settled))


ENDS = {
    "max_iterations": "the fit came to its last iteration (run.max_iterations) before its error had settled",
    "max_time": "the fit was stopped by max_time before its error had settled",
    INTERRUPTED: "the fit was interrupted; the model has the best weights so far",
}
"""Why a fit has ended -> a warning; a callback that has ended its fit needs none."""


def _told(model: Model | None, config: Config) -> Model:
    """Returns the model of a fit, and warns if the fit ended too soon.

    It does not warn if all iterations that the config names, or of a piece of a stream, were done.
    """
    assert model is not None, "a fit ends with a model"
    asked = model.ended == "max_iterations" and (model.stream or not config.run.max_iterations)
    if not asked and (why := ENDS.get(model.ended)):
        warn(why)
    return model


# --- pieces of a stream -----------------------------------------------------------------------------------------------


def fit_batches(
    batches: Iterable[Any] | None,
    Y: Any,
    weights: Any,
    piece: Callable[..., Model],
    start: Any,
    max_time: float,
    team: Team,
) -> Model:
    """Trains on one batch after the other; returns the model after the last one, or after one that was stopped.

    batches: on rank 0.
    Y, weights: the names of columns, if batches are tables.
    piece: piece(X, Y, weights=, start=, max_time=) trains on one batch, on all ranks.
    start, max_time: as in `fit`.
    Raises UsageError if there is no batch.  Collective: yes.
    """
    began, model, taken = now(), None, list[Any]()

    def first() -> Iterator[Any]:
        if is_frame(batches) or getattr(batches, "ndim", 3) < 3 or not isinstance(batches, Iterable):
            raise UsageError(f"batches = {shown(batches)}: an iterable of X, (X, Y) or (X, Y, weights) is needed")
        return iter(batches)

    source = on_root(team, first)

    def more() -> bool:
        taken[:] = [_parts_of(one, Y, weights) for one in islice(source, 1)]
        if not taken and model is None:
            raise UsageError("batches: there is none, and nothing to train on")
        return bool(taken)

    while team.from_root(more):
        X, own_Y, own_weights = taken.pop() if taken else (None, None, None)
        left = max_time - (now() - began)
        model = piece(X, own_Y, weights=own_weights, start=model or start, max_time=max(left, 1e-3))
        if model.ended not in ("", "max_iterations"):
            break
    assert model is not None, "there is a batch"
    return model


def _parts_of(batch: Any, Y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Splits a batch into X, Y and weights.

    Y, weights: names of columns, which stand for those that a batch does not give.
    Raises UsageError.
    """
    if isinstance(batch, list) and any(getattr(one, "ndim", 0) > 1 for one in batch):
        raise UsageError("batches: one is a list of arrays, and a tuple is needed: map(tuple, batches)")
    batch = batch if isinstance(batch, tuple) else (batch,)
    if not 1 <= len(batch) <= 3 or is_frame(batch):
        raise UsageError(f"batches: one has {len(batch)} parts; X, (X, Y) or (X, Y, weights) is needed")
    own = (*batch, None, None)[:3]
    if own[0] is None:
        raise UsageError("batches: X of one is None; leave it out")
    if (Y is not None and own[1] is not None) or (weights is not None and own[2] is not None):
        raise UsageError("batches: one gives Y or weights, which are arguments, too: give them in one place")
    return own[0], Y if own[1] is None else own[1], weights if own[2] is None else own[2]
