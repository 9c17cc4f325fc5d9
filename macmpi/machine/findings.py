"""A finding of the doctor: one line of its page, with a verdict and a remedy."""

from __future__ import annotations

from dataclasses import dataclass

FINE, WARNING, FAULT = "ok", "warning", "FAULT"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's page, and what to do about it."""

    what: str
    found: str
    verdict: str = FINE
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.what:18} {self.verdict:8} {self.found}"
        return f"{line}\n{'':18} {'':8} -> {self.remedy}" if self.verdict != FINE else line
