"""The quadratic penalty: the ridge that goes with it, the schedule of mu and the stopping rule."""

from __future__ import annotations

import math
from dataclasses import dataclass

from macmpi import NumericalError


@dataclass(frozen=True)
class Ridge:
    """Ridge on the weights, never on the biases, dropped once mu exceeds `until_mu`.

    scale "objective": the W-step minimises E_Q + value/2 ||V||^2, so a hidden unit's own regression
    1/2 sum r^2 has the ridge value/mu, and an output unit's the ridge value.
    scale "unit": each unit's own regression has the ridge `value`, whatever mu is.
    """

    value: float
    scale: str
    until_mu: float

    def of_unit(self, mu: float, output: bool) -> float:
        """Ridge of a unit's own regression, 1/2 sum r^2 + ridge/2 ||v||^2."""
        if mu > self.until_mu:
            return 0.0
        return self.value / mu if self.scale == "objective" and not output else self.value

    def of_objective(self, mu: float, output: bool) -> float:
        """lambda such that no half step raises E_Q + sum lambda/2 ||v||^2 at fixed mu."""
        return self.of_unit(mu, output) * (1.0 if output else mu)


@dataclass(frozen=True)
class Decision:
    """What rank 0 decides after an iteration: the next mu, and why to stop (None: go on)."""

    mu: float
    stop: str | None


@dataclass(frozen=True)
class Schedule:
    """mu <- factor mu when the validation error rises or falls by less than `tolerance`, relatively; ends at mu_max."""

    mu0: float
    factor: float
    mu_max: float
    tolerance: float
    max_iterations: int

    def decide(self, mu: float, iteration: int, before: float, now: float) -> Decision:
        """Section 2's stopping criterion from the validation errors E1 before and after iteration `iteration`.

        Raises NumericalError when E1 is not finite.
        """
        if not math.isfinite(now):
            raise NumericalError(
                f"the validation error is {now} after iteration {iteration} (mu = {mu:g}); "
                "a smaller start.range or a larger penalty.ridge may help"
            )
        settled = now >= before or before - now < self.tolerance * before
        if settled and mu >= self.mu_max:
            return Decision(mu, "converged")
        if settled:
            mu = min(self.factor * mu, self.mu_max)
        return Decision(mu, "max_iterations" if iteration >= self.max_iterations else None)
