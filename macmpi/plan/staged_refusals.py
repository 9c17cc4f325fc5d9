"""The staged start is refused layers that it cannot find: a sentence, a remedy."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import Config
from macmpi.nets.chain import Chain

ROWS_OF_WEIGHTS = frozenset({"bias", "units"})
"""A layer of filters or words has a row [v, c] for each, which gives one output at each position."""


def check_staged(config: Config, chain: Chain, n_train: int) -> None:
    """Refuse hidden layers that have no filters or words, and more of these than there are patches."""
    key = 'start.method = "staged"'
    for map_ in chain.blocks[:-1]:
        kind = map_.spec()["kind"]
        if not (map_.capabilities >= ROWS_OF_WEIGHTS and {"linear", "patches"} & map_.capabilities):
            raise UsageError(
                f"{key} finds filters and codebooks of dense layers and convolutions, and a layer ({kind}) is another; "
                'use "uniform"'
            )
        count, patches = (map_.parameter_shape or (0, 0))[0], n_train * map_.positions
        if count > patches:
            raise UsageError(
                f"{key} finds the {count:,} units of a layer ({kind}) among {patches:,} patches of training points; "
                f"use at most {patches:,} (model.hidden), or more points"
            )
    if config.model.each("centres", 1) == ["points"]:
        raise UsageError(
            f'{key} finds words among patches, and model.centres = "points" makes a word of each; '
            'use centres = "kmeans" or "subset"'
        )
