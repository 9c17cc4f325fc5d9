"""Minibatches of the stochastic method: their sizes, and their parts."""

from __future__ import annotations

from macmpi.config import Stochastic
from macmpi.plan import tuned
from macmpi.plan.resolved import Resolved

FLOPS, LIGHT = 6.0, 2e7
"""Flops of a step for each point and weight, and those of a minibatch below which ranks would rather wait than share:
about a millisecond or two."""

SHARED = 2
"""Parts of a minibatch that ranks share."""


def minibatch(keys: Stochastic, n_train: int, epoch: int, labels: bool) -> int:
    """Points of a minibatch: at first `batch`, but at most a twentieth of all (of labels a tenth; or BATCH_LEAST); as
    many more in `grow_every` epochs, and so on, up to `batch_max` and a fifth of all.  "all" is all of them.

    Collective: no.
    """
    if keys.batch == "all":
        return n_train
    fewest = tuned.EPOCH_LEAST_LABELS if labels else tuned.EPOCH_LEAST
    first = min(keys.batch, max(n_train // fewest, tuned.BATCH_LEAST))
    most = min(keys.batch_max, max(n_train // tuned.EPOCH_GROWN, tuned.BATCH_LEAST, first))
    return min(int(first * (1.0 + epoch / keys.grow_every)), most)


def minibatch_parts(of: Resolved, n_train: int) -> int:
    """Parts of each minibatch; 0 for methods without them, and for steps of all points.  Collective: no.

    "auto" is 1 where a minibatch is too little work to be shared, else 2: whatever the number of ranks, since another
    number of parts gives other bits.
    """
    keys = of.stochastic
    if of.method.name != "stochastic" or keys.batch == "all":
        return 0
    light = FLOPS * keys.batch * of.chain.whole.multiplications < LIGHT
    auto = max(1 if light else SHARED, of.placement.least_parts)
    return min(auto if keys.parts == "auto" else keys.parts, n_train)
