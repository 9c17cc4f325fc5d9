"""The array type of the package.  Arrays have points as rows."""

import numpy as np

Array = np.ndarray
