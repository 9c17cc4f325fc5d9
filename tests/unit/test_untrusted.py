"""Files that lie: links out of the file, numbers kept elsewhere, sizes of terabytes, pickled objects."""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import macmpi
from macmpi import UsageError, files, run
from macmpi.data.reading import read_file
from macmpi.parallel.placement import PLACEMENTS
from macmpi.parallel.points import partition_points
from macmpi.parallel.team import Team
from macmpi.state import MacState, State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import rows_of

SHARDED = PLACEMENTS["sharded"]

TERABYTES = (1 << 30, 1 << 12)

SEALED = len(files.SEAL) + 32
"""Bytes of a seal."""


class Evil:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(Path("unpickled")), "w"))


def external_link(file: h5py.File, name: str) -> None:
    file[name] = h5py.ExternalLink("secret.h5", "X")


def soft_link_to_an_external_one(file: h5py.File, name: str) -> None:
    file["way out"] = h5py.ExternalLink("secret.h5", "X")
    file[name] = h5py.SoftLink("/way out")


def external_storage(file: h5py.File, name: str) -> None:
    file.create_dataset(name, (4, 3), "f8", external=[("secret.bin", 0, 96)])


def virtual(file: h5py.File, name: str) -> None:
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[...] = h5py.VirtualSource("secret.h5", "X", (4, 3))
    file.create_virtual_dataset(name, layout)


def terabytes(file: h5py.File, name: str) -> None:
    file.create_dataset(name, TERABYTES, "f8", chunks=(64, 64), fletcher32=True)


def compressed_terabytes(file: h5py.File, name: str) -> None:
    dataset = file.create_dataset(name, TERABYTES, "f8", chunks=(1 << 8, 1 << 12), compression="gzip")
    dataset[: 1 << 8] = 0.0


def group(file: h5py.File, name: str) -> None:
    file.create_group(name)


def pickled(file: h5py.File, name: str) -> None:
    file[name] = np.void(pickle.dumps(Evil()))


LIES: dict[Callable[[h5py.File, str], None], str] = {
    external_link: "is a link",
    soft_link_to_an_external_one: "is a link",
    external_storage: "in another file",
    virtual: "in another file",
    terabytes: "are stored",
    compressed_terabytes: "are stored",
    group: "is a group",
}
each_lie = pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a file that no other one may reach."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("secret.h5", "w") as file:
        file["X"] = np.arange(12.0).reshape(4, 3)
    Path("secret.bin").write_bytes(np.arange(12.0).tobytes())
    return tmp_path


@each_lie
def test_data(lie: Callable[[h5py.File, str], None]) -> None:
    with h5py.File("points.h5", "w") as file:
        lie(file, "X")
    with pytest.raises(UsageError, match=rf"points\.h5: .*X.*{LIES[lie]}|points\.h5: .*{LIES[lie]}"):
        read_file(Path("points.h5"), ("X",))


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip"}, {"compression": "lzf", "shuffle": True}])
def test_honest_data_are_read(filters: dict[str, object]) -> None:
    X = np.zeros((2000, 300))
    X[3, 4] = 1.0
    with h5py.File("points.h5", "w") as file:
        file.create_dataset("X", data=X, **filters)
        file.create_dataset("Y", data=np.empty((0, 3)))
    found = read_file(Path("points.h5"), ("X", "Y"))
    assert_array_equal(found["X"], X)
    assert found["Y"].shape == (0, 3)


def test_objects_are_not_unpickled() -> None:
    with h5py.File("points.h5", "w") as file:
        pickled(file, "X")
    assert read_file(Path("points.h5"), ("X",))["X"].dtype.kind == "V"
    np.savez("points.npz", X=np.array([Evil()], dtype=object))
    with pytest.raises(UsageError, match="it holds Python objects"):
        read_file(Path("points.npz"), ("X",))
    assert not Path("unpickled").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a run has been made."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        np.savez("small.npz", X=np.random.default_rng(0).normal(size=(20, 3)))
        Path("small.toml").write_text('data = "small.npz"\nmodel.hidden = [2]\n')
        assert run.run(Team(), ["small.toml", "--iterations", "1", "--output", "run"]) == 0
    return folder


@pytest.fixture
def model(folder: Path, trained: Path) -> Path:
    """An honest model.h5, in a copy of the run's folder."""
    shutil.copytree(trained, folder, dirs_exist_ok=True)
    return folder / "run" / "model.h5"


