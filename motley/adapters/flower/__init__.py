"""Motley in a Flower deployment: ``pip install 'motley-fl[flower]'``.

On the server, :func:`~motley.adapters.flower.strategy.wrapper.with_selector`; in the client app, the three functions of
:mod:`motley.adapters.flower.strategy.client_app`. Names are looked up when they are first used, and Flower when it is first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motley.adapters.flower.strategy.coordinator import Row, SelectionCoordinator
    from motley.adapters.flower.strategy.participation import participation
    from motley.adapters.flower.strategy.wrapper import with_selector

__all__ = ["Row", "SelectionCoordinator", "participation", "with_selector"]

_HOME = {
    "SelectionCoordinator": "strategy.coordinator", "Row": "strategy.coordinator", "participation": "strategy.participation",
    "with_selector": "strategy.wrapper",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"motley.adapters.flower.{_HOME[name]}"), name)
    raise AttributeError(f"module 'motley.adapters.flower' has no attribute {name!r}")
