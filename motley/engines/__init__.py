"""How local work is computed."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["ENGINES"]

ENGINES = Catalogue(
    "engine",
    {"sequential": "motley.engines.sequential:Sequential"},
    planned=("processes", "ray"),
)
