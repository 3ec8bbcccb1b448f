"""When things happen: planner, synchrony, clock. Virtual seconds only."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["SYNCHRONY"]

SYNCHRONY = Catalogue(
    "synchrony",
    {"synchronous": "motley.timing.synchrony:Synchronous"},
    planned=("deadline", "buffered", "asynchronous"),
)
