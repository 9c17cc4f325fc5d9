"""A resolved config is values, which solvers, half steps, methods and training read; they never read a config.

The constrained problem is a sequence of unconstrained ones: a schedule says when penalty and multipliers move, and
Shaping which ridges and restraints the weights have in each of them, on the scale of a layer's own regression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from macmpi import NumericalError
from macmpi.config import Baseline, Config, Method, Run, Selection, Start, Stochastic, auto
from macmpi.nets.chain import Chain
from macmpi.nets.losses import Loss
from macmpi.parallel.placement import Placement
from macmpi.plan import tuned
from macmpi.solvers import WSolver, ZSolver
from macmpi.solvers.fitters import ByFitter, Trainer
from macmpi.solvers.gradient_solvers import SGDW
from macmpi.solvers.grams import System
from macmpi.solvers.w_problem import FREE, Restraint

# --- the schedule of mu and the multipliers ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """Holds the numbers by which rank 0 decides after an iteration.

    before, now: the validation error before and after it.
    move: the mean square of mu M_k (z_k - f_k), by which the multipliers would move now.
    reference: `move` when the multipliers moved last, or `lacking` where gradients decide; inf: they have not moved.
    best: the iteration of the least validation error.
    fell: the iteration of the last noticeable fall of the validation error.
    gradient: ||grad E_Q|| per point.
    multipliers: the norm of the multipliers per point at the start.
    lacking: the distance of the moved multipliers from the net's own, divided by the norm of the latter.
    constraint: the mean square of z_k - f_k(z_{k-1}).
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
    lacking: float = math.inf
    constraint: float = math.inf


@dataclass(frozen=True)
class Decision:
    """Holds what is decided after an iteration.

    mu: the next mu.
    stop: why the run ends; None: it continues.
    multipliers: whether the multipliers move.
    """

    mu: float
    stop: str | None
    multipliers: bool = False


@dataclass(frozen=True)
class Quadratic:
    """Does mu <- factor mu when the validation error rises, or falls by a share below `tolerance`; ends at mu_max.

    This is the rule of section 2.  It bounds no gradient, so theorem B.3 says nothing about a run with this rule, even
    if `tolerance_decay` < 1 multiplies the tolerance whenever mu grows.

    every: if > 0, mu grows after this number of iterations instead, whatever the error does, and the run ends at
        max_iterations.
    patience: if > 0, the run also ends once the validation error has not been lower for this number of iterations.
    noticeable: the share by which the error must be lower to have noticeably fallen.
    gradients: whether gradients are computed after each iteration.
    discrete: whether coordinates are a code; the run then ends once the code is the net's and nothing changes.
    longer: words that name the keys by which a run would settle later.

    multipliers: whether the augmented Lagrangian is used.  The target of f_k is z_k - M_k^-1 lambda_k, and lambda_k <-
    lambda_k - M_k (z_k - f_k), within +-multiplier_max.  As a safeguard multipliers move only if this move, with mu in
    M_k, is at most `enough` times the last one; if the error settles before this holds, mu grows instead.  So the moves
    are at most a geometric series, even where the bound cuts them short: lambda converges whatever the half steps do,
    and mu forces the constraint.  lambda = 0 throughout is the quadratic penalty.
    """

    mu0: float
    factor: float
    mu_max: float
    tolerance: float
    max_iterations: int
    tolerance_decay: float = 1.0
    multipliers: bool = False
    multiplier_max: float = 100.0
    enough: float = 0.8
    every: int = 0
    patience: int = 0
    noticeable: float = 0.0
    gradients: bool = False
    discrete: bool = False
    longer: str = "a larger penalty.mu_max or a smaller penalty.tolerance"

    def decide(self, progress: Progress) -> Decision:
        """Decides by section 2's stopping criterion.  Raises NumericalError if the validation error is not finite."""
        if not math.isfinite(progress.now):
            raise NumericalError(
                f"the validation error is {progress.now} after iteration {progress.iteration} (mu = {progress.mu:g}); "
                "a smaller start.range or a larger penalty.ridge may help"
            )
        mu, stop = progress.mu, None
        settled = progress.iteration % self.every == 0 if self.every else self._settled(progress)
        move = self.multipliers and self._moves(progress, settled)
        if settled and not move:
            stop = "converged" if self._ends(progress) else None
            mu = mu if stop else min(self.factor * mu, self.mu_max)
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
        """Counts how often mu has grown; growing to mu_max counts even if that is by less than `factor`."""
        return math.ceil(math.log(mu / self.mu0) / math.log(self.factor) - 1e-6)

    def yardstick(self, progress: Progress) -> float:
        """Returns the number with which the next move of the multipliers is compared."""
        return progress.move

    def _moves(self, progress: Progress, settled: bool) -> bool:
        return progress.move <= self.enough**2 * progress.reference

    def _ends(self, progress: Progress) -> bool:
        return progress.mu >= self.mu_max and not self.every


DECAY = 0.7
"""If half steps alternate, the tolerance of gradients is this times the one at the last mu: any number below 1 will do.
If weights and coordinates move together, it falls as 1 / mu, as the gradient of E1 does."""


