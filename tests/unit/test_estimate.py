"""Memory that a run is refused for is memory that it would have held, and no more."""

from __future__ import annotations

import os
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.launching import run_program
from plans import plan_of

from macmpi import UsageError, config
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.methods.choose import choose
from macmpi.methods.starts import Origin, start
from macmpi.parallel import launchers
from macmpi.parallel.team import Team
from macmpi.plan.estimate import PROGRAM, check_memory, idle, least_bytes, rank_bytes
from macmpi.plan.plan import Plan

Tables = dict[str, dict[str, Any]]
N, N_VAL, D, L = 9_000, 900, 5, 3
LEAST_SHARE = 0.5
"""Of the memory of an iteration, as much at least has been asked for."""
HALVES = {"model": {"hidden": [2, 6], "activation": ["linear", "tanh"], "sites": ["after", "none"]}}
CASES: dict[str, Tables] = {
    "mac": {},
    "mac in single precision": {"model": {"hidden": [6, 4], "precision": "float32"}, "penalty": {"mu_max": 1e4}},
    "multipliers": {"penalty": {"method": "augmented_lagrangian"}},
    "one segment": {"model": {"hidden": [6, 4], "sites": "none"}},
    "segments without weights": {"model": {"hidden": [6, 4], "sites": "both"}},
    "alternating": HALVES | {"method": {"name": "alternating"}},
    **{name: {"method": {"name": name}} for name in config.NESTED},
    "steps of all points": {"method": {"name": "stochastic"}, "stochastic": {"batch": "all"}},
    "stochastic in single precision": {
        "model": {"hidden": [6, 4], "precision": "float32"},
        "method": {"name": "stochastic"},
    },
}


def configured(tables: Tables) -> config.Config:
    usual = {"model": {"hidden": [6, 4], "activation": "sigmoid"}, "method": {"name": "mac"}, "run": {"finish": False}}
    return config.validate(usual | tables, "this test")


def points(dtype: np.dtype) -> Dataset:
    random = np.random.default_rng(0)
    X, Y, X_val, Y_val = (random.normal(size=size).astype(dtype) for size in ((N, D), (N, L), (N_VAL, D), (N_VAL, L)))
    of_x, of_y = (Scaling(np.zeros(n), np.ones(n)) for n in (D, L))
    return Dataset(X, Y, X_val, Y_val, of_x, of_y, "")


@pytest.mark.parametrize("name", CASES)
def test_a_rank_has_what_it_is_said_to_need_and_hardly_less(name: str) -> None:
    """Arrays that Python sees made, in an iteration on many points: no more is asked for, of units not much less."""
    whole = configured(CASES[name])
    plan = plan_of(whole, D, L, N, N_VAL, 1)
    tracemalloc.start()
    try:
        data = points(plan.dtype)
        method = choose(plan, data, Team())
        state = start(method, Origin())
        method.begin(state)
        method.sweep(state)
        if plan.resolved.schedule.multipliers:
            method.move_multipliers(state)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    needed = least_bytes(plan) - PROGRAM
    assert needed <= peak
    if whole.method.name == "mac" and all(own.by_unit for own in plan.resolved.regressions.values()):
        assert needed >= LEAST_SHARE * peak


def test_a_run_is_asked_for_the_memory_of_each_of_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of all points behind full MAC hold the outputs of all layers; a refit the points a second time."""
    whole, alone = (plan_of(configured({"run": {"finish": finish}}), D, D, N, N_VAL, 1) for finish in (True, False))
    assert whole.finishing is not None
    assert least_bytes(whole) == least_bytes(whole.finishing) > least_bytes(alone)
    assert rank_bytes(whole) >= max(rank_bytes(whole.finishing), rank_bytes(alone))
    monkeypatch.setattr(launchers, "memory", lambda: launchers.Memory(least_bytes(alone), "there is"))
    check_memory(alone)
    with pytest.raises(UsageError, match=r": run\.finish = false"):
        check_memory(whole)
    tables = {"method": {"name": "stochastic"}}
    once, twice = (plan_of(configured(tables | {"run": {"refit": wish}}), D, L, N, N_VAL, 1) for wish in (False, True))
    assert rank_bytes(twice) - rank_bytes(once) == points(once.dtype).X.nbytes * (1 + L / D) * (1 + N_VAL / N)


def test_no_more_is_asked_for_the_program_than_it_has(table: Path) -> None:
    said = run_program("points.toml", "--iterations", 1, ranks=0, cwd=table, code=0).out
    (megabytes,) = re.findall(r"peak memory of a rank +(\d+) MB", said)
    assert int(megabytes) * 2**20 >= PROGRAM


def deep(method: str, precision: str, **parallel: str) -> config.Config:
    model = {"hidden": [100] * 25, "precision": precision}
    penalty = {"mu_max": 1e4}
    return configured({"model": model, "method": {"name": method}, "penalty": penalty, "parallel": parallel})


def planned(whole: config.Config, ranks: int = 1) -> Plan:
    return plan_of(whole, 1, 1, 1_280_000, 320_000, ranks)


def machine_of(gigabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": int(gigabytes * 1e9 / 4096)}.__getitem__)


@pytest.mark.parametrize("method", config.NESTED)
def test_a_method_without_coordinates_is_not_refused_for_them(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of(1.0, monkeypatch)
    check_memory(planned(deep(method, "float32")))
    with pytest.raises(UsageError, match=r"needs about 26 GB a rank for 1,280,000 points, most of it for coordinates"):
        check_memory(planned(deep("mac", "float64")))


def test_segments_without_weights_have_no_regression_to_count() -> None:
    tables = CASES["segments without weights"] | {"parallel": {"data": "sharded"}}
    assert least_bytes(plan_of(configured(tables), D, L, N, N_VAL, 2)) > PROGRAM


def test_shards_are_counted_with_the_points_that_are_yet_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of(20.0, monkeypatch)
    whole = deep("mac", "float64", data="sharded")
    with pytest.raises(UsageError, match="or more ranks"):
        check_memory(planned(whole))
    check_memory(planned(whole, ranks=2))
    wide = configured({"parallel": {"data": "sharded"}})
    check_memory(plan_of(wide, 1000, 1000, 2_000_000, 100_000, 1))
    with pytest.raises(UsageError, match="34 GB a rank"):
        check_memory(plan_of(wide, 1000, 1000, 2_000_000, 100_000, 1, autoencoder=False))


def test_many_shards_are_even_in_points_and_in_memory() -> None:
    """1e8 points of 256 columns on 1,024 ranks: each has its share of the points, and of the memory, but for weights
    and Grams, which every rank has."""
    whole = configured({"parallel": {"data": "sharded"}, "model": {"hidden": [64, 16, 64]}})
    plan = plan_of(whole, 256, 256, 10**8, 10**6, 1024)
    even = 10**8 / 1024
    assert max(plan.work.train.row_counts) <= 1.1 * even
    held = least_bytes(plan_of(whole, 256, 256, 10**8, 10**6, 1))
    assert least_bytes(plan) <= 1.2 * held / 1024


@pytest.mark.parametrize(("ranks", "points", "without"), [(48, 9000, 0), (96, 9000, 48), (96, 60_000, 0), (2, 5, 1)])
def test_ranks_without_points_are_named(ranks: int, points: int, without: int) -> None:
    line = idle(plan_of(configured({}), D, L, points, N_VAL, ranks))
    assert line.startswith(f"{without} of {ranks} ranks have no points" if without else "")
    assert bool(line) is bool(without)
