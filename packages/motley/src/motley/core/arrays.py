"""Array types that signatures share; shapes are in docstrings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
"""Client ids."""
Ints = NDArray[np.int64]
"""Whole numbers: counts, labels, row numbers."""
Floats = NDArray[np.float64]
"""Real numbers."""
Bools = NDArray[np.bool_]
"""Truth values."""
