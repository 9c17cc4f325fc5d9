"""Limits that a test sets to a process of its own."""

from __future__ import annotations


def small_files(largest: int | str) -> tuple[str, ...]:
    """Begins a command that may write no file of more than `largest` bytes ("unlimited": any).

    Nor may it write bytecode: a module that has changed would leave a truncated file, and fail in every later process.
    """
    return "env", "PYTHONDONTWRITEBYTECODE=1", "prlimit", f"--fsize={largest}"