@dataclass(frozen=True)
class Stationary(Quadratic):
    """Raises mu_k once ||grad E_Q(W, Z; mu_k)|| <= tau_k, the condition of theorem B.3; ends at mu_max.

    tau_k = gradient_tolerance decay^k ||lambda(W^0, Z^0)||, with norms over all weights, coordinates and points.  Where
    E_Q is stationary, dE_Q/dz is a difference of terms as large as the multipliers.  So tau_k is measured in units of
    the multipliers, whatever mu, the number of points and the scale of the data.  tau_k -> 0 as mu_k -> infinity, as
    the theorem requires.

    With multipliers E_Q is the augmented Lagrangian.  Multipliers move once this brings `lacking`, their distance from
    the net's, down to `decay` times its value at the last move, as the next mu would; else mu grows.  This product
    replaces decay^k in tau_k if it is less.  The run ends once `lacking` is at most decay^k of mu_max, which mu need
    not reach.
    """

    gradients: bool = True
    gradient_tolerance: float = 0.1
    decay: float = DECAY

    def tolerance_at(self, mu: float, multipliers: float, lacked: float = math.inf) -> float:
        """Computes tau_k, per point like the norm.

        mu, multipliers: as in `Progress`.
        lacked: `lacking` when the multipliers moved last.
        """
        return self.gradient_tolerance * min(self.decay ** self._raised(mu), self.decay * lacked) * multipliers

    def _settled(self, progress: Progress) -> bool:
        return progress.gradient <= self.tolerance_at(progress.mu, progress.multipliers, progress.reference)

    def yardstick(self, progress: Progress) -> float:
        return progress.lacking

    def _moves(self, progress: Progress, settled: bool) -> bool:
        nearer = progress.lacking <= self.decay * min(progress.reference, 1.0)
        return settled and nearer and not self._reached(progress)

    def _ends(self, progress: Progress) -> bool:
        return super()._ends(progress) or (self.multipliers and self._reached(progress))

    def _reached(self, progress: Progress) -> bool:
        return progress.lacking <= self.decay ** self._raised(self.mu_max)


@dataclass(frozen=True)
class Patient(Quadratic):
    """Leaves mu as it is; the run ends when the validation error has not been lower for `patience` iterations.

    If a share is `noticeable`, falls by less do not count.
    """

    patience: int = 20

    def _settled(self, progress: Progress) -> bool:
        return False


# --- ridge and restraints ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shaping:
    """Holds ridge and restraint of each layer that a regression fits, by parameter block; never on the biases.

    With the scale "objective" the W-step minimises E_Q + ridge/2 ||V||^2 + l1 ||V||_1 + group sum_j ||V[:, j]||.  So a
    hidden unit's own regression 1/2 sum r^2 has the sizes ridge/mu, l1/mu and group/mu, an output unit's ridge, l1 and
    group.  With the scale "unit" each unit's own regression has ridge, l1 and group, whatever mu is.

    Once mu exceeds `until_mu`, nothing shrinks weights, and those that l1 or groups have made 0 stay 0.
    """

    ridges: dict[int, float]
    restraints: dict[int, Restraint]
    scale: str
    until_mu: float

    def ridge(self, block: int, mu: float, output: bool) -> float:
        """Returns the ridge in the own regression of a layer's units, 1/2 sum r^2 + ridge/2 ||v||^2, at a mu.

        output: whether it is a layer of the last segment, whose regression E_Q does not multiply by mu.
        """
        return self.own(self.ridges[block], mu, output)

    def restraint(self, block: int, mu: float, output: bool) -> Restraint:
        """Returns the restraint in a layer's own regression at a mu.  output: as in `ridge`."""
        asked = self.restraints[block]
        l1, group = (self.own(size, mu, output) for size in (asked.l1, asked.group))
        return replace(asked, l1=l1, group=group, kept=mu > self.until_mu and block in self.sparse)

    def asked(self, block: int) -> Restraint:
        """Returns the restraint of a parameter block as the config has it, whatever mu is; FREE if there is none."""
        return self.restraints.get(block, FREE)

    def own(self, size: float, mu: float, output: bool) -> float:
        """Converts the size of a ridge or of l1 from the config's scale to the scale of the layer's own regression.

        Beyond `until_mu` it is 0.  output: as in `ridge`.
        """
        if mu > self.until_mu:
            return 0.0
        return size / mu if self.scale == "objective" and not output else size

    @property
    def sparse(self) -> tuple[int, ...]:
        """The layers whose weights are to become exactly 0."""
        return tuple(b for b, asked in self.restraints.items() if asked.l1 > 0.0 or asked.group > 0.0)

    @property
    def restrained(self) -> tuple[int, ...]:
        """The layers whose weights have more than a ridge: l1, groups or bounds."""
        return tuple(b for b, asked in self.restraints.items() if asked != FREE)


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regression:
    """Says how a segment's regression is solved.

    name, solver: the solver that a W-step uses.
    by_unit: whether it solves for each unit by itself, or else for all weights at once.
    plain: the solver without over-relaxation, which starts, selections and the postprocessing use.
    by_fitter: whether the solver is the fitter called `name`.
    by_rows: the same fitter, if it can fit each row of the weights by itself.
    """

    name: str
    by_unit: bool
    solver: WSolver
    plain: WSolver
    by_fitter: bool = False
    by_rows: ByFitter | None = None

    @property
    def system(self) -> System | None:
        """The linear system that the units share, from the Gram of their inputs; None if they share none."""
        return self.solver.system if self.by_unit else None

    @property
    def single(self) -> bool:
        """Tells whether the W-step reads the inputs of its units in single precision too."""
        return bool(self.system and self.system.single)


