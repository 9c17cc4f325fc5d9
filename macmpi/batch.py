"""`python -m macmpi.batch [NAME]`: list the job scripts of batch systems, or print one, to be copied and submitted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from macmpi import UsageError
from macmpi.config.documented import folder
from macmpi.console import guard, program, say, warn


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog=program("batch"),
        description="List the job scripts that macmpi brings along, or print one.",
        epilog=f'"{program("batch")} slurm > slurm.sh", then "sbatch slurm.sh my.toml"; PBS and Flux submit the file '
        "again that SCRIPT names: SCRIPT=pbs.sh.",
    )
    p.add_argument("name", nargs="?", metavar="NAME", help="slurm, pbs, lsf, flux, or apptainer: print this one")
    return p


def scripts() -> dict[str, Path]:
    """Name, without ending, and path of each script, by name; none where somebody has removed them."""
    place = folder()
    found = [] if place is None else sorted((place / "batch").glob("*"))
    return {path.stem: path for path in found if path.suffix in (".sh", ".def")}


def listed() -> list[str]:
    """One line for each: its name, and what its first comment says."""
    return [f"{name:15s}{_first(path)}" for name, path in scripts().items()]


def _first(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(line.lstrip("# ") for line in lines if line.startswith("# "))


def text_of(name: str) -> str:
    """The text of a script.  Raises UsageError."""
    known = scripts()
    if not known:
        raise UsageError("the batch scripts are not where macmpi was installed: install it again")
    stem = name.removesuffix(".sh").removesuffix(".def")
    if stem not in known:
        raise UsageError(f"there is no script for {name}; known here: {', '.join(known)}")
    return known[stem].read_text(encoding="utf-8")


def main() -> None:
    guard()
    args = parser().parse_args()
    try:
        say("\n".join(listed()) if args.name is None else text_of(args.name).rstrip("\n"))
    except UsageError as error:
        warn(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
