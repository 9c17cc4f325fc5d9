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

OWN = {"annotated_types", "macmpi", "mpi4py", "numpy", "scipy", "threadpoolctl", "typing_extensions"} | {
    "charset_normalizer"
}
"""Packages that a rank which is not the first has from outside of Python; charset_normalizer comes with scipy.linalg,
where it is installed."""

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
    packages = {name.partition(".")[0] for name in other}
    assert {name for name in packages if not is_of_python(name)} <= OWN
    assert UNREAD.isdisjoint(first | other)
