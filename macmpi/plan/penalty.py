"""The constrained problem as a sequence of unconstrained ones, and what is asked of the weights in each of them.

Penalty, multipliers, and when each moves; ridge and restraints of each layer, in the units of its own regression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from macmpi import NumericalError
from macmpi.solvers.w_problem import FREE, Restraint


@dataclass(frozen=True)
class Progress:
    """Rank 0 knows this after an iteration.

    before, now: the validation error before and after it; move: mean squared mu M_k (z_k - f_k) now, by how much the
    multipliers would move; reference: the same when they moved last (inf: not yet); best: the iteration of the least
    validation error; fell: that of its last noticeable fall; gradient: ||grad E_Q|| per point; multipliers: their norm
    per point at the start; constraint: mean squared z_k - f_k(z_{k-1}).
    """

    iteration: int
    mu: float
    before: float
    now: float
    move: float = 0.0
    reference: float = math.inf
    best: int = 0
    fell: int = 0
    gradient: float = math.inf
    multipliers: float = 0.0
    constraint: float = math.inf


@dataclass(frozen=True)
class Decision:
    """Rank 0 decides after an iteration on the next mu, why to stop (None: go on), and whether multipliers move."""

    mu: float
    stop: str | None
    multipliers: bool = False


@dataclass(frozen=True)
class Quadratic:
    """mu <- factor mu when the validation error rises or falls by less than `tolerance`, relatively; ends at mu_max.

    That is section 2's rule.  It bounds no gradient, so theorem B.3 says nothing of a run that follows it, even where
    `tolerance_decay` < 1 multiplies the tolerance whenever mu grows.  With `every` > 0 mu grows after this number of
    iterations instead, whatever the error does, and the run ends at max_iterations.  With `patience` > 0 it also ends
    when the validation error has not been lower for this number of iterations.  noticeable: the share by which it must
    be lower to have noticeably fallen.  gradients: they are computed after each iteration.  discrete: coordinates
    are bits, and the run ends once they are those of the net, and another iteration has changed nothing.
    """

    mu0: float
    factor: float
    mu_max: float
    tolerance: float
    max_iterations: int
    tolerance_decay: float = 1.0
    multiplier_max: float = math.inf
    multipliers: bool = False
    every: int = 0
    patience: int = 0
    noticeable: float = 0.0
    gradients: bool = False
    discrete: bool = False

    def decide(self, progress: Progress) -> Decision:
        """Section 2's stopping criterion.  Raises NumericalError when E1 is not finite."""
        if not math.isfinite(progress.now):
            raise NumericalError(
                f"the validation error is {progress.now} after iteration {progress.iteration} (mu = {progress.mu:g}); "
                "a smaller start.range or a larger penalty.ridge may help"
            )
        mu, stop = progress.mu, None
        move = self._move_multipliers(progress)
        settled = progress.iteration % self.every == 0 if self.every else self._settled(progress)
        if settled and not move:
            if mu >= self.mu_max and not self.every:
                stop = "converged"
            mu = min(self.factor * mu, self.mu_max)
        fell = progress.fell if self.noticeable else progress.best
        if self.discrete and progress.constraint == 0.0 and progress.now == progress.before:
            stop = "converged"
        if self.patience and progress.iteration - fell >= self.patience:
            stop = "converged"
        if stop is None and progress.iteration >= self.max_iterations:
            stop = "max_iterations"
        return Decision(mu, stop, move)

    def _settled(self, progress: Progress) -> bool:
        tolerance = self.tolerance * self.tolerance_decay ** self._raised(progress.mu)
        return progress.now >= progress.before or progress.before - progress.now < tolerance * progress.before

    def _raised(self, mu: float) -> int:
        """Counts how often mu has grown; to mu_max, which may be nearer, too."""
        return math.ceil(math.log(mu / self.mu0) / math.log(self.factor) - 1e-6)

    def _move_multipliers(self, progress: Progress) -> bool:
        return False


DECAY = 0.7
"""A tolerance of gradients is this times the one at the mu before, where half steps alternate: any number below 1 will
do.  Where weights and coordinates move together it falls as 1 / mu, as the gradient of E1 does."""


@dataclass(frozen=True)
class Stationary(Quadratic):
    """Raise mu_k once ||grad E_Q(W, Z; mu_k)|| <= tau_k, the condition of theorem B.3; ends at mu_max.

    tau_k = gradient_tolerance decay^k ||lambda(W^0, Z^0)||, both norms of all weights, coordinates and points:
    where E_Q is stationary dE_Q/dz is a difference of terms as large as the multipliers, so they are its unit, in which
    neither mu, nor the number of points, nor the scale of the data appears.  tau_k -> 0 as mu_k -> infinity, which is
    all that the theorem asks.
    """

    gradients: bool = True
    gradient_tolerance: float = 0.1
    decay: float = DECAY

    def tolerance_at(self, mu: float, multipliers: float) -> float:
        """tau_k, per point like the norm that it is a share of."""
        return self.gradient_tolerance * self.decay ** self._raised(mu) * multipliers

    def _settled(self, progress: Progress) -> bool:
        return progress.gradient <= self.tolerance_at(progress.mu, progress.multipliers)


@dataclass(frozen=True)
class Patient(Quadratic):
    """No penalty: the run ends when the validation error has not been lower for `patience` iterations.

    Where a share is `noticeable`, falls by less do not count.
    """

    patience: int = 20

    def _settled(self, progress: Progress) -> bool:
        return False


@dataclass(frozen=True)
class AugmentedLagrangian(Quadratic):
    """The target of f_k is z_k - M_k^-1 lambda_k, and lambda_k <- lambda_k - M_k (z_k - f_k), within +-multiplier_max.

    Safeguard: the multipliers move only if this move, M_k (z_k - f_k) with mu in M_k, is at most `enough` times the
    last one (root mean square over points and coordinates); where the validation error settles without that, mu grows
    instead.  The moves are a geometric series at most, also where the bound cuts them short, so lambda converges
    whatever the half steps do, and mu forces the constraint.  lambda = 0 throughout is the quadratic penalty.
    """

    multiplier_max: float = 100.0
    enough: float = 0.8
    multipliers: bool = True

    def _move_multipliers(self, progress: Progress) -> bool:
        return progress.move <= self.enough**2 * progress.reference


# --- ridge and restraints ---------------------------------------------------------------------------------------------


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
