"""The converter of USPS: the layout of usps_all.mat, and the copies that it must refuse."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from macmpi import UsageError
from macmpi.fetch import convert_usps, fetch_usps


@pytest.fixture
def mat() -> np.ndarray:
    """(256, 1100, 10) uint8: pixels column by column, images of a digit, digits 1..9, 0."""
    return np.random.default_rng(0).integers(0, 256, (256, 1100, 10), dtype=np.uint8)


def test_pixels_are_read_column_by_column_and_digits_from_one_to_zero(mat: np.ndarray) -> None:
    images, labels = convert_usps(mat)
    assert images.shape == (11000, 16, 16)
    for index, (image, digit) in {0: (0, 0), 1099: (1099, 0), 1100: (0, 1), 10999: (1099, 9)}.items():
        assert np.array_equal(images[index], mat[:, image, digit].reshape(16, 16, order="F"))
    assert list(labels[::1100]) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert (np.bincount(labels) == 1100).all()


def test_a_copy_that_repeats_images_is_refused(mat: np.ndarray) -> None:
    mat[:, :, 5] = mat[:, :, 4]
    with pytest.raises(UsageError, match="broken copy: 1100 "):
        convert_usps(mat)


def test_another_set_of_the_same_name_is_refused() -> None:
    with pytest.raises(UsageError, match="256, 9298"):
        convert_usps(np.zeros((256, 9298), dtype=np.uint8))


def test_a_given_file_is_converted(mat: np.ndarray, tmp_path: Path) -> None:
    savemat(tmp_path / "usps_all.mat", {"data": mat})
    path = fetch_usps(tmp_path / "data", tmp_path / "usps_all.mat")
    with h5py.File(path) as file:
        assert np.array_equal(file["images"][()], convert_usps(mat)[0])
        assert file["labels"].dtype == np.uint8


def test_a_file_that_is_no_matlab_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "usps_all.mat").write_bytes(b"<html>not found</html>" * 100)
    with pytest.raises(UsageError, match=r"is not usps_all\.mat"):
        fetch_usps(tmp_path, tmp_path / "usps_all.mat")
    assert not (tmp_path / "usps.h5").exists()


@pytest.mark.usps
def test_the_real_images_survive_the_way_to_the_matlab_layout_and_back() -> None:
    with h5py.File(Path(os.environ["MACMPI_DATA"]) / "usps.h5") as file:
        images, labels = file["images"][()], file["labels"][()]
    mat = images.transpose(0, 2, 1).reshape(10, 1100, 256).transpose(2, 1, 0)
    again, digits = convert_usps(np.ascontiguousarray(mat))
    assert np.array_equal(again, images)
    assert np.array_equal(digits, labels)
    assert again.mean() / 255 == pytest.approx(0.2484, abs=1e-4)
