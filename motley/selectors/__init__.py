"""Whom to ask. NumPy only: a selector runs in a simulation, on its own, or on the server of a real deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motley.selectors.base import SelectionRule, Selector
from motley.selectors.catalogue import CATALOGUE

__all__ = ["CATALOGUE", "SelectionRule", "Selector", "build"]


def build(record: str | Mapping[str, Any], seed: int = 0, horizon: int | None = None) -> Selector[Any]:
    """A selector from the same record as in an experiment file.

    Parameters
    ----------
    record: a name, or ``{"name": "power_of_choice", "d": 20}``.
    seed: of the selector's own randomness.
    horizon: planned rounds, for rules that anneal.

    Raises
    ------
    ConfigError: unknown name, option or value.
    """
    return Selector(CATALOGUE.build(record), seed, horizon)
