"""Values that a config stands for: solvers, half steps, methods and training read these, and never a config."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from macmpi.config import Baseline, Config, Method, Run, Selection, Start, Stochastic
from macmpi.config.auto import Decision
from macmpi.nets.chain import Chain
from macmpi.nets.losses import Loss
from macmpi.parallel.placement import Placement
from macmpi.plan.penalty import Quadratic, Shaping
from macmpi.solvers import WSolver, ZSolver
from macmpi.solvers.fitters import ByFitter, Fitter, Trainer
from macmpi.solvers.gradient_solvers import SGDW
from macmpi.solvers.grams import System


@dataclass(frozen=True)
class Regression:
    """A segment's regression is solved by `solver`, called `name`: its units apart, or all of its weights at once.

    plain: the solver without over-relaxation, of starts, selections and the postprocessing.  fitter: it hands all to
    this fitter, called `name`; by_rows: to one that fits each row of the weights apart.
    """

    name: str
    by_unit: bool
    solver: WSolver
    plain: WSolver
    fitter: Fitter | None = None
    by_rows: ByFitter | None = None

    @property
    def by_fitter(self) -> bool:
        """A fitter fits its segment."""
        return self.fitter is not None

    @property
    def system(self) -> System | None:
        """Its units share the Gram of their inputs; None where nothing is shared."""
        return self.solver.system if self.by_unit else None

    @property
    def single(self) -> bool:
        """The W-step of its units reads its inputs in single precision too."""
        return bool(self.system and self.system.single)


@dataclass(frozen=True)
class Resolved:
    """A run as its config and the sizes of its data settle it: nothing says "auto", and all of it goes together.

    decisions: what stands for "auto", each with its reason.
    settings, text: each key with its value, {"table.key": value} and as TOML.  unread: keys that mean nothing here.
    chain: the net.  units, activations: of its hidden layers, as the config lists them.
    autoencoder: the targets are the inputs.
    schedule: how mu and the multipliers move, and when to stop; longer: the keys by which that is later, in words.
    shaping: what is asked of the weights.
    regressions: of each segment.  trainers: of the parameter blocks that no regression fits; refined: of these, the
    blocks whose trainers go on by sums over points; stage: of the layers of a staged start.  metric: the form in which
    constraints are measured.
    ring: trains the segments of inexact solvers, which then travel round a ring of blocks of points; None: none does.
    method, stochastic, baseline, selection, start, run: the values of these tables.  repeatable: it can be repeated on
    other points; gains: by that on all points, since those for validation were drawn from points with targets.
    placement: parallel.data says where rows of points live.  point_bytes: those of a point that a rank keeps.
    before: points of the pieces of a stream that come before these.
    finishing: full MAC ends with steps of all points, as these values have them; None: it does not.
    columns: of the data, of a net that is trained on coordinates of fewer points (data/wide.py), which its chain reads;
    0: it reads the columns.
    config: this one, without the half steps' keys where there are none; another net is resolved from it.
    Two are equal whose runs are, however their configs say it.
    """

    config: Config = field(compare=False)
    decisions: tuple[Decision, ...] = field(compare=False)
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
    longer: str
    shaping: Shaping
    z_solver: ZSolver
    regressions: tuple[Regression, ...]
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
    columns: int = 0

    @property
    def whole_steps(self) -> bool:
        """Each step of stochastic MAC is of all points."""
        return self.method.name == "stochastic" and self.stochastic.batch == "all"

    def travels(self, segment: int) -> bool:
        """Its regressions go round the ring of blocks; they are not done by all ranks jointly."""
        own = self.regressions[segment]
        return self.ring is not None and not (own.solver.exact or own.by_fitter)
