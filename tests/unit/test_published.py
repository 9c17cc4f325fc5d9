"""What goes with a package that others install, cite and depend on: types, names and versions that agree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

import macmpi

ROOT = Path(__file__).resolve().parents[2]
USER = """
import numpy as np
from numpy.typing import NDArray

import macmpi
from macmpi.sklearn import MACAutoencoder, MACClassifier, MACRegressor

X = np.zeros((8, 3))


def ends(record: dict[str, object]) -> bool:
    return record["phase"] == "iteration"


model = macmpi.fit(X, np.zeros(8), ranks=2, seed=1, config={"run.max_iterations": 1}, callback=ends)
macmpi.save(model, "model.h5")
again: macmpi.Model = macmpi.load("model.h5")
codes: NDArray[np.float64] = again.encode(X)
images: NDArray[np.float64] = again.decode(codes)
again = macmpi.fit(batches=[(X, np.zeros(8))], start=again, hidden=[4], layers=["tanh"], output="run", overwrite=True)
errors: list[float] = [record["E1_val"] for record in again.history]
ended: str = again.card.training.ended if again.card is not None else ""
fitted: MACRegressor = MACRegressor(hidden=[4], max_iter=3).fit(X, np.zeros(8), sample_weight=np.ones(8))
predicted: NDArray[np.float64] = fitted.predict(X)
shares: NDArray[np.float64] = MACClassifier(class_weight="balanced").fit(X, np.arange(8) % 2).predict_proba(X)
codes = MACAutoencoder(random_state=0).fit(X).transform(X)
inside: macmpi.Model = fitted.model_
try:
    again.predict(X)
except macmpi.UsageError as error:
    code: int = error.exit_code
"""


def mypy(folder: Path, text: str) -> str:
    """What mypy --strict says of a user's file."""
    pytest.importorskip("mypy")
    (folder / "user.py").write_text(text)
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder / 'cache'}", "user.py"]
    env = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout


@pytest.mark.long
def test_a_users_file_is_checked_by_the_types_of_the_package(tmp_path: Path) -> None:
    assert [line for line in mypy(tmp_path, USER).splitlines() if line.startswith("user.py")] == []
    wrong = mypy(tmp_path, f"{USER}\nmacmpi.load(3)\nagain.predict()\nmacmpi.fit(X, ranks='2')\nfitted.predict()\n")
    kinds = [re.findall(r"\[([a-z-]+)\]$", line)[0] for line in wrong.splitlines() if line.startswith("user.py")]
    assert kinds == ["arg-type", "call-arg", "arg-type", "call-arg"]


def test_a_version_is_the_same_wherever_it_stands() -> None:
    cff = (ROOT / "CITATION.cff").read_text()
    stated = re.findall(r"^version: (.*)$", cff, re.MULTILINE)
    assert [*stated, json.loads((ROOT / "codemeta.json").read_text())["version"]] == [macmpi.__version__] * 2
    assert f"## {macmpi.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_what_is_said_of_the_package_is_the_same_wherever_it_stands() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    code = json.loads((ROOT / "codemeta.json").read_text())
    assert (code["name"], code["description"]) == (setup["metadata"]["name"], setup["metadata"]["description"])
    cff = (ROOT / "CITATION.cff").read_text()
    assert f"license: {setup['metadata']['license']}\n" in cff
    assert code["license"].endswith(setup["metadata"]["license"])
    title = re.findall(r'^title: "(.*)"$', cff, re.MULTILINE)
    assert re.findall(r"title   = \{(macmpi.*)\}", (ROOT / "docs" / "references.md").read_text()) == title
