"""A page that keeps itself current while it lies in a folder: no server, and nothing of it is loaded from elsewhere.

A browser refuses to fetch a file of a folder, but runs it as a script: the page loads `live.js` again and again, and
puts what that brings into its own place once the pictures in it are decoded, so that nothing flickers and nobody loses
the place that they have scrolled to.  The last one says that it is the last.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from macmpi.files import replace_file
from macmpi.results.page import document

PAGE, COMPANION = "report.html", "live.js"

SCRIPT = """
let shown = "", ended = false;
async function macmpi(news) {
  if (news.version === shown) return;
  const next = document.createElement("div");
  next.innerHTML = news.body;
  await Promise.allSettled([...next.querySelectorAll("img")].map(image => image.decode()));
  const x = scrollX, y = scrollY;
  document.getElementById("page").replaceChildren(...next.childNodes);
  document.title = news.title;
  scrollTo(x, y);
  shown = news.version;
  ended = news.ended;
}
function look() {
  const script = document.createElement("script");
  script.src = "live.js?" + Date.now();
  script.onload = script.onerror = () => { script.remove(); if (!ended) setTimeout(look, PAUSE); };
  document.head.append(script);
}
document.addEventListener("DOMContentLoaded", look);
"""


def publish(folder: Path, title: str, body: Sequence[str], seconds: float) -> None:
    """Write the page, which looks for news every so often, and the news for pages that are open.  Raises OSError."""
    script = f"<script>{SCRIPT.replace('PAUSE', str(round(1000 * seconds)))}</script>"
    whole = document(title, ['<main id="page">', *body, "</main>"], script)
    replace_file(folder / PAGE, whole.encode())
    _tell(folder, title, body, ended=False)


def conclude(folder: Path, title: str, body: Sequence[str]) -> None:
    """Write the page as it stays; pages that are open show it, and look for no more news.  Raises OSError."""
    replace_file(folder / PAGE, document(title, body).encode())
    if os.path.isfile(folder / COMPANION):
        _tell(folder, title, body, ended=True)


def _tell(folder: Path, title: str, body: Sequence[str], ended: bool) -> None:
    news = {"version": str(time.time_ns()), "title": title, "body": "\n".join(body), "ended": ended}
    replace_file(folder / COMPANION, f"macmpi({json.dumps(news)});\n".encode())
