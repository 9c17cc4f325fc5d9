"""After a run these modules read its net and its curve, and draw pictures; they need no MPI."""
