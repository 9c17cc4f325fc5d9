"""The arguments of `macmpi.fit` become a config and arrays of points."""

from __future__ import annotations

import copy
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, shown
from macmpi.config import Config, Data, layer_tables, lengthen, read_table, validate
from macmpi.config.auto import decide_net
from macmpi.config.whole import given as keys_of
from macmpi.data.checks import as_array
from macmpi.data.frame_targets import targets_of, weights_of
from macmpi.data.frames import Columns
from macmpi.data.gathered import KEYS, OF_TABLES, check_keys, of_frame
from macmpi.data.reading import told
from macmpi.data.series import is_frame, is_series, series_of
from macmpi.files import as_path
from macmpi.nets.layers import Map
from macmpi.nets.layers.activation import Activation
from macmpi.nets.layers.masked import as_text
from macmpi.results.model import Model
from macmpi.results.model_file import load
from macmpi.typing import Array

ARRAYS = "the arguments of fit"
"""The name of the points in messages."""

GIVEN = "the argument start"
"""The name of a model that a fit starts from, in a config."""

Layers = str | Sequence[str]
Settings = Config | Mapping[str, Any] | str | Path


def config_of(
    settings: Settings | None, hidden: Any, layers: Layers, loss: str, validation: Any, start: Any, seed: int | None
) -> Config:
    """The config of a fit: the arguments, on top of the settings.

    settings: a Config, the path of a TOML file, or a mapping of tables and of "table.key".  Arguments that are "auto"
    or None leave the settings alone.  Raises UsageError with all mistakes in one message.  Collective: no.
    """
    table, name = _table(settings)
    if start is not None:
        place = start if isinstance(start, Model) else as_path(start, "start.model")
        with told("start.model"):
            model = place if isinstance(place, Model) else load(place)
        hidden, layers = _net_of(model, hidden, layers)
        for key, value in _tables_of(model).items():
            if key not in table.get("model", {}):
                _set(table, f"model.{key}", value)
    own = {
        "model.hidden": hidden,
        "model.activation": layers,
        "model.loss": loss,
        "data.validation": validation if np.isscalar(validation) else None,
    }
    if start is not None:
        path = GIVEN if isinstance(start, Model) else str(as_path(start, "start.model"))
        own |= {"start.method": "model", "start.model": path}
    if seed is not None:
        own |= {"data.seed": seed, "start.seed": seed}
    if validation is not None and not np.isscalar(validation) and not isinstance(settings, Config):
        _check_once(table, "data.validation", "points")
    for key, given in own.items():
        value = _plain(given, key)
        if value is not None and not (isinstance(value, str) and value == "auto"):
            _check_once(table, key, value)
            _set(table, key, value)
    return validate(table, name)


def _check_once(table: dict[str, Any], key: str, value: Any) -> None:
    """Raises UsageError where the settings say otherwise than an argument: nobody could tell which of them counts."""
    place, _, inner = key.partition(".")
    given = table.get(place, {}).get(inner) if isinstance(table.get(place), dict) else None
    if given not in (None, "auto", value):
        raise UsageError(f"{key} = {shown(given)} in config, and {shown(value)} by an argument: give one of them")


def keys_given(settings: Settings | None) -> list[str]:
    """The keys, "table.key", that the settings give; none of settings that cannot be read.  Collective: no."""
    if isinstance(settings, Config):
        return keys_of(settings)
    try:
        table, _ = _table(settings)
    except UsageError:
        return []
    return [f"{name}.{key}" for name, keys in table.items() if isinstance(keys, dict) for key in keys]


def _table(settings: Settings | None) -> tuple[dict[str, Any], str]:
    """The tables of the settings, and a name for messages."""
    if settings is None:
        return {}, "the arguments of fit"
    if isinstance(settings, Config):
        return asdict(settings), "config and the arguments of fit"
    if isinstance(settings, str | Path):
        return read_table(as_path(settings, "config")), f"{settings} and the arguments of fit"
    if not isinstance(settings, Mapping):
        raise UsageError(f"config: a mapping, a path or a Config is needed, not {type(settings).__name__}")
    table: dict[str, Any] = {}
    for key, value in settings.items():
        if not isinstance(key, str):
            raise UsageError(f'config: its keys are text, as "method.name", and one is {shown(key)}')
        if "." in key:
            _set(table, key, _plain(value, key))
        elif isinstance(value, Mapping):
            for inner, one in value.items():
                _set(table, f"{key}.{inner}", _plain(one, f"{key}.{inner}"))
        else:
            table[key] = _plain(value, key)
    lengthen(table)
    return table, "config and the arguments of fit"


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    name, _, inner = key.partition(".")
    if isinstance(table.setdefault(name, {}), dict):
        table[name][inner] = value


