"""Counts lines of code: python run/bench/code_lines.py [FOLDER ...] [--commit REV].

A line of code holds a token that is neither a comment nor part of the docstring of a module, a class or a function
(strings that document a constant do count); blank lines do not count.  Prints a row for each folder below macmpi/, run/
and tests/, then a sum for each of the three.  With --commit the files of that commit are counted, so that two commits
can be set side by side.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(text: str) -> int:
    """Count the lines of a Python source that hold code."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    found = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SKIPPED
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(found - strings)


def sources(folder: str, commit: str | None) -> Iterator[tuple[PurePosixPath, str]]:
    """Path and text of each Python file that git tracks below a folder, of the working tree or of a commit."""
    git = ["git", "-C", str(ROOT)]
    listing = ["ls-tree", "-r", "--name-only", commit, "--", folder] if commit else ["ls-files", "--", folder]
    names = subprocess.run([*git, *listing], check=True, capture_output=True, text=True).stdout.splitlines()
    for name in names:
        if name.endswith(".py") and (commit or (ROOT / name).exists()):
            show = [*git, "show", f"{commit}:{name}"]
            text = (
                subprocess.run(show, check=True, capture_output=True, text=True).stdout
                if commit
                else (ROOT / name).read_text(encoding="utf-8")
            )
            yield PurePosixPath(name), text


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("folders", nargs="*", default=["macmpi", "run", "tests"])
    p.add_argument("--commit", help="count the files of this commit, not those of the working tree")
    args = p.parse_args()
    for top in args.folders:
        code, lines, files = Counter[str](), Counter[str](), Counter[str]()
        for path, text in sources(top, args.commit):
            place = "/".join(path.parts[:2]) if len(path.parts) > 2 else str(path.parts[0])
            code[place] += code_lines(text)
            lines[place] += text.count("\n")
            files[place] += 1
        for place in sorted(code):
            print(f"{place:24s}{code[place]:8,} code {lines[place]:8,} lines {files[place]:5} files")
        print(f"{top + ', all':24s}{code.total():8,} code {lines.total():8,} lines {files.total():5} files")


if __name__ == "__main__":
    main()
