"""Exported Python files hold their arrays as text at their end: an .npz file in base64."""

from __future__ import annotations

import base64
import io
import pprint
from collections.abc import Mapping
from typing import Any

import numpy as np

from macmpi import __version__
from macmpi.export.net import Net
from macmpi.typing import Array

LINE = 112
"""Signs of a line of base64, a multiple of 4."""


def head(net: Net, needs: str, usage: str) -> str:
    """The first lines of a file: a docstring that says what it is."""
    return (
        f'"""A net that macmpi {__version__} has trained: {net.title}.  It needs {needs}.  Use it as\n\n{usage}\n"""\n'
    )


def packed(arrays: Mapping[str, Array], dtype: np.dtype) -> str:
    """`WEIGHTS = ...`: an .npz file of the arrays in one precision, as lines of base64."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.ascontiguousarray(array, dtype) for name, array in arrays.items()})  # type: ignore[arg-type]
    text = base64.b64encode(buffer.getvalue()).decode()
    lines = (text[i : i + LINE] for i in range(0, len(text), LINE))
    return "\n".join(['WEIGHTS = """', *lines, '"""'])


def names_lines(net: Net) -> str:
    """`CLASSES = np.array([...])` of a classifier, and of a table's net `COLUMNS = [...]`, its columns of numbers."""
    lines = ""
    if net.classes is not None:
        kind = "str" if net.classes.dtype.kind == "U" else f'"{net.classes.dtype.name}"'
        lines += f"CLASSES = np.array({_listed(net.classes.tolist())}, {kind})\n"
    if net.columns:
        lines += f"COLUMNS = {_listed(list(net.columns))}\n"
    return lines


def _listed(values: list[Any]) -> str:
    return pprint.pformat(values, width=110, compact=True)


def usage(net: Net, load: str, name: str) -> str:
    """Examples of all methods, for a docstring."""
    what = {
        "predict": f"X (N, {net.n_in}) -> " + _answers(net),
        "probabilities": f"(N, {net.n_out}), a column for each of CLASSES",
        "encode": f"codes (N, {net.n_code})",
        "decode": f"(N, {net.n_out})" + (", before the softmax" if net.classes is not None else ""),
    }
    calls = [f"{name}.{method}({'codes' if method == 'decode' else 'X'})" for method in net.methods]
    width = max(map(len, calls))
    lines = [f"    {call:{width}s}  # {what[m]}" for call, m in zip(calls, net.methods, strict=True)]
    return "\n".join([f"    {load}", *lines])


def _answers(net: Net) -> str:
    if net.classes is not None:
        return "labels (N,)"
    return "(N,)" if net.one_dimensional else f"(N, {net.n_out})"