def _plain(value: Any, key: str) -> Any:
    """NumPy's numbers and arrays, tuples and paths as TOML has them.  Raises UsageError for what it cannot have."""
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


def _net_of(start: Model, hidden: Any, layers: Layers) -> tuple[Any, Any]:
    """Hidden units and activations of the model that a fit starts from, where the arguments do not say."""
    chain, own = start.chain, _tables_of(start)
    found = [m.own.name for m in chain.maps[:-1] if isinstance(m.own, Activation)]
    if layers == "auto" and own:
        layers = own["activation"]
    elif layers == "auto" and len(found) == len(chain.layer_sizes) - 2:
        layers = found
    if hidden == "auto" and own:
        hidden = own["hidden"]
    elif hidden == "auto":
        hidden = list(chain.layer_sizes[1:-1])
        if len(chain.blocks) == len(hidden) + 1:
            hidden = [_layer_of(m.own, units) for m, units in zip(chain.blocks, hidden, strict=False)]
    return hidden, layers


def _tables_of(start: Model) -> dict[str, Any]:
    """Keys of [model] for layers that are not told by their sizes alone, as the model's card has them; {} without any.

    These are convolutions, layers that share weights, and skips.
    """
    chain = start.chain
    told = any("patches" in map_.capabilities or map_.own is not map_ for map_ in chain.maps) or bool(chain.numbers)
    if start.card is None or not told:
        return {}
    own = tomllib.loads(start.card.config)["model"]
    return {
        key: own[key] for key in ("hidden", "activation", "image", "readout", "tied", "skips", "joining") if key in own
    }


def _layer_of(map_: Map, units: int) -> Any:
    """The entry of model.hidden for a layer that begins with this map: its units, or a table of its connections."""
    if map_.connected is None:
        return units
    return {"units": units, "connections": f"{layer_tables.GIVEN}{as_text(map_.connected[:, :-1])}"}


@dataclass(frozen=True)
class Points:
    """Arrays X and, where given, Y, X_val, Y_val, weights and weights_val, by name; columns: of the table that X
    was."""

    arrays: dict[str, Array]
    columns: Columns | None = None


def points_of(X: Any, Y: Any, validation: Any, data: Data, missing: bool = False, weights: Any = None) -> Points:
    """The points of a fit.  X may be a table; Y the name of a column of it, or names, and weights the name of one.

    data: which columns are left out, what is done about missing values; missing: targets may be NaN.  Raises
    UsageError.  Collective: no.
    """
    _check_source(data, is_frame(X))
    if Y is None and is_frame(X) and data.targets:
        Y = data.targets
    elif data.targets and Y is not None and _names(X, Y) != data.targets:
        raise UsageError(f"data.target = {data.targets} in config, and Y is given, too: give one of them")
    names = _names(X, Y)
    if names == []:  # none: an autoencoder
        Y = names = None
    column = weights if isinstance(weights, str) else data.weights if weights is None else ""
    if names is not None and not is_frame(X):
        raise UsageError(f"Y = {shown(Y)} names a column, and X is no table: give the targets, or a table as X")
    if column and not is_frame(X):
        raise UsageError(
            f"weights = {shown(column)} names a column, and X is no table: give the weights, or a table as X"
        )
    if data.weights and weights is not None and not (isinstance(weights, str) and weights == data.weights):
        raise UsageError(f'data.weights = "{data.weights}" in config, and weights is given, too: give one of them')
    if is_frame(X) and is_series(Y) and Y.name in X.columns and _same(Y, X[Y.name]):
        raise UsageError(
            f'Y is the column {shown(Y.name)} of X, which would be an input too: give its name, Y = "{Y.name}"'
        )
    if names is None and isinstance(Y, int | np.integer) and is_frame(X):
        raise UsageError(f'Y = {shown(Y)}: a column is given by its name, which is text: Y = "{shown(Y)}"')
    if is_frame(X):
        found = of_frame(X, replace(data, source="X", weights=column), names or [], missing)
        arrays, columns = dict(found.arrays), found.columns
    else:
        arrays, columns = {"X": as_array(X, "X")}, None
    if Y is not None and names is None:
        arrays["Y"] = _targets(Y, "Y", missing)
    if weights is not None and not isinstance(weights, str):
        arrays["weights"] = as_array(weights, "weights")
    return Points(arrays | _validation(validation, Y, names, columns, missing, column), columns)


