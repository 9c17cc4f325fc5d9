"""Ranks: the team and its exchanges, tiles, partitions, sums in a fixed order.  Only `team` knows MPI."""
