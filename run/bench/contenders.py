"""Who is compared in run/bench/compare.py, over which grids, for how many seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from contest import RECORDS, Candidate, Contender

FAST, PRE, MAC = "run/usps_fast.toml", "run/usps_pre.toml", "run/usps_mac.toml"
FEASIBLE = ['method.acceleration="feasible"']
OWN = 0.0
"""Of a range: stochastic MAC's own start, an output layer fitted by least squares included."""
FROM_OURS = ", from MAC's start"
"""Ends the name of a contender that begins there and nowhere else."""


@dataclass(frozen=True)
class Study:
    """The first contender is compared with each of the others; levels of E1 train, PCA's comes in by itself."""

    title: str
    config: str
    contenders: Sequence[Contender]
    levels: Sequence[float]


def starting(range_: float, *settings: str) -> tuple[str, ...]:
    """Settings of a start for peers: the paper's random weights times a number, or stochastic MAC's own start."""
    return settings if range_ == OWN else (*settings, 'method.name="sgd"', f"start.range={range_}")


def grid(optimiser: str, config: str, ranges: Sequence[float], settings: Sequence[str] = (), **keys: Sequence[float]):
    """All combinations of initial range and keys of a PyTorch optimiser, in single precision."""
    return [
        Candidate(
            config,
            starting(range_, *settings),
            (("optimiser", optimiser), ("precision", "float32"), *zip(keys, values, strict=True)),
        )
        for range_ in ranges
        for values in product(*keys.values())
    ]


def own(config: str, *grid: Sequence[str], ranks: int = 1) -> list[Candidate]:
    """All combinations of settings of a config of macmpi."""
    return [Candidate(config, settings, ranks=ranks) for settings in product(*grid)]


def _adam(ranges: Sequence[float], best: float) -> list[Candidate]:
    """A grid, and more of it where its optimum was at the edge."""
    return (
        grid("adam", FAST, ranges, lr=(1e-3, 2e-3, 4e-3), batch=(50, 100, 200), beta2=(0.99, 0.999))
        + grid("adam", FAST, (best,), lr=(8e-3,), batch=(25, 50, 100), beta2=(0.97, 0.99))
        + grid("adam", FAST, (best,), lr=(2e-3, 4e-3), batch=(25,), beta2=(0.97, 0.99))
        + grid("adam", FAST, (best,), lr=(4e-3,), batch=(50, 100), beta2=(0.97,))
    )


RUNGS = ((1.5, 14), (5.0, 4), (15.0, 2), (32.0, 1))
ADAM = Contender("PyTorch Adam", _adam((1.0, 2.0, 4.0, 6.0), 4.0), RUNGS, 3)
ADAM_FROM_OURS = Contender("PyTorch Adam from stochastic MAC's start", _adam((OWN,), OWN), RUNGS, 3)

RECORDED = (f"stochastic.records={RECORDS}",)

STOCHASTIC = Contender("stochastic MAC", own(FAST, RECORDED), ((14.0, 1),))

ADAM_STUDY = Study(
    "stochastic MAC and full-batch MAC against PyTorch, one core",
    FAST,
    (
        STOCHASTIC,
        ADAM,
        ADAM_FROM_OURS,
        Contender("MAC", [*own(PRE, FEASIBLE), *own(MAC, FEASIBLE)], ((30.0, 2),), 2, 1),
        Contender(
            "PyTorch SGD, Nesterov 0.9",
            grid("sgd", FAST, (4.0, OWN), lr=(3e-3, 1e-2, 3e-2), batch=(20, 100), momentum=(0.9,)),
            ((3.0, 1), (20.0, 1)),
            1,
            1,
        ),
        Contender("PyTorch L-BFGS", grid("lbfgs", FAST, (1.0, 4.0, OWN), memory=(10, 50)), ((8.0, 1), (20.0, 1)), 1, 1),
        Contender(
            "hessianfree",
            grid("hessian_free", FAST, (4.0, OWN), cg=(30,), batch=(1000, 5000), damping=(1.0,)),
            ((8.0, 1), (20.0, 1)),
            1,
            1,
        ),
    ),
    (15.4, 8.0, 6.0, 5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 2.0),
)
"""The figures of run/usps_fast.toml against what a user would pick instead."""

RIVAL_RUNGS = ((1.5, 6), (5.0, 3), (15.0, 1), (32.0, 1))
DECAY_RUNGS = ((15.0, 2), (32.0, 1))
AVERAGED = {"averaging": (0.99,)}
"""Weights are judged by an exponential average, as those of stochastic MAC are."""


def decaying(optimiser: str, **keys: Sequence[float]) -> list[Candidate]:
    """Rates that fall in a line to 0 after a known number of epochs."""
    return grid(optimiser, FAST, (4.0,), **keys, epochs=(40, 120, 240), **AVERAGED)


def averaged(name: str, optimiser: str, **keys: Sequence[float]) -> list[Contender]:
    """An optimiser from wide random weights, and from stochastic MAC's start; the latter pays nothing for that."""
    return [
        Contender(f"{name}, averaged{suffix}", grid(optimiser, FAST, (start,), **keys, **AVERAGED), RIVAL_RUNGS, 2)
        for start, suffix in ((4.0, ""), (OWN, FROM_OURS))
    ]


