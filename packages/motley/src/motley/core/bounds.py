"""Types of numbers with their bounds, for dataclasses that are tables of the experiment file.

The bounds are annotations: pydantic checks them when an experiment is read, and the documentation
shows them.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

Count = Annotated[int, Ge(1), Le(10**9)]
"""A whole number of at least 1."""
NotNegative = Annotated[int, Ge(0), Le(10**9)]
"""A whole number of at least 0."""
Positive = Annotated[float, Gt(0)]
"""A number above 0."""
Share = Annotated[float, Ge(0), Lt(1)]
"""A number in [0, 1)."""
Proportion = Annotated[float, Ge(0), Le(1)]
"""A number in [0, 1]."""
