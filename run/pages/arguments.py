"""Each argument of a docstring on a line of its own, on the Python reference: an extension of mkdocstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Arguments(griffe.Extension):
    """Turns `name: meaning` of a docstring, at the start of a line or of a sentence, into an item of a list."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Rewrites the docstring of one function."""
        names = [parameter.name for parameter in func.parameters]
        if func.docstring is not None and names:
            func.docstring.value = listed(func.docstring.value, names)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Rewrites the docstring of a class by the names of its attributes."""
        if cls.docstring is not None:
            cls.docstring.value = listed(cls.docstring.value, [*cls.members])


def listed(text: str, names: list[str]) -> str:
    """The docstring with a list for the arguments.

    names: those of the arguments.
    """
    some = "|".join(re.escape(name) for name in names)
    if not some:
        return text
    item = re.compile(rf"(?:^|(?<=\n)|(?<=\s\s)|(?<=\.\s))((?:{some})(?:, (?:{some}))*): ")
    return re.sub(r"\n?[ ]*\x00", "\n\n- ", item.sub("\x00**\\1**: ", text)).strip()
