"""The two kinds of subproblem of a state: Z-problems by point, W-problems by unit or segment.  No communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.nets.chain import Segment
from macmpi.nets.losses import Metric, Squared, metric, times
from macmpi.parallel.points import Points
from macmpi.plan.plan import Plan
from macmpi.plan.work_lists import Job, Layer
from macmpi.reductions import ALONE, EVERY, InPieces, Made
from macmpi.reductions import Rows as ByRows
from macmpi.solvers.w_problem import LayerGram, SegmentProblem, Term, UnitProblem, WProblem
from macmpi.solvers.z_problem import Rows, ZProblem, split_columns
from macmpi.state import MacState, State, block_views
from macmpi.typing import Array

FLOOR, DAMPING = 1e-2, 0.1
"""Bounds of the metrics: least variance, in shares of a site's largest; identity added to a mean curvature of 1."""


class Subproblems:
    """Makes the problems that the solvers are given: frozen values, mu and multipliers included.  Collective: no.

    last: which was made last, ("Z", rows) or ("W", segment, tile of units).
    """

    def __init__(self, plan: Plan, data: Dataset, points: Points) -> None:
        self.plan, self.data, self.points = plan, data, points
        self._made: dict[tuple[str, int], Any] = {}
        self._made_of: Array | None = None
        self._kept: dict[tuple[str, int], Any] = {}
        self._rooms: dict[int, Array] = {}
        self.last: tuple[Any, ...] = ()

    def forget(self) -> None:
        """The coordinates or multipliers have changed: what was made of them is stale."""
        self._made = {}

    def forget_all(self) -> None:
        """So have weights before the first regression, or its factor."""
        self._made, self._kept = {}, {}

    def weights(self, state: State[MacState]) -> tuple[Array, ...]:
        """W_1, ..., W_{K+1} as views of the state's flat buffer."""
        return block_views(state.weights, self.plan.chain.block_shapes)

    def metrics(self, state: State[MacState]) -> tuple[Metric, ...]:
        """mu M_k of each site."""
        plan = self.plan
        if plan.metric == "identity":
            return (metric(state.mu, plan.dtype),) * len(plan.chain.sites)
        forms, at = [], 0
        for h in plan.chain.site_sizes:
            shape = (h, h) if plan.metric == "curvature" else (h,)
            size = int(np.prod(shape))
            forms.append(metric(state.mu * state.own.metric[at : at + size].reshape(shape), plan.dtype))
            at += size
        return tuple(forms)

    def renew_metric(self, state: State[MacState]) -> None:
        """The forms M_k at each new mu, from the state as it is then; within fixed bounds.

        "variance": 1 / variance of each coordinate.  "curvature": the sample's mean of Phi_k^T Phi_k, damped.
        Both are scaled to a mean eigenvalue of 1.  Collective: yes.
        """
        plan, average = self.plan, self.points.average
        if plan.metric == "identity" or state.own.metric_mu == state.mu:
            return
        sites = split_columns(plan.chain.site_sizes, state.Z)
        if plan.metric == "variance":
            forms = [1.0 / np.maximum(v, FLOOR * v.max() or 1.0) for v in map(self._variance, sites)]
        else:
            weights = [W.astype(float) for W in self.weights(state)]
            inputs = [z[self.points.sample].astype(float) for z in sites]
            segments = plan.chain.segments
            F = average.rows(lambda rows: segments[-1].forward(weights, inputs[-1][rows]))
            M = average.mean(lambda rows: plan.loss.hessian(F[rows]), (F.shape[1], F.shape[1]))
            forms = []
            for segment, A in zip(reversed(segments[1:]), reversed(inputs), strict=True):
                M = segment.pullback(weights, A, M, average)
                forms.insert(0, _damped(M))
        scaled = [F / (np.trace(F) / len(F) if F.ndim == 2 else F.mean()) for F in forms]
        state.own.metric, state.own.metric_mu = (
            self.points.agreed(np.concatenate([F.ravel() for F in scaled])),
            state.mu,
        )

    def _variance(self, z: Array) -> Array:
        """Of each column over all points."""
        N = self.plan.n_train
        (total,) = self.points.over(lambda rows: (z[rows].sum(axis=0, dtype=float),))
        (squares,) = self.points.over(lambda rows: (np.square(z[rows] - total / N).sum(axis=0),))
        return squares / N

    def z_problem(
        self, rows: Rows, state: State[MacState], metrics: tuple[Metric, ...] | None = None, shifted: bool = True
    ) -> ZProblem:
        """Eq. (4) for some points at the state's weights, mu and multipliers."""
        plan = self.plan
        metrics = metrics or self.metrics(state)
        self.last = "Z", rows
        return ZProblem(
            segments=(plan.features[0], *plan.chain.segments[1:]),
            sizes=plan.chain.site_sizes,
            weights=self.weights(state),
            loss=plan.loss,
            metrics=metrics,
            X=self.features(0, state)[rows],
            Y=self.data.Y[rows],
            Z=state.Z[rows],
            shift=self._shift(rows, state, metrics) if shifted else None,
        )

    def _shift(self, rows: Rows, state: State[MacState], metrics: tuple[Metric, ...]) -> Array | None:
        """u_k = M_k^-1 lambda_k; None for the quadratic penalty."""
        if not self.plan.schedule.multipliers:
            return None
        U = state.own.multipliers[rows]
        sizes = self.plan.chain.site_sizes
        return np.hstack([times(u, form.inverse) for u, form in zip(split_columns(sizes, U), metrics, strict=True)])

    def w_problem(self, job: Job, state: State[MacState]) -> WProblem:
        """The regression of a job's weights at the state's coordinates, mu and multipliers."""
        k, plan = job.segment, self.plan
        self.last = "W", k, job.units
        ridge, key = plan.unit_ridge(k, state.mu), (plan.seed, state.iteration, k)
        shapes, segment = plan.shapes(k), plan.chain.segments[k]
        if job.units is not None:
            targets = self.core_targets(k, state, job.units.rows)
            term = Term(self.features(k, state), targets, self.rounded(k, state))
            W = state.weights[job.place].reshape(-1, shapes[0][1])
            local = self.local(k, state)
            shared, points = self.gram(k, state).G, plan.n_train
            together = self.points.in_pieces
            return UnitProblem(term, segment.activation, ridge, W, shared, key, local, points, together)
        loss = plan.loss if k == len(plan.chain.sites) else Squared(self._form(k, state))
        part = plan.features[k] if segment.leading else segment
        numbers = {block: i for i, block in enumerate(segment.regressed)}
        own = Segment(part.maps, tuple(None if b is None else numbers[b] for b in part.blocks))
        A = self.features(k, state) if segment.leading else self.inputs(k, state)
        T = self.targets(k, state)
        flat, together = state.weights[job.place], self.points.in_pieces
        return SegmentProblem(own, loss, A, T, shapes, ridge, flat, key, points=plan.n_train, in_pieces=together)

    def _form(self, k: int, state: State[MacState]) -> Metric:
        """The form in which a hidden segment's own regression is measured: M_k without mu."""
        if self.plan.metric == "identity":
            return metric(1.0, self.plan.dtype)
        bounds = np.cumsum([0, *self.plan.chain.site_sizes])
        return metric(state.own.metric[bounds[k] : bounds[k + 1]], self.plan.dtype)

    def inputs(self, k: int, state: State[MacState]) -> Array:
        """z_{k-1}, with z_0 = x."""
        return self.data.X if k == 0 else split_columns(self.plan.chain.site_sizes, state.Z)[k - 1]

    def features(self, k: int, state: State[MacState], together: bool = False) -> ByRows:
        """What segment k's regression multiplies: z_{k-1} or what is made of it, once a W-step; the first's once.

        Of sharded points, which may be many, it is made where it is needed.  Collective: where `together` is True.
        """
        segment, A = self.plan.chain.segments[k], self.inputs(k, state)
        if not segment.core:
            return A
        width = segment.part(0, segment.core).n_out

        def make(rows: Any) -> Array:
            return segment.features(self.weights(state), A[rows])

        if self.plan.sharded:
            return Made(make, (len(A), width), A.dtype)
        return self._once("features", k, lambda: self.points.rows(make, width, A.dtype, together), state, keep=k == 0)

    def rounded(self, k: int, state: State[MacState], together: bool = False) -> ByRows:
        """The features as directions and Grams of segment k read them: in single precision where they are rounded.

        Collective: where `together` is True.
        """
        A = self.features(k, state, together)
        if not self.plan.rounds(k):
            return A

        def make() -> Array:
            room = self._rooms.get(k) if together else None
            made = self.points.rows(lambda rows: A[rows], A.shape[1], np.dtype(np.float32), together, room)
            if together:
                self._rooms[k] = made
            return made

        return self._once("rounded", k, make, state, keep=k == 0)

    def layer_inputs(self, layer: Layer, state: State[MacState]) -> Array:
        """What a layer that a trainer fits reads."""
        before = self.plan.chain.segments[layer.segment].part(0, layer.map)
        return before.forward(self.weights(state), self.inputs(layer.segment, state))

    def local(self, k: int, state: State[MacState], in_pieces: InPieces = ALONE) -> Any:
        """What is made of a segment's Gram, once a W-step; the first's once for each ridge.

        Collective: where `in_pieces` is.
        """
        solver, ridge = self.plan.w_solvers[k], self.plan.unit_ridge(k, state.mu)

        def make() -> tuple[float, Any]:
            return ridge, solver.local(self.gram(k, state), in_pieces)

        made_for, local = self._once("local", k, make, state, keep=k == 0)
        if made_for != ridge:
            self._kept.pop(("local", k))
            _, local = self._once("local", k, make, state, keep=k == 0)
        return local

    def targets(self, k: int, state: State[MacState], units: slice = EVERY) -> ByRows:
        """What units of segment k have to give: z_k - u_k, or y."""
        sizes = self.plan.chain.site_sizes
        if k == len(sizes):
            return self.data.Y[:, units]
        if not self.plan.schedule.multipliers:
            return split_columns(sizes, state.Z)[k][:, units]
        if not self.plan.sharded:
            shifted = self._once("shifted", 0, lambda: self._unshifted(state), state)
            return split_columns(sizes, shifted)[k][:, units]
        z, u = (split_columns(sizes, A)[k] for A in (state.Z, state.own.multipliers))
        form, width = self.metrics(state)[k], z[:0, units].shape[1]
        return Made(lambda rows: (z[rows] - times(u[rows], form.inverse))[:, units], (len(z), width), z.dtype)

    def core_targets(self, k: int, state: State[MacState], units: slice) -> ByRows:
        """What units of segment k's regression have to give: its targets t, under a quantiser q t + (a - q(a)).

        With a the present outputs of the regression, the present weights then stay where they are once q(a) = t.
        """
        segment = self.plan.chain.segments[k]
        if not segment.trailing:
            return self.targets(k, state, units)

        def make() -> Array:
            weights, after = self.weights(state), segment.core + 1
            a = segment.part(0, after).forward(weights, self.inputs(k, state))
            return self.targets(k, state) + a - segment.part(after, len(segment.maps)).forward(weights, a)

        return self._once("core targets", k, make, state)[:, units]

    def _unshifted(self, state: State[MacState]) -> Array:
        shift = self._shift(EVERY, state, self.metrics(state))
        return state.Z if shift is None else state.Z - shift

    def _once(self, name: str, k: int, make: Callable[[], Any], state: State[MacState], keep: bool = False) -> Any:
        """Made once for the present coordinates, or once and kept."""
        if self._made_of is not state.Z:
            self._made, self._made_of = {}, state.Z
        table = self._kept if keep else self._made
        if (name, k) not in table:
            table[name, k] = make()
        return table[name, k]

    def gram(self, k: int, state: State[MacState]) -> LayerGram:
        """What the units of a segment share."""
        plan, place = self.plan, slice(*self.plan.shared_bounds[k : k + 2])
        G, activation = state.own.grams[place].reshape(plan.shared_shape(k)), plan.chain.segments[k].activation
        dtype = np.dtype(np.float32) if plan.rounds(k) else plan.dtype
        return LayerGram(G, plan.unit_ridge(k, state.mu), dtype, plan.has_bias(k), activation)


def _damped(M: Array) -> Array:
    """M scaled to a mean eigenvalue of 1, negative ones left out, plus DAMPING I; I where M is nothing but rounding."""
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    values = np.maximum(values, 0.0)
    mean = values.mean()
    scaled = values / mean if mean > np.finfo(float).tiny else np.ones(len(M))
    return (vectors * (scaled + DAMPING)) @ vectors.T
