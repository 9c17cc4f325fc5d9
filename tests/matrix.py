"""Tries the wheel with each Python, MPI library and age of the libraries it needs: `make matrix`.

A case is an environment of its own: the wheel with the oldest libraries that setup.cfg allows (of those, the oldest
that have a wheel for this Python), or with the newest; MPICH or Open MPI; Python 3.11 to 3.14, of which those that are
not on PATH are named and left out.  In it the README's command trains from an empty folder, and `TESTS` run, those of
`tests/mpi` on 3 ranks.  The results of the whole matrix are written to docs/suites/matrix.json: the floors in
setup.cfg are what passed.  CASES="3.12 openmpi" takes the cases with all of these words; an argument is the folder of a
wheel that is there already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from itertools import product
from pathlib import Path
from typing import Any

from nodes.outcomes import Case, closed, folder, tried, versions

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LIBRARIES = {"mpich": "mpich", "openmpi": "openmpi"}
"""Extra of setup.cfg that brings the MPI library, by its name."""

AGES = ("oldest", "newest")
TOOLS = ("pytest", "pytest-mpi", "pytest-timeout", "pytest-xdist", "hypothesis", "scikit-learn", "setuptools")
"""What the tests need besides the package, always as new as the case's libraries allow."""

TESTS = ("tests/contracts", "tests/unit/test_checkpoint.py", "tests/unit/test_model.py", "tests/unit/test_data.py")
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""What Open MPI's launcher wants of root, and where there are more ranks than cores."""

LISTED = ("numpy", "scipy", "h5py", "mpi4py", "pydantic", "mpich", "openmpi")
VERSIONS = f"""
from importlib.metadata import PackageNotFoundError, version
for name in {LISTED}:
    try: print(name, version(name), end="; ")
    except PackageNotFoundError: pass
"""


def found(python: str) -> str:
    """The interpreter of a version that runs here, or "": a shim on PATH may lead to none."""
    path = shutil.which(f"python{python}") or ""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = path and subprocess.run([path, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    return path if done == python else ""


def ran(*line: object, cwd: Path = ROOT, changes: dict[str, str] | None = None) -> str:
    """Standard output of a program that has to end well and knows nothing of an environment around it.

    Raises RuntimeError with the last lines of what it wrote.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | AS_ROOT | (changes or {})
    done = subprocess.run([str(word) for word in line], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"exit code {done.returncode} of {' '.join(map(str, line))[-200:]}\n{said}")
    return done.stdout


def uv(*words: object) -> None:
    """Runs uv of the environment of this program."""
    ran(sys.executable, "-m", "uv", "--quiet", *words)


def environment(place: Path, wheel: Path, interpreter: str, library: str, age: str) -> Path:
    """Makes an environment with the wheel and its libraries of that age; its folder of programs."""
    home = place / "env"
    uv("venv", "--python", interpreter, home)
    install = ("pip", "install", "--python", home / "bin" / "python", "--only-binary", ":all:")
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    floors = setup["options"]["install_requires"].split()
    uv(*install, *(("--resolution", "lowest-direct", *floors) if age == "oldest" else ()), wheel)
    pins = place / "pins.txt"
    pins.write_text(ran(sys.executable, "-m", "uv", "--quiet", "pip", "freeze", "--python", home / "bin" / "python"))
    kept = [line for line in pins.read_text().splitlines() if not line.startswith("macmpi")]
    pins.write_text("\n".join(kept) + "\n")
    uv(*install, "--constraint", pins, LIBRARIES[library], *TOOLS)
    return home / "bin"


def check(bin_: Path, place: Path) -> str:
    """Trains by the README's command from an empty folder and runs the tests; the versions that did."""
    empty = place / "empty"
    empty.mkdir()
    out = ran(bin_ / "mpiexec", "-n", 2, bin_ / "macmpi", "run", "digits_mac", cwd=empty)
    if "model: runs/digits_mac/model.h5" not in out:
        raise RuntimeError(f"no model after\n{out[-500:]}")
    shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "run", "README.md", "CHANGELOG.md", "docs"):
        (place / name).symlink_to(ROOT / name)
    python = bin_ / "python"
    ran(python, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long", *TESTS, cwd=place)
    three = ("-m", "pytest", "--with-mpi", "-p", "no:cacheprovider", "tests/mpi")
    ran(bin_ / "mpiexec", "-n", 3, python, *three, cwd=place)
    return ran(python, "-c", VERSIONS, cwd=place).strip().rstrip(";")


def cases(wheel: Path, chosen: str) -> Iterator[Case]:
    """The cases that the words choose and whose Python is here; the others are named."""
    for python in PYTHONS:
        if not (interpreter := found(python)):
            print(f"skipped     Python {python} is not on PATH", flush=True)
            continue
        for library, age in product(LIBRARIES, AGES):
            name = f"Python {python}, {library}, {age} libraries"

            def tested(_: Any, place: Path, made: tuple[str, str, str] = (interpreter, library, age)) -> str:
                return check(environment(place, wheel, *made), place)

            if all(word in name for word in chosen.split()):
                yield Case(name, "installs, trains, tests pass", tested)


def main() -> None:
    chosen = os.environ.get("CASES", "")
    with folder(False) as place:
        built = Path(sys.argv[1]) if sys.argv[1:] else place / "dist"
        if not sys.argv[1:]:
            uv("build", "--out-dir", built, ROOT)  # the wheel out of the source distribution
        (wheel,) = built.resolve().glob("macmpi-*.whl")
        rows = tried(list(cases(wheel, chosen)), 1, None, place)
    closed("matrix", "make matrix", "the wheel in environments of its own", rows, versions(), not chosen)


if __name__ == "__main__":
    main()
