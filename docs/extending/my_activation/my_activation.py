"""The Gaussian error linear unit, s(a) = a P(Z <= a) for a standard normal Z."""

from math import pi, sqrt

import numpy as np
from scipy.special import erf

from macmpi.nets.layers.activation import Function


def below(a):
    return 0.5 * (1.0 + erf(a / sqrt(2.0)))


def slope(a, b, out):
    return np.add(below(a), a * np.exp(-0.5 * a * a) / sqrt(2.0 * pi), out=out)


gelu = Function(lambda a, out: np.multiply(a, below(a), out=out), slope, steepest=1.13)
