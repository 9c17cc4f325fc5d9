"""Pages of one file: HTML with tables and with pictures (PNG) inside, in light and in dark, on screens and on paper."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --faint: #666666; --line: #cccccc; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181b; --faint: #a0a0a0; --line: #444444; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: right; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
figure { margin: 2.5rem 0; break-inside: avoid; }
figure img { display: block; width: 100%; height: auto; background: white; border-radius: 4px; }
figcaption, footer, .missing { color: var(--faint); font-size: 0.9rem; }
.run { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 50%; margin-right: 0.5em; }
.table + .table { margin-top: 1.5rem; }
h2 { font-size: 1.15rem; margin: 0 0 0.5rem; }
.table { overflow-x: auto; }
@media print {
  :root { --ink: black; --paper: white; --faint: #333333; --line: #999999; }
  body { max-width: none; margin: 0; font-size: 10pt; }
}
"""


def document(title: str, body: Iterable[str]) -> str:
    """A whole page.  title: text; body: its parts, HTML."""
    start = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return "\n".join([f'<!DOCTYPE html>\n<html lang="en"><head>{start}</head><body>', *body, "</body></html>\n"])


def figure(name: str, title: str, caption: str, png: bytes) -> str:
    """A picture with what is said below it."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return (
        f'<figure id="{escape(name)}"><h2>{escape(title)}</h2>'
        f'<img src="{source}" alt="{escape(title)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], colours: Sequence[str] = ()) -> str:
    """Cells of text; the first of each row is marked with its colour."""
    marks = [f'<span class="run" style="background: {c}"></span>' for c in colours] or [""] * len(rows)
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    for mark, cells in zip(marks, rows, strict=True):
        lines.append(f"<td>{mark}" + "<td>".join(f"{escape(cell)}</td>" for cell in cells))
    return '<div class="table"><table>\n' + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table></div>"
