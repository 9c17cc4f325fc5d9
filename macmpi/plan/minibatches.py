"""Minibatches of the stochastic method: their sizes, and how often each part of a step is done."""

from __future__ import annotations

from macmpi.config import Stochastic
from macmpi.plan.resolved import Resolved

REMADE, REMADE_LATER = 10, 20
"""Minibatches of the stochastic method that share the layers' metrics and inverses: of the first `EARLY` ones, and of
later ones, a multiple.  Eigenvectors, where layers are damped in them, are shared by the latter from the start."""

EARLY = 100
"""Minibatches in which inverses are made more often."""

MEASURE, ADAPT, RENEWED = 3, 10, 2
"""Every MEASURE-th minibatch measures a length, every ADAPT-th the decrease, every RENEWED-th renews Grams.

Of autoencoders without a ridge the points probed give length and decrease, else all of a minibatch: where a ridge
balances the mean slope of all points, that of some may lead uphill."""

PROBED = 64
"""Points of each part that Grams and metrics are taken from."""

FACTS = 4
"""Numbers of a look at a minibatch: the sums of losses and of their squares, points that are probed, and all points.
They are summed alone where inverses are made again, else with the slopes."""

LEAST = 32
"""Points of a minibatch of few points."""

FEWEST, FEWEST_LABELS = 20, 10
"""Minibatches that the first epochs have at least, unless they would be smaller than LEAST: of numbers, and of labels,
which need fewer steps."""

GROWN = 5
"""Minibatches that an epoch keeps, however much they grow, unless they would be smaller than LEAST."""

FLOPS, LIGHT = 6.0, 2e7
"""Flops of a step for each point and weight, and those of a minibatch below which ranks would rather wait than share:
about a millisecond or two."""

SHARED = 2
"""Parts of a minibatch that ranks share."""


def minibatch(keys: Stochastic, n_train: int, epoch: int, labels: bool) -> int:
    """Points of a minibatch: at first `batch`, but at most a twentieth of all (of labels a tenth; or `LEAST`); as many
    more in `grow_every` epochs, and so on, up to `batch_max` and a fifth of all.

    Collective: no.
    """
    first = min(keys.batch, max(n_train // (FEWEST_LABELS if labels else FEWEST), LEAST))
    most = min(keys.batch_max, max(n_train // GROWN, LEAST, first))
    return min(int(first * (1.0 + epoch / keys.grow_every)), most)


def minibatch_parts(of: Resolved, n_train: int) -> int:
    """Parts of each minibatch; 0 for methods without them.  Collective: no.

    "auto" is 1 where a minibatch is too little work to be shared, else 2: whatever the number of ranks, since another
    number of parts gives other bits.
    """
    if of.method.name != "stochastic":
        return 0
    keys = of.stochastic
    light = FLOPS * keys.batch * of.chain.whole.multiplications < LIGHT
    auto = max(1 if light else SHARED, of.placement.least_parts)
    return min(auto if keys.parts == "auto" else keys.parts, n_train)
