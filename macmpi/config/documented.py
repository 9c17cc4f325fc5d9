"""The documented configs and job scripts, run/ of the repository: a wheel carries them, found by name anywhere."""

from __future__ import annotations

import difflib
import os
import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import macmpi
from macmpi import UsageError
from macmpi.config.reading import read_table

KEYS = "defaults"
"""The name of the file that explains every key."""


def folder() -> Path:
    """The folder of the documented configs: of the clone that runs, else as the wheel was installed.

    One that is not there where somebody has removed them.
    """
    places = [Path(macmpi.__file__).resolve().parents[1] / "run" / f"{KEYS}.toml"]
    with suppress(metadata.PackageNotFoundError):
        installed = metadata.files("macmpi") or []
        places += [Path(str(file.locate())).resolve() for file in installed if file.name == f"{KEYS}.toml"]
    return next((place.parent for place in places if os.path.isfile(place)), places[0])


def documented() -> dict[str, Path]:
    """Name, without .toml, and path of each documented config, by name."""
    return {path.stem: path for path in sorted(folder().glob("*.toml"))}


def scripts() -> dict[str, Path]:
    """Name, without ending, and path of each job script of a batch system, by name."""
    return {path.stem: path for path in sorted(folder().glob("batch/*")) if path.suffix in (".sh", ".def")}


def listed() -> str:
    """A line for each documented config: its name, and the first sentence of the comment that it begins with."""
    return "\n".join(f"{name:20s}{_first(path)}" for name, path in documented().items())


def _first(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in lines[:3] if line.startswith("#"))
    return comment.split(".  ")[0].split(". ")[0].rstrip(".:")


def text_of(name: str, known: dict[str, Path]) -> str:
    """The text of a documented config, or of a job script.  Raises UsageError."""
    stem = re.sub(r"\.(toml|sh|def)$", "", name)
    if stem not in known:
        raise UsageError(f"macmpi brings no {name!r} along; known here: {', '.join(known)}")
    return known[stem].read_text(encoding="utf-8")


def read(given: Path) -> tuple[Path, dict[str, Any]]:
    """The file that is meant, as of `found`, and its tables, as they are.  Raises UsageError.  Collective: no."""
    path = found(given)
    try:
        return path, read_table(path)
    except UsageError as error:
        raise UsageError(f"{error}{'' if os.path.exists(path) else _meant(given)}") from None


def found(given: Path) -> Path:
    """The config that is meant: that file, that name with .toml behind it, or a documented config.

    Files of the user's go first.  A name that is none of them stays as it is, for who reads it to refuse.
    """
    named = given.with_name(f"{given.name}.toml") if given.name and given.suffix != ".toml" else given
    for path in (given, named):
        if os.path.isfile(path):
            return path
    own = documented().get(named.stem) if len(given.parts) == 1 else None
    return own or given


def _meant(given: Path) -> str:
    """Says which documented config may be meant by a name that is no file, and where all of them are."""
    if len(given.parts) != 1:
        return ""
    close = difflib.get_close_matches(given.stem, documented(), n=1)
    hint = f"did you mean {close[0]}?  " if close else ""
    return f"; {hint}macmpi init --list names the configs that macmpi brings along"


LINE = re.compile(r"(?P<key>\w+) = \S.*?\s+# (?P<text>.*)|\s+# (?P<more>.*)|(?P<bare>\w+) = .*|\[(?P<table>\w+)\].*")
"""A line of the file that explains every key: a key with its comment, more of it, a key without one, a table."""


def explanations() -> dict[str, str]:
    """The comment of each key in the file that explains them all, by "table.key"; nothing where it is gone."""
    path = documented().get(KEYS)
    table, key = "", ""
    found: dict[str, str] = {}
    for line in [] if path is None else path.read_text(encoding="utf-8").splitlines():
        match = LINE.fullmatch(line)
        if match is None or match["bare"] or match["table"]:
            table, key = (match["table"] if match and match["table"] else table), ""
        elif match["key"]:
            key = f"{table}.{match['key']}"
            found[key] = match["text"]
        elif key:
            found[key] += f" {match['more']}"
    return found
