"""The worked examples of the pages on extending, from their blocks to trained nets, as other packages bring them."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch.launching import ROOT, run_program
from numpy.testing import assert_array_equal
from pages import blocks_of_page

import macmpi
from macmpi.config import Data
from macmpi.data.whole import load

FITTER, W_SOLVER, Z_SOLVER, TRAINER, LAYER, ACTIVATION = (
    f"docs/extending/{name}.md" for name in ("fitter", "w_solver", "z_solver", "trainer", "layer", "activation")
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return installed_from(LAYER, tmp_path)


def installed_from(page: str, tmp_path: Path) -> Path:
    """A folder with a page's files, installed as far as Python looks: the modules and their entry points."""
    modules, (project, config) = blocks_of_page(page, "python"), blocks_of_page(page, "toml")
    (tmp_path / "digits.toml").write_text(config)
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


def test_the_worked_example_ends_in_a_trained_net(package: Path) -> None:
    """Below PCA with as many components, as the page says."""
    error, pca = error_and_pca(package, trained(package, 2, "run"))
    assert error < pca
    with h5py.File(package / "run" / "model.h5") as file:
        assert "low_rank" in json.dumps({k: str(v) for k, v in file.attrs.items()})


def test_an_activation_of_your_own_ends_in_a_trained_net(tmp_path: Path) -> None:
    """Below PCA with as many components, as the page says, by the method that is chosen."""
    package = installed_from(ACTIVATION, tmp_path)
    out = trained(package, 2, "run")
    assert "stochastic MAC" in out
    error, pca = error_and_pca(package, out)
    assert error < pca


@pytest.mark.parametrize("method", ["mac", "adam"])
def test_nets_with_an_activation_of_your_own_are_trained(method: str, tmp_path: Path) -> None:
    package = installed_from(ACTIVATION, tmp_path)
    words = ("--set", f"method.name={method}", "--set", "method.acceleration=auto")
    out = trained(package, 1, "run", "--iterations", "8", *words)
    last = json.loads((package / "run" / "curve.jsonl").read_text().splitlines()[-1])
    (mean,) = (float(line.split()[-1]) for line in out.splitlines()[:8] if line.strip().startswith("predict the mean"))
    assert last["E1_train"] < 0.6 * mean


OWN = [
    {},
    {"w_step.solver": "lbfgs"},
    {"w_step.solver": "sgd", "model.sites": "before"},
]


@pytest.mark.parametrize("keys", OWN, ids=str)
def test_it_has_the_same_bits_on_any_number_of_ranks(keys: dict[str, str], package: Path) -> None:
    settings = [f"{key}={value}" for key, value in keys.items()]
    words = ("--iterations", "2", *(word for setting in settings for word in ("--set", setting)))
    assert_same_bits(package, *words)


def assert_same_bits(package: Path, *words: str) -> None:
    found = []
    for ranks in (1, 2, 3):
        trained(package, ranks, f"run{ranks}", *words)
        found.append(datasets(package / f"run{ranks}" / "model.h5"))
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            assert_array_equal(ours, theirs)


# --- a loss -----------------------------------------------------------------------------------------------------------

LOSS_PAGE = "docs/extending/loss.md"


@pytest.fixture
def losses(tmp_path: Path) -> Path:
    """A folder with the page's files, installed as far as Python looks."""
    (module,), (project, config) = blocks_of_page(LOSS_PAGE, "python"), blocks_of_page(LOSS_PAGE, "toml")
    assert len(module.splitlines()) <= 40
    (tmp_path / "quantile.toml").write_text(config)
    install(project, tmp_path, [module])
    return tmp_path


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


@pytest.mark.parametrize("method", ["stochastic", "adam", "lbfgs"])
def test_other_methods_train_it_too(method: str, losses: Path) -> None:
    words = ("--set", f"method.name={method}", "--set", "loss.smoothing=0.2", "--iterations", "30")
    out = trained(losses, 1, "run", *words, config="quantile.toml")
    last = json.loads((losses / "run" / "curve.jsonl").read_text().splitlines()[-1])
    (constant,) = (float(line.split()[-1]) for line in out.splitlines()[:8] if "predict the best constant" in line)
    assert last["E1_train"] < 0.9 * constant


def test_a_loss_that_is_nowhere_is_named_with_the_words_that_there_are(losses: Path) -> None:
    path = os.pathsep.join([str(losses), str(ROOT)])
    words = ("quantile.toml", "--set", "model.loss=uper")
    outcome = run_program(*words, ranks=1, cwd=losses, env={"PYTHONPATH": path}, code=2)
    assert "model.loss: unknown word; did you mean 'upper'?" in outcome.err


# --- docs/extending ---------------------------------------------------------------------------------------------------

PAGES = (FITTER, W_SOLVER, Z_SOLVER, TRAINER, ACTIVATION)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return request.param  # type: ignore[no-any-return]


def test_each_example_is_short(page: str) -> None:
    module, *_ = blocks_of_page(page, "python")
    assert len(module.splitlines()) <= 70


def test_a_layer_by_a_regressor_of_scikit_learn_ends_in_a_trained_net(tmp_path: Path) -> None:
    """It classifies as well as its page says."""
    package = installed_from(FITTER, tmp_path)
    assert "W-step of the segments: neighbours (1), hessian_free (1)" in trained(package, 2, "run")
    best = min(json.loads(line)["error_val"] for line in (package / "run" / "curve.jsonl").read_text().splitlines())
    assert best < 0.05
    with h5py.File(package / "run" / "model.h5") as file:
        assert '"kind": "neighbours"' in file.attrs["maps"]


def test_a_trainer_of_your_own_ends_in_a_trained_net(tmp_path: Path) -> None:
    """It classifies as well as its page says."""
    package = installed_from(TRAINER, tmp_path)
    trained(package, 2, "run")
    best = min(json.loads(line)["error_val"] for line in (package / "run" / "curve.jsonl").read_text().splitlines())
    assert best < 0.05


@pytest.mark.parametrize(("page", "word"), [(W_SOLVER, "barzilai_borwein"), (Z_SOLVER, "")])
def test_a_solver_of_your_own_ends_in_a_trained_net(page: str, word: str, tmp_path: Path) -> None:
    """Below PCA with as many components, as its page says."""
    package = installed_from(page, tmp_path)
    out = trained(package, 2, "run")
    assert word in out
    error, pca = error_and_pca(package, out)
    assert error < pca


def test_they_have_the_same_bits_on_any_number_of_ranks(page: str, tmp_path: Path) -> None:
    assert_same_bits(installed_from(page, tmp_path), "--iterations", "2")


@pytest.mark.parametrize("keys", [{"model.sites": "none"}, {"parallel.data": "sharded", "method.acceleration": "none"}])
def test_a_w_solver_of_your_own_fits_segments_and_sharded_points(keys: dict[str, str], tmp_path: Path) -> None:
    package = installed_from(W_SOLVER, tmp_path)
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    if "model.sites" in keys:
        words += ["--set", "method.acceleration=none"]
    assert "barzilai_borwein" in trained(package, 2, "run", "--iterations", "6", *words)
    curve = [json.loads(line) for line in (package / "run" / "curve.jsonl").read_text().splitlines()]
    assert curve[5]["E1_train"] < 0.9 * curve[0]["E1_train"]
