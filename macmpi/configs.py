"""`python -m macmpi.configs [NAME]`: list the documented configs, or print one, to be copied and changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from macmpi import UsageError
from macmpi.config.documented import documented, meant
from macmpi.console import guard, program, say, warn


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog=program("configs"),
        description="List the configs that macmpi brings along, or print one.",
        epilog=f'"{program("run")} NAME" trains by one of them; "{program("configs")} NAME > my.toml" makes it yours.',
    )
    p.add_argument("name", nargs="?", metavar="NAME", help="print this one; defaults: every key, explained")
    return p


def listed() -> list[str]:
    """One line for each: its name, and what its first comment says."""
    return [f"{name:15s}{_first(path)}" for name, path in documented().items()]


def _first(path: Path) -> str:
    """The first sentence of the comment that a config begins with."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in lines[:3] if line.startswith("#"))
    return comment.split(".  ")[0].split(". ")[0].rstrip(".:")


def text_of(name: str) -> str:
    """The text of a documented config.  Raises UsageError."""
    known = documented()
    if name.removesuffix(".toml") not in known:
        hint = meant(Path(name)) or f"; known here: {', '.join(known)}"
        raise UsageError(f"there is no documented config {name}{hint}")
    return known[name.removesuffix(".toml")].read_text(encoding="utf-8")


def main() -> None:
    guard()
    args = parser().parse_args()
    try:
        if not documented():
            raise UsageError("the documented configs are not where macmpi was installed: install it again")
        say("\n".join(listed()) if args.name is None else text_of(args.name).rstrip("\n"))
    except UsageError as error:
        warn(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
