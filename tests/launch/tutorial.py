"""docs/tutorial/tutorial.ipynb, executed in a process of its own.

python tests/launch/tutorial.py      # executes it, and writes the outputs that it has now
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch.launching import ROOT, environment

NOTEBOOK = ROOT / "docs" / "tutorial" / "tutorial.ipynb"
LIMIT = 120
"""Seconds of a cell: none needs ten."""

COMMAND = """#!{python}
import sys

from macmpi.__main__ import main

sys.exit(main())
"""


def shell(folder: Path) -> dict[str, str]:
    """The environment of a shell in which `macmpi`, `python` and `mpiexec` are those of this source tree.

    folder: it is given the command `macmpi`, and what programs leave in a home.
    """
    programs, home = folder / "bin", folder / "home"
    programs.mkdir()
    home.mkdir()
    command = programs / "macmpi"
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    own = {"HOME": str(home), "MPLCONFIGDIR": str(home), "IPYTHONDIR": str(home), "JUPYTER_RUNTIME_DIR": str(home)}
    return environment(PATH=path, COLUMNS="120", TMPDIR=str(home), **own)


@contextmanager
def changed(names: dict[str, str]) -> Iterator[None]:
    """Within this, the environment has these values."""
    before = dict(os.environ)
    os.environ.update(names)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def executed(notebook: Any, folder: Path) -> Any:
    """The notebook with new outputs.  Raises nbclient.exceptions.CellExecutionError."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    variables = shell(folder)
    resources = {"metadata": {"path": folder}}
    with changed({"JUPYTER_RUNTIME_DIR": variables["JUPYTER_RUNTIME_DIR"]}), TemporaryDirectory() as sockets:
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/ipc"}})  # no ports
        client = NotebookClient(notebook, config=config, timeout=LIMIT, record_timing=False, resources=resources)
        return client.execute(env=variables)


def words(cell: Any) -> set[str]:
    """The words of a cell's texts.  Numbers differ from machine to machine, as its name and its BLAS kernel do.

    So does whose limit of memory counts there.
    """
    texts = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        texts += [output.get("text", ""), "<picture>" * ("image/png" in data)]
        texts += [] if "image/png" in data else [data.get("text/html", "") or data.get("text/plain", "")]
    plain = re.sub(r"<style.*?</style>|<svg.*?</svg>|<(?!picture)[^>]*>", " ", " ".join(texts), flags=re.DOTALL)
    plain = re.sub(r"^machine .*$", "", plain, flags=re.MULTILINE)
    return set(re.findall(r"[A-Za-z_]{3,}", plain))


def main() -> None:
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with TemporaryDirectory() as folder:
        executed(notebook, Path(folder))
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
