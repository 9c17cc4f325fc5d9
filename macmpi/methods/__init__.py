"""Training methods around or instead of plain MAC, and starting points."""
