"""The loop around a method, and what it keeps on disk."""
