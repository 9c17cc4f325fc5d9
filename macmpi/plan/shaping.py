"""Ridge and restraints of each layer: all that a config asks of weights, in the units of the layer's own regression."""

from __future__ import annotations

import math
from dataclasses import dataclass

from macmpi import UsageError, many
from macmpi.config import Penalty
from macmpi.config.tables import FAR
from macmpi.solvers.w_problem import FREE, Restraint

LISTS = ("ridge", "l1", "group_lasso", "weights_min", "weights_max")
"""Keys of [penalty] that may be a list, a value for each layer whose weights regressions fit."""


@dataclass(frozen=True)
class Shaping:
    """Ridge and restraint of each layer that a regression fits, never on the biases; layers: by parameter block.

    scale "objective": the W-step minimises E_Q + ridge/2 ||V||^2 + l1 ||V||_1 + group sum_j ||V[:, j]||, so a hidden
    unit's own regression 1/2 sum r^2 has the sizes ridge/mu, l1/mu and group/mu, an output unit's those themselves.
    scale "unit": each unit's own regression has these sizes, whatever mu is.
    Once mu exceeds `until_mu` nothing shrinks weights, and those that l1 or groups have made 0 stay 0.
    """

    ridges: tuple[float, ...]
    restraints: tuple[Restraint, ...]
    scale: str
    until_mu: float
    layers: tuple[int, ...]

    def ridge(self, block: int, mu: float, output: bool) -> float:
        """Ridge of a unit's own regression, 1/2 sum r^2 + ridge/2 ||v||^2."""
        return self.own(self.ridges[self.layers.index(block)], mu, output)

    def restraint(self, block: int, mu: float, output: bool) -> Restraint:
        """The restraint of a layer's own regression."""
        asked = self.asked(block)
        l1, group = (self.own(size, mu, output) for size in (asked.l1, asked.group))
        held = mu > self.until_mu and (asked.l1 > 0.0 or asked.group > 0.0)
        return Restraint(l1, group, asked.least, asked.most, held)

    def asked(self, block: int) -> Restraint:
        """The restraint as the config asks for it."""
        return self.restraints[self.layers.index(block)] if block in self.layers else FREE

    def own(self, size: float, mu: float, output: bool) -> float:
        """A size as the layer's own regression has it."""
        if mu > self.until_mu:
            return 0.0
        return size / mu if self.scale == "objective" and not output else size

    @property
    def sparse(self) -> tuple[int, ...]:
        """The layers whose weights are to become exactly 0."""
        return tuple(b for b in self.layers if self.asked(b).l1 > 0.0 or self.asked(b).group > 0.0)

    @property
    def restrained(self) -> tuple[int, ...]:
        """The layers of which more is asked than a ridge."""
        return tuple(b for b, restraint in zip(self.layers, self.restraints, strict=True) if restraint != FREE)


def shaping_of(penalty: Penalty, layers: tuple[int, ...], tied: bool = False) -> Shaping:
    """The config's [penalty], for the parameter blocks that regressions fit.  Collective: no.

    tied: layers of a decoder have the weights of the encoder's.  Raises UsageError for lists of another length than
    there are layers, and for sizes that contradict.
    """
    if tied and isinstance(penalty.value("ridge"), list):
        raise UsageError(
            "model.tied = true and a list penalty.ridge: a layer and the one tied to it have one ridge; give one number"
        )
    for key in LISTS:
        given = penalty.value(key)
        if isinstance(given, list) and len(given) != len(layers):
            raise UsageError(
                f"penalty.{key} has {many(len(given), 'value')}, and the net has {many(len(layers), 'layer')} whose "
                f"weights regressions fit; give one value, or {len(layers)}"
            )
    keys = (penalty.each(key, len(layers)) for key in ("l1", "group_lasso", "weights_min", "weights_max"))
    restraints = tuple(
        Restraint(l1, group, _bound(least), _bound(most)) for l1, group, least, most in zip(*keys, strict=True)
    )
    ridges = tuple(penalty.each("ridge", len(layers)))
    until_mu = math.inf if penalty.stop == "gradient" else penalty.ridge_until_mu  # one objective for all mu
    found = Shaping(ridges, restraints, penalty.value("ridge_scale"), until_mu, layers)
    _check_sizes(found)
    return found


def _bound(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= FAR else value


def _check_sizes(shaping: Shaping) -> None:
    for layer, asked in enumerate(shaping.restraints, start=1):
        shrinks = "penalty.l1" if asked.l1 > 0.0 else "penalty.group_lasso" if asked.group > 0.0 else ""
        if asked.least > asked.most:
            raise UsageError(
                f"penalty.weights_min = {asked.least:g} is above penalty.weights_max = {asked.most:g} (layer {layer}); "
                "use a smaller weights_min"
            )
        if shrinks and not asked.least <= 0.0 <= asked.most:
            raise UsageError(
                f"{shrinks} draws weights to 0, which penalty.weights_min and weights_max leave out (layer {layer}); "
                "use bounds around 0, or leave them out"
            )
        if asked.joins and (asked.most != float("inf") or asked.least not in (0.0, float("-inf"))):
            raise UsageError(
                f"penalty.group_lasso shrinks the weights of an input together, and bounds other than "
                f"weights_min = 0 move them one by one (layer {layer}); use penalty.l1, or leave the bounds out"
            )
