"""Nothing is compressed: every value of the update is sent, 32 bits each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Identity"]


@dataclass(frozen=True)
class Identity:
    """The dense update."""
