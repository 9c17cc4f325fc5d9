"""The end of a run: where its numbers stop being finite, and the weights that a model predicts with.

These are of the lowest validation error, never worse than a constant, or of a refit: the same training again, on
training and validation points together, as long as validation chose.  Validation has said after how many iterations the
net generalises best; what is left to gain are the points that were held out.  They pay where points are few, or where
the net knows its training points far better than others, so "auto" asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi import NumericalError, many
from macmpi.console import decimals
from macmpi.data.dataset import Dataset, share_arrays
from macmpi.half_steps.context import HalfStepContext
from macmpi.half_steps.errors import errors_of
from macmpi.methods.choose import Method, choose
from macmpi.methods.starts import Origin, constant_weights, start
from macmpi.nets.chain import Chain
from macmpi.nets.design import at
from macmpi.nets.losses import LINKS
from macmpi.parallel.rows import appended
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Progress, Resolved
from macmpi.results.scores import Labels, Numbers, levels, scores_of, sums_of
from macmpi.state import W_STEP, Errors, State, block_views
from macmpi.typing import Array

GAP = 2.0
""""auto" refits many points where the validation error of the best weights is this many times their training error."""

SAME = 1e-9
"""Errors that differ by this share are the same but for rounding."""

LITTLE = 0.01
"""A run that ends above the best constant by less than this share has not gone wrong: there was nothing to learn."""

FAR = 2.0
"""A run has diverged where its error ends above this times that of the best constant, and above where it started."""

CHANGES = "another model.activation or another data.scale may help"


NOWHERE = -np.inf
"""The place of `bad_places` where all numbers are finite."""


def bad_places(state: State[Any], first: int = 0) -> dict[str, float]:
    """`first_bad` of the coordinates and of the weights: the largest over the ranks is the first place.

    first: the number of the first point of which the state holds coordinates.
    """
    return {"bad_z": first_bad(state.Z, first * state.Z.shape[1]), "bad_w": first_bad(state.weights)}


def first_bad(A: Array, before: int = 0) -> float:
    """Minus the flat index of the first number of A that is not finite, counted from `before`; NOWHERE of none.

    Cost: a byte a number.
    """
    good = np.isfinite(A)
    return NOWHERE if good.all() else -float(good.argmin() + before)


def wrong_places(
    chain: Chain, iteration: int, places: dict[str, float], stepped: str = "the W-step"
) -> NumericalError | None:
    """The error where a place of `bad_places` is one, else None; the same on every rank that knows it.

    stepped: what moved the weights.
    """
    if places["bad_z"] > NOWHERE:
        point, column = divmod(int(-places["bad_z"]), sum(chain.site_sizes))
        site, unit = _locate(chain.site_sizes, column)
        where = f"the Z-step gave point {point} a coordinate that is not finite, unit {unit} of site {site + 1}"
    elif places["bad_w"] > NOWHERE:
        layer, at = _locate([h * d for h, d in chain.net.block_shapes], int(-places["bad_w"]))
        unit, column = divmod(at, chain.net.block_shapes[layer][1])
        where = f"{stepped} gave layer {layer + 1} a weight that is not finite, unit {unit}, input {column}"
    else:
        return None
    return NumericalError(f"iteration {iteration}: {where}")


def check_start(errors: Errors) -> None:
    """Raises NumericalError when the starting point is beyond what numbers can hold."""
    if not (np.isfinite(errors.train) and np.isfinite(errors.validation)):
        raise NumericalError(
            f"the error at the start is {errors.train:g} (training) and {errors.validation:g} (validation); "
            "a smaller start.range, or scaled data (data.scale), may help"
        )


def wrong_errors(errors: Errors, iteration: int, remedy: str) -> NumericalError | None:
    """The error where one of an iteration's errors is not finite, else None: all ranks have the same."""
    named = {"E1 (training)": errors.train, "E1 (validation)": errors.validation, "E_Q": errors.E_Q}
    bad = [f"{name} is {value:g}" for name, value in named.items() if not np.isfinite(value)]
    return NumericalError(f"iteration {iteration}: {', '.join(bad)} at its end; {remedy}, {CHANGES}") if bad else None


def went_wrong(error: float, constant: float, start: float | None, poor: bool) -> bool:
    """Tells whether the last training error (E1, without a ridge) says that a run went wrong.

    constant: the best constant's, 0 where there is none to compare with; start: at the start, if known; poor: the best
    weights are no better than that constant.  A run that has not learnt yet is where it started, and one that is near
    the best constant has lost little.
    """
    if poor:
        return constant > 0.0 and error > FAR * constant and (start is None or error > start)
    return constant > 0.0 and not error <= constant * (1.0 + LITTLE)


