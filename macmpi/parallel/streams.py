"""Random streams are keyed by purpose and global index, never by rank.

stream(seed, "start", k) is the same on every rank and for every number of ranks.
"""

from __future__ import annotations

import hashlib

import numpy as np

Stream = np.random.Generator


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """Makes the random generator for one purpose, for instance stream(0, "start", layer).

    Distinct (purpose, index) give independent streams of the same seed.  Collective: no.
    """
    word = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, word, len(index), *index])))
