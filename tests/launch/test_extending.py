"""The worked examples of the pages on extending, from their blocks to trained nets, as other packages bring them."""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from covering import each
from launch.launching import ROOT, run_program
from launch.one_by_one import NEXT, ONE_BY_ONE
from numpy.testing import assert_array_equal
from pages import blocks_of_page

import macmpi
from macmpi.config import Data
from macmpi.data.loading import load

FITTER, W_SOLVER, Z_SOLVER, TRAINER, LAYER, ACTIVATION, LOSS, IMAGES = (
    f"docs/extending/{name}.md"
    for name in ("fitter", "w_solver", "z_solver", "trainer", "layer", "activation", "loss", "image_layer")
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return installed_from(LAYER, tmp_path)


def installed_from(page: str, tmp_path: Path) -> Path:
    """A folder with a page's files, installed as far as Python looks: the modules and their entry points."""
    modules, (project, config) = blocks_of_page(page, "python"), blocks_of_page(page, "toml")
    (tmp_path / ("quantile.toml" if page == LOSS else "digits.toml")).write_text(config)
    install(project, tmp_path, modules)
    return tmp_path


def install(project: str, folder: Path, modules: list[str]) -> None:
    """Writes modules, and makes them look installed.  project: their pyproject.toml."""
    keys = tomllib.loads(project)
    (name, version), groups = (keys["project"][key] for key in ("name", "version")), keys["project"]["entry-points"]
    for module, text in zip(keys["tool"]["setuptools"]["py-modules"], modules, strict=False):
        (folder / f"{module}.py").write_text(text)
    installed = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in own.items()) for group, own in groups.items())
    (installed / "entry_points.txt").write_text("".join(lines))


def trained(package: Path, ranks: int, output: str, *words: str, config: str = "digits.toml") -> str:
    path = os.pathsep.join([str(package), str(ROOT)])
    return run_program(
        config, "--output", output, *words, ranks=ranks, cwd=package, env={"PYTHONPATH": path}, code=0
    ).out


def datasets(path: Path) -> list[object]:
    """All datasets of a model.h5, in the order of their names."""
    arrays: list[object] = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: arrays.append(item[()]) if isinstance(item, h5py.Dataset) else None)
    return arrays


def error_and_pca(package: Path, out: str) -> tuple[float, float]:
    """E1 at the end, and that of PCA with as many components as the code."""
    last = json.loads((package / "run" / "curve.jsonl").read_text().splitlines()[-1])
    pca, *_ = (float(line.split()[-1]) for line in out.splitlines() if line.strip().startswith("PCA with 8"))
    return last["E1_train"], pca


@pytest.mark.long
def test_the_worked_example_ends_in_a_trained_net(package: Path) -> None:
    """Below PCA with as many components, as the page says."""
    error, pca = error_and_pca(package, trained(package, 2, "run"))
    assert error < pca
    with h5py.File(package / "run" / "model.h5") as file:
        assert "low_rank" in json.dumps({k: str(v) for k, v in file.attrs.items()})


@pytest.mark.long
def test_an_activation_of_your_own_ends_in_a_trained_net(tmp_path: Path) -> None:
    """Below PCA with as many components, as the page says, by the method that is chosen."""
    package = installed_from(ACTIVATION, tmp_path)
    out = trained(package, 2, "run")
    assert "stochastic MAC" in out
    error, pca = error_and_pca(package, out)
    assert error < pca


# --- short runs, one after the other in a launch ----------------------------------------------------------------------


@dataclass(frozen=True)
class Short:
    """A short run of a page's example.  below: its E1 at the end, as a share of the best constant's."""

    page: str
    settings: list[str]
    iterations: int = 2
    below: float | None = None
    ranks: tuple[int, ...] = (1, 3)


SHORT = {
    "layer": Short(LAYER, []),
    "layer, lbfgs": Short(LAYER, ["w_step.solver=lbfgs"]),
    "layer, sgd, before": Short(LAYER, ["w_step.solver=sgd", "model.sites=before"]),
    "loss": Short(LOSS, ["model.loss=upper"]),
    **{page: Short(page, []) for page in (FITTER, W_SOLVER, Z_SOLVER, TRAINER, ACTIVATION, IMAGES)},
    **{
        f"w_solver, {key}": Short(W_SOLVER, [key, "method.acceleration=none"], 6, None, (3,))
        for key in ("model.sites=none", "parallel.data=sharded")
    },
    **{
        f"activation, {method}": Short(ACTIVATION, [f"method.name={method}", "method.acceleration=auto"], 8, 0.6, (1,))
        for method in ("mac", "adam")
    },
    **{
        f"loss, {method}": Short(LOSS, [f"method.name={method}", "loss.threshold=0.2"], 30, 0.9, (1,))
        for method in ("stochastic", "adam", "lbfgs")
    },
}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], tuple[Path, str]]:
    """All short runs, each in the launch of a number of ranks: their run directories, and what they printed."""
    root = tmp_path_factory.mktemp("together")
    folders = {page: root / Path(page).stem for page in {run.page for run in SHORT.values()}}
    for page, folder in folders.items():
        folder.mkdir()
        installed_from(page, folder)
    found = {}
    for ranks in (1, 3):
        names = [name for name, run in SHORT.items() if ranks in run.ranks]
        outputs = [root / f"{ranks}-{i}" for i in range(len(names))]
        lines = [line_of(SHORT[n], folders[SHORT[n].page], output) for n, output in zip(names, outputs, strict=True)]
        env = {"PYTHONPATH": os.pathsep.join(map(str, (*folders.values(), ROOT)))}
        said = run_program(
            json.dumps(lines), ranks=ranks, cwd=root, program=(ONE_BY_ONE,), env=env, code=0, timeout=200.0
        )
        for name, output, text in zip(names, outputs, said.out.split(NEXT), strict=False):
            found[name, ranks] = output, text
    return found