def kept(iteration: int, gives_constant: bool) -> str:
    """Says what the model has after training went wrong.

    iteration: of the best weights; gives_constant: the model gives the best constant, since that was better than these.
    """
    if gives_constant:
        return "the model gives the best constant, as no weights of before were better"
    best = f"best weights of before, of iteration {iteration}" if iteration else "weights that the run started with"
    return f"the model has the {best}"


def gone_wrong(
    iteration: int, error: float, constant: float, name: str, remedy: str, gives_constant: bool = False
) -> str:
    """Says that a run has ended worse than a constant, and what the model has.

    iteration, gives_constant: as of `kept`; error, constant: as of `went_wrong`; name: of the constant; remedy: what
    may help.
    """
    return (
        f"training went wrong after iteration {iteration}: at the end E1 (training) is {error:g}, against {constant:g} "
        f"({name}); {kept(iteration, gives_constant)}; {remedy}, {CHANGES}"
    )


def is_arithmetic(error: Exception) -> bool:
    """Tells whether a library raises this error when it is given, or comes to, numbers that are not finite."""
    known = isinstance(error, np.linalg.LinAlgError | FloatingPointError)
    return known or "infs or NaNs" in str(error)


def broken(
    chain: Chain, state: State[Any], problem: tuple[Any, ...], error: Exception, first: int = 0
) -> NumericalError:
    """The error of a sweep that a library has ended in this rank.  problem: the last one that was made here.

    first: as in `bad_places`.
    """
    if (wrong := wrong_places(chain, state.iteration + 1, bad_places(state, first))) is not None:
        return wrong
    half, at = "W" if state.position % 2 == W_STEP and state.Z.size else "Z", ""
    if half == "W" and problem[:1] == ("W",):
        _, segment, tile = problem
        units = "all units" if tile is None else f"units {tile.start} to {tile.stop - 1}"
        at = f" in segment {segment + 1}, {units}"
    elif half == "Z" and problem[:1] == ("Z",):
        rows: Any = problem[1]
        if isinstance(rows, slice):
            at = f" at points {first + rows.start} to {first + rows.stop - 1}"
        else:
            at = f" at {len(rows)} sample points"
    where = f"iteration {state.iteration + 1}: the {half}-step failed{at}"
    return NumericalError(f"{where} ({error}); checkpoints of before stay")


def _locate(sizes: Sequence[int], at: int) -> tuple[int, int]:
    """Finds the part, of parts of these sizes, that holds entry `at`, and the place in it."""
    bounds = np.cumsum([0, *sizes])
    part = int(np.searchsorted(bounds, at, side="right")) - 1
    return part, at - int(bounds[part])


# --- the weights of a model -------------------------------------------------------------------------------------------


def is_poor(error: float, constant: float) -> bool:
    """Tells whether a training error, without a ridge, is above that of the best constant, or no number."""
    return not error <= constant * (1.0 + SAME)


@dataclass(frozen=True)
class Best:
    """The best weights of a run.

    weights (P,): flat.
    iteration: that they are of; 0 where they give the best constant.
    errors: of these weights.
    last: they are those that the run ended with.
    constant: they give the best constant, since no others were better.
    """

    weights: Array
    iteration: int
    errors: Errors
    last: bool = False
    constant: bool = False


def best_of(method: Method, state: State[Any], after: State[Any], errors: Errors, constant: float) -> Best:
    """Chooses the weights of the lowest validation error, of an iteration or those after the postprocessing.

    after, errors: the state after postprocessing, and its errors.
    constant: E1 of the best constant; weights with a training error above it are chosen only where all are such.
    Of a stream, whose pieces differ, the last weights are chosen.  Cost: an evaluation.  Collective: yes.
    """
    if method.plan.resolved.stochastic.stream:
        return Best(after.weights, after.iteration, errors, last=True)
    history, last = state.history, (is_poor(errors.E_Q, constant), errors.validation)
    if not len(history.best_weights) or last <= (history.best_poor, history.best_e1_val):
        return Best(after.weights, after.iteration, errors, last=True)
    return Best(history.best_weights, history.best_iteration, _errors(method, after, history.best_weights))


def or_constant(best: Best, method: Method, after: State[Any], data: Dataset) -> Best:
    """The net that gives the best constant where that is better than the best weights.  Collective: yes.

    An output layer without biases gives none, one of convolutions perhaps none that is better.
    """
    parts, plan = method.parts, method.plan
    points = parts.over_points, parts.points.total_weight, data.weights
    flat = constant_weights(plan.chain, after.weights, plan.resolved.loss, data.Y, *points)
    if flat is None:
        return best
    of = _errors(method, after, flat)
    return best if best.errors.E_Q <= of.E_Q else Best(flat, 0, of, constant=True)


def _errors(method: Method, state: State[Any], weights: Array) -> Errors:
    """The errors of a net with other weights (flat) than the state's.  Collective: yes."""
    return errors_of(method.parts, replace(state, weights=weights), feasible=True)


