"""Runs `macmpi COMMAND ...` or `python -m macmpi COMMAND ...`: only the module of that command is imported."""

from __future__ import annotations

import difflib
import sys
from importlib import import_module

from macmpi import __version__
from macmpi.console import guard, say, warn
from macmpi.parallel.command import COMMANDS
from macmpi.parallel.launchers import speaks


def usage() -> str:
    commands = "\n".join(f"  {name:12s}{text}" for name, text in COMMANDS.items())
    return (
        "usage: macmpi COMMAND ...\n\nTrain deeply nested nets by the method of auxiliary coordinates (MAC).\n\n"
        f"{commands}\n\nmacmpi COMMAND --help says more; macmpi --version names the version.\n"
        "On many ranks: mpiexec -n 12 macmpi run CONFIG.toml.  python -m macmpi.COMMAND does the same."
    )


def unknown(word: str) -> str:
    """Writes the refusal of a word that is no command, and suggests the command that was probably meant."""
    if word.endswith(".toml"):
        return f"{word!r} is no command; did you mean macmpi run {word}?"
    close = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(COMMANDS)}"
    return f"{word!r} is no command; {hint}"


def main() -> None:
    name, *rest = sys.argv[1:] or [""]
    if name == "help" and rest[:1] != ["help"]:
        name, rest = (rest[0], ["--help"]) if rest else ("--help", [])
    if name not in COMMANDS:
        guard()
        answers = {"-h": usage(), "--help": usage(), "--version": f"macmpi {__version__}"}
        if speaks() and name in answers:
            say(answers[name])
        elif speaks():
            warn(unknown(name) if name else f"a command is needed\n{usage()}")
        sys.exit(0 if name in answers else 2)
    sys.argv = [f"macmpi {name}", *rest]
    import_module(f"macmpi.{name}").main()


if __name__ == "__main__":
    main()
