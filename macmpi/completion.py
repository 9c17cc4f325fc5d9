"""`python -m macmpi.completion bash|zsh`: a script that completes the commands of `macmpi` in a shell, by shtab."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from macmpi import UsageError
from macmpi.__main__ import COMMANDS, known, module_of
from macmpi.config import Config, flat
from macmpi.config.documented import documented
from macmpi.console import guard, program, say, warn

SHELLS = ("bash", "zsh")

CONFIG, KEY = "CONFIG.toml", "TABLE.KEY"
"""Arguments with these names are files or documented configs, and keys of a config."""

FUNCTIONS = """
_macmpi_configs() { compgen -W "%(configs)s" -- "$1"; compgen -f -- "$1"; }
_macmpi_keys() { compgen -W "%(keys)s" -S "=" -- "$1"; }
"""
"""Functions of bash: the words that may stand there."""

ZSH_FUNCTIONS = """
_macmpi_configs() { _alternative "configs:config:(%(configs)s)" "files:file:_files -g '*.toml'" }
_macmpi_keys() { compadd -S "=" -- %(keys)s }
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog=program("completion"),
        description="Print a script that completes the commands of macmpi.",
        epilog='bash: eval "$(macmpi completion bash)" in ~/.bashrc.  zsh: macmpi completion zsh > a folder of $fpath, '
        "as the file _macmpi.",
    )
    p.add_argument("shell", choices=SHELLS)
    return p


def whole() -> argparse.ArgumentParser:
    """One parser with all commands, those that name theirs."""
    root = argparse.ArgumentParser(prog="macmpi")
    root.add_argument("--version", action="store_true")
    parsers = root.add_subparsers()
    for name in known():
        own = getattr(module_of(name), "parser", None)
        bases = [] if own is None else [own()]
        added = parsers.add_parser(name, help=COMMANDS[name], parents=bases, add_help=False, conflict_handler="resolve")
        for action in added._actions:
            if completer := _completer(action):
                action.complete = completer  # type: ignore[attr-defined]
    return root


def _completer(action: argparse.Action) -> dict[str, str] | None:
    """The functions, by shell, that complete an argument."""
    kind = str(action.metavar or "")
    if kind == CONFIG:
        return dict.fromkeys(SHELLS, "_macmpi_configs")
    if kind.startswith(KEY):
        return dict.fromkeys(SHELLS, "_macmpi_keys")
    return {"bash": "_shtab_compgen_files", "zsh": "_files"} if action.type is Path or kind == "DATA" else None


def script(shell: str) -> str:
    """The script.  Raises UsageError where shtab is missing."""
    try:
        import shtab
    except ImportError:
        raise UsageError("shell completion is written by shtab, which is not installed: pip install shtab") from None
    words = {"configs": " ".join(documented()), "keys": " ".join(flat(Config()))}
    functions = {"bash": FUNCTIONS % words, "zsh": ZSH_FUNCTIONS % words}
    return shtab.complete(whole(), shell, root_prefix="macmpi", preamble=functions[shell])


def main() -> None:
    guard()
    args = parser().parse_args()
    try:
        say(script(args.shell))
    except UsageError as error:
        warn(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
