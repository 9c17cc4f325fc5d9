"""What the pages print: blocks of code."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks_of_page(page: str, language: str) -> list[str]:
    """The blocks of a language on a page, without the indentation that they have there."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in found]
