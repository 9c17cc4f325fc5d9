"""The arguments of `macmpi.fit` become a config and arrays of points."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, shown
from macmpi.config import Config, Data, validate
from macmpi.config.auto import decide_net
from macmpi.config.model import GIVEN as MASK_GIVEN
from macmpi.config.reading import read_named
from macmpi.config.whole import given as keys_of
from macmpi.data.checks import as_array, as_inputs
from macmpi.data.dataset import Points
from macmpi.data.frames import OF_ARRAYS, Columns
from macmpi.data.gathered import ARGUMENTS, OF_TABLES, check_keys, of_frame
from macmpi.data.reading import told
from macmpi.data.series import is_frame, is_series, series_of, targets_of
from macmpi.files import as_path
from macmpi.nets.layers.activation import Activation
from macmpi.results.model import Model
from macmpi.results.model_file import load
from macmpi.typing import Array

GIVEN = "the argument start"
"""A config calls a model that was given to a fit by this name."""

Layers = str | Sequence[str]
Settings = Config | Mapping[str, Any] | str | Path


def config_of(
    settings: Settings | None,
    hidden: Any,
    layers: Layers,
    loss: str,
    validation: Any,
    start: Any,
    seed: int | None,
    classes: Any = None,
) -> Config:
    """Makes the config of a fit from its arguments and its settings.

    Arguments that are "auto" or None leave the settings as they are.

    settings: a Config, the path of a TOML file, the name of a documented config, or a mapping of tables and of
        "table.key".
    hidden, layers, loss, validation, start, seed, classes: as in `fit`.
    Raises UsageError with all mistakes in one message.  Collective: no.
    """
    given, begun_by = flat(settings), dict[str, Any]()
    if isinstance(hidden, Integral) and not isinstance(hidden, bool):
        hidden = [int(hidden)]
    if start is not None:
        place = start if isinstance(start, Model) else as_path(start, "start.model")
        with told("start.model"):
            begun = place if isinstance(place, Model) else load(place)
            net, begun_by = _net_of(begun), _of_stream(begun)
        hidden = net.pop("hidden") if _is_auto(hidden) else hidden
        layers = net.pop("activation", "auto") if _is_auto(layers) else layers
        begun_by = {f"model.{key}": net[key] for key in net.keys() - {"hidden", "activation"}} | begun_by
    own = {
        "model.hidden": hidden,
        "model.activation": layers,
        "model.loss": loss,
        "data.validation": validation if np.isscalar(validation) else None,
        "data.classes": None if classes is None else np.unique(as_array(classes, "classes")),
    }
    if start is not None:
        own |= {"start.method": "model", "start.model": GIVEN if isinstance(start, Model) else str(place)}
    if seed is not None:
        own |= {"data.seed": seed, "start.seed": seed}
    if validation is not None and not np.isscalar(validation) and not isinstance(settings, Config):
        _check_once(given, "data.validation", "points")
    for key, argument in own.items():
        value = _plain(argument, key)
        if value is not None and not _is_auto(value):
            _check_once(given, key, value)
            given[key] = value
    tables: dict[str, Any] = {}
    for key, value in (begun_by | given).items():
        name, dot, inner = key.partition(".")
        if not dot:
            tables[name] = value
        elif isinstance(tables.setdefault(name, {}), dict):
            tables[name][inner] = value
    named = settings if isinstance(settings, str | Path) else "config"
    return validate(tables, ARGUMENTS if settings is None else f"{named} and {ARGUMENTS}")


def _of_stream(begun: Model) -> dict[str, Any]:
    """Returns the settings, {"table.key": value}, with which a stream goes on as it began; {} for other models."""
    if not begun.stream or begun.card is None:
        return {}
    tables = ("model", "loss", "method", "stochastic", "data")
    apart = ("model.hidden", "model.activation", "data.source", "data.seed", "data.points")
    return {
        k: v for k, v in flat(tomllib.loads(begun.card.config)).items() if k.split(".")[0] in tables and k not in apart
    }


def _check_once(given: dict[str, Any], key: str, value: Any) -> None:
    """Raises UsageError if the settings have another value than an argument: which of them counts would be unclear."""
    if given.get(key) not in (None, "auto", value):
        raise UsageError(f"{key} = {shown(given[key])} in config, and {shown(value)} by an argument: give one of them")


def keys_given(settings: Settings | None) -> list[str]:
    """Lists the keys in the settings, as "table.key"; none if the settings cannot be read.  Collective: no."""
    if isinstance(settings, Config):
        return keys_of(settings)
    try:
        return [key for key in flat(settings) if "." in key]
    except UsageError:
        return []


def flat(settings: Settings | None) -> dict[str, Any]:
    """Returns the settings by "table.key"; a value in place of a table is returned under the table's name.

    Raises UsageError.  Collective: no.
    """
    if settings is None:
        return {}
    if isinstance(settings, Config):
        tables: Mapping[Any, Any] = asdict(settings)
    elif isinstance(settings, str | Path):
        _, tables = read_named(as_path(settings, "config"))
    elif isinstance(settings, Mapping):
        tables = settings
    else:
        raise UsageError(f"config: a mapping, a path or a Config is needed, not {type(settings).__name__}")
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if not isinstance(key, str):
            raise UsageError(f'config: its keys are text, as "method.name", and one is {shown(key)}')
        of_table = isinstance(value, Mapping) and "." not in key
        key = "data.source" if key == "data" and isinstance(value, str) else key
        own = {f"{key}.{inner}": one for inner, one in value.items()} if of_table else {key: value}
        found |= {name: _plain(one, name) for name, one in own.items()}
    return found


def _plain(value: Any, key: str) -> Any:
    """Converts NumPy's numbers and arrays, tuples and paths to values of TOML.  Raises UsageError for other objects."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist(), key)
    if isinstance(value, tuple | list):
        return [_plain(one, key) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one, key) for name, one in value.items()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise UsageError(f"{key} = {shown(value)}: numbers, text, truth values, and lists and tables of them can be given")


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


