"""Motley in a Flower deployment: ``pip install 'motley-fl[flower]'``.

On the server, :func:`~motley.adapters.flower.strategy.with_selector`; in the client app, the three functions of
:mod:`motley.adapters.flower.client`. Names are looked up when they are first used, and Flower when it is first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motley.adapters.flower.chooser import Chooser, Row
    from motley.adapters.flower.strategy import with_selector
    from motley.adapters.flower.table import participation

__all__ = ["Chooser", "Row", "participation", "with_selector"]

_HOME = {"Chooser": "chooser", "Row": "chooser", "participation": "table", "with_selector": "strategy"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"motley.adapters.flower.{_HOME[name]}"), name)
    raise AttributeError(f"module 'motley.adapters.flower' has no attribute {name!r}")
