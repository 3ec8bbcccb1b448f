"""How much an old update counts: ``s(tau)``, tau the server steps since its client received the model.

constant    1
polynomial  (1 + tau)^-a                        a = 0.5: 1, .707107, .577350, .5, .447214, ...
hinge       1 if tau <= b else 1 / (a (tau - b) + 1)
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import ConfigError

__all__ = ["Shape", "check", "discount"]

Shape = Literal["constant", "polynomial", "hinge"]


def check(shape: str, a: float, b: float, most: int | None) -> None:
    """Refuse options outside their ranges."""
    if shape not in ("constant", "polynomial", "hinge"):
        raise ConfigError(f"got staleness = {shape!r}; expected 'constant', 'polynomial' or 'hinge'")
    if not 0 < a < np.inf:
        raise ConfigError(f"got a = {a}; expected a positive number")
    if not 0 <= b < np.inf:
        raise ConfigError(f"got b = {b}; expected at least 0 server steps")
    if most is not None and most < 0:
        raise ConfigError(f"got max_staleness = {most}; expected at least 0 server steps, or none for no limit")


def discount(shape: Shape, tau: NDArray[np.int64], a: float, b: float) -> NDArray[np.float64]:
    """``s(tau)``, ``[n]``."""
    tau = np.asarray(tau, np.float64)
    if shape == "constant":
        return np.ones_like(tau)
    if shape == "polynomial":
        return np.asarray((1.0 + tau) ** -a)
    return np.asarray(1.0 / (a * np.maximum(tau - b, 0.0) + 1.0))
