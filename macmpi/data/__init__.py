"""Data sets: read, checked, split, scaled; by rank 0 for all, or by each rank for itself."""
