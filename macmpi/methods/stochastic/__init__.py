"""Stochastic MAC trains by minibatches with feasible coordinates and Kronecker-factored curvature."""
