"""Read and set the attributes of a Flower strategy and of those that it wraps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


def nested(strategy: Any) -> Iterator[Any]:
    """Yield a strategy and the strategies that it wraps (differential privacy, one of Flower's
    older API)."""
    while any(
        callable(getattr(strategy, name, None)) for name in ("configure_train", "configure_fit")
    ):
        yield strategy
        strategy = getattr(strategy, "strategy", None)


def attribute(strategy: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of a strategy or of the first strategy inside it that has it."""
    return next(
        (getattr(inner, name) for inner in nested(strategy) if hasattr(inner, name)), default
    )


@contextlib.contextmanager
def temporarily(strategy: Any, values: Mapping[str, float]) -> Iterator[None]:
    """Set attributes of a strategy, and of those inside it, within a block; attributes that it does
    not have are not added."""
    before = [
        (inner, name, vars(inner)[name])
        for inner in nested(strategy)
        for name in values
        if name in vars(inner)
    ]
    for inner, name, _ in before:
        setattr(inner, name, values[name])
    try:
        yield
    finally:
        for inner, name, value in before:
            setattr(inner, name, value)
