"""Ranks on unlike processors hold the same numbers and come to an end; the kernel is named, a change of it said."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch.cases import points, write_case, write_config, write_h5
from launch.here import run_here
from launch.launching import environment, run_program

from macmpi.parallel import kernels
from macmpi.parallel.serial import Serial

ODD_RANKS = Path(__file__).with_name("odd_ranks.py")
SCRIPT = (Path(__file__).with_name("on_kernels.py"),)
KERNEL, FEATURES = "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
OTHERS = ("Haswell", "Prescott", "Nehalem", "NEOVERSEN1", "ARMV8", "POWER8")
"""Kernels of which OpenBLAS may have another one than it takes by itself."""


@cache
def other_kernel() -> dict[str, str]:
    """Variables with which a process runs on another BLAS kernel, and NumPy without what the processor has at most."""
    from numpy._core import _multiarray_umath as umath

    features = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]
    for name in OTHERS:
        env = environment(**{KERNEL: name, FEATURES: " ".join(features)})
        try:
            found = kernels.measured_with(env)
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        if found["names"] != kernels.words(kernels.libraries()):
            return {KERNEL: name, FEATURES: " ".join(features)}
    pytest.skip("threadpoolctl knows of one kernel alone here")


SHORT: dict[str, Any] = {"penalty": {"tolerance": 0.1, "mu_max": 1000.0}, "run": {"max_iterations": 3}}
RBF = {"activation": ["rbf", "linear", "rbf"], "sites": ["none", "after", "none"], "width": [3.0, 1.5]}
SHARDED = {"parallel": {"data": "sharded"}}
LONG = {"cg_iterations": 4, "iterations": 4}


def method(name: str, **baseline: Any) -> dict[str, Any]:
    return {**SHORT, "method": {"name": name}, "baseline": baseline}


RUNS: dict[str, dict[str, Any]] = {
    "cg": method("cg") | {"run": {"max_iterations": 12}},
    "lbfgs": method("lbfgs") | {"run": {"max_iterations": 12}},
    "sgd": method("sgd"),
    "adam": method("adam", momentum=0.9),
    "stochastic": method("stochastic"),
    "mac": SHORT,
    "momentum": {**SHORT, "method": {"acceleration": "momentum"}},
    "curvature": {
        **SHORT,
        "model": {"sites": "before"},
        "penalty": {"metric": "curvature", "method": "augmented_lagrangian"},
    },
    "quantise": {**SHORT, "model": {"activation": ["quantise", "tanh", "tanh"], "centres": "subset", "words": 4}},
    "alternating": {
        **SHORT,
        "model": {**RBF, "centres": ["subset", "kmeans"]},
        "start": {"method": "pca"},
        "method": {"name": "alternating"},
    },
    "selection": {
        **SHORT,
        "model": {**RBF, "centres": "subset", "hidden": [37, 2, 20]},
        "start": {"method": "elastic_embedding", "width": 2.0},
        "selection": {"criterion": "aic", "epsilon2": [0.06], "every": 2, "sizes": [[5, 14, 23, 32], [], [5, 11, 17]]},
    },
    "sharded": {**SHORT, **SHARDED, "w_step": LONG},
    "sharded_segment": {**SHORT, **SHARDED, "model": {"sites": ["none", "after", "none"]}, "w_step": LONG},
    "sharded_lbfgs": {**SHORT, **SHARDED, "w_step": {"solver": "lbfgs"}},
    "ring": {**SHORT, **SHARDED, "w_step": {"schedule": "ring", "linear_solver": "same", "batch": 20}},
    "sharded_stochastic": {**method("stochastic"), **SHARDED},
}


@pytest.mark.long
@pytest.mark.launch
def test_ranks_on_unlike_kernels_hold_the_same_numbers_and_end(tmp_path: Path) -> None:
    """Every method, and every W-solver that all ranks run together: sums are exchanged between their decisions."""
    other = other_kernel()
    for name, tables in RUNS.items():
        (tmp_path / name).mkdir()
        X, X_val = points(1, 200, 9), points(2, 30, 9)
        if tables.get("parallel"):
            write_h5(tmp_path / name / "points.h5", X=X, X_val=X_val)
        else:
            np.savez(tmp_path / name / "points.npz", X=X, X_val=X_val)
        path = write_config(tmp_path / name / "run.toml", {"hidden": [7, 4, 7]}, tables)
        path.write_text(path.read_text().replace('"points.', f'"{tmp_path / name}/points.'))
    env = {"MACMPI_TEST_KERNEL": other[KERNEL], "MACMPI_TEST_FEATURES": other[FEATURES]}
    outcome = run_program(*RUNS, ranks=2, cwd=tmp_path, program=SCRIPT, env=env, code=0)
    found = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
    assert found == [{"folder": name, "code": 0, "differing": []} for name in RUNS]
    warned = re.findall(
        r"macmpi: the ranks do not round alike: rank 0 on .*; rank 1 on .*; training goes on", outcome.err
    )
    assert len(warned) == len(RUNS)


def test_ranks_that_round_alike_are_told_so_by_a_number() -> None:
    """And one process is of one mind: nothing is said."""
    assert kernels.mixture(kernels.arithmetics(Serial())) == ""
    assert kernels.fingerprint() == kernels.fingerprint()
    assert kernels._ranks([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"
    assert kernels._ranks([3]) == "rank 3"


@pytest.mark.long
@pytest.mark.launch
def test_the_doctor_names_ranks_and_kernels_that_do_not_round_alike(tmp_path: Path) -> None:
    """The variables are set on rank 1 alone, and what they cost there is measured there; rank 0 may have its own."""
    other = other_kernel()
    env = {"MACMPI_TEST_ODD_RANKS": json.dumps(other)}
    page = run_program("macmpi.doctor", ranks=2, cwd=tmp_path, program=(ODD_RANKS,), env=env, code=0).out
    line, remedy = next(pair for pair in pairwise(page.splitlines()) if pair[0].startswith("kernel "))
    ranks = r"rank 0 on .*, [0-9a-f]{4}; rank 1 on .*, [0-9a-f]{4};.* rank 1: .* GFLOP/s"
    assert re.match(rf"kernel +warning +{ranks}", line)
    assert f"give all ranks one {KERNEL} and {FEATURES}" in remedy


def test_the_kernel_is_in_the_head_and_in_the_provenance_and_a_change_is_said(tmp_path: Path) -> None:
    write_case(tmp_path, "autoencoder")
    arguments = ("autoencoder.toml", "--output", "run", "--resume", "auto", "--iterations")
    begun = run_here(*arguments, 1, cwd=tmp_path, code=0)
    names = kernels.words(kernels.libraries())
    assert f"\n  {names}\n" in begun.out.split("  iter ")[0]
    assert run_here(*arguments, 2, cwd=tmp_path, code=0).err == ""
    log = tmp_path / "run" / "provenance.json"
    launches = json.loads(log.read_text())["launches"]
    assert [launch["kernels"] for launch in launches] == [kernels.arithmetics(Serial())] * 2
    launches[-1]["kernels"][0]["blas"][0]["architecture"] = "Another"
    log.write_text(json.dumps({"launches": launches}))
    warned = run_here(*arguments, 3, cwd=tmp_path, code=0).err.splitlines()
    assert len(warned) == 1
    assert re.match(
        r"macmpi: run was computed on another arithmetic so far \(.*\(Another\).*; here .*: it goes on", warned[0]
    )
    assert run_here(*arguments, 4, cwd=tmp_path, code=0).err == ""


@pytest.mark.long
@pytest.mark.launch
def test_a_change_between_one_kernel_and_a_mixture_is_said_once(tmp_path: Path) -> None:
    """Rank 0 computes on the same kernel all the time."""
    write_case(tmp_path, "few")
    mixed = {"MACMPI_TEST_ODD_RANKS": json.dumps(other_kernel())}
    alike = {"MACMPI_TEST_ODD_RANKS": "{}"}
    said = []
    for iterations, env in enumerate((mixed, alike, mixed), 1):
        words = ("macmpi.run", "few.toml", "--output", "run", "--resume", "auto", "--iterations", iterations)
        said.append(run_program(*words, ranks=2, cwd=tmp_path, program=(ODD_RANKS,), env=env, code=0).err)
    idle = "1 of 2 ranks have no points"
    assert all(text.count(idle) == 1 for text in said)
    start, to_one, to_mixture = ([line for line in text.splitlines() if idle not in line] for text in said)
    assert [len(start), len(to_one), len(to_mixture)] == [1, 1, 1]
    assert "the ranks do not round alike: rank 0 on" in start[0]
    assert re.search(r"on another arithmetic so far \(rank 0 on .*; rank 1 on .*; here (?!rank)", to_one[0])
    assert re.search(r"on another arithmetic so far \((?!rank).*; here rank 0 on .*; rank 1 on ", to_mixture[0])
    launches = json.loads((tmp_path / "run" / "provenance.json").read_text())["launches"]
    assert [[one["ranks"] for one in launch["kernels"]] for launch in launches[:2]] == [[[0], [1]], [[0, 1]]]
