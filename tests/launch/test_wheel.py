"""The wheel, installed elsewhere: the command, and the documented configs that it finds outside of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from launch.launching import ROOT, THREAD_VARIABLES

pytestmark = pytest.mark.long

SOURCES = ("macmpi", "run", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
LIMIT = 120.0


def run(*line: object, cwd: Path) -> str:
    """Standard output of a program that knows nothing of this source tree, and has to end well."""
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | dict.fromkeys(THREAD_VARIABLES, "1")
    words = [str(word) for word in line]
    done = subprocess.run(words, cwd=cwd, env=own, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; the libraries are those of the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    setuptools = pytest.importorskip("setuptools")
    pytest.importorskip("pip")
    if tuple(int(part) for part in setuptools.__version__.split(".")[:2]) < (70, 1):
        pytest.importorskip("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels", cwd=tree)
    shutil.rmtree(tree)
    (wheel,) = (folder / "wheels").glob("macmpi-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "fresh", cwd=folder)
    python = folder / "fresh" / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (place,) = (folder / "fresh").glob("lib/python*/site-packages")
    (place / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "fresh"


def test_the_command_and_the_documented_configs_come_along(installed: Path, tmp_path: Path) -> None:
    command = installed / "bin" / "macmpi"
    assert list(installed.glob("lib/python*/site-packages/macmpi/py.typed"))
    place = installed.resolve() / "share" / "macmpi"
    for folder, kinds in (("", ["*.toml"]), ("batch", ["*.sh", "*.def"])):
        brought = {path.name for path in (place / folder).iterdir() if path.is_file()}
        assert brought == {path.name for kind in kinds for path in (ROOT / "run" / folder).glob(kind)}
    pytest.importorskip("sklearn")
    out = run(command, "run", "digits_mac", "--check", cwd=tmp_path)
    assert out.startswith(f"config: {place / 'digits_mac.toml'}\n")
    assert "64-64-32-8-32-64-64" in out
    assert run(command, "init", "--config", "usps_mac", cwd=tmp_path) == (ROOT / "run" / "usps_mac.toml").read_text()
    for name in ("slurm.sh", "apptainer.def"):
        text = run(command, "init", "--batch", name.split(".")[0], cwd=tmp_path)
        assert text == (ROOT / "run" / "batch" / name).read_text()
    assert list(tmp_path.iterdir()) == []
