"""Ranks on unlike processors hold the same numbers and come to an end; the kernel is named, a change of it said."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from launch.cases import write_case
from launch.here import run_here
from launch.launching import environment, run_program
from same_bits import config_text
from same_bits_cases import CASES
from same_bits_data import write_data

from macmpi.parallel import kernels
from macmpi.parallel.team import Team, named

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


SOME = ("recurrent_sharded", "momentum", "selection_units", "stochastic_sharded", "lbfgs")
"""Ways to train whose numbers come from one rank, or from sums, in as many different ways; make test-long has all."""


def assert_unlike_ranks_hold_the_same_numbers(names: Sequence[str], folder: Path, other: dict[str, str]) -> None:
    """Two ranks, of which the second is unlike the first, come to the end; a bit that is lost is noticed."""
    data = write_data(folder)
    for name in names:
        case = CASES[name]
        keys = {"data.source": data.get(case.data, case.data), **case.keys, "run.max_iterations": case.iterations}
        (folder / name).mkdir()
        (folder / name / "run.toml").write_text(config_text(keys))
    env = {"MACMPI_TEST_ODD_RANKS": json.dumps({"MACMPI_TEST_ODD": "1", **other})}
    shutil.copytree(folder / names[0], folder / "struck")
    outcome = run_program(*names, "struck", ranks=2, cwd=folder, program=SCRIPT, env=env, timeout=900.0, code=0)
    found = [json.loads(line) for line in outcome.out.splitlines() if line.startswith("{")]
    assert found[:-1] == [{"folder": name, "code": 0, "differing": []} for name in names]
    assert found[-1] == {"folder": "struck", "code": 70, "differing": ["best_weights"]}
    assert re.search(rf"the numbers of rank 1 on {platform.node()} are not those of rank 0", outcome.err)
    warned = re.findall(
        r"macmpi: the ranks do not round alike: rank 0 on .*; rank 1 on .*; training goes on", outcome.err
    )
    assert len(warned) == len(names) + 1


@pytest.mark.launch
def test_ranks_on_unlike_processors_hold_the_same_numbers_and_end(tmp_path: Path) -> None:
    """Whatever decides or is kept comes from one rank, or from sums in fixed order over what single ranks made."""
    assert_unlike_ranks_hold_the_same_numbers(SOME, tmp_path, {})


@pytest.mark.long
@pytest.mark.launch
@pytest.mark.timeout(950.0)
def test_every_feature_does_on_another_kernel_of_blas(tmp_path: Path) -> None:
    """The cases that `make same-bits` trains, but for one that goes on from a model of its own."""
    names = [name for name, case in CASES.items() if "start.model=first/model.h5" not in str(case.runs)]
    assert_unlike_ranks_hold_the_same_numbers(names, tmp_path, other_kernel())


def test_ranks_that_round_alike_are_told_so_by_a_number() -> None:
    """And one process is of one mind: nothing is said."""
    assert kernels.mixture(kernels.arithmetics(Team())) == ""
    assert kernels.fingerprint() == kernels.fingerprint()
    assert named([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"
    assert named([3]) == "rank 3"


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
    assert [launch["kernels"] for launch in launches] == [kernels.arithmetics(Team())] * 2
    launches[-1]["kernels"][0]["blas"][0]["architecture"] = "Another"
    log.write_text(json.dumps({**json.loads(log.read_text()), "launches": launches}))
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
