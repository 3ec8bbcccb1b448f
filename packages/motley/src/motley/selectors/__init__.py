"""Client selection: which clients take part in a round. Free of torch, so it runs in a simulation,
alone, or in a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motley.core.components import class_named
from motley.selectors.catalogue import CATALOGUE
from motley.selectors.defence import Defence
from motley.selectors.selector import SelectionRule, Selector

__all__ = ["CATALOGUE", "Defence", "SelectionRule", "Selector", "build"]


def build(
    record: str | Mapping[str, Any],
    seed: int = 0,
    horizon: int | None = None,
    defence: Defence | None = None,
) -> Selector[Any]:
    """Return a selector built from the same record as in an experiment file.

    Parameters
    ----------
    record: a name, or a name with options: ``{"name": "power_of_choice", "d": 20}``.
    seed: seed of the selector's own randomness.
    horizon: planned number of rounds, for rules that anneal.
    defence: how far clients are believed; None: in everything that is finite.

    Raises
    ------
    ConfigError: unknown name, option or value.
    """
    return Selector(CATALOGUE.build(record), seed, horizon, defence)


def __getattr__(name: str) -> Any:
    return class_named((CATALOGUE,), name)
