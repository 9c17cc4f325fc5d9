"""Data sets: read, checked, split, scaled; replicated or sharded."""
