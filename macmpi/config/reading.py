"""Reads a TOML file into a validated, frozen Config.  pydantic finds all mistakes of a file at once.

The documented configs and the job scripts, from the folder run/ of the repository, are found by name, because an
installed macmpi contains them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import macmpi
from macmpi import UsageError, many
from macmpi.config.model import TABLES, Convolution, words
from macmpi.config.tables import solvers
from macmpi.config.whole import Config, gone, toml


def read(path: Path, settings: list[str]) -> Config:
    """Reads the config of a file, and changes it by settings "table.key=value", as from --set.

    Raises UsageError with all mistakes of the file in one message.  Collective: no.
    """
    return validate(read_table(path), f"{path} and --set" if settings else str(path), settings)


DATA = (".csv", ".tsv", ".parquet", ".npz", ".npy", ".h5", ".hdf5", ".nc", ".zarr")
"""A file with such an ending holds data and is no config."""


def read_table(path: Path) -> dict[str, Any]:
    """Reads the tables of a TOML file without checking their keys.  Raises UsageError.  Collective: no."""
    if path.suffix in DATA:
        raise UsageError(f"{path} holds data, and a config is needed: macmpi init {path} writes one")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        text = f"cannot read the config {path}: {error.strerror}"
        if os.path.isdir(path):
            text = f"{path} is a folder; name a config, as {path / 'config.toml'} of a run"
        raise UsageError(text) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not TOML: it is no UTF-8; save it so") from None
    except (ValueError, RecursionError) as error:  # no TOML, or thousands of digits or brackets
        raise UsageError(f"{path} is not TOML: {error}") from None
    _lengthen(table)
    return table


def _lengthen(table: dict[str, Any]) -> None:
    """Replaces the short form `data = "path"` by `data.source = "path"`, in place."""
    if isinstance(table.get("data"), str):
        table["data"] = {"source": table["data"]}


WORD = re.compile(r"(?P<key>[A-Za-z_][\w.]*)\s*=\s*(?P<value>(?!(?:true|false|inf|nan)\Z)[A-Za-z_./~][\w./~+-]*)")
"""A setting whose value is a word or a path without quotes."""


def _set(table: dict[str, Any], setting: str) -> None:
    """Puts a setting "table.key=value" into the tables of a config, in place.  Raises UsageError.

    A value that is a word or a path, as in method.name=stochastic, gets the quotes of TOML.
    """
    word = WORD.fullmatch(setting.strip())
    try:
        given = tomllib.loads(f"{word['key']} = {toml(word['value'])}" if word else setting)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--set {' '.join(setting.split())} is not TOML: {error}; write --set table.key=value, "
            "and strings in two pairs of quotes: --set data.source='\"x.h5\"'"
        ) from None
    _lengthen(given)
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(table.get(name), dict):
            table[name].update(value)
        else:
            table[name] = value


def validate(table: dict[str, Any], name: str, settings: Sequence[str] = ()) -> Config:
    """Makes the Config of parsed tables, changed by settings "table.key=value".  Collective: no.

    name: where tables and settings come from, for messages.
    Raises UsageError with all mistakes in one message.
    """
    for setting in settings:
        _set(table, setting)
    known, lines = _without_gone(table)
    if not (known or lines):
        return Config()  # importing pydantic takes longer than a small fit
    from pydantic import ValidationError

    try:
        config: Config = _validator().validate_json(_json(known, name))
    except ValidationError as error:
        lines += map(_explain, error.errors())
    if lines:
        raise UsageError("\n  ".join([f"{many(len(lines), 'mistake')} in {name}:", *lines]))
    return config


def _without_gone(table: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the tables without keys that no longer exist, and a message for each of these with another value than
    its last default."""
    kept: dict[str, Any] = {}
    said = []
    for name, keys in table.items():
        told = {key: gone(f"{name}.{key}", value) for key, value in keys.items()} if isinstance(keys, dict) else {}
        said += [sentence for sentence in told.values() if sentence]
        kept[name] = {k: v for k, v in keys.items() if told[k] is None} if isinstance(keys, dict) else keys
    return kept, said