@dataclass(frozen=True)
class Resolved:
    """Describes a run by values: nothing says "auto", and all parts go together.

    Two are equal if their runs are equal, however their configs are written.

    config: without the keys of half steps if there are none; another net is resolved from it.
    decisions: the values that stand for "auto", each with its reason.
    settings, text: each key with its value, as {"table.key": value} and as TOML.
    unread: keys that mean nothing in this run.
    chain: the net.
    units, activations: those of the hidden layers, as the config lists them.
    autoencoder: the targets are the inputs.
    schedule: how mu and the multipliers move, and when to stop.
    shaping: ridges and restraints of the weights.
    regressions: how the regression of each segment that has weights is solved, by the segment's number.
    trainers: the trainers of the parameter blocks that no regression fits.
    refined: the blocks among these whose trainers continue with sums over points.
    stage: the trainer of the layers of a staged start.
    metric: the form in which constraints are measured.
    ring: trains the segments of inexact solvers, which travel round a ring of blocks of points; None: there is none.
    method, stochastic, baseline, selection, start, run: the values of these tables.
    placement: where rows of points live, by parallel.data.
    point_bytes: the bytes of a point that a rank keeps.
    repeatable: the run can be repeated on other points.
    gains: repeating it on all points gains points, since those for validation were drawn from points with targets.
    before: the number of points of the former pieces of a stream.
    finishing: the values of the steps on all points with which full MAC ends; None: it ends without such steps.
    opening: the values of the stochastic MAC with whose first weights this run begins; None: it has another start.
    columns: the number of the data's columns, if the chain reads coordinates in the span of fewer points
        (data/wide.py); 0: the chain reads the columns.
    minibatches: the number of Z-steps in an iteration of full MAC, each for its own points.
    running: the W-step after each Z-step keeps the sums over the points of the other Z-steps.
    """

    config: Config = field(compare=False)
    decisions: tuple[auto.Decision, ...] = field(compare=False)
    settings: dict[str, Any] = field(compare=False)
    text: str = field(compare=False)
    unread: tuple[str, ...] = field(compare=False)
    chain: Chain
    units: tuple[int, ...]
    activations: tuple[str, ...]
    autoencoder: bool
    dtype: np.dtype
    loss: Loss
    schedule: Quadratic
    shaping: Shaping
    z_solver: ZSolver
    regressions: dict[int, Regression]
    trainers: dict[int, Trainer]
    refined: frozenset[int]
    stage: Trainer
    metric: str
    ring: SGDW | None
    method: Method
    stochastic: Stochastic
    baseline: Baseline
    selection: Selection
    start: Start
    run: Run
    placement: Placement
    point_bytes: int = field(compare=False)
    repeatable: bool
    gains: bool
    before: int = 0
    finishing: Resolved | None = None
    opening: Resolved | None = None
    columns: int = 0
    minibatches: int = 1
    running: bool = False

    @property
    def whole_steps(self) -> bool:
        """Tells whether each step of stochastic MAC takes all points."""
        return self.method.name == "stochastic" and self.stochastic.batch == "all"

    def minibatch(self, n_train: int, epoch: int = 0) -> int:
        """Returns the number of points of a minibatch in an epoch, which is n_train if `batch` is "all".

        The first is `batch`, but at most a twentieth of all points (with labels a tenth) or BATCH_LEAST.  It grows by
        as many points in every `grow_every` epochs, up to `batch_max` and a fifth of all points; if the targets are not
        the inputs, up to GROWN_FEW or that twentieth.  It stays the first if weights are reused (log/minibatches.md).
        """
        keys = self.stochastic
        if keys.batch == "all":
            return n_train
        fewest = tuned.EPOCH_LEAST_LABELS if self.loss.labels else tuned.EPOCH_LEAST
        share, grown = n_train // fewest, n_train // tuned.EPOCH_GROWN
        first = min(keys.batch, max(share, tuned.BATCH_LEAST))
        if not self.autoencoder:
            grown = max(share, min(grown, tuned.GROWN_FEW * tuned.EPOCH_LEAST // fewest))
        most = min(keys.batch_max, max(grown, tuned.BATCH_LEAST))
        return min(int(first * (1.0 + (0 if self.chain.reuses else epoch) / keys.grow_every)), most)

    def travels(self, segment: int) -> bool:
        """Tells whether a segment's regressions travel round the ring of blocks of points."""
        regression = self.regressions[segment]
        return self.ring is not None and not (regression.solver.exact or regression.by_fitter)