def line_of(run: Short, folder: Path, output: Path) -> list[str]:
    (config,) = folder.glob("*.toml")
    settings = [word for setting in run.settings for word in ("--set", setting)]
    return [str(folder), str(config), "--output", str(output), "--iterations", str(run.iterations), *settings]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, run in SHORT.items() if len(run.ranks) > 1])
def test_it_has_the_same_bits_on_1_and_3_ranks(name: str, together: dict[tuple[str, int], tuple[Path, str]]) -> None:
    ours, theirs = (datasets(together[name, ranks][0] / "model.h5") for ranks in (1, 3))
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert_array_equal(one, other)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, run in SHORT.items() if run.below is not None])
def test_other_methods_train_nets_of_them(name: str, together: dict[tuple[str, int], tuple[Path, str]]) -> None:
    folder, said = together[name, 1]
    last = json.loads((folder / "curve.jsonl").read_text().splitlines()[-1])
    constants = [
        line.split()[-1] for line in said.splitlines() if re.match(r" *predict the (mean|best constant)", line)
    ]
    assert last["E1_train"] < (SHORT[name].below or 0.0) * float(constants[0])


# --- a loss -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def losses(tmp_path: Path) -> Path:
    (module,) = blocks_of_page(LOSS, "python")
    assert len(module.splitlines()) <= 40
    return installed_from(LOSS, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("loss", "share"), [("upper", 0.9), ("lower", 0.1)])
def test_quantiles_are_learnt_with_the_same_bits_on_1_and_2_ranks(loss: str, share: float, losses: Path) -> None:
    """The share of held-out targets below the predictions is the quantile's, but for its standard error and a little.

    The model needs nothing of the package that has the loss.
    """
    for ranks in (1, 2):
        trained(losses, ranks, f"run{ranks}", "--set", f"model.loss={loss}", config="quantile.toml")
    for ours, theirs in zip(*(datasets(losses / f"run{ranks}" / "model.h5") for ranks in (1, 2)), strict=True):
        assert_array_equal(ours, theirs)
    model, data = macmpi.load(str(losses / "run2" / "model.h5"), "best"), load(Data("sklearn:diabetes"))
    X, Y = data.scaling_x.undo(data.X_val), data.scaling_y.undo(data.Y_val)
    assert abs(np.mean(Y[:, 0] < model.predict(X)) - share) < 3.0 * np.sqrt(0.09 / len(Y)) + 0.03


def test_a_loss_that_is_nowhere_is_named_with_the_words_that_there_are(losses: Path) -> None:
    path = os.pathsep.join([str(losses), str(ROOT)])
    words = ("quantile.toml", "--set", "model.loss=uper")
    outcome = run_program(*words, ranks=1, cwd=losses, env={"PYTHONPATH": path}, code=2)
    assert "model.loss: unknown word; did you mean 'upper'?" in outcome.err


# --- docs/extending ---------------------------------------------------------------------------------------------------

PAGES = (FITTER, W_SOLVER, Z_SOLVER, TRAINER, ACTIVATION, IMAGES)


page = each(PAGES)


def test_each_example_is_short(page: str) -> None:
    module, *_ = blocks_of_page(page, "python")
    assert len(module.splitlines()) <= 70


@pytest.mark.long
def test_a_layer_by_a_regressor_of_scikit_learn_ends_in_a_trained_net(tmp_path: Path) -> None:
    """It classifies as well as its page says."""
    package = installed_from(FITTER, tmp_path)
    assert "W-step of the segments: neighbours (1), hessian_free (1)" in trained(package, 2, "run")
    best = min(json.loads(line)["error_val"] for line in (package / "run" / "curve.jsonl").read_text().splitlines())
    assert best < 0.05
    with h5py.File(package / "run" / "model.h5") as file:
        assert '"kind": "neighbours"' in file.attrs["maps"]


@pytest.mark.long
def test_a_trainer_of_your_own_ends_in_a_trained_net(tmp_path: Path) -> None:
    """It classifies as well as its page says."""
    package = installed_from(TRAINER, tmp_path)
    trained(package, 2, "run")
    best = min(json.loads(line)["error_val"] for line in (package / "run" / "curve.jsonl").read_text().splitlines())
    assert best < 0.05


@pytest.mark.long
@pytest.mark.parametrize(("page", "word"), [(W_SOLVER, "barzilai_borwein"), (Z_SOLVER, "")])
def test_a_solver_of_your_own_ends_in_a_trained_net(page: str, word: str, tmp_path: Path) -> None:
    """Below PCA with as many components, as its page says."""
    package = installed_from(page, tmp_path)
    out = trained(package, 2, "run")
    assert word in out
    error, pca = error_and_pca(package, out)
    assert error < pca


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, run in SHORT.items() if run.ranks == (3,)])
def test_a_w_solver_of_your_own_fits_segments_and_sharded_points(
    name: str, together: dict[tuple[str, int], tuple[Path, str]]
) -> None:
    folder, said = together[name, 3]
    assert "barzilai_borwein" in said
    curve = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    assert curve[5]["E1_train"] < 0.9 * curve[0]["E1_train"]
