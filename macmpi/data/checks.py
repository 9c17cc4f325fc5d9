"""Checks data and refuses bad ones, whether one process reads all rows or each rank reads its own.

The checks are in three groups: of headers (types, shapes, lengths that agree); of the numbers (finite, of a usable
size, labels); and of the points after the split (enough of them, classes, columns that vary).  Collective: no.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from macmpi import UsageError, caution, listed, many, shown
from macmpi.config import Data
from macmpi.data.dataset import GROUPS, SIDES, WEIGHTS, Raw
from macmpi.data.series import EXACT
from macmpi.data.texts import plain_text
from macmpi.data.wide import SparseRows, is_sparse
from macmpi.files import first_line
from macmpi.typing import Array

HUGE = 1e100
"""Numbers of at least this size are refused, because their squares might overflow."""

HUGE_SINGLE = 1e12
"""The largest scaled number that is accepted in single precision."""

OF_TRAINING = "in the training points (where these are drawn, another data.seed draws others)"

MOST_CLASSES = 10_000
"""The largest number of classes: each is an output of the net, because targets are one-hot."""


# --- headers ----------------------------------------------------------------------------------------------------------


def check_datasets(found: Mapping[str, Any], path: str, labels: bool) -> None:
    """Raises UsageError unless arrays or HDF5 datasets hold rows of numbers, and their shapes agree.

    found: X, and perhaps Y, weights and groups; the names of those for validation points end with "_val".
    path: where they come from, for messages.
    labels: whether Y must be there, with one column.
    """
    if labels and "Y" not in found:
        raise UsageError(
            f'{path}: model.loss = "cross_entropy" needs class labels: a dataset Y of shape (N,), of a table a column '
            "that data.target names, of images folders, one a class"
        )
    for name, array in found.items():
        called, one_each = f"{path}: dataset {name}", name in WEIGHTS + GROUPS
        if name in GROUPS and (array.dtype.kind not in "iu" or array.ndim != 1):
            raise UsageError(f"{called} holds {array.dtype} of shape {array.shape}; integers of shape (N,) are needed")
        check_rows(array, called, rows=1 if one_each else 2)
    if "weights_val" in found and "X_val" not in found:
        raise UsageError(
            f"{path}: weights_val goes with X_val, and there is none: the validation points are drawn from X, with "
            "their weights; leave weights_val out"
        )
    if not set(GROUPS).isdisjoint(found) and ("groups" not in found or ("X_val" in found) != ("groups_val" in found)):
        raise UsageError(f"{path}: groups_val goes with X_val and groups: give both datasets or neither")
    rows = [(f"X{side}", f"{name}{side}", "row", len) for name in ("Y", "weights", "groups") for side in SIDES]
    for a, b, what, count in (*rows, ("X", "X_val", "column", columns), ("Y", "Y_val", "column", columns)):
        if a in found and b in found and count(found[a]) != count(found[b]):
            raise UsageError(f"{path}: {a} has {many(count(found[a]), what)} but {b} has {count(found[b])}")
    if ("Y" in found and "X_val" in found) != ("Y_val" in found):
        raise UsageError(f"{path}: Y_val goes with X_val and Y: give both validation datasets or neither")
    if labels and columns(found["Y"]) != 1:
        raise UsageError(
            f"{path}: dataset Y has {many(columns(found['Y']), 'column')}; "
            "class labels are one whole number a row (of one-hot rows: Y.argmax(1))"
        )


def columns(array: Any) -> int:
    """Counts the numbers in a row: h w for images (N, h, w), 1 for (N,)."""
    return int(np.prod(array.shape[1:], dtype=np.int64))


def is_text(array: Any) -> bool:
    """Tells whether an array, or a dataset of an HDF5 file, holds text."""
    if array.dtype.kind == "O":
        return all(isinstance(value, str | bytes) for value in np.asarray(array).flat)
    return array.dtype.kind in "SU"


def check_rows(array: Any, name: str, rows: int = 2) -> None:
    """Raises UsageError unless an array or an HDF5 dataset holds at least `rows` rows of real numbers."""
    if array.dtype.kind not in "biuf":
        text = f"{name} holds {array.dtype}; real numbers are needed"
        if array.dtype.kind in "SUO" and name.endswith(("dataset Y", "dataset Y_val")):
            text += (
                ': classes that are text need model.loss = "cross_entropy", parallel.data = "replicated" or "node", '
                "and text in all labels; else number them by np.unique(Y, return_inverse=True)[1], those of Y and "
                "Y_val together"
            )
        raise UsageError(text)
    if not array.shape:
        raise UsageError(f"{name} is a single number; rows of features are needed: (N, D)")
    if len(array) < rows or not columns(array):
        shape = array.shape if len(array.shape) > 1 else (len(array), 1)
        raise UsageError(f"{name} has shape {shape}; at least {rows} rows and 1 column are needed")


# --- the numbers ------------------------------------------------------------------------------------------------------


def as_rows(array: Array, name: str, rows: int = 2, missing: bool | None = None) -> Array:
    """Converts an array to rows of float64, (N,) to (N, 1) and images (N, h, w) to (N, h w), and checks the numbers.

    rows: the least number of rows; missing: as in `check_values`.  Raises UsageError with the first bad index.
    """
    check_rows(array, name, rows)
    numbers = np.ascontiguousarray(array.reshape(len(array), columns(array)), dtype=np.float64)
    check_values(numbers, name, missing=missing)
    check_size(largest(numbers), array.dtype, name)
    return numbers


def as_inputs(A: Any, name: str) -> Any:
    """Converts inputs as `as_array` does, except for a sparse matrix, whose rows stay sparse.  Raises UsageError."""
    return SparseRows.of(A) if is_sparse(A) and A.ndim == 2 else as_array(A, name)


def as_array(A: Any, name: str) -> Array:
    """Converts A to an array of numbers, truth values or text, if NumPy can make an array of it.  Raises UsageError.

    An array of another library is read without a copy where it can be, by `__array__` or else by DLPack.
    name: the name of the argument, for messages.
    """
    if isinstance(A, np.ma.MaskedArray):
        if np.ma.is_masked(A):
            raise UsageError(
                f"{name} has {many(np.ma.getmaskarray(A).sum(), 'masked value')}; remove the rows, or fill them in"
            )
        A = A.data
    if is_sparse(A):
        raise UsageError(f"{name} is a sparse matrix; dense rows are needed: {name}.toarray()")
    if isinstance(A, str):
        source = '; a file is read by macmpi.fit(config={"data.source": ...}), or by macmpi predict' * (name[0] == "X")
        raise UsageError(f"{name} is text, {shown(A)}: an array or a table is needed{source}")
    if any(isinstance(one, Mapping) for one in (A, *(A[:1] if isinstance(A, list | tuple) else ()))):
        raise UsageError(f"{name} is a mapping, or a list of them: make a table of it, pandas.DataFrame({name})")
    try:
        array = np.asarray(A) if hasattr(A, "__array__") or not hasattr(A, "__dlpack__") else np.from_dlpack(A)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - there is no list of what other libraries raise
        why = "its rows are not of one length"
        if "inhomogeneous" not in str(error):
            why = f"{first_line(error)}; float32 or float64 in main memory, without gradients, can be read"
        raise UsageError(f"{name} is no array: {why}") from None
    if array.dtype.kind == "V" and np.can_cast(array.dtype, np.float64):  # NumPy itself lacks it: bfloat16
        array = array.astype(np.float64)
    return _plain(A, array, name) if array.dtype.kind in "OSUT" else array


def is_foreign(A: Any) -> bool:
    """Tells whether A is an array of another library than NumPy, or has a type of another one, such as bfloat16."""
    return hasattr(A, "__dlpack__") and (not isinstance(A, np.ndarray) or A.dtype.kind == "V")


def _plain(A: Any, array: Array, name: str) -> Array:
    """Converts an array of objects or text to numbers (NaN where one is missing), truth values or text.

    A: the array as the user gave it; it is needed because NumPy turns missing values among texts into "nan" or "None".
    array: A as NumPy reads it; name: for messages.  Raises UsageError.
    """
    flat = np.asarray(A, dtype=object).ravel().tolist()
    each = [_kind(value) for value in flat]
    kinds, missing = {*each} - {"missing"}, each.count("missing")
    if "other" in kinds:
        what = f"holds {shown(flat[each.index('other')])}: numbers, truth values or text are needed"
        raise UsageError(f"{name} {what if array.shape else f'is {shown(A)}: an array or a table is needed'}")
    if missing and kinds != {"number"}:
        first = each.index("missing")
        raise UsageError(f"{name} is missing at [{first}] ({missing} such); remove these rows, or name them")
    if "text" in kinds and len(kinds) > 1:
        text, other = flat[each.index("text")], next(v for v, kind in zip(flat, each, strict=True) if kind != "text")
        raise UsageError(f"{name} holds {shown(other)} and {shown(text)}: make numbers or text of all of them")
    if "text" in kinds:
        return np.array([plain_text(value) for value in flat]).reshape(array.shape)
    if kinds == {"truth"}:
        return array.astype(bool)
    try:
        whole = not missing and all(isinstance(value, int | np.integer | np.bool_) for value in flat)
        numbers = (np.nan if kind == "missing" else float(value) for value, kind in zip(flat, each, strict=True))
        found = np.array(flat if whole else list(numbers))
    except OverflowError:
        found = array
    if found.dtype.kind == "O":
        raise UsageError(f"{name} holds whole numbers that 64 bits do not hold; scale them")
    return found.reshape(array.shape)


def _kind(value: Any) -> str:
    """Returns the kind of a value: "truth", "number", "text", "missing" (None, NaN, NaT, NA), or "other"."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "truth"
    if isinstance(value, Real | decimal.Decimal):
        return "missing" if isinstance(value, float | np.floating) and value != value else "number"
    return "text" if isinstance(value, str | bytes) else "other"