OF_SHARED = ("hidden", "activation", "output", "image", "readout", "tied", "skips", "joining")
"""Keys of [model] that describe convolutions, layers that share weights, and skips, which do not follow from sizes."""

OF_OTHERS = ("activation", "output", "sites", "width", "centres", "words", "fitters", "trees", "depth", "examples")
"""Keys of [model] that describe layers without an elementwise activation."""


def _net_of(start: Model) -> dict[str, Any]:
    """Returns the keys of [model] for the net of a model that a fit starts from.

    They follow from its layers' sizes and activations.  Convolutions, shared weights, skips, an activation of the
    output layer, and layers without an elementwise activation do not; for these the keys come from the model's card.
    """
    chain, own = start.chain, tomllib.loads(start.card.config)["model"] if start.card else {}
    told = any("patches" in map_.capabilities or map_.own is not map_ for map_ in chain.maps) or bool(chain.numbers)
    if told and own:
        return {key: own[key] for key in OF_SHARED if key in own}
    hidden: list[Any] = list(chain.layer_sizes[1:-1])
    layers = [m.own.name for m in chain.maps[:-1] if isinstance(m.own, Activation)]
    plain = len(layers) == len(hidden)
    found = {key: own[key] for key in (("output",) if plain else OF_OTHERS) if key in own}
    found |= {"activation": layers} if plain else {}
    if len(chain.blocks) == len(hidden) + 1:
        masks = [m.own.spec().get("mask") for m in chain.blocks[:-1]]
        pairs = zip(hidden, masks, strict=True)
        hidden = [{"units": n, "connections": f"{MASK_GIVEN}{mask}"} if mask else n for n, mask in pairs]
    return {"hidden": hidden, **found}


def points_of(X: Any, Y: Any, validation: Any, weights: Any, config: Config, start: Any = None) -> Points | None:
    """Makes the points of a fit from its arguments; returns None if the config names the data.

    X may be a table; then Y may name one or several of its columns, and weights may name one column.

    start: the model from which training on a piece of a stream continues; it then decides the columns of the piece.
    Raises UsageError.  Collective: no.
    """
    columns = None
    if config.stochastic.stream and start is not None:
        columns = (start if isinstance(start, Model) else load(start)).read_as
    data, missing, pair = config.data, config.loss.missing, None if np.isscalar(validation) else validation
    if X is None:
        given = {"Y": Y, "weights": weights, "validation": pair}
        if extra := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"{extra[0]} is given without X")
        if not data.source:
            raise UsageError("there are no points: give X, or a config that names data")
        return None
    table = is_frame(X)
    if data.source:
        raise UsageError(f'data.source = "{data.source}" in config, and X is given, too: give one of them')
    check_keys(data, OF_TABLES if table else (), "X, a table," if table else "X, an array,")
    Y, names = (data.targets, data.targets) if Y is None else (Y, _names(X, Y))
    if data.targets and names != data.targets:
        raise UsageError(f"data.target = {data.targets} in config, and Y is given, too: give one of them")
    if names == []:  # no targets: an autoencoder
        Y = names = None
    column = weights if isinstance(weights, str) else data.weights if weights is None else ""
    for own, some, one, of in (("Y", names, Y, "targets"), ("weights", column, column, "weights")):
        if some and not table:
            raise UsageError(f"{own} = {shown(one)} names a column, and X is no table: give the {of}, or a table as X")
    if data.weights and column != data.weights:
        raise UsageError(f'data.weights = "{data.weights}" in config, and weights is given, too: give one of them')
    if table and is_series(Y) and Y.name in X.columns and type(Y) is type(X[Y.name]) and Y.equals(X[Y.name]):
        raise UsageError(
            f'Y is the column {shown(Y.name)} of X, which would be an input too: give its name, Y = "{Y.name}"'
        )
    if names is None and isinstance(Y, int | np.integer) and table:
        raise UsageError(f'Y = {shown(Y)}: a column is given by its name, which is text: Y = "{shown(Y)}"')
    if table:
        found = of_frame(X, replace(data, source="X", weights=column), names or [], missing, columns)
    else:
        array = as_inputs(X, "X")
        fits = columns is not None and array.ndim == 2 and array.shape[1] == len(columns.names)
        found = Points({"X": array}, columns if fits else None)
    arrays = found.arrays
    if Y is not None and names is None:
        arrays["Y"] = _targets(Y, "Y", missing)
    if weights is not None and not isinstance(weights, str):
        arrays["weights"] = as_array(weights, "weights")
    if pair is not None:
        arrays |= _validation(pair, Y, names, found.columns, missing, replace(data, weights=column))
    return found


