"""The sizes of dense hidden layers are learned in training (section 2.4): units are removed if this lowers E1 + C(W).

    C(W) = c eps^2 |W|,   |W| the number of all weights and biases

In some iterations, layer by layer from the last to the first, the units of a layer are ranked by how much the error of
the next layer's regression rises without them.  A candidate keeps the first units of that order.  The next layer is
fitted to its present pre-activations (the output layer to the targets, if that fit is exact), and a pass through the
rest of the net gives E1 + C.  This is an upper bound, since the other layers would adapt.  So a candidate that seems
worse is trained for some iterations, and the present net too, as long as the gap between both closes fast.

The paper compares E_Q + C.  This says little about a hidden layer here, whose errors count mu times in E_Q, whatever
their effect on the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from macmpi.data.dataset import Dataset
from macmpi.mac import Mac
from macmpi.methods.accelerated import Accelerated
from macmpi.nets.design import adjoint
from macmpi.nets.design import gram as gram_of
from macmpi.parallel.lapack import factored, solved
from macmpi.parallel.team import Team
from macmpi.plan.plan import Plan
from macmpi.plan.selectable import CRITERIA, Place, places
from macmpi.reductions import OverPoints, Rows
from macmpi.state import MacState, Pause, State, block_views, never
from macmpi.typing import Array

LEAST, ROUNDED = 1e-8, 1e-12
"""The ridge is at least LEAST times the mean of the centred Gram's diagonal, plus ROUNDED times the Gram's largest."""

ITERATIONS = 5
"""A candidate and the net that it is compared with are trained for at most this number of iterations."""

HOPELESS = 4.0
"""A candidate is not trained if its error rises by more than this number of times what it saves: in measurements the
other layers took back two thirds of the rise."""

CLOSING, CLOSE = 0.5, 0.05
"""The gap to a candidate closes fast if an iteration leaves at most the share CLOSING of it.  A gap that shrinks and is
at most the share CLOSE of what the candidate saves counts as closed: the smaller net has farther to go."""


# --- the elimination of inputs ----------------------------------------------------------------------------------------

#     min over W of 1/2 ||T - [A, 1] W^T||^2 + ridge/2 ||V||^2,  W = [V, c]
#
# Without input h the minimum is higher by 1/2 ||v_h||^2 / (G^-1)_hh, G the Gram of the centred inputs plus ridge I.
# The input that costs least goes first, and an update of rank one gives G^-1 and V without it.  So one inverse ranks
# all inputs, and from one Gram follow the best weights for each number of them.


class Moments(NamedTuple):
    """Holds the moments of inputs A (N, D) and targets T (N, L).

    inputs (D,), targets (L,): their means.
    gram (D, D), crossed (D, L): A^T A + ridge I and A^T T of centred inputs and targets.
    """

    inputs: Array
    targets: Array
    gram: Array
    crossed: Array


class Kept(NamedTuple):
    """Holds the M remaining inputs, in increasing order, and the best weights for them, W (L, M + 1)."""

    inputs: Array
    weights: Array


def moments(A: Rows, T: Rows, ridge: float, over_points: OverPoints) -> Moments:
    """Computes the moments of inputs A (N, D) and targets T (N, L) in one sum over points.

    ridge: the number that is added to the Gram's diagonal, or a larger one if the Gram would otherwise be singular.
    Cost: N D (D + 2 L) flops.  Collective: if `over_points` is.
    """

    def part(rows: slice) -> tuple[Array, ...]:
        own, given = (B[rows].astype(np.float64, copy=False) for B in (A, T))
        return gram_of(own), adjoint(given, own)

    G, crossed = over_points(part)
    N, D = G[-1, -1], len(G) - 1
    a, t = G[-1, :D] / N, crossed[:, D] / N
    centred = G[:D, :D] - N * np.outer(a, a)
    least = LEAST * float(np.trace(centred)) / D + ROUNDED * max(float(np.diag(G)[:D].max()), 1.0)
    centred[np.diag_indices(D)] += max(ridge, least)
    return Moments(a, t, centred, (crossed[:, :D] - N * np.outer(t, a)).T)


def ranked(of: Moments) -> Array:
    """Ranks the inputs by backward elimination: each time it removes the input whose removal raises the error least.

    Returns their indices (D,), beginning with the input that was removed last.  Cost: 2 D^3 flops.
    """
    left, order = np.arange(len(of.gram)), []
    inverse = solved(factored(of.gram), np.eye(len(left)))
    V = inverse @ of.crossed
    while len(left):
        diagonal = np.diag(inverse)
        h = int((np.einsum("hl,hl->h", V, V) / diagonal).argmin())
        share, v = inverse[:, h] / diagonal[h], V[h]
        V = np.delete(V - np.outer(share, v), h, axis=0)
        inverse = np.delete(np.delete(inverse - np.outer(share, inverse[h]), h, axis=0), h, axis=1)
        order.append(left[h])
        left = np.delete(left, h)
    return np.array(order[::-1])


def prefixes(of: Moments, order: Array, sizes: Sequence[int]) -> list[Kept]:
    """Fits the regression on the first inputs of an order, for each number of inputs in `sizes`.

    Cost: D^3 / 3 flops each.
    """
    found = []
    for size in sizes:
        kept = np.sort(order[:size])
        V = solved(factored(of.gram[np.ix_(kept, kept)]), of.crossed[kept]).T
        found.append(Kept(kept, np.column_stack([V, of.targets - V @ of.inputs[kept]])))
    return found


# --- the method -------------------------------------------------------------------------------------------------------


@dataclass
class Net:
    """Is a net that is compared with others: a method for its sizes, and its State.

    values: E1 + C per point after 0, 1, ... further iterations.
    """

    method: Mac
    state: State[MacState]
    values: list[float]

    @property
    def weights(self) -> list[Array]:
        """The weights of the state's result, as views of the parameter blocks."""
        return list(block_views(self.state.result, self.method.plan.chain.block_shapes))