def as_flag(value: Any, name: str) -> bool:
    """Returns an argument that is True or False, or a whole number in their place, as a bool.  Raises UsageError.

    name: the name of the argument, for the message.
    """
    if not isinstance(value, bool | np.bool_ | int | np.integer):
        raise UsageError(f"{name} = {shown(value)}: True or False is needed")
    return bool(value)


def largest(numbers: Array) -> float:
    """Returns the largest absolute value of those numbers that are not NaN."""
    return float(np.nanmax(np.abs(numbers), initial=0.0))


def usable(numbers: Array, missing: bool | None = None) -> Array:
    """Returns which numbers are finite and not too large to be squared; with `missing`, NaN counts as usable too."""
    found: Array = np.abs(numbers) < np.float64(HUGE)  # it would overflow in float32
    return found | np.isnan(numbers) if missing else found


def check_values(numbers: Array, name: str, rows: Array | None = None, missing: bool | None = None) -> None:
    """Raises UsageError if a number of (n, D) is not finite or too large to be squared, and names the first.

    rows (n,): the places of these rows in the dataset, where they are only some of its rows.
    missing: True allows NaN; False refuses it, and the message names the key that would allow it; None refuses it.
    """
    bad = np.argwhere(~usable(numbers, missing))
    if not len(bad):
        return
    row, column = bad[0].tolist()
    value = numbers[row, column]
    remedy = f"the limit is {HUGE:g}: rescale" if np.isfinite(value) else "remove or fill"
    remedy += " them" if rows is None and len(bad) > 1 else " it"
    if missing is False and np.isnan(value):
        remedy += ", or let outputs be missing, loss.missing = true"
    place = f"[{row}, {column}] ({many(len(bad), 'such value')})"
    if rows is not None:
        place = f"[{int(rows[row])}, {column}]"
    raise UsageError(f"{name} is {value} at {place}; {remedy}")


