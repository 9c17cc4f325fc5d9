"""Shared by all tests: where the real data are, and nets small enough to check by brute force."""

from __future__ import annotations

import os
import signal
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before NumPy is imported, or it does nothing


import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import sampled  # noqa: E402
import threadpoolctl  # noqa: E402

threadpoolctl.threadpool_limits(1)  # a plugin of pytest, as zarr's, may have imported NumPy by now

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, under nohup too

hypothesis.settings.register_profile("unhurried", deadline=None)  # no example fails because the machine is busy
hypothesis.settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "few of each test's cases (sampled.py), the others, or all of them"
    parser.addoption("--cases", choices=["few", "others", "all"], default="few", help=words)


def pytest_configure(config: pytest.Config) -> None:
    sampled.THOROUGH = config.getoption("cases") != "few"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    folder = Path(os.environ.get("MACMPI_DATA", "data"))
    for mark, name in (("usps", "usps.h5"), ("coil", "coil20.h5")):
        if not (folder / name).exists():
            skip = pytest.mark.skip(reason=f"no {name} in the folder that MACMPI_DATA names")
            for item in items:
                if mark in item.keywords:
                    item.add_marker(skip)
    if (cases := config.getoption("cases")) != "all":
        few = sampled.few(items)
        taken = few if cases == "few" else {item for item in items if item not in few or sampled.is_drawn(item)}
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
        items[:] = [item for item in items if item in taken]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(12)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder with points.npz, 40 points of a regression, and points.toml, the shortest config for it."""
    random = np.random.default_rng(0)
    np.savez(tmp_path / "points.npz", X=random.normal(size=(40, 3)), Y=random.normal(size=40))
    (tmp_path / "points.toml").write_text('data = "points.npz"\n')
    return tmp_path
