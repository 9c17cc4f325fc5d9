"""What a process may use of its machine: the smallest of what the machine has, its control groups and its job allow."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan_of

from macmpi import UsageError
from macmpi.config import Config
from macmpi.parallel import launchers
from macmpi.plan.estimate import check_memory

OWN_CORES = len(os.sched_getaffinity(0))
PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
WITHOUT_A_LIMIT = 9223372036854771712
"""What version 1 says where there is no limit of memory."""

GROUP = "job 7/step"
"""A control group two below the root of those that are seen."""

LEVELS = st.lists(st.none() | st.integers(1 << 20, 2 * PHYSICAL), min_size=3, max_size=3)
"""A limit, or none, for each group from the process's own to the root."""

QUOTAS = st.lists(st.none() | st.integers(1, 8), min_size=3, max_size=3)
"""A quota in half cores, or none, for each of the same groups."""


def written(top: Path, name: str, values: Sequence[str | None]) -> None:
    for depth, value in enumerate(values):
        place = top.joinpath(*GROUP.split("/")[: 2 - depth])
        place.mkdir(parents=True, exist_ok=True)
        if value is not None:
            (place / name).write_text(f"{value}\n")


def limits_of(kind: int, memory: Sequence[int | None], halves: Sequence[int | None], seen: bool) -> tuple[float, int]:
    """What `launchers` finds in a tree of control groups of version 1 or 2.

    seen: the process's own group is a folder of the tree, and not only a name of the host's.
    """
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        top, own = Path(name), Path(name, "cgroup")
        group = GROUP if seen else f"elsewhere/{GROUP}"
        if kind == 2:
            own.write_text(f"0::/{group}\n")
            written(top, "memory.max", ["max" if m is None else str(m) for m in memory])
            written(top, "cpu.max", ["max 100000" if h is None else f"{h * 50000} 100000" for h in halves])
        else:
            own.write_text(f"9:name=systemd:/\n4:memory:/{group}\n1:cpu,cpuacct:/{group}\n0::/\n")
            limits = [str(WITHOUT_A_LIMIT if m is None else m) for m in memory]
            written(top / "memory", "memory.limit_in_bytes", limits)
            written(top / "cpu,cpuacct", "cpu.cfs_period_us", ["100000"] * 3)
            quotas = ["-1" if h is None else str(h * 50000) for h in halves]
            written(top / "cpu,cpuacct", "cpu.cfs_quota_us", quotas)
        patch.setattr(launchers, "CGROUPS", top)
        patch.setattr(launchers, "GROUPS_OF_SELF", own)
        for variable in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU"):
            patch.delenv(variable, raising=False)
        return launchers.memory().bytes, launchers.cores()


@given(kind=st.sampled_from([1, 2]), memory=LEVELS, halves=QUOTAS)
def test_the_tightest_group_from_the_own_one_up_to_the_root_counts(
    kind: int, memory: list[int | None], halves: list[int | None]
) -> None:
    found = limits_of(kind, memory, halves, seen=True)
    quota = min((ceil(h / 2) for h in halves if h is not None), default=OWN_CORES)
    assert found == (min([PHYSICAL, *(m for m in memory if m is not None)]), max(1, min(OWN_CORES, quota)))


@given(kind=st.sampled_from([1, 2]), limit=st.integers(1 << 20, PHYSICAL - 1))
def test_a_container_sees_its_own_limit_at_the_root(kind: int, limit: int) -> None:
    """The name of its group is that of the host, where it cannot look."""
    assert limits_of(kind, [None, None, limit], [None, None, 1], seen=False) == (limit, 1)


def test_without_control_groups_the_machine_is_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "GROUPS_OF_SELF", tmp_path / "none")
    monkeypatch.setattr(launchers, "CGROUPS", tmp_path)
    assert launchers.cores() == OWN_CORES
    assert launchers.memory() == (PHYSICAL, "this machine has")


@pytest.mark.parametrize(
    ("job", "megabytes"),
    [
        ({"SLURM_MEM_PER_NODE": "300"}, 300),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "4"}, 400),
        ({"SLURM_MEM_PER_CPU": "100"}, None),
        ({"SLURM_MEM_PER_NODE": "all of it"}, None),
    ],
)
@pytest.mark.every_case
def test_a_job_of_slurm_has_what_it_asked_for(
    job: dict[str, str], megabytes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "GROUPS_OF_SELF", tmp_path / "none")
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    assert launchers.memory().bytes == (PHYSICAL if megabytes is None else megabytes * 2**20)


def test_fewer_cores_by_affinity_are_fewer_cores() -> None:
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(own)})
        assert launchers.cores() == 1
    finally:
        os.sched_setaffinity(0, own)


@pytest.mark.parametrize("limit", ["memory", "memory_of_a_process"])
def test_a_run_that_its_job_cannot_hold_is_refused_with_the_limit_s_name(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million points with 256 columns need 2 GB, whatever the machine has beyond the limit."""
    plan = plan_of(Config(), 256, 1, 1_000_000, 1000, 1)
    check_memory(plan)
    if limit == "memory":
        monkeypatch.setattr(launchers, limit, lambda: launchers.Memory(5e8, "Slurm's --mem allows"))
    else:
        monkeypatch.setattr(resource, "getrlimit", lambda which: (int(5e8), -1))
    said = r"Slurm's --mem allows 0\.5 GB" if limit == "memory" else r"ulimit -v allows a process 0\.5 GB"
    with pytest.raises(UsageError, match=said):
        check_memory(plan)