def check_size(largest: float, given: Any, name: str) -> None:
    """Raises UsageError if all numbers are so small that their squares vanish, and warns where they were rounded.

    largest: the largest absolute value; given: the type of the numbers in the source; integers beyond 2^53 are rounded.
    """
    if given.kind in "iu" and given.itemsize > 4 and largest > EXACT:
        caution(
            f"{name} holds whole numbers beyond 2^53, which are rounded to float64: subtract the least, or scale them"
        )
    if 0.0 < largest < 1.0 / HUGE:
        raise UsageError(f"{name} holds nothing larger than {largest:g}; choose other units")


def as_labels(array: Array, name: str) -> Array:
    """Converts labels to float64 (N, 1).  Raises UsageError unless they are whole numbers that float64 tells apart."""
    rows, flat = as_rows(array, name), array.ravel()
    bad = np.flatnonzero(flat != np.round(flat))
    if len(bad):
        raise UsageError(
            f"{name} is {flat[bad[0]]:g} at [{bad[0]}]; class labels are whole numbers "
            '(for real targets use model.loss = "squared")'
        )
    large = np.flatnonzero(np.abs(flat.astype(np.float64)) >= EXACT)
    if len(large):
        raise UsageError(
            f"{name} is {flat[large[0]]:g} at [{large[0]}]: labels at or beyond 2^53 may be several in one; "
            "number the classes from 0"
        )
    return rows


def not_negative(A: Array, name: str) -> Array:
    """Returns weights (n, 1) or (n, L) as they are.  Raises UsageError if one is negative.  Collective: no."""
    bad = A[A < 0.0]
    if len(bad):
        raise UsageError(
            f"{name}: a weight is {bad[0]:g}, and weights are at least 0; leave out points that should not "
            "count, or give them the weight 0"
        )
    return A


# --- after the split --------------------------------------------------------------------------------------------------


