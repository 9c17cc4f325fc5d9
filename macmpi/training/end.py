"""A run ends when its numbers stop being finite, or with the weights with which a model predicts.

These weights have the lowest validation error, and are never worse than a constant.  Or they come from a refit, which
repeats the training on training and validation points together.  Validation has found the number of iterations after
which the net generalises best, so the refit takes as many and also uses the points that were held out.  This pays if
points are few, or if the errors at training points are far lower than at others; "auto" then refits.
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
"""With many points "auto" refits if the best weights' validation error is at least this times their training error."""

SAME = 1e-9
"""Errors that differ by no more than this share are the same up to rounding."""

LITTLE = 0.01
"""A run that ends above the best constant by less than this share has not gone wrong: there was nothing to learn."""

FAR = 2.0
"""A run has diverged if its error ends above this times that of the best constant, and above the error at its start."""

CHANGES = "another model.activation or another data.scale may help"


NOWHERE = -np.inf
"""`bad_places` and `first_bad` give this if all numbers are finite."""


def bad_places(state: State[Any], first: int = 0) -> dict[str, float]:
    """Computes `first_bad` of the coordinates and of the weights; the largest value over the ranks is the first place.

    first: the number of the first point whose coordinates the state holds.
    """
    return {"bad_z": first_bad(state.Z, first * state.Z.shape[1]), "bad_w": first_bad(state.weights)}


def first_bad(A: Array, before: int = 0) -> float:
    """Returns minus the flat index of the first number of A that is not finite, or NOWHERE.

    before: the index of A's own first number.
    Memory: one byte per number.
    """
    good = np.isfinite(A)
    return NOWHERE if good.all() else -float(good.argmin() + before)


def wrong_places(
    chain: Chain, iteration: int, places: dict[str, float], stepped: str = "the W-step"
) -> NumericalError | None:
    """Makes the error for numbers that are not finite, which is the same on every rank; None if all are finite.

    places: the largest `bad_places` over the ranks.
    stepped: a phrase that says what moved the weights.
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
    """Raises NumericalError if the errors at the start are not finite."""
    if not (np.isfinite(errors.train) and np.isfinite(errors.validation)):
        raise NumericalError(
            f"the error at the start is {errors.train:g} (training) and {errors.validation:g} (validation); "
            "a smaller start.range, or scaled data (data.scale), may help"
        )


def wrong_errors(errors: Errors, iteration: int, remedy: str) -> NumericalError | None:
    """Makes the error for an iteration with an error that is not finite; None if all are finite.

    remedy: words for what may help.
    """
    named = {"E1 (training)": errors.train, "E1 (validation)": errors.validation, "E_Q": errors.E_Q}
    bad = [f"{name} is {value:g}" for name, value in named.items() if not np.isfinite(value)]
    return NumericalError(f"iteration {iteration}: {', '.join(bad)} at its end; {remedy}, {CHANGES}") if bad else None


def went_wrong(error: float, constant: float, start: float | None, poor: bool) -> bool:
    """Tells whether a run went wrong, by its last training error.

    A run that has not learnt yet is still at its start, and a run near the best constant has lost little: neither of
    them went wrong.

    error: E1 without a ridge.
    constant: the error of the best constant, 0 if there is none to compare with.
    start: the error at the start, or None if it is unknown.
    poor: whether the best weights are no better than the constant.
    """
    if poor:
        return constant > 0.0 and error > FAR * constant and (start is None or error > start)
    return constant > 0.0 and not error <= constant * (1.0 + LITTLE)


def kept(iteration: int, gives_constant: bool) -> str:
    """Writes which weights the model has after training went wrong.

    iteration: the iteration of the best weights.
    gives_constant: whether the model predicts the best constant instead, since this was better.
    """
    if gives_constant:
        return "the model gives the best constant, as no weights of before were better"
    best = f"best weights of before, of iteration {iteration}" if iteration else "weights that the run started with"
    return f"the model has the {best}"


def gone_wrong(
    iteration: int, error: float, constant: float, name: str, remedy: str, gives_constant: bool = False
) -> str:
    """Writes that a run has ended worse than a constant, and which weights the model has.

    iteration, gives_constant: as in `kept`.
    error, constant: as in `went_wrong`.
    name: the name of the constant.
    remedy: words for what may help.
    """
    return (
        f"training went wrong after iteration {iteration}: at the end E1 (training) is {error:g}, against {constant:g} "
        f"({name}); {kept(iteration, gives_constant)}; {remedy}, {CHANGES}"
    )


def is_arithmetic(error: Exception) -> bool:
    """Tells whether this is an error that a library raises when it is given or computes numbers that are not finite."""
    return isinstance(error, np.linalg.LinAlgError | FloatingPointError) or "infs or NaNs" in str(error)


def broken(
    chain: Chain, state: State[Any], problem: tuple[Any, ...], error: Exception, first: int = 0
) -> NumericalError:
    """Makes the error for a sweep that a library has ended on this rank.

    problem: identifies the last problem that this rank made.
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
    """Finds which of the parts of these sizes holds entry `at`, and the place in it."""
    bounds = np.cumsum([0, *sizes])
    part = int(np.searchsorted(bounds, at, side="right")) - 1
    return part, at - int(bounds[part])