def _names(X: Any, Y: Any) -> list[str] | None:
    """Returns the names of target columns if Y is a name or a list of names of columns of the table X; else None.

    A list with a text for each row of X holds labels, not names.
    """
    if isinstance(Y, str):
        return [Y]
    if is_frame(X) and not is_series(Y) and (isinstance(Y, Sequence) or getattr(Y, "ndim", 0) == 1):
        names = list(Y)
        if all(isinstance(one, str) for one in names) and len(names) != len(X):
            return [str(one) for one in names]
    return None


def _validation(
    validation: Any, Y: Any, names: list[str] | None, columns: Columns | None, missing: bool, data: Data
) -> dict[str, Array]:
    """Splits the argument `validation` into X_val and, if they are given, Y_val and weights_val.

    names: the names of the columns of the validation table that are targets; a pair may give them, too.
    data: data.weights names the column of weights; without such a column all weights are 1.
    """
    if isinstance(validation, tuple) and len(validation) == 2 and is_frame(validation[0]):
        own = _names(*validation)
        validation, names = (validation, names) if own is None else (validation[0], own)

    def of_table(A: Any, targets: list[str]) -> dict[str, Array]:
        held = series_of(A, "validation")
        there = [[name for name in names if name in held] for names in (data.ignore, data.categories)]
        weights = data.weights if data.weights in held else ""
        own = replace(data, source="validation", ignore=there[0], categories=there[1], weights=weights)
        found = of_frame(A, own, targets, missing, columns or OF_ARRAYS)
        return {f"{name}_val": array for name, array in found.arrays.items()}

    def inputs(A: Any) -> dict[str, Array]:
        return {"X_val": of_table(A, [])["X_val"] if is_frame(A) else as_inputs(A, "X_val")}

    if is_frame(validation) and (names is not None or Y is None):
        return of_table(validation, names or [])
    several = isinstance(validation, tuple | list) and len(validation) in (2, 3)
    if Y is None and not isinstance(validation, tuple) and not (several and validation[1] is None):
        return inputs(validation)
    if not several or (Y is None and validation[1] is not None):
        raise UsageError(
            "data.validation: a share of the points between 0 and 1 is needed, or a pair of arrays (X_val, Y_val), "
            "which weights_val may follow; without Y X_val alone, or (X_val, None, weights_val)"
        )
    given = inputs(validation[0])
    if Y is not None:
        given["Y_val"] = _targets(validation[1], "Y_val", missing)
    if len(validation) == 3 and validation[2] is not None:
        given["weights_val"] = as_array(validation[2], "weights_val")
    return given


def _targets(Y: Any, name: str, missing: bool) -> Array:
    return targets_of(series_of(Y, name), name, missing) if is_frame(Y) or is_series(Y) else as_array(Y, name)


def method_of(settings: Settings, hidden: Any, layers: Layers, columns: int, autoencoder: bool) -> str:
    """Returns the method by which a fit with these arguments trains, with "auto" decided.

    columns, autoencoder: the number of columns of X, and whether there are no targets.
    Raises UsageError.  Collective: no.
    """
    config = config_of(settings, hidden, layers, "auto", None, None, None)
    return str(decide_net(config, columns, autoencoder)[0].method.name)
