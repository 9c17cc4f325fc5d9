"""Two hundred configs with a mistake, and data of every kind: refused by name with nothing created, or they work."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from faults.conftest import Tally
from faults.struck import here
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from launch.cases import points, snapshot, write_case
from launch.launching import run_program
from unit.test_config import MISTAKES, toml

from macmpi import UsageError, run
from macmpi.parallel.team import Team

pytestmark = pytest.mark.launch

USAGE = 2
PROMISED = {2: 5.0, 12: 8.0}
HUNG = 10.0
GOOD = {"data.source": "points.npz", "model.hidden": [7, 5, 7], "run.max_iterations": 1}
WORDS = ("activaton", "hiden", "mu", "x", "Ü", "a b")

wrong_values = st.sampled_from([(key, value) for key, values in MISTAKES.items() for value in values])
unknown_keys = st.tuples(st.sampled_from(sorted({key.split(".")[0] for key in MISTAKES})), st.sampled_from(WORDS)).map(
    lambda pair: (f'{pair[0]}."{pair[1]}"', 1)
)
unknown_tables = st.sampled_from(WORDS).map(lambda word: (f'"{word}".key', 1))
wrong_types = st.tuples(st.sampled_from(sorted(MISTAKES)), st.just({"nested": [1]}))
mistakes = st.one_of(wrong_values, wrong_values, unknown_keys, unknown_tables, wrong_types)


def line(key: str, value: object) -> str:
    inline = "{nested = [1]}" if isinstance(value, dict) else toml(value)
    return f"{key} = {inline}\n"


def with_mistake(key: str, value: object) -> str:
    return "".join(line(k, v) for k, v in {**GOOD, key: value}.items() if k != key) + line(key, value)


def refusal(folder: Path, text: str) -> str:
    """The message; nothing was created."""
    (folder / "case.toml").write_text(text, encoding="utf-8")
    before = snapshot(folder)
    with here(folder), pytest.raises(UsageError) as caught:
        run.run(Team(), ["case.toml"])
    assert snapshot(folder) == before
    return str(caught.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    write_case(folder, "autoencoder")
    return folder


generated = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


def test_the_config_without_a_mistake_runs(folder: Path, tmp_path: Path) -> None:
    write_case(tmp_path, "autoencoder")
    (tmp_path / "case.toml").write_text("".join(line(k, v) for k, v in GOOD.items()))
    with here(tmp_path):
        assert run.run(Team(), ["case.toml"]) == 0


@pytest.mark.parametrize("part", range(20))
def test_ten_mistakes(part: int, folder: Path, tally: Tally) -> None:
    """Twenty times ten of them, each named with its key."""
    tally.row("config mistakes in process (20 x 10)")

    @seed(part)
    @settings(generated, max_examples=10)
    @given(mistakes)
    def each(mistake: tuple[str, object]) -> None:
        key, value = mistake
        message = refusal(folder, with_mistake(key, value))
        table, _, name = key.replace('"', "").partition(".")
        assert f"{table}.{name}" in message or f"[{table}]" in message or (table in WORDS and table in message), message
        assert "mistake" in message

    each()


@pytest.mark.parametrize("ranks", [2, 12])
@pytest.mark.parametrize(("key", "value"), [(key, values[0]) for key, values in list(MISTAKES.items())[::14]][:5])
def test_launched(key: str, value: object, ranks: int, tmp_path: Path, tally: Tally) -> None:
    import time

    tally.row(f"config mistakes launched, {ranks} ranks")
    write_case(tmp_path, "autoencoder")
    (tmp_path / "case.toml").write_text(with_mistake(key, value))
    before = snapshot(tmp_path)
    began = time.monotonic()
    outcome = run_program("case.toml", ranks=ranks, cwd=tmp_path, timeout=HUNG * PROMISED[ranks], code=USAGE)
    tally.seconds(time.monotonic() - began)
    assert outcome.err.count(f"{key}: ") == 1
    assert snapshot(tmp_path) == before


# --- data -------------------------------------------------------------------------------------------------------------

X = points(1, 37, 9)


def hdf5(folder: Path, **arrays: np.ndarray) -> str:
    with h5py.File(folder / "data.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return "data.h5"


def npz(folder: Path, **arrays: np.ndarray) -> str:
    np.savez(folder / "data.npz", **arrays)
    return "data.npz"


KINDS: dict[str, np.ndarray] = {
    "float16": X.astype(np.float16),
    "big-endian": X.astype(">f8"),
    "float32": X.astype(np.float32),
    "int8": (10 * X).astype(np.int8),
    "uint64": np.abs(10 * X).astype(np.uint64),
    "bool": X > 0.0,
    "fortran": np.asfortranarray(X),
    "strided": np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
    "constant column": np.hstack([X, np.ones((37, 1))]),
    "duplicate points": np.repeat(X[:5], 8, axis=0),
    "one column": X[:, :1],
    "huge": 1e99 * X / np.abs(X).max(),
}


def trained(folder: Path, source: str, *arguments: str) -> list[dict[str, float]]:
    from launch.cases import curve

    (folder / "data.toml").write_text(f'data = "{source}"\n[model]\nhidden = [5, 2, 5]\n')
    with here(folder):
        assert run.run(Team(), ["data.toml", "--output", "run", "--iterations", "3", *arguments]) == 0
    return curve(folder / "run")


@pytest.mark.parametrize("write", [npz, hdf5])
@pytest.mark.parametrize("kind", KINDS)
def test_data_that_work(kind: str, write: Callable[..., str], tmp_path: Path, tally: Tally) -> None:
    tally.row("data of every kind")
    records = trained(tmp_path, write(tmp_path, X=KINDS[kind]))
    assert all(np.isfinite(r[k]) for r in records for k in ("E1_train", "E1_val", "E_Q", "constraint"))
    assert records[-1]["E1_train"] < records[0]["E1_train"]


def test_a_million_points_of_four_columns(tmp_path: Path, tally: Tally) -> None:
    tally.row("data of every kind")
    records = trained(tmp_path, hdf5(tmp_path, X=points(5, 1_000_000, 4).astype(np.float32)))
    assert records[-1]["E1_train"] < records[0]["E1_train"]


BAD = {
    "complex": ({"X": X + 1j}, "dataset X holds complex128"),
    "0 rows": ({"X": X[:0]}, "dataset X has shape (0, 9)"),
    "1 row": ({"X": X[:1]}, "dataset X has shape (1, 9)"),
    "nan": ({"X": np.where(np.arange(9) == 4, np.nan, X)}, "dataset X is nan at [0, 4]"),
    "inf": ({"X": np.where(np.arange(37)[:, None] == 9, -np.inf, X)}, "dataset X is -inf at [9, 0]"),
    "all constant": ({"X": np.full((37, 9), 3.0)}, "every column of X is constant"),
    "wrong name": ({"x": X}, "a dataset of that kind is called X"),
    "beyond": ({"X": 1e101 * X}, "dataset X is "),
}


@pytest.mark.parametrize("write", [npz, hdf5])
@pytest.mark.parametrize("kind", BAD)
def test_data_that_are_refused(kind: str, write: Callable[..., str], tmp_path: Path, tally: Tally) -> None:
    tally.row("data of every kind")
    arrays, named = BAD[kind]
    source = write(tmp_path, **arrays)
    (tmp_path / "data.toml").write_text(f'data = "{source}"\n')
    with here(tmp_path), pytest.raises(UsageError) as caught, contextlib.redirect_stderr(io.StringIO()):
        run.run(Team(), ["data.toml"])
    assert named in str(caught.value)
    assert source in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_ragged_strings(tmp_path: Path, tally: Tally) -> None:
    tally.row("data of every kind")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        ragged = file.create_dataset("X", (3,), h5py.vlen_dtype(np.float64))
        ragged[0], ragged[1], ragged[2] = [1.0], [1.0, 2.0], [3.0]
    (tmp_path / "data.toml").write_text('data = "data.h5"\n')
    with here(tmp_path), pytest.raises(UsageError, match=r"data\.h5: dataset X holds object"):
        run.run(Team(), ["data.toml"])
