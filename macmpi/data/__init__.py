"""Data sets: read, checked, split, scaled."""
