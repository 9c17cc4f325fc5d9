"""Keys that mean nothing to a run are named, and no others are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.here import run_here
from refused.case import IMAGES, RECURRENT, TIED, Keys, configured

from macmpi import config
from macmpi.config import NESTED
from macmpi.config.auto import Sizes, decide
from macmpi.config.whole import KINDS, ignored
from macmpi.plan.directions import minibatches_of
from macmpi.plan.plan import make_plan
from macmpi.plan.resolve import resolve

TOLERANCES = ["penalty.tolerance", "penalty.tolerance_decay"]

SIZES = {"criterion": "aic", "epsilon2": 0.1, "sizes": [[2]]}

TABLE: list[tuple[str, dict[str, dict[str, Any]], list[str]]] = [
    ("mac", {}, []),
    ("mac", {"penalty": {"mu0": 1.0}, "z_step": {"iterations": 2}, "w_step": {"solver": "lbfgs"}}, []),
    ("mac", {"stochastic": {"batch": 9}, "baseline": {"rate": 2.0}}, ["stochastic.batch", "baseline.rate"]),
    ("stochastic", {"stochastic": {"batch": 9}}, []),
    ("stochastic", {"penalty": {"ridge": 1.0}, "z_step": {"iterations": 2}}, ["penalty.ridge", "z_step.iterations"]),
    ("stochastic", {"model": {"sites": "before"}}, ["model.sites"]),
    ("mac", {"model": {"sites": "none"}, "z_step": {"minibatches": 3}}, ["z_step.minibatches"]),
    ("mac", {"model": {"sites": "none"}, "penalty": {"metric": "variance"}}, ["penalty.metric"]),
    ("mac", {"model": {"sites": ["none", "after"], "hidden": [4, 2]}, "z_step": {"minibatches": 3}}, []),
    ("stochastic", {"start": {"gradient_step": False}}, ["start.gradient_step"]),
    ("adam", {"baseline": {"batch": 9}, "start": {"gradient_step": False}}, []),
    ("lbfgs", {"baseline": {"batch": 9, "patience": 3}}, ["baseline.batch"]),
    ("mac", {"model": {"hidden": [4], "activation": "rbf", "width": 2.0, "words": 7}}, ["model.words"]),
    ("mac", {"model": {"hidden": [4], "width": 2.0}}, ["model.width"]),
    ("mac", {"loss": {"threshold": 2.0, "missing": True}}, ["loss.threshold"]),
    ("mac", {"model": {"loss": "huber"}, "loss": {"threshold": 2.0}}, []),
    ("adam", {"model": {"loss": "absolute"}, "loss": {"threshold": 2.0}}, ["loss.threshold"]),
    ("mac", {"model": {"hidden": [4], "activation": "forest", "trees": 3, "depth": 2}}, []),
    ("mac", {"model": {"hidden": [4], "activation": "kernel_ridge", "width": 2.0, "examples": 7}}, []),
    ("mac", {"model": {"hidden": [4], "trees": 3, "examples": 7}}, ["model.trees", "model.examples"]),
    ("adam", {"model": {"hidden": [4], "fitters": ["auto", "logistic"]}}, ["model.fitters"]),
    ("adam", {"model": {"hidden": [4], "image": [3, 3]}}, ["model.image"]),
    ("adam", {"model": {"hidden": [{"channels": 4}], "image": [3, 3]}}, []),
    ("mac", {"penalty": {"tolerance": 0.1}}, []),
    ("mac", {"penalty": {"tolerance": 0.1, "tolerance_decay": 0.5, "mu_every": 3}}, TOLERANCES),
    ("stochastic", {"penalty": {"tolerance": 0.1, "tolerance_decay": 0.5}}, TOLERANCES),
    ("mac", {"penalty": {"tolerance": 0.1, "stop": "gradient"}}, ["penalty.tolerance"]),
    ("mac", {"penalty": {"gradient_tolerance": 0.3}}, ["penalty.gradient_tolerance"]),
    ("mac", {"penalty": {"gradient_tolerance": 0.3, "stop": "gradient"}}, []),
    ("mac", {"penalty": {"ridge_until_mu": 3.0}}, []),
    ("adam", {"penalty": {"ridge_until_mu": 3.0}}, ["penalty.ridge_until_mu"]),
    ("mac", {"penalty": {"ridge_until_mu": 3.0, "stop": "gradient"}}, ["penalty.ridge_until_mu"]),
    ("mac", {"selection": {"every": 3}}, ["selection.every"]),
    ("mac", {"start": {"method": "staged", "range": 2.0}, "model": {"centres": "subset"}}, ["start.range"]),
    ("mac", {"start": {"method": "staged", "gradient_step": False}}, ["start.gradient_step"]),
    ("mac", {"model": {"centres": "subset"}}, ["model.centres"]),
    ("mac", {"start": {"method": "elastic_embedding", "gradient_step": False}}, ["start.gradient_step"]),
    ("adam", {"start": {"method": "model", "model": "model.h5", "range": 2.0}}, ["start.range"]),
    ("alternating", {"z_step": {"iterations": 2}, "w_step": {"iterations": 2}}, ["z_step.iterations"]),
    (
        "alternating",
        {"penalty": {"factor": 3.0, "mu_every": 2, "patience": 2, "ridge": 0.1}},
        ["penalty.factor", "penalty.mu_every", "penalty.patience"],
    ),
    ("mac", {"model": {"sites": "none"}, "penalty": {"factor": 3.0}}, ["penalty.factor"]),
    ("stochastic", {"start": {"method": "pca", "gradient_step": False}}, []),
    ("mac", {"model": {"hidden": [4]}, "selection": {**SIZES, "every": 3}}, []),
    ("mac", {"start": {"method": "greedy", "width": 2.0}}, ["start.width"]),
    ("mac", {"run": {"finish": False}}, []),
    ("adam", {"run": {"finish": False}}, ["run.finish"]),
    ("mac", {"stochastic": {"cg_iterations": 9, "damping": 1.0, "ridge": 0.1}}, []),
    ("mac", {"run": {"finish": False}, "stochastic": {"damping": 1.0}}, ["stochastic.damping"]),
    ("stochastic", {"stochastic": {"batch": "all", "cg_iterations": 3, "damping": 1.0, "patience": 3}}, []),
    (
        "stochastic",
        {"stochastic": {"batch": "all", "records": 3, "parts": 7}},
        ["stochastic.records", "stochastic.parts"],
    ),
    ("stochastic", {"stochastic": {"cg_iterations": 3}}, ["stochastic.cg_iterations"]),
]


@pytest.mark.parametrize(("method", "tables", "expected"), TABLE)
def test_keys_that_mean_nothing(method: str, tables: dict[str, Any], expected: list[str]) -> None:
    given = config.validate({"method": {"name": method}} | tables, "this test")
    assert ignored(decide(given, 9)[0], given) == expected


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "run").glob("*.toml")), ids=lambda path: path.stem)
def test_no_config_of_the_repository_gives_a_key_in_vain(path: Path) -> None:
    given = config.read(path, [])
    assert ignored(decide(given, 9)[0], given) == []


@pytest.mark.parametrize("method", NESTED)
def test_what_half_steps_read_changes_nothing_in_a_run_without_them(method: str) -> None:
    """Not even the mu that its records show."""
    sizes, keys = Sizes(4, 3, 37, 11, False), {"method.name": method}
    half = {"penalty.mu0": 0.5, "penalty.mu_max": 3.0, "penalty.tolerance": 0.1, "penalty.ridge": 1.0}
    half |= {"penalty.stop": "gradient", "z_step.iterations": 3, "w_step.solver": "newton", "model.sites": "before"}
    plain, other = (vars(resolve(configured(own), sizes)) for own in (keys, keys | half))
    differ = {key for key in plain if plain[key] != other[key]}
    assert differ <= {"settings", "text", "unread"}
    assert other["unread"] == tuple(sorted(half, key=list(KINDS).index))


@pytest.mark.parametrize("net", [{}, TIED | {"model.hidden": [5]}, RECURRENT, IMAGES], ids=str)
def test_growth_is_read_where_minibatches_grow(net: Keys) -> None:
    """With the epochs, or with the points of earlier pieces of a stream."""
    sizes = Sizes(4, 4, 4000, 90, True, shape=(2, 2, 1))
    for later in (0, 4000):
        keys = net | {"method.name": "stochastic", "stochastic.grow_every": 1, "stochastic.stream": later > 0}
        first, of = (resolve(configured(keys), replace(sizes, before=n)) for n in (0, later))
        numbers = {minibatches_of(make_plan(one, 4000, 90, 1), epoch) for one in (first, of) for epoch in range(9)}
        assert ("stochastic.grow_every" not in of.unread) == (len(numbers) > 1)


def test_they_are_said_once_at_the_start(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.random.default_rng(0).normal(size=(40, 3)))
    (tmp_path / "t.toml").write_text(
        'data = "t.npz"\nmodel.hidden = [2]\nmethod.name = "stochastic"\npenalty = { ridge = 1.0, mu0 = 2.0 }\n'
    )
    for option in (("--check",), ("--iterations", 1, "--output", "run")):
        outcome = run_here("t.toml", *option, cwd=tmp_path, code=0)
        said = "leave them without a meaning: penalty.mu0, penalty.ridge"
        assert outcome.err.count(said) == 1
