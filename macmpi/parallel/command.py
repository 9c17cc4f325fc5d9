"""Each command is described in one table, with its arguments, and is done by one process of a launch or by all ranks.

A known error ends a command with its exit code and one message.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from argparse import Namespace as Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from macmpi import Done, MacmpiError, UsageError, __version__
from macmpi.console import flush, guard, program, say, warn
from macmpi.parallel.launchers import speaks
from macmpi.parallel.mpi import die
from macmpi.parallel.team import Team


def whole(text: str) -> int:
    """Reads a whole number, 1000000 or 1e6, from text.  Raises ValueError.  Collective: no."""
    number = int(float(text)) if "e" in text.lower() else int(text)
    if "e" in text.lower() and number != float(text):
        raise ValueError
    return number


def path_in(text: str) -> Path | str:
    """Makes a path of text, but leaves "" as it is, which `Path` would take for the folder "."."""
    return Path(text) if text else text


COMMANDS = {
    "init": "write a commented config for a data file, or print a documented one or a job script",
    "run": "train a deeply nested net by the method of auxiliary coordinates (MAC), as a config says",
    "report": "draw what runs have left behind",
    "predict": "apply a trained net to the points of a file",
    "show": "say what a model.h5 is, what it was trained on, how, and how well",
    "export": "write a trained net as an ONNX graph, for programs without macmpi",
    "fetch": "download and convert a named data set",
    "doctor": "say whether machine, MPI and folder are fit for a run",
}
"""Command -> a summary; each command NAME is a module `macmpi.NAME` with a function `main`."""

WEIGHTS = ("refit", "best", "last")
ACTIONS = ("predict", "probabilities", "encode", "bits", "decode", "reconstruct")
TIMES = "seconds, MM:SS, H:MM:SS, D-HH:MM:SS, 2h30m, unlimited or auto"
NUMBER: dict[str, Any] = {"type": whole}
PATH: dict[str, Any] = {"type": Path}
NEEDED: dict[str, Any] = {"type": Path, "required": True}
FLAG: dict[str, Any] = {"action": "store_true"}
ENDS: dict[str, Any] = {"choices": ("checkpoint", "model"), "default": "checkpoint"}
PRECISION: dict[str, Any] = {"choices": ("float64", "float32"), "default": "float64"}

ARGUMENTS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("run", "config CONFIG.toml", "a file, or the name of a documented config", PATH),
    ("init", "data DATA", 'a data file, or a name of data.source, as "digits"', {"nargs": "?"}),
    ("report", "runs RUN", "run directory", PATH | {"nargs": "+"}),
    ("predict show export", "model MODEL.h5", "model.h5 of a run directory", PATH),
    ("predict", "data DATA", ".npy, .npz, .h5, .nc or .zarr with X, .csv, .parquet, a folder of images", PATH),
    ("fetch", "name NAME", "usps, coil, openml:NAME[@VERSION] or sklearn:NAME", {}),
    ("init run", "--set TABLE.KEY=VALUE", "override a key; a TOML value", {"action": "append", "default": []}),
    ("run", "--output DIR", "run directory (default: runs/<name of the config>)", {"type": path_in}),
    ("init", "--output FILE.toml", "default: the name of the data, here", PATH),
    ("report", "--output DIR", "where to write (default: report/ in the first run's)", PATH),
    ("predict", "--output FILE", ".npy, .npz, .h5 (dataset Y), .csv or .parquet (columns with names)", NEEDED),
    ("export", "--output FILE", "default: next to the model, as model.onnx", PATH),
    ("doctor", "--output DIR", "the folder for runs (default: this one)", PATH | {"default": Path()}),
    ("init run predict export", "--overwrite", "replace what --output names, where it is there already", FLAG),
    ("predict export", "--weights", "default: the refit, else the best on validation", {"choices": WEIGHTS}),
    ("init", "--list", "print the names of the documented configs, a line for each", FLAG),
    ("init", "--config NAME", "print this one of them; defaults: every key, explained", {}),
    ("init", "--batch NAME", "print a job script: slurm, pbs, lsf, flux, or apptainer", {}),
    ("run", "--resume auto|PATH|no", "go on from the newest checkpoint, or PATH", {"default": "no"}),
    ("run", "--iterations N", "end after N iterations as if they were all", {"type": int}),
    ("run", "--max-time T", f"stop in time: {TIMES} (before the batch system ends the job)", {"default": "unlimited"}),
    ("run", "--since MOMENT", "count --max-time from there (seconds since 1970)", NUMBER),
    ("run", "--when-stopped", "model: leave the best model so far, too", ENDS),
    ("run", "--check", "check config and data, print sizes and costs, write nothing", FLAG),
    ("run", "--ranks N", "with --check, of a machine that need not be at hand: ranks", NUMBER),
    ("run", "--nodes N", "with --check: nodes that the ranks are on (1)", NUMBER),
    ("run", "--memory 64G", "with --check: memory of a node (this machine's)", {}),
    ("run", "--points N", "with --check, of data that need not be at hand: rows", NUMBER),
    ("run", "--columns N", "with --check: columns of X", NUMBER),
    ("run", "--outputs N", "with --check: columns of Y, or classes; without it an autoencoder", NUMBER),
    ("run", "--explain", 'say what "auto" stands for, why, and how to pin it', FLAG),
    ("predict", "--what", "default: predict", {"choices": ACTIONS, "default": "predict"}),
    ("predict", "--dataset NAME", "dataset to read (default: X)", {"default": "X"}),
    ("show", "--config", "print the config alone, as TOML: it trains the net again", FLAG),
    ("show", "--json", "print everything as JSON", FLAG),
    ("export", "--to", "the format (default: onnx)", {"choices": ("onnx",), "default": "onnx"}),
    ("export", "--precision", "float64 (default) keeps 1e-05 for every net, float32 takes half the space", PRECISION),
    ("export", "--decoder", "from codes to outputs, in place of the whole net", FLAG),
    ("fetch", "--file FILE", "usps_all.mat or coil-20-proc.zip: use it instead of downloading it", PATH),
)
"""A row for each argument: commands that have it, its name and a word for its value, its help, argparse's keywords."""

