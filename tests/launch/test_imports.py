"""A rank imports what it computes with, and no more: on many ranks each import is paid for many times."""

from __future__ import annotations

import sys
from pathlib import Path

from launch.launching import ROOT, run_program

PROGRAM = """
import os, sys
from pathlib import Path
from macmpi import run
try:
    run.main()
finally:
    rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    Path(rank).write_text("\\n".join(sys.modules))
"""

OWN = {"annotated_types", "macmpi", "mpi4py", "numpy", "scipy", "threadpoolctl", "typing_extensions"}
"""Packages that a rank which is not the first has from outside of Python."""

HEAVY = ("numpy.f2py", "importlib.metadata", "email", "http", "asyncio")
"""Modules of NumPy and Python that take long to import, and that no rank needs which is not the first."""

UNREAD = {"matplotlib", "pandas", "pyarrow", "sklearn", "scipy.stats", "scipy.optimize", "scipy.special"}
"""Packages that no rank needs, the first one included."""


def is_of_python(name: str) -> bool:
    """Tells whether a module is Python's, or of what Cython and pip make."""
    return name in sys.stdlib_module_names or name.startswith(("_", "cython_"))


def test_a_rank_imports_what_it_computes_with(tmp_path: Path) -> None:
    config = ROOT / "run" / "digits_mac.toml"
    run_program(config, "--iterations", 1, ranks=2, cwd=tmp_path, program=("-c", PROGRAM), code=0)
    first, other = (set((tmp_path / rank).read_text().splitlines()) for rank in "01")
    assert "macmpi.solvers.closed_form" in other, "the run has not come so far"
    assert {name.partition(".")[0] for name in other if not is_of_python(name.partition(".")[0])} <= OWN
    assert [name for name in other if name in HEAVY or name.startswith(tuple(f"{heavy}." for heavy in HEAVY))] == []
    assert UNREAD.isdisjoint(first | other)
