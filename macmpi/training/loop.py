"""A training run starts or resumes, iterates until rank 0 decides that it ends, postprocesses, and saves the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macmpi import NumericalError, StorageError
from macmpi.console import say, warn
from macmpi.data.dataset import Dataset
from macmpi.half_steps.errors import errors_of
from macmpi.methods.choose import Method, choose
from macmpi.methods.starts import Origin, coordinates_first, start
from macmpi.parallel.clock import now
from macmpi.parallel.kernels import words
from macmpi.parallel.mpi import STOPPED
from macmpi.parallel.team import Team, check_alike, on_root
from macmpi.plan.plan import Plan
from macmpi.plan.resolved import Decision, Progress
from macmpi.results.scores import levels
from macmpi.state import Errors, State, StochasticState
from macmpi.training import end, process
from macmpi.training.checkpoint import digest, keeper_of
from macmpi.training.record import Curve, End, changed, closing, columns_of, describe, ended, record_of, write_start
from macmpi.training.request import Outcome, Request
from macmpi.training.run_directory import RunDirectory
from macmpi.training.time_limit import SPARE, Pace
from macmpi.typing import Array

DIVERGED, LATE = "diverged", "max_time"
"""Words for why a run ended: its numbers are no longer finite; it had no time left."""


@dataclass(frozen=True)
class TrainingJob:
    """Describes a run to be trained, with what its launch has found.

    request: the caller's request.
    directory: the run directory; None: no file is written.
    state: the state of the checkpoint from which the run continues; None if the run begins.
    origin: the weights or coordinates that its start has read from a file.
    facts: its provenance, on rank 0.
    """

    request: Request
    directory: RunDirectory | None
    state: State[Any] | None
    origin: Origin
    facts: dict[str, Any]


@np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite are found and reported
def train(job: TrainingJob, plan: Plan, data: Dataset, team: Team) -> Outcome:
    """Trains until the run ends, or until somebody stops it.  Collective: yes.

    plan: the plan of the run or, if a selection has changed the net, of the present net.
    """
    process.ready()
    team.set_deadline(plan.resolved.run.deadline)
    team.clock.take()  # time before belongs to no iteration
    settled = job.state is not None and isinstance(job.state.own, StochasticState) and plan.finishing
    run = Training(job, data, team, choose(settled or plan, data, team), settled=bool(settled))
    if job.request.is_program:
        process.spare_living()
    state, stopped = run.begin(), False
    while not stopped and (not state.finished or run.goes_on(state)):
        stopped = run.iterate(state)
    if stopped and not job.request.ends_with_model:
        return Outcome(STOPPED)
    return run.finish(state, stopped)


class Training:
    """Is the loop around a method, with records, decisions and checkpoints.  Collective: methods that say so.

    settled: whether full MAC has settled, so that `method` takes the steps on all points that follow it.
    """

    def __init__(self, job: TrainingJob, data: Dataset, team: Team, method: Method, settled: bool = False) -> None:
        """Computes the errors of constants, for comparison, and opens the curve.  Collective: yes."""
        self.job, self.data, self.team = job, data, team
        self.method, self.settled, plan = method, settled, method.plan
        request = job.request
        self.first = plan.work.train.held(team.rank).start  # the number of the first point whose rows this rank holds
        self.pace = Pace(request.began, request.max_time, 60.0 * method.plan.resolved.run.checkpoint_minutes)
        self.sweep_began = now()
        self.stop = request.listen()
        if request.is_program:
            process.on_continued(self.pace.pause)  # the time of a suspension does not count
        self.why_stopped = ""
        self.wrong: NumericalError | None = None
        self.unsaved = False
        resumed = None if job.state is None else job.state.iteration
        points, loss = method.parts.points, plan.resolved.loss
        self.levels = levels(plan.chain.net, data, loss, points.over, points.total_weight) if points.summing else []
        self.constant = team.from_root(lambda: self.levels[0].value)
        columns = columns_of(plan, method.text)
        path, of_run = (None, "") if job.directory is None else (job.directory.curve, job.directory.run)
        self.curve = Curve(path, resumed, columns, team.rank == 0, of_run)

    @property
    def plan(self) -> Plan:
        return self.method.plan

    def begin(self) -> State[Any]:
        """Makes the first state and its record, or takes the one to resume; returns it.  Collective: yes."""
        self._say(describe(self.plan, self.data, self.team.size, self.method.text))
        kernel = words(self.job.facts["kernels"][0]["blas"]) if self.job.facts else ""
        self._say("\n".join(f"  {line}" for line in (self.job.request.chosen, kernel, *self.levels) if line))
        self.curve.header()
        state = self.job.state
        if state is None:
            state = start(self.method, self.job.origin)
            errors = self.method.evaluate(state, feasible=not coordinates_first(self.plan))
            self.team.from_root(lambda: end.check_start(errors))
            state.history.multipliers_norm = errors.gradients.multipliers if errors.gradients else 0.0
            self._record(state, "start", errors)
            self.team.from_root(lambda: write_start(self.job.directory, self.plan, self.data, state))
        self.method.begin(state)
        self.team.clock.take()
        limit = self.plan.resolved.schedule.max_iterations
        if state.finished != "converged":
            state.finished = "max_iterations" if state.iteration >= limit and not state.under_way else ""
        if state.finished and self.job.state is None:
            self._save(state, last=False)
        self.pace.pause()
        return state

    def iterate(self, state: State[Any]) -> bool:
        """Does one iteration and records it; then rank 0 decides.  Returns whether the run must stop here.

        Collective: yes.
        """
        self.sweep_began, mu = now(), state.mu
        complete = self._turn(state) if state.finished else self._sweep(state)
        worst = self.team.max_over_ranks({"took": now() - self.sweep_began, **end.bad_places(state, self.first)})
        state.seconds += worst.pop("took")
        wrong = end.wrong_places(self.plan.chain, state.iteration + (not complete), worst, self.method.text.stepped)
        if wrong is None and not complete:
            self._save(state, last=True)
            self._say_stopped(f"in iteration {state.iteration + 1}")
            return True
        before = state.history.e1_val
        if wrong is None:
            errors = self.method.evaluate(state)
            wrong = end.wrong_errors(errors, state.iteration, self.method.text.remedy)
        if wrong is not None:  # the run has not been stopped: `finish` warns, once it knows what the model has
            state.finished, self.wrong = DIVERGED, wrong
            return False
        self._record(state, "iteration", errors)
        wished, due = self._wishes()
        progress = Progress(state.iteration, mu, before, **state.history.progress(errors))

        def decide() -> tuple[Decision, bool, bool]:
            decision = self.plan.resolved.schedule.decide(progress)
            stop = wished and (decision.stop is None or self.plan.resolved.stochastic.stream)  # more pieces may come
            return decision, stop, due or decision.mu != mu or stop or decision.stop is not None

        decision, stop, save = self.team.from_root(decide)
        if decision.multipliers:
            began = now()
            self.method.move_multipliers(state)
            state.seconds += self.team.max_over_ranks({"took": now() - began})["took"]
            state.history.reference = self.plan.resolved.schedule.yardstick(progress)
        state.mu, state.finished = decision.mu, decision.stop or ""
        if save:
            self._save(state, last=stop)
        if stop:
            self._say_stopped(f"after iteration {state.iteration}")
        return stop

    def _say_stopped(self, where: str) -> None:
        self.why_stopped = self.stop.why or (LATE if self.pace.late else process.why_stopped())
        way = "" if self.job.directory is None else "; the same command with --resume auto goes on"
        self._say(f"stopped {where}{way}")

    def _say(self, text: str) -> None:
        if self.team.rank == 0:
            say(text)

    def _pause(self, state: State[Any]) -> bool:
        """Writes a checkpoint within an iteration if one is due; tells whether the run must stop.  Collective: yes."""
        stop, due = self._wishes()
        if due and not stop:
            began, places = now(), self.team.max_over_ranks(end.bad_places(state, self.first))
            if end.wrong_places(self.plan.chain, state.iteration + 1, places) is None:
                self._save(replace(state, seconds=state.seconds + began - self.sweep_began), last=False)
            self.sweep_began += now() - began
        return stop

    def goes_on(self, state: State[Any]) -> bool:
        """Tells whether full MAC has settled and the run continues with steps on all points.  Collective: no."""
        left = self.plan.resolved.schedule.max_iterations - state.iteration
        return state.finished == "converged" and self.plan.finishing is not None and left > 0

    def _turn(self, state: State[Any]) -> bool:
        """Does the iteration in which full MAC ends with its postprocessing, and steps of all points take over.

        Collective: yes.
        """
        assert self.plan.finishing is not None
        weights = self.method.finish(state).weights
        self.method, self.settled = choose(self.plan.finishing, self.data, self.team), True
        begun = self.method.start_at(weights, gradient_step=False)
        state.weights, state.Z, state.own, state.finished = begun.weights, begun.Z, begun.own, ""
        state.history.fell_to = float("inf")
        self.method.begin(state)
        self._say(f"  {self.method.text.how}")
        state.completed()
        return True

    def _sweep(self, state: State[Any]) -> bool:
        """Does the method's sweep; tells whether it was complete.

        If a library fails on a rank at numbers that are not finite, that rank raises NumericalError and says where.
        Collective: yes.
        """
        try:
            return self.method.sweep(state, lambda: self._pause(state))
        except Exception as error:
            if end.is_arithmetic(error):
                at = getattr(error, "located", ())
                raise end.broken(self.plan.chain, state, at, error, self.first) from error
            raise

    def finish(self, state: State[Any], stopped: bool = False) -> Outcome:
        """Postprocesses, records the result, refits, and writes model.h5; the checkpoint keeps the state before this.

        If a run has diverged, its model has the best earlier weights.  A refit that must stop before its end is kept,
        and a resumed run continues the refit, or begins it again if no rank has all rows of points.

        stopped: whether the run was stopped; then there is no refit.
        Raises StorageError if model.h5, or the checkpoint before it, could not be written.  Collective: yes.
        """
        began = now()
        history = state.history
        if state.finished == DIVERGED:
            after = replace(state, weights=history.best_weights)
            errors = errors_of(self.method.parts, after, feasible=True)
            best = end.Best(after.weights, history.best_iteration, errors)
        else:
            after = self.method.finish(state)
            after.seconds += now() - began
            errors = self.method.evaluate(after, feasible=True)
            best = end.best_of(self.method, state, after, errors, self.constant)
        learnt = best
        if end.is_poor(best.errors.E_Q, self.constant) and not self.plan.resolved.stochastic.stream:
            best = end.or_constant(best, self.method, after, self.data)  # a stream goes on from its best weights
        diverged = self.team.from_root(lambda: self._warn_of_end(state, errors, learnt, best.constant))
        self.why_stopped = DIVERGED if diverged else self.why_stopped
        self._record(after, "postprocess", errors)
        scores = end.scored(self.method.parts, best.weights, self.data)
        of, chain = self.plan.resolved, self.plan.chain
        if of.selection.criterion != "none":
            sizes = "-".join(map(str, chain.layer_sizes))
            compared = any(record["phase"] == "selection" for record in self.curve.records)
            never = f"; the run ended before iteration {of.selection.every} (selection.every): nothing was compared"
            self._say(f"the net that was selected: {sizes}, {chain.existing:,} weights{'' if compared else never}")
        self._say("\n".join(closing(state, errors, self.method.text, best, scores.lines(), diverged)))
        wanted = 0 if stopped else self.team.from_root(lambda: end.iterations_of(of, best, history.errors))
        begins = wanted > 0 and self.team.from_root(lambda: self._has_time(state, wanted))
        again = self._refit(state, best, wanted) if begins else None
        if begins and again is None:
            stopped = True
            self._say_stopped("before the refit on all points had ended")
            if not self.job.request.ends_with_model:
                self.team.from_root(self._check_saved)
                return Outcome(STOPPED)
        self._check_alike(after, best.weights, *([again.weights] if again else []))
        memory = self.team.max_over_ranks({"memory": process.peak_memory()})["memory"]
        why, better = self.why_stopped or state.finished, again if again and again.better else None
        is_whole = not stopped and (not wanted or again is not None)
        last = End(state, after, best, errors, better, scores, self.curve.records, why, is_whole)
        model = on_root(self.team, lambda: ended(self.job.directory, self.plan, self.data, last, self.job.facts))
        self.stop.complete = True
        which = ", what its node shares included" if self.team.shares else ""
        peak = f"{'peak memory of a rank':28s} {memory:.0f} MB{which}"
        self._say("\n".join(f"  {line}" for line in (*self.levels, peak)))
        if self.job.directory is not None:
            self._say(f"model: {self.job.directory.model}")
        self.curve.close()
        self.team.from_root(self._check_saved)
        return Outcome(STOPPED if stopped else NumericalError.exit_code if diverged else 0, model)

    def _wishes(self) -> tuple[bool, bool]:
        """Tells whether any rank wants the run to stop now, and whether a checkpoint is due.

        Rank 0 also wants it to stop if --max-time is over (`Pace` in training/time_limit.py).  Collective: yes.
        """
        late, due = (self.pace.is_late(), self.pace.is_due()) if self.team.rank == 0 else (False, False)
        wishes = self.team.max_over_ranks({"stop": float(bool(self.stop.why) or late), "save": float(due)})
        return wishes["stop"] > 0.0, wishes["save"] > 0.0

    def _has_time(self, state: State[Any], iterations: int) -> bool:
        """Tells whether the refit may begin: not if this launch must end with a model, and too little time is left.

        In other launches a refit may be cut short, and goes on in the next one.  Collective: no.
        """
        seconds = iterations / state.iteration * (1.0 + self.plan.n_val / self.plan.n_train) * state.seconds
        if self.job.request.ends_with_model and not self.pace.suffices(SPARE * seconds):
            warn("no time is left for the refit on all points: the best weights stay")
            return False
        return True

    def _refit(self, state: State[Any], best: end.Best, iterations: int) -> end.Refit | None:
        """Does the refit, or continues a stopped one; keeps its state and returns None if it must stop again.

        Collective: yes.
        """
        directory, of = self.job.directory, f"{state.fingerprint} {iterations}"
        keeper, kept = keeper_of(self.plan), on_root(self.team, lambda: directory and directory.refit_of(of))
        self.pace.pause()
        state.own.free()

        def keep(begun: State[Any]) -> None:
            """Keeps the state of a refit that stops, unless no rank has all rows: then it begins again later."""
            if directory is not None and keeper.codes(begun) is not None:
                is_kept = self.team.from_root(lambda: directory.keep_refit(begun, of))
                self.unsaved = self.unsaved or not is_kept

        begun = keeper.handed_out(kept, self.team)
        errors, stopped = state.history.errors, lambda: self._wishes()[0]
        done = end.refit(self.data, self.method, best, iterations, errors, stopped, begun, keep)
        if done is not None:
            self._say(f"  {done}")
        return done

    def _check_saved(self) -> None:
        if self.unsaved and self.job.directory is not None:
            raise StorageError(f"the last checkpoint could not be written; {self.job.directory.remedy()}")

    def _warn_of_end(self, state: State[Any], errors: Errors, best: end.Best, gives_constant: bool) -> bool:
        """Warns if training ended above the best constant; tells whether the run has diverged.

        errors: at the end, with feasible coordinates, so that E_Q is E1 without a ridge.
        best, gives_constant: the best weights, and whether the model gives the best constant instead.
        Collective: no (rank 0).
        """
        constant, poor = self.constant, end.is_poor(best.errors.E_Q, self.constant)
        lost = poor or best.iteration == 0
        first = next((r["E1_train"] for r in self.curve.records if r["phase"] == "start"), None)
        far = end.went_wrong(errors.E_Q, constant, first, lost)
        if self.wrong is not None:
            warn(f"{self.wrong}; {end.kept(best.iteration, gives_constant)}")
        elif far or end.went_wrong(errors.E_Q, constant, first, poor):
            words = self.levels[0].name, self.method.text.remedy
            warn(end.gone_wrong(best.iteration, errors.E_Q, constant, *words, gives_constant))
        return (far and lost) or state.finished == DIVERGED

    def _record(self, state: State[Any], phase: str, errors: Errors) -> None:
        """Notes the validation error in the history, and adds a record of the state to the curve.  Collective: yes."""
        timings, plan = self.team.max_over_ranks(self.team.clock.take()), self.plan
        if phase != "postprocess":
            poor = end.is_poor(errors.train - errors.ridge, self.constant)
            state.note_validation(errors.validation, errors.watched, poor, plan.resolved.schedule.noticeable)
        extra: dict[str, Any] = {"centres": plan.basis_sizes} if plan.has_basis else {}
        extra |= {"ended": self.why_stopped or state.finished} if phase == "postprocess" else {}
        extra |= {"finish": True} if phase == "iteration" and self.settled else {}
        notes = self.method.notes(state) if phase == "iteration" else {}
        record = record_of(state, phase, errors) | timings | {"ranks": self.team.size} | extra | notes
        rest = plan.resolved.schedule.max_iterations - state.iteration
        left = rest * state.seconds / state.iteration if phase == "iteration" else None
        self.curve.add(record, left)
        callback = self.job.request.callback
        if callback is not None and self.team.rank == 0 and callback(dict(record)):
            self.stop.why = self.stop.why or process.ANSWERED
        if record.get("changed"):
            self._say(f"  another architecture: {changed(self.plan.chain.layer_sizes, record)}")

    def _check_alike(self, state: State[Any], *more: Array) -> None:
        """Raises NumericalError if a rank holds other numbers than rank 0, for instance by a fault of its machine.

        Collective: yes.
        """
        where = f"in iteration {state.iteration}" if state.under_way else f"after iteration {state.iteration}"

        def error(who: str, _: str) -> NumericalError:
            again = "the same command with --resume auto goes on from the checkpoint before"
            return NumericalError(f"{where} the numbers of {who} are not those of rank 0; {again}")

        check_alike(self.team, digest(state, *more), error)

    def _save(self, state: State[Any], last: bool) -> None:
        """Checks that all ranks have the same numbers, and writes a checkpoint.  last: of this launch.

        Collective: yes.
        """
        began = now()
        self._check_alike(state)
        if self.job.directory is not None:
            self.unsaved = not self.job.directory.save(state, self.plan, self.team, last)
        self.pace.saved(began)