class Candidate(NamedTuple):
    """Is a layer that keeps only some of its units.

    kept: the units that it keeps, and the best weights of the next layer for them.
    value: E1 + C per point.
    saved: the decrease of C per point.
    """

    place: Place
    kept: Kept
    value: float
    saved: float


class UnitSelection(Mac):
    """Is MAC that selects units after the iterations `every`, 2 `every`, 4 `every`, and so on.

    A selection never raises E1 + C.
    inside: the class that trains the candidates.  Collective: methods that say so.
    """

    inside: ClassVar[type[Mac]] = Mac

    def __init__(self, plan: Plan, data: Dataset, team: Team) -> None:
        super().__init__(plan, data, team)
        self.begun, self.places, self.keys = plan.begun, places(plan.begun.resolved), plan.begun.resolved.selection
        self.price = CRITERIA[self.keys.criterion](plan.n_train) * self.keys.epsilons(1)[0]
        self.changed: bool | None = None
        self.rival_iterations = 0

    def notes(self, state: State[Any]) -> dict[str, Any]:
        """Returns C per point, the sizes, and what a selection did, for the curve.  Collective: no."""
        said = {"cost": self._cost(self.plan), "units": list(self.plan.resolved.units)}
        if self.changed is None:
            return said
        return said | {"phase": "selection", "changed": self.changed, "trained": self.rival_iterations}

    def _cost(self, plan: Plan) -> float:
        """Computes C per point of a plan's net.  Collective: no."""
        return self.price * plan.offsets.weights[-1] / plan.n_train

    def sweep(self, state: State[Any], pause: Pause = never) -> bool:
        """Does one iteration; `changed` then says whether it changed the architecture.  Collective: yes."""
        self.changed, self.rival_iterations = None, 0
        if not super().sweep(state, pause):
            return False
        times, rest = divmod(state.iteration, self.keys.every)
        if not rest and times.bit_count() == 1:
            self._select(state)
        return True

    def _select(self, state: State[MacState]) -> None:
        """Changes the state in place so that each layer has its best size.  Collective: yes."""
        net = first = Net(self, state, [self._value(self, state)])
        for place in reversed(self.places):
            net = self._chosen(place, net)
        self.changed = net is not first
        if self.changed:
            self.plan, self.parts = net.method.plan, net.method.parts
            state.weights, state.Z, state.own = net.state.weights, net.state.Z, net.state.own
            state.history.forget()

    def _chosen(self, place: Place, net: Net) -> Net:
        """Returns the net with the best size of a layer, which is `net` itself if it has that size.  Collective: yes.

        Cost: a pass through the net and a fit of the output layer for each candidate, and iterations of those that
        seem worse.
        """
        now = net.values[-1]
        candidates = self._candidates(place, net) if math.isfinite(now) else []
        if not candidates:
            return net
        values = [c.value for c in candidates]
        first = int(np.argmin(values)) if min(values) < now else 0
        best, saved = self._net(net, net.method.plan.resolved.units, net.state.result), 0.0
        best.values = [now]
        kept = best
        for candidate in candidates[first:]:
            rival, saves = self._net_of(candidate, net), candidate.saved - saved
            if not self._beats(rival, best, saves):
                break
            best, saved = rival, candidate.saved
        return net if best is kept or best.values[-1] >= now else best

    def _beats(self, rival: Net, best: Net, saves: float) -> bool:
        """Trains both nets as long as the gap closes fast; tells whether the rival has or soon will have less E1 + C.

        saves: by how much the rival's C per point is below that of `best`.  Collective: yes.
        """
        gap = rival.values[0] - best.values[0]
        if gap + saves > HOPELESS * saves:
            return False
        for i in range(1, ITERATIONS + 1):
            if gap < 0.0:
                break
            for net in (rival, best):
                if len(net.values) == i:
                    net.method.sweep(net.state)
                    net.values.append(self._value(net.method, net.state))
                    self.rival_iterations += 1
            before, gap = gap, rival.values[i] - min(best.values[: i + 1])
            if gap < before and gap <= CLOSE * saves:
                return True
            if gap > CLOSING * before:
                break
        return gap < 0.0

    def _value(self, method: Mac, state: State[MacState]) -> float:
        """Computes E1 + C per point as if the run ended here, with the output layer fitted.  Collective: yes."""
        after = method.finish(state)
        error = method.parts.nested(method.parts.weights(after)).error
        return self.team.from_root(lambda: error + self._cost(method.plan))

    def _candidates(self, place: Place, net: Net) -> list[Candidate]:
        """Returns a candidate for each smaller size of a layer, the largest first, with its best units.

        Collective: yes.
        """
        plan, parts, weights = net.method.plan, net.method.parts, net.weights
        chain, data = plan.chain, self.data
        units, row = chain.block_shapes[place.block]
        sizes = [size for size in place.sizes[::-1] if size < units]
        if not sizes:
            return []
        with self.team.clock("w"):
            before, after = chain.part(0, place.end), chain.part(place.end, len(chain.maps))
            reads, dtype = after.part(0, 1), data.X.dtype
            A = parts.points.rows(lambda rows: before.forward(weights, data.X[rows]), before.n_out, dtype)
            exact, last = plan.resolved.regressions[len(plan.chain.sites)].solver.exact, len(after.maps) == 1
            T = data.Y
            if not (last and exact):
                T = parts.points.rows(lambda rows: reads.forward(weights, A[rows]), reads.n_out, dtype)
            ridge = plan.resolved.shaping.ridge(place.block + 1, net.state.mu, len(after.parameter_blocks) == 1)
            sums = moments(A, T, ridge, parts.points.jointly)
            found = self.team.from_root(lambda: prefixes(sums, ranked(sums), sizes))
            errors = [self._error(net, place, kept, A) for kept in found]
        saved = [self.price * (row + reads.n_out) * (units - size) / plan.n_train for size in sizes]
        cost = self._cost(plan)
        return [Candidate(place, k, e + cost - s, s) for k, e, s in zip(found, errors, saved, strict=True)]

    def _error(self, net: Net, place: Place, kept: Kept, A: Array) -> float:
        """Computes E1 per point of the net without the other units of a layer.

        The output layer is fitted too if its solver is exact.

        kept: the units that stay, and the weights of the next layer.
        A (N, H): the outputs of all units of the layer.  Collective: yes.
        """
        plan, parts, data, weights = net.method.plan, net.method.parts, self.data, net.weights
        weights[place.block + 1] = kept.weights.astype(A.dtype)
        after = plan.chain.part(place.end, len(plan.chain.maps))
        if len(after.maps) > 1 and plan.resolved.regressions[len(plan.chain.sites)].solver.exact:
            inner = after.part(0, len(after.maps) - 1)
            F = parts.points.rows(lambda rows: inner.forward(weights, A[rows][:, kept.inputs]), inner.n_out, A.dtype)
            ridge = plan.resolved.shaping.ridge(after.parameter_blocks[-1], net.state.mu, True)
            sums = moments(F, data.Y, ridge, parts.points.jointly)
            (fitted,) = self.team.from_root(lambda: prefixes(sums, np.arange(inner.n_out), [inner.n_out]))
            weights[after.parameter_blocks[-1]] = fitted.weights.astype(A.dtype)

        (found,) = parts.errors(lambda rows: [after.forward(weights, A[rows][:, kept.inputs])], 1)
        return self.team.from_root(lambda: found.error)

    def _net_of(self, candidate: Candidate, net: Net) -> Net:
        """Makes the net of a candidate from the net from which the candidate was derived.  Collective: yes."""
        place, kept, blocks = candidate.place, candidate.kept, net.weights
        blocks[place.block : place.block + 2] = [blocks[place.block][kept.inputs], kept.weights]
        sizes = list(net.method.plan.resolved.units)
        sizes[place.layer] = len(kept.inputs)
        return self._net(net, sizes, np.concatenate([W.ravel() for W in blocks]))

    def _net(self, of: Net, sizes: Sequence[int], weights: Array) -> Net:
        """Makes a net like `of`, with other sizes, weights (P,), and feasible coordinates.  Collective: yes."""
        method = self.inside(self.begun.resized(sizes), self.data, self.team)
        made = method.start_at(weights, gradient_step=False)
        made.own.sizes = np.array(sizes)
        state = replace(of.state, weights=made.weights, Z=made.Z, own=made.own, history=replace(of.state.history))
        method.begin(state)
        return Net(method, state, [self._value(method, state)])


class AcceleratedUnitSelection(UnitSelection, Accelerated):
    """Is accelerated MAC that selects units as UnitSelection does.  Collective: as UnitSelection."""

    inside: ClassVar[type[Mac]] = Accelerated
