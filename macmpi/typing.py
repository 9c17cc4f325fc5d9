"""The array type of the package.  Arrays have points as rows."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