# --- the weights of a model -------------------------------------------------------------------------------------------


def is_poor(error: float, constant: float) -> bool:
    """Tells whether a training error without a ridge is not a number, or is above the error of the best constant."""
    return not error <= constant * (1.0 + SAME)


@dataclass(frozen=True)
class Best:
    """Holds the best weights of a run.

    weights: (P,).
    iteration: the iteration after which the run had these weights; 0 if they predict the best constant.
    errors: the errors of these weights.
    last: whether the run ended with these weights.
    constant: whether they predict the best constant, since no other weights were better.
    """

    weights: Array
    iteration: int
    errors: Errors
    last: bool = False
    constant: bool = False


def best_of(method: Method, state: State[Any], after: State[Any], errors: Errors, constant: float) -> Best:
    """Chooses the weights with the lowest validation error, from all iterations and from the end of postprocessing.

    For a stream, whose pieces differ, it chooses the last weights.

    after, errors: the state after postprocessing, and its errors.
    constant: E1 of the best constant; weights with a larger training error are chosen only if all weights have one.
    Cost: an evaluation.  Collective: yes.
    """
    if method.plan.resolved.stochastic.stream:
        return Best(after.weights, after.iteration, errors, last=True)
    history, last = state.history, (is_poor(errors.E_Q, constant), errors.validation)
    if not len(history.best_weights) or last <= (history.best_poor, history.best_e1_val):
        return Best(after.weights, after.iteration, errors, last=True)
    return Best(history.best_weights, history.best_iteration, _errors(method, after, history.best_weights))


def or_constant(best: Best, method: Method, after: State[Any], data: Dataset) -> Best:
    """Returns weights that give the best constant, if these are better than the best weights.  Collective: yes.

    An output layer without biases cannot predict a constant, and the constant of a convolution may not be better.
    """
    parts, plan = method.parts, method.plan
    points = parts.over_points, parts.points.total_weight, data.weights
    flat = constant_weights(plan.chain, after.weights, plan.resolved.loss, data.Y, *points)
    if flat is None:
        return best
    of = _errors(method, after, flat)
    return best if best.errors.E_Q <= of.E_Q else Best(flat, 0, of, constant=True)


def _errors(method: Method, state: State[Any], weights: Array) -> Errors:
    """Computes the errors of a net with other weights (P,) than the state's.  Collective: yes."""
    return errors_of(method.parts, replace(state, weights=weights), feasible=True)


def scored(parts: HalfStepContext, weights: Array, data: Dataset) -> Numbers | Labels:
    """Computes the scores of a net with these weights (P,) at the validation points.

    Only on rank 0 are they in the data's units, with the names of classes.
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
    """Holds the weights (P,) of the refit, and their E1 on all n points.

    better: whether this E1 is below the E1 of the best weights before the refit, and of the best constant.
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
    """Chooses the number of iterations of the refit; 0 if there is no refit.  Collective: no (rank 0).

    It is the iteration with the least validation error, taken as the mean over an iteration, the one before and the one
    after it: on few points a single least error is due to chance.

    errors: the validation errors of the run (`History`).
    """
    if best.constant or best.iteration == 0 or of.run.refit is False or not of.repeatable:
        return 0
    if of.run.refit == "auto" and not (of.gains and best.errors.validation >= GAP * best.errors.E_Q):
        return 0
    return max(int(np.argmin([np.mean(errors[max(i - 1, 0) : i + 2]) for i in range(len(errors))])), 1)


def joined(data: Dataset, plan: Plan, whole: Plan, team: Team) -> Dataset:
    """Joins training and validation points to one set of training points, with the scaling of the training points.

    plan, whole: the plans of the run, and of the refit on all points.
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
    """Trains again on all points, for this number of iterations; returns None if it is stopped.

    first, best: the method of the run and its best weights.
    errors: the run's validation errors, by which the sizes of minibatches are chosen again.
    stopped: stopped() tells whether the refit must stop; collective.
    begun: the state of a stopped refit, which continues, on all ranks.
    keep: keep(state) is called with the state of a refit that stops; collective.
    Cost: the iterations, on all points.  Collective: yes.
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
        # nothing but the number of iterations decides on the next mu
        state.mu = of.schedule.decide(Progress(state.iteration, state.mu, np.inf, 0.0, best=state.iteration)).mu
    weights = state.result.copy()
    after, before = (_errors(method, state, flat).E_Q for flat in (weights, best.weights))
    points = method.parts.points
    constants = levels(plan.chain.net, whole, of.loss, points.over, points.total_weight) if points.summing else []
    better = team.from_root(lambda: after < min(before, constants[0].value))
    return Refit(weights, state.iteration, after, plan.n_train, better)
