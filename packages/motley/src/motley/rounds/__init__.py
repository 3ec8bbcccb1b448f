"""The round loop: the only package that imports selectors, algorithms, world and timing, and
engines."""

from __future__ import annotations

from typing import Any

from motley.core.components import Catalogue, class_named

__all__ = ["STAGES"]

STAGES = Catalogue(
    "stage",
    {"server_average": "motley.rounds.server_average:ServerAverage"},
    base="motley.rounds.stage:StageOptions",
)


def __getattr__(name: str) -> Any:
    return class_named((STAGES,), name)
