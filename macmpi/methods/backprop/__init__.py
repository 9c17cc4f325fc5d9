"""Baselines by backpropagation: SGD, Adam, nonlinear conjugate gradients, L-BFGS."""
