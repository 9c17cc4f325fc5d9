"""Half steps, starts, errors and postprocessing have one context: plan, data and ranks, and sums over points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.nets.design import at, total_of
from macmpi.nets.losses import weighted
from macmpi.nets.regression import joined
from macmpi.parallel.points import MOST_AT_HAND, PointPartition, Points, some
from macmpi.parallel.rows import in_single
from macmpi.parallel.shared_work import MatrixAcrossRanks, TreeSum
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.parallel.tiles import Cut
from macmpi.plan.choices import KEPT
from macmpi.plan.plan import Plan
from macmpi.reductions import LazyRows, Rows
from macmpi.solvers.w_problem import RestrainedBlock
from macmpi.state import State, block_views
from macmpi.typing import Array


class NetErrors(NamedTuple):
    """Holds E1 per point, and the share of misclassified points."""

    error: float
    wrong: float


@dataclass(frozen=True)
class Inputs:
    """Holds the inputs of a segment's regression, a row for each point that this rank holds.

    features (n, D): the segment's inputs, or if units are fitted one by one, the outputs of the maps before the
        regression.
    design (n, P d): the numbers that the weights multiply, all P positions of a point side by side.
    rounded: the design in the precision in which directions and Grams read it.
    targets: the targets of the regression, before a quantiser if there is one; None if the W-step has no jobs of this
        segment.
    weights (n,): the weights of the points, for points at hand divided by their share of all points; None if all are
        1.
    """

    features: Rows
    design: Rows
    rounded: Rows
    targets: Any = None
    weights: Array | None = None


class HalfStepContext:
    """Holds everything that a half step works on besides the State: a plan, its data and the ranks.

    points: the training points, with sums over them and the sum of their weights.
    over_points: sums over all points (`Points.over`).
    shared_matrix: how all ranks share work on one matrix.
    first_factors: by ridge, the factors of the first segment's Gram, whose inputs do not change.
    Collective: yes, to make one of points with weights, and where a method says so.
    """

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        self.plan, self.data, self.team = plan, data, team
        work = plan.work
        widest = max(work.w_step.widest, work.first_gram.widest)
        least = max(MOST_AT_HAND, *(h for h, _ in plan.chain.block_shapes))  # centres and examples are some of these
        subset = some(plan.n_train, least, stream(plan.seed, "few"))
        self.points = Points(work.train, work.summed, team, widest, data.weights, subset)
        self.over_points, self.shared_matrix = self.points.over, MatrixAcrossRanks(team)
        self._trees: dict[tuple[Cut, Cut], TreeSum] = {}
        self._designs: dict[int, Any] = {}
        self._rounded: dict[int, Any] = {}
        self._first: Inputs | None = None
        self.first_factors: dict[float, Any] = {}

    def weights(self, state: State[Any]) -> tuple[Array, ...]:
        """Returns W_1, ..., W_{K+1} as views of the state's flat buffer.  Collective: no."""
        return block_views(state.weights, self.plan.chain.block_shapes)

    def loss_at(self, rows: Any) -> Any:
        """Returns the loss of the training points `rows`, multiplied by the points' weights.  Collective: no."""
        return weighted(self.plan.resolved.loss, at(self.data.weights, rows))

    def total(self, add: Callable[[slice, Array], None], width: int, points: PointPartition | None = None) -> Array:
        """Computes a sum (width,) over all tiles of points, up one tree.  Collective: yes.

        add: add(rows, out) adds a tile's share to `out` (width,).
        points: None: the training points.
        """
        points = points or self.plan.work.train
        key = points.tiles, points.blocks
        if key not in self._trees:
            self._trees[key] = points.tile_sums(self.team)
        here = dict(enumerate(points.tiles_of(self.team.rank), self._trees[key].own.start))
        return self._trees[key](lambda i, out: add(here[i].rows, out), width)

    def nested(self, weights: Sequence[Array], validation: bool = False) -> NetErrors:
        """Computes E1 (eq. 1) per point, sum w_n loss_n / sum w_n for points' weights w, and their misclassified share.

        validation: whether the validation points are used instead of the training points.
        Cost: one pass through the net.  Collective: yes.
        """
        X = self.data.X_val if validation else self.data.X
        return self.errors(lambda rows: [self.plan.chain.forward(weights, X[rows])], 1, validation)[0]

    def errors(
        self, outputs: Callable[[slice], Iterable[Array]], nets: int, validation: bool = False
    ) -> list[NetErrors]:
        """Computes the errors of several nets on the training points, or on the validation points.  Collective: yes.

        outputs: outputs(rows) returns the outputs (n, L) of each net in turn, at some points.
        nets: the number of nets.
        """
        data, work, loss = self.data, self.plan.work, self.plan.resolved.loss
        points, Y, w = work.train, data.Y, data.weights
        if validation:
            points, Y, w = work.validation, data.Y_val, data.weights_val

        def add(rows: slice, out: Array) -> None:
            T, weights = Y[rows], at(w, rows)
            count = len(T) if weights is None else weights.sum()
            for of_net, F in zip(out.reshape(nets, 3), outputs(rows), strict=True):
                wrong = F.argmax(axis=1) != T.argmax(axis=1) if loss.labels else np.zeros(len(T))
                of_net[:] = total_of(loss.value(T, F), weights), total_of(wrong, weights), count

        sums = self.total(add, 3 * nets, points).reshape(nets, 3).tolist()
        return [NetErrors(error / weight, wrong / weight) for error, wrong, weight in sums]

    def gathered(self, numbers: Array, of_validation: Array) -> Dataset:
        """Gives every rank the same data set of chosen points.  Collective: yes.

        numbers, of_validation: the indices of its training points and of its validation points among all points.
        """
        data, work, arrays = self.data, self.plan.work, dict[str, Any]()
        for name in data.arrays:
            points, chosen = (work.validation, of_validation) if name.endswith("_val") else (work.train, numbers)
            arrays[name] = points.gathered(vars(data)[name], chosen, self.team)
        return replace(data, **{"Y": arrays["X"], "Y_val": arrays["X_val"], **arrays}, groups=None, order=None)

    def minibatch(self, numbers: Array) -> tuple[Dataset, Array]:
        """Returns a data set that has the points `numbers`, and their rows in it.

        It is the whole data set if this rank holds all points, otherwise a gathered data set of only these points.
        Collective: if no rank holds all points.
        """
        if self.points.subset is None:
            return self.data, numbers
        return self.gathered(numbers, numbers[:0]), np.arange(len(numbers))

    def at_hand(self) -> Dataset:
        """Returns a data set that every rank holds: all points, or if no rank has all, a sample of them.

        A sample has the points of `Points.subset`, and at most MOST_AT_HAND validation points.  Collective: yes.
        """
        if self.points.subset is None:
            return self.data
        return self.gathered(self.points.subset, some(self.plan.n_val, MOST_AT_HAND, stream(self.plan.seed, "few", 1)))

    def feasible(self, state: State[Any]) -> None:
        """Sets the coordinates of all points: z_k = f_k(z_{k-1}) for all k.  Collective: yes."""
        chain, weights, X, Z = self.plan.chain, self.weights(state), self.data.X, state.Z
        if chain.sites:
            self.points.rows(lambda rows: np.hstack(chain.coordinates(weights, X[rows])), Z.shape[1], Z.dtype, Z)

    def inputs(self, k: int, state: State[Any]) -> Rows:
        """Returns z_{k-1}, with z_0 = x, side by side with data that the segment also reads.  Collective: no."""
        if k == 0:
            return self.data.X
        segment, Z = self.plan.chain.segments[k], state.Z[:, self.plan.chain.site_columns[k - 1]]
        return self.points.here(joined([Z, self.data.X[:, slice(*segment.data)]])) if segment.data else Z

    def features(self, k: int, state: State[Any]) -> Rows:
        """Returns the features of segment k: the outputs of its maps before the regression, or z_{k-1} without any.

        If rows are not kept, features are computed again whenever they are read.  Collective: yes.
        """
        segment, A, weights = self.plan.chain.segments[k], self.inputs(k, state), self.weights(state)
        if not segment.feature_maps:
            return A
        width = segment.maps[segment.feature_maps].n_in
        return self.points.hold(LazyRows(lambda rows: segment.features(weights, A[rows]), (len(A), width), A.dtype))

    def inputs_of_group(self, k: int, state: State[Any]) -> Inputs:
        """Returns the inputs of the regression of segment k and of the segments that share its weights, joined.

        The inputs are features if units are fitted one by one, or if a trainer fits layers before the regression;
        otherwise they are z_{k-1}.  Collective: yes.
        """
        group, segment = self.plan.chain.groups[k], self.plan.chain.segments[k]
        featured = self.plan.resolved.regressions[k].by_unit or segment.leading
        read = self.features if featured else self.inputs
        n = self.plan.chain.views[k].map.n_in if self.plan.resolved.regressions[k].by_unit and len(group) > 1 else None
        A = self.points.here(joined([read(j, state)[:, :n] for j in group] if n else [read(j, state) for j in group]))
        return self._designed(k, A) if featured else Inputs(A, A, A)

    def _designed(self, k: int, A: Rows) -> Inputs:
        """Makes the design of features A of segment k; if the regression asks for it, also in single precision.

        If rows are not kept, or the patches are too many, the design is computed again whenever it is read.  If it is
        kept, it takes the memory of the last iteration's.  Collective: yes.
        """
        design, regression = A, self.plan.resolved.regressions[k]
        if regression.by_unit and len(self.plan.chain.groups[k]) == 1:
            design = self.points.hold(self.plan.chain.views[k].design(A), self._designs.get(k), KEPT)
            self._designs[k] = design
        if not regression.single:
            return Inputs(A, design, design)
        made = in_single(self.points, design, self._rounded.get(k))
        self._rounded[k] = made
        return Inputs(A, design, made)

    def begin_first(self, state: State[Any]) -> Inputs:
        """Makes the inputs of the first segment's regression, keeps them for `first`, and forgets its factors.

        It is called at the beginning, and again after a trainer has changed layers before that regression; nothing else
        changes these inputs.  Collective: yes.
        """
        A = self.features(0, state)
        shared = len(self.plan.chain.groups[0]) > 1  # its regression reads other segments' inputs, too
        self._first, self.first_factors = Inputs(A, A, A) if shared else self._designed(0, A), {}
        return self._first

    def first(self, state: State[Any]) -> Inputs:
        """Returns the inputs of the first segment's regression, made at the first call and kept.  Collective: yes."""
        return self._first or self.begin_first(state)

    def shaping_of(self, state: State[Any], segments: Sequence[int], ridge_alone: bool = False) -> float:
        """Computes ridge, sum lambda/2 ||V||^2, l1 and groups of some segments' regressions, on the scale of E_Q.

        ridge_alone: whether l1 and groups are left out.  Collective: no.
        """
        plan, weights, ridges, others = self.plan, self.weights(state), list[float](), list[float]()
        for k in segments:
            weight, restraints = plan.penalty_weight(k, state.mu), plan.restraints(k, state.mu)
            for b, ridge, asked in zip(plan.chain.regressed(k), plan.ridges(k, state.mu), restraints, strict=True):
                W, marks = weights[b].astype(float, copy=False), plan.chain.blocks[b].own.penalised
                ridges.append(0.5 * ridge * weight * float(np.square(W).sum(where=marks)))
                if asked.l1 or asked.group:
                    others.append(weight * float(asked.penalty(W, marks).sum()))
        return sum(ridges if ridge_alone else [*ridges, *others])

    def confined(self, weights: Array, by: Array | None = None) -> Array:
        """Copies weights (P,) and moves the copy to the nearest place that the restraints allow.  Collective: no.

        by: other weights (P,); where they are 0 in layers that l1 or groups make sparse, the weights of the copy become
            0 too.
        """
        plan, moved = self.plan, weights.copy()
        for b in plan.resolved.shaping.restrained:
            place, map_, restraint = plan.offsets.block(b), plan.chain.blocks[b].own, plan.resolved.shaping.asked(b)
            marks, W = map_.penalised, moved[place].reshape(map_.penalised.shape)
            if by is not None and (restraint.l1 > 0.0 or restraint.group > 0.0):
                W[marks & (by[place].reshape(marks.shape) == 0.0)] = 0.0
            W[:] = RestrainedBlock(marks, restraint, map_.connected).inside(W)
        return moved

    def zeros(self, weights: Sequence[Array]) -> float | None:
        """Returns the share of the weights under l1 or group_lasso that are exactly 0; None if no weights are.

        Collective: no.
        """
        maps = {b: self.plan.chain.blocks[b].own for b in self.plan.resolved.shaping.sparse}
        marks = {b: map_.zero_missing(map_.penalised.copy()) for b, map_ in maps.items()}
        zeros = sum(int(np.count_nonzero(mark & (weights[b] == 0.0))) for b, mark in marks.items())
        return zeros / sum(int(np.count_nonzero(mark)) for mark in marks.values()) if marks else None
