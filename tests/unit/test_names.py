"""Names that are no text, and a user whom the system does not know, end nothing."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch.cases import snapshot, write_case
from launch.here import run_here

from macmpi import UsageError, files, predict, report, show
from macmpi.config.reading import validate
from macmpi.data.images import images_of

ODD = os.fsdecode(b"run \xff")
"""A name on the disk whose bytes are not UTF-8."""


@given(st.binary(min_size=1, max_size=20))
def test_every_name_becomes_text_and_text_stays_as_it_is(name: bytes) -> None:
    text = files.readable(os.fsdecode(name))
    assert text.encode().decode() == text == files.readable(text)


def test_a_run_in_a_folder_whose_name_is_not_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is shown, drawn and used for predictions; its card holds the words of its command."""
    write_case(tmp_path, "few")
    run_here("few.toml", "--output", ODD, "--iterations", 1, cwd=tmp_path, code=0)
    monkeypatch.chdir(tmp_path)
    for main, words in (
        (show.main, [f"{ODD}/model.h5"]),
        (report.main, [ODD]),
        (predict.main, [f"{ODD}/model.h5", "points.npz", "--output", f"{ODD}.npz"]),
    ):
        monkeypatch.setattr(sys, "argv", ["macmpi", *words])
        try:
            main()
        except SystemExit as end:
            assert not end.code, capsys.readouterr().err
    assert os.path.exists(f"{ODD}/report/report.html") and os.path.exists(f"{ODD}.npz")


LONG = "n" * 300
"""No file system has a name this long."""


@pytest.mark.parametrize(
    "words",
    [
        (f"{LONG}.toml",),
        ("few.toml", "--output", LONG),
        ("few.toml", "--resume", f"{LONG}.h5"),
        ("few.toml", "--set", f'data.source="{LONG}.npz"'),
        ("few.toml", "--set", f'data.target="{LONG}"'),
        ("few.toml", "--set", 'start.method="model"', "--set", f'start.model="{LONG}.h5"'),
        ("few.toml", "--set", 'start.method="file"', "--set", f'start.coordinates="{LONG}.h5"'),
    ],
    ids=lambda words: words[-1][:9],
)
@pytest.mark.every_case
def test_a_name_too_long_is_refused_wherever_one_is_given(words: tuple[str, ...], tmp_path: Path) -> None:
    write_case(tmp_path, "few")
    before = snapshot(tmp_path)
    assert LONG in run_here(*words, cwd=tmp_path, code=2).err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("folder", ["", "closed/"])
def test_a_file_that_cannot_be_written_is_refused_before_it_is_computed(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its name, or for its folder."""
    (tmp_path / "closed").mkdir()
    opened = os.open

    def refused(path: Any, flags: int, *more: Any, **keys: Any) -> int:
        if str(path).endswith("closed") and flags & os.O_WRONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *more, **keys)

    monkeypatch.setattr(os, "open", refused)
    path = tmp_path / f"{folder}{'out' if folder else LONG}.npz"
    said = "Read-only file system" if folder else "File name too long"
    with pytest.raises(UsageError, match=f"^--output .* cannot be written: {said}; name another file$"):
        files.check_output(path, [".npz"])
    files.check_output(tmp_path / "out.npz", [".npz"])


def test_data_whose_name_is_not_text_are_refused_by_their_key() -> None:
    with pytest.raises(UsageError, match=r"data\.source is text that is not UTF-8; rename what it names"):
        validate({"data": {"source": f"{ODD}.h5"}}, "fit.toml")
    assert validate({}, "words", ["data.source=b.h5"]).data.source == "b.h5"


def test_a_class_whose_folder_s_name_is_not_text_is_refused(tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    for name in ("a", ODD):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / name / "1.png")
    with pytest.raises(UsageError, match="whose name is not UTF-8: rename it"):
        images_of(tmp_path, [])


@pytest.mark.parametrize("wrong", [errno.EINVAL, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_fsync_is_no_error_and_one_that_fails_is(
    wrong: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(file: int) -> None:
        raise OSError(wrong, os.strerror(wrong))

    monkeypatch.setattr(os, "fsync", fsync)
    if wrong == errno.EIO:
        with pytest.raises(OSError):
            files.replace_file(tmp_path / "file", b"new")
    else:
        files.replace_file(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"new"
