"""Penalty, ridge and acceleration of full MAC where the config says "auto": by the loss, for tables and labels.

An autoencoder has the paper's: mu begins at 10 and grows tenfold once the error has settled.  A classifier or a
regression has far less to gain from its inputs, and a large mu ties the coordinates to the first net that comes along:
mu begins small and doubles every tenth iteration, and the run ends where the validation error falls no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from macmpi.config.model import Activation
from macmpi.config.tables import PAPER
from macmpi.config.whole import Config, given

AUTO = "auto"
IN_THE_PAPER = "as in the paper"

SLOWLY = {"factor": 2.0, "mu_every": 10, "patience": 25}
"""The schedule of tables and labels."""

PATH = {"mu0": 1.0, "factor": 2.0, "ridge_scale": "objective"}
"""A path of stationary points of E_Q + ridge: half steps need about as many iterations as mu is large."""

FIRST_MU = {"labels": 1e-3, "numbers": 0.03}
"""mu of the first iterations."""

RIDGE = {"labels": 5e-3, "numbers": 0.1}
"""The ridge of the objective, for each column of the inputs: a unit of many columns has smaller weights."""

FEW = "fewer centres than points"

BITS = {"mu0": 0.01, "factor": 2.0, "ridge": 1.0}
"""Bits change one by one, and never again where mu is large."""

BASIS = {"factor": 2.0}
"""Few basis functions cannot follow the codes that a small mu allows them, and the error of the net rises; where mu is
large, codes hardly move.  So mu passes in small steps through where the two meet."""

MOST = {"labels": 0.15, "numbers": 1.0}
"""The ridge at most."""


def by_loss(config: Config, n_in: int, autoencoder: bool) -> Iterator[tuple[str, Any, str]]:
    """Each key of [penalty] that says "auto", its value, and why.  n_in: columns of X.  Collective: no."""
    penalty, kind = config.penalty, _kind(config, autoencoder)
    values: dict[str, Any] = PAPER | {"bits": BITS, FEW: BASIS}.get(kind, {})
    if kind in RIDGE:
        ridge = min(RIDGE[kind] * n_in, MOST[kind])
        values = {"mu0": FIRST_MU[kind], **SLOWLY, "ridge": ridge, "ridge_scale": "objective"}
    why = f"for {kind}" if kind else IN_THE_PAPER
    if penalty.stop == "gradient":
        values, why = values | PATH, "for a path of stationary points"
    for key, value in values.items():
        if getattr(penalty, key) == AUTO:
            yield key, min(value, penalty.mu_max) if key == "mu0" else value, why


def acceleration(config: Config, autoencoder: bool) -> tuple[str, str]:
    """method.acceleration and why: momentum where numbers are the targets.  Collective: no."""
    if _kind(config, autoencoder) == "numbers" and not config.penalty.gradients:
        return "momentum", "for numbers"
    return "none", IN_THE_PAPER


def _kind(config: Config, autoencoder: bool) -> str:
    """Gives "bits", `FEW`, "labels" or "numbers"; "" where the paper's values stay.

    Those are for autoencoders of other layers than bits and than first basis functions of fewer centres than points,
    for layers without derivatives, other penalties, selection of centres, and a tolerance that is given.
    """
    penalty, layers, asked = config.penalty, config.model.layers(), given(config)
    usual = (
        penalty.method == "quadratic"
        and penalty.stop == "validation"
        and penalty.metric == "identity"
        and "penalty.tolerance" not in asked
        and "penalty.tolerance_decay" not in asked
        and (config.selection.criterion == "none" or bool(config.selection.sizes))
        and any(site != "none" for _, _, site in layers)
    )
    if usual and starts_with_bits(config):
        return "bits"
    centred = [kind for _, kind, _ in layers if kind in ("rbf", "quantise")]
    if usual and "rbf" in centred and config.model.each("centres", len(centred))[centred.index("rbf")] != "points":
        return FEW
    if autoencoder or not usual or any(kind not in get_args(Activation) for _, kind, _ in layers):
        return ""
    return "labels" if config.model.loss == "cross_entropy" else "numbers"


def starts_with_bits(config: Config) -> bool:
    """The first hidden layer gives bits."""
    return config.model.layers()[0][1] == "binary"
