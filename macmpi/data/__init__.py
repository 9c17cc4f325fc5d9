"""Data sets are read, checked, split and scaled here, by rank 0 for all ranks or by each rank for itself."""
