"""Runs tests under several kernels of BLAS and in several environments: `make test-kernels`; ends with a table.

A row is run, or skipped with its reason: OpenBLAS falls back without a word from a kernel that the CPU lacks, so
threadpoolctl is asked what was loaded.  Arguments are tests to run instead of those of the table; CASES=Haswell chooses
the rows whose names contain it, WORKERS the number of processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/contracts", "tests/theory", "tests/spmd")
ENVIRONMENT = ("tests/unit", "tests/launch/test_failures.py")
"""What an environment can break: files, texts, launches."""

THREADED = ("tests/contracts", "tests/theory", "tests/unit")
"""What holds for any number of threads: launches take one, for which alone equal bits on other ranks are promised."""

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
ONE = dict.fromkeys(THREADS, "1")

LOADED = """
import numpy, scipy.linalg, threadpoolctl
pools = threadpoolctl.threadpool_info()
print(*sorted({pool.get("architecture", "?") for pool in pools if pool["user_api"] == "blas"}))
"""

AS_ASKED = {"Prescott": {"Prescott", "Katmai"}}
"""Names under which OpenBLAS reports a kernel: those of several CPUs where these share all its routines."""

FEATURES = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))  # type: ignore[call-overload]
"""What NumPy makes use of here beyond its baseline, by the names that this version knows."""


@dataclass(frozen=True)
class Case:
    """Tests in an environment.  refused: why this machine cannot run them, or ""."""

    name: str
    changes: dict[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = TESTS
    refused: Callable[[dict[str, str]], str] = lambda environment: ""
    read_only: bool = False


def environment(changes: dict[str, str]) -> dict[str, str]:
    """This process's, with one thread; a variable that is to be "" is not set at all."""
    merged = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", *THREADS)} | ONE
    data = Path(os.environ.get("MACMPI_DATA", ROOT / "data")).resolve()
    merged |= {"PYTHONPATH": str(ROOT), "MACMPI_DATA": str(data), "PYTHONDONTWRITEBYTECODE": "1"} | changes
    return {k: v for k, v in merged.items() if v}


def loaded(env: dict[str, str]) -> set[str]:
    """The kernels of BLAS that NumPy and SciPy have loaded."""
    return set(subprocess.run([sys.executable, "-c", LOADED], env=env, capture_output=True, text=True).stdout.split())


def other_kernel(env: dict[str, str]) -> str:
    """Whether another kernel was loaded than the one that was asked for."""
    name = env["OPENBLAS_CORETYPE"]
    found = loaded(env)
    return "" if found and found <= AS_ASKED.get(name, {name}) else f"this machine loads {' '.join(found) or 'none'}"


def no_features(env: dict[str, str]) -> str:
    """Whether NumPy has nothing to do without, or there is no such kernel."""
    return other_kernel(env) if FEATURES else "NumPy uses its baseline alone here"


def in_utf8(env: dict[str, str]) -> str:
    """Whether text is UTF-8 all the same."""
    code = "import locale; print(locale.getpreferredencoding(False))"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    return "its encoding is UTF-8" if done.stdout.strip().upper() in ("UTF-8", "UTF8") else ""


def writable(env: dict[str, str]) -> str:
    """Whether a read-only copy cannot be had: as root a mount is needed, which not every container allows."""
    with tempfile.TemporaryDirectory() as folder:
        probe = ["sh", "-c", f"! touch {folder}/file 2>/dev/null"]
        done = subprocess.run(mounted(Path(folder), probe), env=env, capture_output=True, text=True)
    return "" if done.returncode == 0 else "no read-only mount here (unshare)"


def mounted(folder: Path, command: Sequence[object]) -> list[str]:
    """A command that sees the folder read-only, in a mount namespace of its own: this binds root too."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--mount", "sh", "-c", script, str(folder), *map(str, command)]


def kernel(name: str) -> Case:
    return Case(f"kernel {name}", {"OPENBLAS_CORETYPE": name}, refused=other_kernel)


CASES = (
    *map(kernel, ("Prescott", "Nehalem", "Haswell", "Zen", "SkylakeX")),
    Case("kernel of this machine"),
    Case(
        "NumPy's baseline",
        {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": FEATURES},
        refused=no_features,
    ),
    Case("threads as they are", dict.fromkeys(THREADS, ""), THREADED),
    Case("2 threads", dict.fromkeys(THREADS, "2"), THREADED),
    Case("LC_ALL=C", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ENVIRONMENT, in_utf8),
    Case("LC_ALL=POSIX", {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ENVIRONMENT, in_utf8),
    Case("PYTHONHASHSEED=random", {"PYTHONHASHSEED": "random"}, (*ENVIRONMENT, "tests/spmd")),
    Case("read-only sources", {}, ENVIRONMENT, writable, read_only=True),
)


def run(case: Case, tests: Sequence[str], workers: str) -> tuple[str, float]:
    """How it ended, and the seconds it took."""
    env, began = environment(case.changes), time.monotonic()
    if reason := case.refused(env):
        return f"skipped: {reason}", 0.0
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers, "-m", "not long"]
    command += tests or case.tests
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "macmpi"
        if case.read_only:
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "runs", "__pycache__"))
            done = subprocess.run(mounted(copy, command), cwd=copy, env=env | {"PYTHONPATH": str(copy)})
        else:
            done = subprocess.run(command, cwd=ROOT, env=env)
    return "passed" if done.returncode == 0 else f"FAILED ({done.returncode})", time.monotonic() - began


def repeated(case: Case, names: dict[str, str]) -> str:
    """Whether a row before, whose kernel was asked for by name, was the same.  names: row of each kernel."""
    kernels = " ".join(loaded(environment(case.changes)))
    before = names.setdefault(kernels, case.name)
    return "" if case.changes or before == case.name else f"skipped: {kernels}, as in '{before}'"


def main() -> int:
    chosen = os.environ.get("CASES", "")
    cases = [case for case in CASES if chosen in case.name]
    workers, ended, names = os.environ.get("WORKERS", "2"), [], dict[str, str]()
    for case in cases:
        print(f"--- {case.name}", flush=True)
        again = repeated(case, names) if case.name.startswith("kernel") else ""
        ended.append((again, 0.0) if again else run(case, sys.argv[1:], workers))
    print(f"\n{'case':24} {'seconds':>7}  end")
    for case, (end, seconds) in zip(cases, ended, strict=True):
        print(f"{case.name:24} {seconds:7.0f}  {end}")
    print(f"{sum(end == 'passed' for end, _ in ended)} of {len(cases)} passed")
    return int(not ended or any(end.startswith("FAILED") for end, _ in ended))


if __name__ == "__main__":
    sys.exit(main())