@each_lie
@pytest.mark.parametrize("name", ["weights", "weights/best", "scaling/x_shift", "classes"])
def test_a_model(name: str, lie: Callable[[h5py.File, str], None], model: Path) -> None:
    assert macmpi.load(str(model)).code
    with h5py.File(model, "a") as file:
        if name in file:
            del file[name]
        lie(file, name)
    with pytest.raises(UsageError):
        macmpi.load(str(model))


@each_lie
@pytest.mark.parametrize("name", ["weights", "Z"])
def test_a_checkpoint_with_a_seal(name: str, lie: Callable[[h5py.File, str], None], model: Path, folder: Path) -> None:
    """Whoever writes a file can seal it."""
    path = next((folder / "run" / "checkpoints").glob("*.h5"))
    body = io.BytesIO(path.read_bytes()[:-SEALED])
    with h5py.File(body, "r+") as file:
        del file[name]
        lie(file, name)
    files.seal(body)
    path.write_bytes(body.getvalue())
    with pytest.raises(UsageError, match=LIES[lie]):
        checkpoint.read(path)


@each_lie
@pytest.mark.parametrize("name", ["Z", "multipliers"])
def test_the_rows_of_a_checkpoint_with_a_seal(name: str, lie: Callable[[h5py.File, str], None], folder: Path) -> None:
    """What each rank of a sharded run reads for itself."""
    points = {"Z": np.zeros((4, 3)), "multipliers": np.zeros((4, 3))}
    own = MacState(multipliers=points["multipliers"])
    path = checkpoint.save(folder, State(np.zeros(6), points["Z"], 1.0, own), {}, 1)
    body = io.BytesIO(path.read_bytes()[:-SEALED])
    with h5py.File(body, "r+") as file:
        del file[name]
        lie(file, name)
    files.seal(body)
    path.write_bytes(body.getvalue())
    shared, _ = checkpoint.read(path, without_points=True)
    with pytest.raises(UsageError, match=rf"{path.name}: .*{LIES[lie]}"):
        rows_of(path, shared, partition_points(4, 2, placement=SHARDED), 1)


@pytest.mark.parametrize("sharded", [False, True])
def test_temporary_names_that_point_elsewhere_are_not_followed(
    sharded: bool, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody knew the id of the run: links of the names under which it writes are removed, or end it."""
    (folder / "precious").write_text("mine")
    run_id = files.new_id()
    monkeypatch.setattr(files, "new_id", lambda: run_id)
    (folder / "new" / "checkpoints").mkdir(parents=True)
    names = ("provenance.json", "config.toml", "curve.jsonl", "start.h5", "model.h5", "checkpoints/iteration-000001.h5")
    paths = [folder / "new" / f"{name}.{run_id}.tmp" for name in (*names, "checkpoints/rows")]
    for path in paths:
        path.symlink_to(folder / "precious")
    kind = "sharded" if sharded else "replicated"
    words = ["small.toml", "--iterations", "1", "--output", "new", "--set", f'parallel.data="{kind}"']
    assert run.run(Team(), words) == 0
    assert (folder / "precious").read_text() == "mine"
    assert [path for path in paths if path.is_symlink()] == []


@pytest.mark.parametrize("labels", [{}, {"config": "{"}, {"config": "[" * 10**5}, {"config": "{}"}, {"config": 3}])
def test_a_checkpoint_that_does_not_say_what_it_is_of(labels: dict[str, object], model: Path, folder: Path) -> None:
    path = next((folder / "run" / "checkpoints").glob("*.h5"))
    state, _ = checkpoint.read(path)
    shutil.rmtree(folder / "run" / "checkpoints")
    checkpoint.save(path.parent, state, {files.RUN: files.run_of(folder / "run" / "config.toml"), **labels}, 1)
    with pytest.raises(UsageError, match="which config and data"):
        run.run(Team(), ["small.toml", "--iterations", "2", "--output", "run", "--resume", "auto"])


@pytest.mark.parametrize("entry", ["model.h5", "curve.jsonl", "config.toml", "checkpoints/iteration-000003.h5"])
def test_a_folder_in_the_place_of_a_file_is_named(entry: str, model: Path, folder: Path) -> None:
    (folder / "new" / entry).mkdir(parents=True)
    with pytest.raises(UsageError) as caught:
        run.run(Team(), ["small.toml", "--iterations", "0", "--output", "new", "--resume", "auto"])
    assert str(caught.value).startswith(f"new/{entry} is no file of a run in this folder, but somebody else's")
    assert (folder / "new" / entry).is_dir()


def test_a_folder_in_the_place_of_the_lock_is_named(model: Path, folder: Path) -> None:
    (folder / "new" / "lock").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot write to new/lock: Is a directory; move it away or name another"):
        run.run(Team(), ["small.toml", "--iterations", "0", "--output", "new"])
