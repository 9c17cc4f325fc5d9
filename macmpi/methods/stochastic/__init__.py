"""Stochastic MAC: minibatches with feasible coordinates and Kronecker-factored curvature."""
