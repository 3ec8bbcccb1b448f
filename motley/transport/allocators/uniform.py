"""Everybody may send the same share of the update; without a compressor that is all of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Uniform"]


@dataclass(frozen=True)
class Uniform:
    """The same for everybody."""
