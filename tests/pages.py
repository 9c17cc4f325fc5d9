"""What the pages print: blocks of code."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks_of_page(page: str, language: str) -> list[str]:
    """The blocks of a language on a page, without their indentation; of one that shows a file, that file."""
    pattern = rf"^( *)```{language}(?: [^\n]*)?\n(.*?)^\1```$"
    found = re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [shown(textwrap.dedent(text)) for _, text in found]


def shown(text: str) -> str:
    """A block, or the file that stands for it on the site: --8<-- "PATH"."""
    file = re.fullmatch(r'--8<-- "(.+)"\n', text)
    return (ROOT / file[1]).read_text(encoding="utf-8") if file else text