def _json(value: Any, name: str, key: str = "") -> str:
    """Writes a parsed value as JSON.  Raises UsageError, with its key, where TOML allows a value that JSON does not."""
    try:
        return json.dumps(value, default=str, ensure_ascii=False).encode().decode()
    except (ValueError, RecursionError) as error:
        for part, inside in value.items() if isinstance(value, dict) and "." not in key else ():
            _json(inside, name, f"{key}.{part}" if key else part)
        what = "is nested too deeply; write table.key = value"
        if isinstance(error, ValueError):
            what = "is a number of too many digits; use a smaller one"
        if isinstance(error, UnicodeError):
            what = "is text that is not UTF-8; rename what it names"
        raise UsageError(f"{name}: {key} {what}") from None


@cache
def _validator() -> Any:
    """Returns pydantic's validator of configs, which is made once because that takes longer than many validations."""
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    return SchemaValidator(_of_one_kind(TypeAdapter(Config).core_schema))


def _of_one_kind(schema: Any) -> Any:
    """Rewrites a schema of pydantic so that a value of a union is checked as the one kind that its user meant.

    Otherwise the messages would name the mistakes under all kinds.
    """
    if isinstance(schema, list):
        return [_of_one_kind(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _of_one_kind(part) for key, part in schema.items()}
    return _tagged(schema["choices"]) if schema.get("type") == "union" else schema


OR_WORD = {-10: "auto", -20: "all"}
"""The kinds of a union have the numbers -1, -2, ...; where the value may also be a word, they begin with its key here.
pydantic puts the number of the kind into the place of a mistake; it is negative, because indices of lists are not."""


def _tagged(choices: list[Any]) -> dict[str, Any]:
    """Makes the schema of a union that checks a value as the table, list or word that it is, or else as its first kind.

    choices: the schemas of the kinds.
    """
    kinds = [_kind(choice) for choice in choices]
    first = next((number for number, word in OR_WORD.items() if word in kinds), -1)

    def meant(value: Any) -> int:
        tables = [kind for key, kind in TABLES.items() if isinstance(value, dict) and key in value]
        table = [*tables, Convolution][0].__name__ if isinstance(value, dict) else ""
        word = isinstance(value, str) and value in OR_WORD.values() and value in kinds
        kind = "list" if isinstance(value, list | dict) else value if word else "one"
        kind = table if table in kinds else kind
        return first - (kinds.index(kind) if kind in kinds else 0)

    tagged = {first - i: choice for i, choice in enumerate(choices)}
    return {"type": "tagged-union", "choices": tagged, "discriminator": meant}


def _kind(choice: dict[str, Any]) -> str:
    """Names the kind that a schema is for: a table's name, "list" (or a mapping), a word of `OR_WORD`, or "one"."""
    if len(words := choice.get("expected", [])) == 1 and words[0] in OR_WORD.values():
        return str(words[0])
    table = choice.get("ref", choice.get("schema_ref", "")).partition(":")[0].rpartition(".")[2]
    return table or ("list" if choice["type"] in ("list", "dict") else "one")


EXAMPLES = {"model.skips": "[[1, 3]]", "selection.sizes": "[[50, 100], []]", "model.activation": '["relu", "tanh"]'}
EXAMPLES |= {"model.sites": '["after", "none"]', "model.fitters": '["auto", "auto"]', "model.centres": '["kmeans"]'}
EXAMPLES |= {f"data.{key}": '["column"]' for key in ("target", "ignore", "categories", "empty")}
EXAMPLES |= {"data.classes": '["no", "yes"]'}
"""Examples of lists for messages, by key; other keys show [5]."""

PLAIN = {
    "too_short": "is an empty list; give one value or more, as in {name} = {example}",
    "list_type": "should be a list, as in {name} = {example}",
    "bool_type": "should be true or false",
    "too_long": "has too many values, as against {name} = {example}",
    "int_type": "should be a whole number",
    "missing": "is missing; give it a value",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "string_type": "should be text, in quotes",
}
"""Our words for those mistakes that pydantic's messages describe by its own types."""


CLOSE = 0.8
"""A wrong name may mean a key that is at least so similar, by difflib's measure; "units" is less similar to "sites"."""


def _like(name: str, keys: list[str]) -> list[str]:
    """Finds at most three keys, "table.key", that a wrong name may mean: the most similar, or those that contain it."""
    words = [key.rpartition(".")[2] for key in keys]
    near = difflib.get_close_matches(name, words, 1, CLOSE)
    if near in ([], [name]):
        near += [w for w in words if w.startswith(name) or w.endswith(f"_{name}") or name.startswith(f"{w}_")]
    return [key for key, word in zip(keys, words, strict=True) if word in near][:3]


def _everywhere(name: str) -> str:
    """Names the keys of any table that a wrong name may mean."""
    keys = [f"{table}.{key}" for table in reversed(known_keys([])) for key in known_keys([table])]
    return " or ".join(_like(name, keys))


def _unknown(where: list[str]) -> str:
    """Writes which key an unknown one may mean: a similar one in its own table, or else one in other tables.

    where: the tables that it is in, and its name.
    """
    here = known_keys(where[:-1])
    if where[-1] in here:  # the key of another kind of layer
        kinds = [(key, [f.name for f in fields(kind) if f.name != key]) for key, kind in TABLES.items()]
        return f"it goes with another key; {'; '.join(f'with {key}: ' + ', '.join(names) for key, names in kinds)}"
    siblings = [".".join([*where[:-1], key]) for key in here]
    likely = " or ".join(_like(where[-1], siblings)) or _everywhere(where[-1])
    return f"did you mean {likely}?" if likely else f"known here: {', '.join(here)}"


def _explain(mistake: Any) -> str:
    place = mistake["loc"] or ("the file",)
    word = OR_WORD.get(-10 * (-place[-1] // 10)) if isinstance(place[-1], int) else None
    otherwise = f', or "{word}"' if word else ""
    parts = [str(part) for part in place if isinstance(part, str) or part >= 0]
    where = [part if part.isprintable() else repr(part) for part in parts]
    key = ".".join(where)
    if mistake["type"] == "unexpected_keyword_argument":
        return f"{key}: unknown key; {_unknown(where)}"
    if mistake["type"].startswith("dataclass"):
        meant = f"; did you mean {_everywhere(key)}?" if _everywhere(key) else ""
        return f"{key}: should be a table, [{key}]{meant}"
    given = f" (given: {mistake['input']!r:.80})" if not isinstance(mistake["input"], dict) else ""
    if mistake["type"] == "predicate_failed":
        known = words(where[1]) if where[0] == "model" else solvers(where[0])
        close = difflib.get_close_matches(mistake["input"], known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(map(repr, known))}"
        return f"{key}: unknown word; {hint}{given}"
    said = PLAIN.get(mistake["type"], mistake["msg"].removeprefix("Value error, ").removeprefix("Input "))
    if mistake["type"] in PLAIN:
        name = ".".join(where[:2]) if where[-1].isdigit() or len(where) == 2 else where[-1]
        said = said.format(name=name, example=EXAMPLES.get(".".join(where[:2]), "[5]"))
    return f"{key}: {said}{otherwise}{given}"


def known_keys(tables: list[str]) -> list[str]:
    """Lists the keys of a table of the config, as in known_keys(["penalty"]); for [] the names of the tables."""
    node: Any = Config()
    for name in tables:
        node = getattr(node, name, None)
    if tables[:1] == ["model"] and len(tables) > 1:
        return sorted({f.name for kind in TABLES.values() for f in fields(kind)})
    return [f.name for f in fields(node)] if is_dataclass(node) else []


# --- documented configs -----------------------------------------------------------------------------------------------

KEYS = "defaults"
"""The name, without .toml, of the documented config that explains every key."""


def folder() -> Path:
    """Returns the folder of the documented configs: run/ of the clone from which macmpi runs, or where it is installed.

    It need not exist, since somebody may have removed it.
    """
    places = [Path(macmpi.__file__).resolve().parents[1] / "run" / f"{KEYS}.toml"]
    with suppress(metadata.PackageNotFoundError):
        installed = metadata.files("macmpi") or []
        places += [Path(str(file.locate())).resolve() for file in installed if file.name == f"{KEYS}.toml"]
    return next((place.parent for place in places if os.path.isfile(place)), places[0])


def documented() -> dict[str, Path]:
    """Lists the documented configs: their names, without .toml and ascending, and their paths."""
    return {path.stem: path for path in sorted(folder().glob("*.toml"))}


def scripts() -> dict[str, Path]:
    """Lists the job scripts for batch systems: their names, without ending and ascending, and their paths."""
    return {path.stem: path for path in sorted(folder().glob("batch/*")) if path.suffix in (".sh", ".def")}


def listed() -> str:
    """Writes a line for each documented config: its name, and the first sentence of the comment at its head."""
    return "\n".join(f"{name:20s}{_first(path)}" for name, path in documented().items())


def _first(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in lines[:3] if line.startswith("#"))
    return comment.split(".  ")[0].split(". ")[0].rstrip(".:")


def text_of(name: str, known: dict[str, Path]) -> str:
    """Reads a documented config or a job script.  known: the paths by name.  Raises UsageError for an unknown name."""
    stem = re.sub(r"\.(toml|sh|def)$", "", name)
    if stem not in known:
        raise UsageError(f"macmpi brings no {name!r} along; known here: {', '.join(known)}")
    return known[stem].read_text(encoding="utf-8")


def read_named(given: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the path of a config, found by `path_of`, and its tables as `read_table` gives them.

    Raises UsageError.  Collective: no.
    """
    path = path_of(given)
    try:
        return path, read_table(path)
    except UsageError as error:
        raise UsageError(f"{error}{'' if os.path.exists(path) else _meant(given)}") from None


def path_of(given: Path) -> Path:
    """Finds the config that a name means: the file itself, the file with .toml appended, or a documented config.

    Files of the user come before documented configs.  Any other name is returned unchanged, and refused when it is
    read.
    """
    named = given.with_name(f"{given.name}.toml") if given.name and given.suffix != ".toml" else given
    for path in (given, named):
        if os.path.isfile(path):
            return path
    brought = documented().get(named.stem) if len(given.parts) == 1 else None
    return brought or given


def _meant(given: Path) -> str:
    """Writes which documented config a name that is no file may mean, and how to list them all; "" for a path."""
    if len(given.parts) != 1:
        return ""
    close = difflib.get_close_matches(given.stem, documented(), n=1)
    hint = f"did you mean {close[0]}?  " if close else ""
    return f"; {hint}macmpi init --list names the configs that macmpi brings along"


LINE = re.compile(r"\[(?P<table>\w+)\].*|(?:(?P<key>\w+) = \S.*?)?\s+# (?P<text>.*)")
"""A line of the file that explains every key: the head of a table, a key with its comment, or more of that comment."""


def explanations() -> dict[str, str]:
    """Reads the explanation of each key, "table.key", from the file that explains them all; {} if it is missing."""
    path, comments = documented().get(KEYS), dict[str, str]()
    table, key, lines = "", "", [] if path is None else path.read_text(encoding="utf-8").splitlines()
    for match in filter(None, map(LINE.fullmatch, lines)):
        if match["table"]:
            table, key = match["table"], ""
        elif key := f"{table}.{match['key']}" if match["key"] else key:
            comments[key] = f"{comments.get(key, '')} {match['text']}".lstrip()
    return comments
