"""The minibatches of a stochastic run: how many an epoch has, which of them an iteration takes, and their points."""

from __future__ import annotations

from collections.abc import Mapping

from macmpi.config import Stochastic as Keys
from macmpi.parallel.streams import stream
from macmpi.parallel.tiles import Tile
from macmpi.plan.minibatches import minibatch
from macmpi.plan.plan import Plan
from macmpi.typing import Array


class Minibatches:
    """Every iteration takes its share of an epoch's minibatches, a `records`-th part.  Collective: no.

    own: this rank's points of each of its parts; least_part: the points of the smallest part of all.
    """

    def __init__(self, plan: Plan, keys: Keys, own: Mapping[int, Tile], least_part: int) -> None:
        self.plan, self.keys, self.own, self.least_part = plan, keys, own, least_part
        self.iterations = min(keys.records, self.of_epoch(0))
        self._orders: tuple[int, dict[int, Array]] = (-1, {})

    def epoch(self, iteration: int) -> int:
        """The epoch of an iteration; both are counted from 0."""
        return iteration // self.iterations

    def of_epoch(self, epoch: int) -> int:
        """Minibatches of an epoch.  Every part gives at least a point to each."""
        n = self.plan.n_train
        return max(min(n // minibatch(self.keys, n, epoch, self.plan.resolved.loss.labels), self.least_part), 1)

    def points(self, iteration: int) -> float:
        """Points of a minibatch, on average."""
        return self.plan.n_train / self.of_epoch(self.epoch(iteration))

    def of_iteration(self, iteration: int) -> range:
        """Places in their epoch of the minibatches of an iteration."""
        count, share = self.of_epoch(self.epoch(iteration)), iteration % self.iterations
        return range(count * share // self.iterations, count * (share + 1) // self.iterations)

    def drawn(self, iteration: int, place: int) -> dict[int, Array]:
        """This rank's points, by part, of the minibatch at a place of the iteration's epoch.

        Each epoch draws an order of each part again, of which a minibatch takes its share: points stay with the rank
        that holds them, and each part has its place in every minibatch.
        """
        epoch = self.epoch(iteration)
        count, found = self.of_epoch(epoch), {}
        if self._orders[0] != epoch:
            self._orders = epoch, {}
        orders = self._orders[1]
        for part, own in self.own.items():
            if part not in orders:
                orders[part] = own.start + stream(self.plan.seed, "epoch", epoch, part).permutation(len(own))
            found[part] = orders[part][len(own) * place // count : len(own) * (place + 1) // count]
        return found
