"""Values that a config stands for: solvers, half steps, methods and training read these, and never a config.

The constrained problem is a sequence of unconstrained ones: a schedule says when penalty and multipliers move, Shaping
what is asked of the weights in each of them, in the units of a layer's own regression.
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
    """The numbers by which rank 0 decides after an iteration.

    before, now: the validation error before and after it.
    move: mean squared mu M_k (z_k - f_k) now, by which the multipliers would move.
    reference: the move, or where gradients decide the lack, when the multipliers moved last (inf: not yet).
    best: the iteration of the least validation error; fell: of its last noticeable fall.
    gradient: ||grad E_Q|| per point.
    multipliers: their norm per point at the start.
    lacking: what they would lack after a move, as a share of those of the net.
    constraint: mean squared z_k - f_k(z_{k-1}).
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
    """The decision after an iteration.

    mu: the next one.
    stop: why the run ends; None: it goes on.
    multipliers: they move.
    """

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
    are a code, and the run ends once it is that of the net, and another iteration has changed nothing.  longer: the
    keys by which a run settles later, in words.

    multipliers: of the augmented Lagrangian.  The target of f_k is z_k - M_k^-1 lambda_k, and lambda_k <- lambda_k -
    M_k (z_k - f_k), within +-multiplier_max.  Safeguard: they move only if this move, mu in M_k, is at most `enough`
    times the last one; where the error settles without that, mu grows instead.  The moves are a geometric series at
    most, also where the bound cuts them short, so lambda converges whatever the half steps do, and mu forces the
    constraint.  lambda = 0 throughout is the quadratic penalty.
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
        """Section 2's stopping criterion.  Raises NumericalError when E1 is not finite."""
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
        """Counts how often mu has grown; to mu_max, which may be nearer, too."""
        return math.ceil(math.log(mu / self.mu0) / math.log(self.factor) - 1e-6)

    def yardstick(self, progress: Progress) -> float:
        """The next move of the multipliers is compared with this, once they have moved."""
        return progress.move

    def _moves(self, progress: Progress, settled: bool) -> bool:
        return progress.move <= self.enough**2 * progress.reference

    def _ends(self, progress: Progress) -> bool:
        return progress.mu >= self.mu_max and not self.every


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

    With multipliers E_Q is the augmented Lagrangian.  They move if they come nearer to the net's by as much as they
    would at the next mu, to decay times what they lacked, or mu grows; tau_k has this share in the place of decay^k
    where it is smaller.  The run ends once they lack no more than decay^k at mu_max, which mu need not reach.
    """

    gradients: bool = True
    gradient_tolerance: float = 0.1
    decay: float = DECAY

    def tolerance_at(self, mu: float, multipliers: float, lacked: float = math.inf) -> float:
        """tau_k, per point like the norm that it is a share of.  lacked: by the multipliers, when they moved."""
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
    """No penalty: the run ends when the validation error has not been lower for `patience` iterations.

    Where a share is `noticeable`, falls by less do not count.
    """

    patience: int = 20

    def _settled(self, progress: Progress) -> bool:
        return False


# --- ridge and restraints ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shaping:
    """Ridge and restraint of each layer that a regression fits, by parameter block; never on the biases.

    scale "objective": the W-step minimises E_Q + ridge/2 ||V||^2 + l1 ||V||_1 + group sum_j ||V[:, j]||, so a hidden
    unit's own regression 1/2 sum r^2 has the sizes ridge/mu, l1/mu and group/mu, an output unit's those themselves.
    scale "unit": each unit's own regression has these sizes, whatever mu is.
    Once mu exceeds `until_mu` nothing shrinks weights, and those that l1 or groups have made 0 stay 0.
    """

    ridges: dict[int, float]
    restraints: dict[int, Restraint]
    scale: str
    until_mu: float

    def ridge(self, block: int, mu: float, output: bool) -> float:
        """The ridge of the own regression of a layer's units, 1/2 sum r^2 + ridge/2 ||v||^2, at a mu.

        output: it is a layer of the last segment, whose regression E_Q does not multiply by mu.
        """
        return self.own(self.ridges[block], mu, output)

    def restraint(self, block: int, mu: float, output: bool) -> Restraint:
        """The restraint of a layer's own regression at a mu.  output: as in `ridge`."""
        asked = self.restraints[block]
        l1, group = (self.own(size, mu, output) for size in (asked.l1, asked.group))
        return replace(asked, l1=l1, group=group, kept=mu > self.until_mu and block in self.sparse)

    def asked(self, block: int) -> Restraint:
        """The restraint of a parameter block as the config asks for it, whatever mu is; FREE where there is none."""
        return self.restraints.get(block, FREE)

    def own(self, size: float, mu: float, output: bool) -> float:
        """Converts the size of a ridge or of l1 from the config's scale to that of the layer's own regression.

        output: as in `ridge`.  Beyond `until_mu` it is 0.
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
        """The layers of which more is asked than a ridge."""
        return tuple(b for b, asked in self.restraints.items() if asked != FREE)


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regression:
    """A segment's regression is solved by `solver`, called `name`: its units apart, or all of its weights at once.

    plain: the solver without over-relaxation, of starts, selections and the postprocessing.  by_fitter: it hands all to
    the fitter called `name`; by_rows: which fits each row of the weights apart.
    """

    name: str
    by_unit: bool
    solver: WSolver
    plain: WSolver
    by_fitter: bool = False
    by_rows: ByFitter | None = None

    @property
    def system(self) -> System | None:
        """The system that the units share, by the Gram of their inputs; None where nothing is shared."""
        return self.solver.system if self.by_unit else None

    @property
    def single(self) -> bool:
        """Tells whether the W-step of its units reads its inputs in single precision too."""
        return bool(self.system and self.system.single)


@dataclass(frozen=True)
class Resolved:
    """A run as its config and the sizes of its data settle it: nothing says "auto", and all of it goes together.

    decisions: what stands for "auto", each with its reason.
    settings, text: each key with its value, {"table.key": value} and as TOML.  unread: keys that mean nothing here.
    chain: the net.  units, activations: of its hidden layers, as the config lists them.
    autoencoder: the targets are the inputs.
    schedule: how mu and the multipliers move, and when to stop.
    shaping: what is asked of the weights.
    regressions: of each segment that has weights, by its number.
    trainers: of the parameter blocks that no regression fits; refined: of these, the blocks whose trainers go on by
    sums over points; stage: of the layers of a staged start.
    metric: the form in which constraints are measured.
    ring: trains the segments of inexact solvers, which then travel round a ring of blocks of points; None: none does.
    method, stochastic, baseline, selection, start, run: the values of these tables.  repeatable: it can be repeated on
    other points; gains: by that on all points, since those for validation were drawn from points with targets.
    placement: parallel.data says where rows of points live.  point_bytes: those of a point that a rank keeps.
    before: points of the pieces of a stream that come before these.
    finishing: full MAC ends with steps of all points, as these values have them; None: it does not.  opening: another
    method begins with the weights with which stochastic MAC of these values would; None: it does not.
    columns: of the data, of a net that is trained on coordinates of fewer points (data/wide.py), which its chain reads;
    0: it reads the columns.  minibatches: an iteration of full MAC has this number of Z-steps, each of its own points;
    running: the W-step behind each is on sums over points that are kept of the others.
    config: this one, without the half steps' keys where there are none; another net is resolved from it.
    Two are equal whose runs are, however their configs say it.
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
        """Tells whether each step of stochastic MAC is of all points."""
        return self.method.name == "stochastic" and self.stochastic.batch == "all"

    def minibatch(self, n_train: int, epoch: int = 0) -> int:
        """The number of points of a minibatch in an epoch; "all" is all of them.

        At first it is `batch`, but at most a twentieth of all (of labels a tenth; or BATCH_LEAST); as many more in
        `grow_every` epochs, and so on, up to `batch_max` and a fifth of all.  But where the targets are not the inputs,
        small minibatches, whose noise keeps a net from overfitting, last: GROWN_FEW or that twentieth are the most.
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
        return min(int(first * (1.0 + epoch / keys.grow_every)), most)

    def travels(self, segment: int) -> bool:
        """Tells whether a segment's regressions go round the ring of blocks: all ranks do none of them jointly."""
        regression = self.regressions[segment]
        return self.ring is not None and not (regression.solver.exact or regression.by_fitter)
