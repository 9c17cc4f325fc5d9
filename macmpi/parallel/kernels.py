"""A process computes by the kernels of its BLAS libraries, and a fingerprint of some sums tells how these round.

Equal bits are promised for one kernel, since another one adds up in another order.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from threading import Lock
from timeit import repeat
from typing import Any

from macmpi import UsageError, many
from macmpi.parallel.team import Team, named, texts

HOLDING = ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")
"""Environment variables that choose another kernel than the processor's own."""

ROWS, COLUMNS = 193, 61
"""The shape of the matrix whose product is compared; no length of a kernel's blocks divides it."""


def libraries() -> list[dict[str, Any]]:
    """Lists library, version and architecture of each BLAS that this process has loaded.  Collective: no."""
    from threadpoolctl import threadpool_info

    import macmpi.parallel.lapack  # noqa: F401 - it brings a library of its own

    found = [info for info in threadpool_info() if info["user_api"] == "blas"]
    named = [(str(i["internal_api"]), str(i["version"]), str(i.get("architecture") or "unknown")) for i in found]
    return [dict(zip(("library", "version", "architecture"), name, strict=True)) for name in sorted(set(named))]


_RUNNING: list[int] = []
"""The number of BLAS threads of each running fit of this process; all are equal, since BLAS has only one number."""

_HELD, _LOCK = ExitStack(), Lock()
"""The limit that the first fit to begin sets and the last to end takes back; one fit at a time changes it."""


def _take_over() -> None:
    """Lets any thread limit the threads of OpenBLAS; threadpoolctl 3.8 obeys only the first thread that did so."""
    import threadpoolctl

    if clear := getattr(getattr(threadpoolctl, "OpenBLASController", None), "clear_controlling_thread", None):
        clear(force=True)


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Limits the BLAS libraries of this process to `threads` threads within a block, for all running fits.

    Raises UsageError if another fit runs with another number.  Collective: no.
    """
    from threadpoolctl import threadpool_limits

    with _LOCK:
        if any(threads != others for others in _RUNNING):
            raise UsageError(
                f"run.threads = {threads}: another fit of this process computes with "
                f"{many(_RUNNING[0], 'BLAS thread')}; use as many, or wait for its end"
            )
        if not _RUNNING:
            _take_over()
            _HELD.enter_context(threadpool_limits(threads, user_api="blas"))
        _RUNNING.append(threads)
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING.pop()
            if not _RUNNING:
                _take_over()
                _HELD.close()
                _take_over()  # whoever limits threads next may do so, too


def words(found: list[dict[str, Any]]) -> str:
    """Writes libraries in a line: "openblas 0.3.30 and 0.3.31 (SkylakeX)".  Collective: no."""
    groups = groupby(found, key=lambda one: (one["library"], one["architecture"]))
    parts = [f"{name} {' and '.join(one['version'] for one in same)} ({kernel})" for (name, kernel), same in groups]
    return ", ".join(parts) or "no BLAS that threadpoolctl knows"


def fingerprint() -> str:
    """Computes a short hash of a product, exponentials and a Cholesky factor in both precisions.

    Ranks with the same hash are assumed to round alike.  Cost: some 100 microseconds.  Collective: no.
    """
    import numpy as np

    from macmpi.parallel.lapack import factored

    digest = hashlib.sha256()
    exact = (np.arange(ROWS * COLUMNS) * 7919 % 1009).reshape(ROWS, COLUMNS) / 1009.0 - 0.5
    for dtype in (np.float32, np.float64):
        A: np.ndarray = exact.astype(dtype)
        G = A.T @ A + np.eye(COLUMNS, dtype=dtype)
        for found in (G, np.exp(A), np.tanh(A), np.tril(factored(G))):
            digest.update(np.ascontiguousarray(found).tobytes())
    return digest.hexdigest()[:12]


MEASURE = f"import json; from {__name__} import measured; print(json.dumps(measured()))"
"""The program of a process that measures itself."""

REPEATS, SIDE = 7, 512
"""The number of measurements, of which the best counts, and the side of their square matrices."""


def measured() -> dict[str, Any]:
    """Measures this process: its arithmetic, and its best rates of products (1e9 flop/s) and exponentials (1e9/s)."""
    import numpy as np

    A = np.ones((SIDE, SIDE))
    product, exp = (min(repeat(work, number=1, repeat=REPEATS)) for work in (lambda: A @ A, lambda: np.exp(A)))
    rates = {"product": 2e-9 * SIDE**3 / product, "exp": 1e-9 * SIDE**2 / exp}
    return {"names": words(libraries()), "arithmetic": fingerprint(), **rates}


def measured_with(environment: dict[str, str]) -> dict[str, Any]:
    """Measures as `measured` does, in a process with these variables.

    Raises OSError, ValueError or SubprocessError if that process prints nothing.  Collective: no.
    """
    line = [sys.executable, "-c", MEASURE]
    ran = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=60.0, check=False)
    return dict(json.loads(ran.stdout))


def arithmetics(team: Team) -> list[dict[str, Any]]:
    """Lists the kinds of arithmetic among all ranks: libraries, fingerprint and ranks of each.  Collective: yes."""
    by_kind: dict[str, list[int]] = {}
    for rank, kind in enumerate(texts(team, json.dumps([libraries(), fingerprint()]))):
        by_kind.setdefault(kind, []).append(rank)
    found = [(*json.loads(kind), numbers) for kind, numbers in by_kind.items()]
    return [dict(zip(("blas", "arithmetic", "ranks"), one, strict=True)) for one in found]


def unlike(found: list[dict[str, Any]]) -> bool:
    """Tells whether the ranks do not round alike.  Collective: no."""
    return len({one["arithmetic"] for one in found}) > 1


def described(found: list[dict[str, Any]]) -> str:
    """Writes `arithmetics` in words: "rank 0 on openblas 0.3.31 (SkylakeX), 01ab; rank 1 on ...".  Collective: no."""
    names = [f"{words(one['blas'])}, {one['arithmetic'][:4]}" for one in found]
    if len(found) == 1:
        return names[0]
    return "; ".join(f"{named(one['ranks'])} on {name}" for one, name in zip(found, names, strict=True))


def mixture(found: list[dict[str, Any]]) -> str:
    """Says that the ranks do not round alike; "" if they do.  Collective: no."""
    if not unlike(found):
        return ""
    return (
        f"the ranks do not round alike: {described(found)}; training goes on, with the bits of this mixture: exact "
        "repetition on other machines is not promised"
    )