def scored(parts: HalfStepContext, weights: Array, data: Dataset) -> Numbers | Labels:
    """Scores of the net with these weights (flat) at the validation points; rank 0 knows their units and classes.

    Cost: one pass through the net.  Collective: yes.
    """
    plan, L = parts.plan, parts.plan.chain.n_out
    loss, points = plan.resolved.loss, plan.work.validation
    labels = loss.labels
    blocks = block_views(weights, plan.chain.block_shapes)

    def add(rows: slice, out: Array) -> None:
        F = plan.chain.forward(blocks, data.X_val[rows])
        out[:] = sums_of(data.Y_val[rows], F if labels else LINKS[loss.link](F), labels, at(data.weights_val, rows))

    none = np.empty((0, L))
    sums = parts.total(add, len(sums_of(none, none, labels)), points)
    classes = np.arange(L) if labels and data.classes is None else data.classes
    return scores_of(sums, data.scaling_y.scale, classes)


# --- the refit --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refit:
    """Weights (flat) of the refit, and their E1 of all n points.

    better: than the E1 of the best weights before it, and than that of the best constant.
    """

    weights: Array
    iterations: int
    error: float
    n: int
    better: bool

    def __str__(self) -> str:
        name = f"refit on all {many(self.n, 'point')}"
        if not self.better:
            return f"{name:28s} no better there: the best weights stay"
        return f"{name:28s} E1       {decimals(self.error):>9}   after {many(self.iterations, 'iteration')}"


def iterations_of(of: Resolved, best: Best, errors: Array) -> int:
    """Counts the iterations of the refit of a run with these best weights; 0: none is wanted.  Collective: no (rank 0).

    They are those after which the validation error was least, as the mean over an iteration, the one before and the one
    after it: of a few points the least error by itself comes by chance.  errors: those of the run (`History`).
    """
    if best.constant or best.iteration == 0 or of.run.refit is False or not of.repeatable:
        return 0
    if of.run.refit == "auto" and not (of.gains and best.errors.validation >= GAP * best.errors.E_Q):
        return 0
    return max(int(np.argmin([np.mean(errors[max(i - 1, 0) : i + 2]) for i in range(len(errors))])), 1)


def joined(data: Dataset, plan: Plan, whole: Plan, team: Team) -> Dataset:
    """Training and validation points as training points, in the scaling of the training points.

    plan, whole: of the run, and of these.
    Cost: a copy of all points, one for the ranks of a node if they share memory.  Collective: yes.
    """
    sets = plan.work.train, plan.work.validation
    pairs = [(data.X, data.X_val)] if data.autoencoder else [(data.X, data.X_val), (data.Y, data.Y_val)]
    if weighted := data.weights is not None or data.weights_val is not None:
        given = (data.weights, data.X), (data.weights_val, data.X_val)
        pairs.append(tuple(np.ones(len(A)) if w is None else w for w, A in given))  # type: ignore[arg-type]
    both = [list(zip(sets, pair, strict=True)) for pair in pairs]
    arrays = [appended(of, whole.work.train, team) for of in both] if team.rank == 0 or not team.shares else []
    arrays = share_arrays(team, arrays) if team.shares else arrays
    weights = arrays.pop() if weighted else None
    return replace(data, X=arrays[0], Y=arrays[-1], groups=None, order=None, weights=weights)


def refit(
    data: Dataset,
    first: Method,
    best: Best,
    iterations: int,
    errors: Array,
    stopped: Callable[[], bool],
    begun: State[Any] | None = None,
    keep: Callable[[State[Any]], Any] = lambda state: None,
) -> Refit | None:
    """Trains again on all points, by this number of iterations; None where `stopped` says that it must stop.

    first, best: the method of the run and its best weights.  errors: the run's validation errors, which minibatches
    follow again.  keep: is given the state of a refit that stops; begun: such a state, on all ranks, to go on with.
    stopped, keep: collective.  Cost: the iterations, on all points.  Collective: yes.
    """
    team, of = first.parts.team, first.plan.resolved
    plan = Plan(of, first.plan.n_train + first.plan.n_val, first.plan.n_val, team.size)
    whole = joined(data, first.plan, plan, team)
    method = choose(plan, whole, team)
    state = start(method, Origin()) if begun is None else begun
    state.history.errors = errors
    method.begin(state)
    while state.iteration < iterations:
        if not method.sweep(state, stopped) or stopped():
            keep(state)
            return None
        # the number of iterations alone decides over the next mu
        state.mu = of.schedule.decide(Progress(state.iteration, state.mu, np.inf, 0.0, best=state.iteration)).mu
    weights = state.result.copy()
    after, before = (_errors(method, state, flat).E_Q for flat in (weights, best.weights))
    points = method.parts.points
    constants = levels(plan.chain.net, whole, of.loss, points.over, points.total_weight) if points.summing else []
    better = team.from_root(lambda: after < min(before, constants[0].value))
    return Refit(weights, state.iteration, after, plan.n_train, better)