def _same(one: Any, other: Any) -> bool:
    """Tells whether two columns are of one library, and hold the same."""
    return type(one) is type(other) and bool(one.equals(other))


def without_columns(data: Data) -> Data:
    """The keys of [data] for points that are arrays by now: those that say how a table is read are done with."""
    return replace(data, **copy.deepcopy(KEYS))


def _check_source(data: Data, table: bool) -> None:
    """Raises UsageError where keys of [data] say what X is not: a file, or a table."""
    if data.source:
        raise UsageError(f'data.source = "{data.source}" in config, and X is given, too: give one of them')
    try:
        check_keys(replace(data, source="X"), OF_TABLES if table else ())
    except UsageError as error:
        raise UsageError(str(error).replace('data.source = "X" does', "X, an array, does")) from None


def _names(X: Any, Y: Any) -> list[str] | None:
    """Names of columns, as targets; None of anything else, as of a list with a label for each row of X."""
    if isinstance(Y, str):
        return [Y]
    if is_frame(X) and not is_series(Y) and (isinstance(Y, Sequence) or getattr(Y, "ndim", 0) == 1):
        names = list(Y)
        if all(isinstance(one, str) for one in names) and len(names) != len(X):
            return [str(one) for one in names]
    return None


def _validation(
    validation: Any, Y: Any, names: list[str] | None, columns: Columns | None, missing: bool, weights: str
) -> dict[str, Array]:
    """X_val, Y_val and weights_val, if they are given.

    names, weights: of the targets and of the weights ("": none), which are then columns of the validation table.
    """
    if validation is None or np.isscalar(validation):
        return {}

    def inputs(A: Any) -> Array:
        return columns.encode(A, "X_val") if columns is not None and is_frame(A) else as_array(A, "X_val")

    if names is not None and is_frame(validation):
        series = series_of(validation, "X_val")
        if lost := [name for name in names if name not in series]:
            raise UsageError(f"validation has no column {lost[0]!r}, which Y names")
        targets = targets_of({name: series[name] for name in names}, "X_val", missing)
        found = {"X_val": inputs(validation), "Y_val": targets}
        return found | _weights_of_table(series, weights)
    several = isinstance(validation, tuple | list) and len(validation) in (2, 3)
    if Y is None and not (several and validation[1] is None):
        if isinstance(validation, tuple):
            raise UsageError(
                "data.validation: without Y it is X_val alone, or (X_val, None, weights_val), and a pair is given"
            )
        own = _weights_of_table(series_of(validation, "X_val"), weights) if is_frame(validation) else {}
        return {"X_val": inputs(validation), **own}
    if not several:
        raise UsageError(
            "data.validation: a share of the points between 0 and 1, or a pair of arrays (X_val, Y_val), which "
            "weights_val may follow, is needed"
        )
    given = {"X_val": inputs(validation[0])}
    given |= {} if Y is None else {"Y_val": _targets(validation[1], "Y_val", missing)}
    return given if len(validation) == 2 else given | {"weights_val": as_array(validation[2], "weights_val")}


def _weights_of_table(series: Mapping[str, Any], weights: str) -> dict[str, Array]:
    """weights_val of a validation table that has the column of the weights; {} of another: all weigh 1 there."""
    if not weights or weights not in series:
        return {}
    return {"weights_val": weights_of(series[weights], f"X_val: column {weights}, its weights,")}


def _targets(Y: Any, name: str, missing: bool) -> Array:
    return targets_of(series_of(Y, name), name, missing) if is_frame(Y) or is_series(Y) else as_array(Y, name)


def method_of(settings: Settings, hidden: Any, layers: Layers, loss: str, columns: int, autoencoder: bool) -> str:
    """The method that a fit with these arguments trains by, "auto" decided.  Raises UsageError.  Collective: no."""
    config = config_of(settings, hidden_units(hidden), layers, loss, None, None, None)
    return str(decide_net(config, columns, autoencoder)[0].method.name)


def hidden_units(hidden: Any) -> Any:
    """One number of units is a net with one hidden layer."""
    return [int(hidden)] if isinstance(hidden, Integral) and not isinstance(hidden, bool) else hidden