def check_enough(config: Data, n: int, n_val: int, left: int) -> None:
    """Raises UsageError unless there are enough points: n >= 2 for training, n_val >= 1 for validation.

    left: the number of training points from which data.points may choose.
    """
    if config.points > left:
        raise UsageError(f"data.points = {config.points}, but there {many(left, 'training point', 'is')}")
    if n < 2:
        raise UsageError(f'data.source = "{config.source}": only {n} training point is left; at least 2 are needed')
    if not n_val:
        raise UsageError(f'data.source = "{config.source}": there is no validation point; at least 1 is needed')


def check_some(weight: float, what: str, source: str) -> None:
    """Raises UsageError if the total weight of the training or of the validation points is 0.  Collective: no.

    what: "training" or "validation".
    """
    if not weight > 0.0:
        raise UsageError(
            f'data.source = "{source}": all {what} points have the weight 0; give some of them more'
            + ("" if what == "training" else ", or hold out more points (data.validation)")
        )


def classes_of(Y: Array, Y_val: Array, raw: Raw, source: str, known: Array | None) -> Array:
    """Finds the classes: the labels that occur in Y (N, 1) or Y_val (M, 1), ascending, or 0, 1, ... for texts.

    They have the type of the labels in the source.
    known: the labels that may occur, where they are known; they are the classes then, whether they occur or not.
    source: the name of the data, for messages.
    Raises UsageError, and warns of classes that none of the given validation points has.  Cost: a sort.
    """
    names, drawn = raw.names, "X_val" not in raw.arrays
    classes = np.unique(np.concatenate([Y, Y_val])).astype(raw.arrays["Y"].dtype if names is None else np.int64)
    if known is not None:
        called = (classes if names is None else names[classes]).tolist()
        if strange := [one for one in called if one not in known.tolist()]:
            raise UsageError(
                f"Y holds {listed([*map(repr, strange)], 5)}, and the classes are "
                f"{listed([*map(repr, known.tolist())], 8)}: name all in data.classes where the stream begins"
            )
        return known if names is None else np.arange(len(names))
    where = " in rows of a weight above 0" if "weights" in raw.arrays else ""
    remedy = "name all in data.classes" if raw.scale.running else 'for real targets use model.loss = "squared"'
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise UsageError(f"Y holds {many(len(classes), 'class')}{where}; 2 to {MOST_CLASSES:,} are possible ({remedy})")
    if not np.ptp(Y):
        raise UsageError(f"all training points{where.replace(' in rows', '')} belong to one class")
    lacking = (np.setdiff1d(a, b).astype(int).tolist() for a, b in ((Y_val, Y), (Y, Y_val)))
    lost, unseen = (listed([str(c if names is None else names[c]) for c in labels], 5) for labels in lacking)
    if lost and drawn:
        raise UsageError(
            f"Y holds {len(classes)} different labels in {len(Y) + len(Y_val)} rows, so that validation points have "
            f"some ({lost}) that no training point has: are they classes?"
        )
    if lost:
        raise UsageError(
            f"Y_val holds classes that no training point has ({lost}), which a net cannot learn: leave these points "
            "out, or put some of them into X and Y"
        )
    if unseen and not drawn:
        said = f"no validation point is of the classes {unseen}: how well they are learnt is not measured"
        caution(f'data.source = "{source}": {said}')
    return classes


def check_columns(low: Array, high: Array, seen: Array, given: Any, name: str, source: str, varied: bool) -> None:
    """Raises UsageError if a column has no number in the training points, or, if `varied`, all are constant.

    low, high, seen (D,): the least and the largest number of each column, and how many it has.
    given, name, source: the type of the numbers in the source, the names of the dataset and of the source.
    """
    none = np.flatnonzero(seen == 0)
    if len(none):
        which = f"column {none[0]}" + (f" and {len(none) - 1} more" if len(none) > 1 else "")
        raise UsageError(f"{name}: {which} is missing, or weighs 0, {OF_TRAINING}; leave it out")
    check_size(float(np.maximum(-low, high).max()), given, name)
    if varied and not (high > low).any():
        name = name.rsplit(" ", 1)[-1]
        raise UsageError(f'data.source = "{source}": every column of {name} is constant {OF_TRAINING}')


def check_single(largest: float, source: str) -> None:
    """Raises UsageError if scaled data are too large for single precision."""
    if largest > HUGE_SINGLE:
        raise UsageError(
            f'data.source = "{source}" holds values beyond {HUGE_SINGLE:g}, too large for '
            'model.precision = "float32"; scale the data (data.scale), or use float64'
        )


def check_known(known: bool, name: str) -> None:
    """Raises UsageError if no target of any validation point is known."""
    if not known:
        raise UsageError(
            f"{name} is missing at every validation point, so that no error can be watched; give a Y_val with numbers, "
            "or a larger data.validation"
        )
