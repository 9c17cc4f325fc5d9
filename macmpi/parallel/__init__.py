"""Ranks form a team, and tiles, partitions and sums in a fixed order divide its work.  Only `mpi` knows MPI."""