RIVALS_STUDY = Study(
    "stochastic MAC against the optimisers of today, one core",
    FAST,
    (
        STOCHASTIC,
        *averaged("Adam", "adam", lr=(4e-3, 8e-3), batch=(50, 100), beta2=(0.97, 0.99)),
        Contender("Adam, decaying", decaying("adam", lr=(8e-3,), batch=(50, 100), beta2=(0.97,)), DECAY_RUNGS, 2),
        *averaged("Muon", "muon", lr=(0.01, 0.02, 0.04), batch=(100, 250)),
        Contender("Muon, decaying", decaying("muon", lr=(0.02, 0.04), batch=(250,)), DECAY_RUNGS, 2),
        *averaged("SOAP", "soap", lr=(3e-3, 1e-2, 3e-2), batch=(100, 250), beta2=(0.95,)),
        Contender(
            "schedule-free AdamW",
            grid("schedule_free", FAST, (4.0,), lr=(5e-3, 1e-2, 2e-2), batch=(50, 100), beta2=(0.97, 0.99)),
            RIVAL_RUNGS,
            2,
        ),
        Contender(
            "SINGD, averaged",
            grid("singd", FAST, (4.0,), lr=(3e-3, 1e-2, 3e-2), batch=(250,), damping=(1e-3, 1e-2), **AVERAGED),
            ((3.0, 2), (15.0, 1), (32.0, 1)),
            1,
            1,
        ),
    ),
    (8.0, 6.0, 5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 2.0),
)
"""The best of all of them at a level is what counts there."""

PARALLEL_STUDY = Study(
    "on 2 ranks",
    FAST,
    (Contender("stochastic MAC, 2 ranks", own(FAST, RECORDED, ranks=2), ((14.0, 1),)), STOCHASTIC),
    ADAM_STUDY.levels,
)
"""compare.py adds the winners of ADAM by DistributedDataParallel."""

PAPER_STUDY = Study(
    "the paper's set-up and initial range, float64, one core",
    "run/usps_paper.toml",
    (
        Contender("MAC/QP, accelerated", own(MAC, ["start.range=1.0"], FEASIBLE), ((30.0, 1),), 1),
        Contender("MAC/QP", own("run/usps_paper.toml") + own(MAC, ["start.range=1.0"]), ((45.0, 1),), 1),
        Contender(
            "SGD, no momentum",
            own(
                "run/usps_sgd.toml",
                ["start.range=1.0"],
                [f"baseline.batch={b}" for b in (1, 2, 5, 20, 100)],
                [f"baseline.rate={r}" for r in (3e-3, 1e-2, 3e-2, 1e-1, 3e-1)],
            ),
            ((5.0, 4), (15.0, 1), (90.0, 1)),
            1,
            1,
        ),
        Contender("CG", own("run/usps_cg.toml", ["start.range=1.0"]), ((90.0, 1),), 1, 1),
    ),
    (15.4, 14.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.5, 5.0),
)
BATCH_STUDY = Study(
    "all points at once, each at its best initial range, float64, one core",
    PRE,
    (
        Contender("MAC, accelerated", own(PRE, FEASIBLE) + own(MAC, FEASIBLE), ((25.0, 2),), 2),
        Contender("MAC, coordinates before the activation", own(PRE) + own("run/usps_al.toml"), ((25.0, 2),), 2, 1),
        *(
            Contender(
                name,
                own(f"run/usps_{kind}.toml", [f"start.range={r}" for r in (1.0, 2.0, 4.0, 8.0)]),
                ((8.0, 1), (60.0, 1)),
                1,
                1,
            )
            for name, kind in (("L-BFGS", "lbfgs"), ("CG", "cg"))
        ),
    ),
    (14.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.5, 5.0, 4.5, 4.0),
)

TASKS = {
    "digits": ('data.source="digits"', "model.hidden=[64,32,8,32,64]"),
    "USPS, tanh": ('model.activation="tanh"',),
    "USPS, ReLU": ('model.activation="relu"',),
    "deeper autoencoder": ("model.hidden=[400,200,100,50,20,50,100,200,400]",),
    "classification": ("model.hidden=[500]", 'model.activation="relu"', 'model.loss="cross_entropy"'),
}
"""What differs from run/usps_fast.toml: data and net, no key of the method."""


def task_study(name: str) -> Study:
    """The defaults of stochastic MAC against a small grid of Adam's."""
    settings = TASKS[name]
    adam = grid("adam", FAST, (1.0, 2.0, 4.0, OWN), settings, lr=(1e-3, 3e-3), batch=(50, 200), beta2=(0.999,))
    return Study(
        name,
        FAST,
        (
            Contender("stochastic MAC", [Candidate(FAST, (*settings, *RECORDED))], ((15.0, 1),)),
            Contender("PyTorch Adam", adam, ((1.5, 4), (5.0, 2), (15.0, 1)), 1),
        ),
        (),
    )
