"""After a run, without MPI: the trained net, the curve read back, pictures."""