ONE_OF = {"init": ("data", "--list", "--config", "--batch")}
"""Command -> arguments of which it needs exactly one."""

CODES = (
    "Exit codes: 0 done, 2 usage, config, model or data, or a fault of the machine, 70 internal error, or numbers that "
    "went wrong, 74 what was to be written could not be, 75 stopped: run --resume auto goes on."
)


def parser_of(command: str) -> ArgumentParser:
    """Makes the parser of a command from the rows of `ARGUMENTS` that name it.  Collective: no."""
    summary = COMMANDS[command][0].upper() + COMMANDS[command][1:]
    more = f"  On many ranks: mpiexec -n 12 {program(command)}." if command in ("run", "doctor") else ""
    keys = (
        f"  {program('init')} --config defaults explains every key of a config." if command in ("run", "init") else ""
    )
    p = ArgumentParser(program(command), description=f"{summary}.{more}{keys}", epilog=CODES, allow_abbrev=False)
    one_of = p.add_mutually_exclusive_group(required=True) if command in ONE_OF else p
    for commands, form, text, how in ARGUMENTS:
        name, _, value = form.partition(" ")
        if command in commands.split():
            group = one_of if name in ONE_OF.get(command, ()) else p
            group.add_argument(name, help=text, **how | ({"metavar": value} if value else {}))
    p.add_argument("--version", action="version", version=f"macmpi {__version__}")
    return p


def by_one_process(name: str, work: Callable[[Namespace], str]) -> Callable[[], None]:
    """Returns the `main` of a command that needs no MPI: it prints the text that `work` returns, or a known error.

    Every process of a launch except the first ends at once.

    work: is called with the parsed arguments.  Collective: no.
    """

    def main() -> None:
        guard()
        if not speaks():
            sys.exit(0)
        args = parser_of(name).parse_args()
        try:
            said = work(args)
        except MacmpiError as error:
            warn(str(error))
            sys.exit(error.exit_code)
        say(said)

    return main


def parsed(name: str, argv: list[str]) -> Namespace:
    """Parses a command line.  Raises Done if it asks for help, UsageError if it is wrong.

    Both errors have no text, since the parser has already printed it.  Collective: no (rank 0).
    """
    try:
        return parser_of(name).parse_args(argv)
    except SystemExit as end:
        error = UsageError if end.code else Done
        raise error("") from None


def set_threads(threads: int) -> None:
    """Sets the number of BLAS threads of a rank, before NumPy is imported; equal bits need equal numbers of threads."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def by_all_ranks(team: Team, work: Callable[[], int]) -> NoReturn:
    """Runs a command on all ranks and ends the process; an error that not all ranks have ends all of them at once.

    work: does the command, and returns the exit code.  Collective: yes.
    """
    try:
        code = work()
    except MacmpiError as error:
        if not error.agreed:
            die(team, error)
        code = error.exit_code
        if team.rank == 0 and str(error):
            say(f"macmpi: {error}", error=code != 0)
    except BaseException as error:  # noqa: BLE001 - every rank must end, whatever happened in this one
        die(team, error)
    if code:  # the same on all ranks: no launcher may kill the slower ones
        flush()
        team.depart()
    sys.exit(code)
