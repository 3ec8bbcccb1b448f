"""Read and set the attributes of a Flower strategy and of those that it wraps."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping
from random import getstate, setstate
from typing import Any

import numpy as np


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


def copy_of(strategy: Any) -> Any:
    """Return a copy of a strategy, and of those that it wraps, which shares no value with it but
    ``motley``; None where an attribute cannot be copied."""
    twin = object.__new__(type(strategy))
    shared = getattr(strategy, "motley", None)
    own = {name: value for name, value in vars(strategy).items() if name != "strategy"}
    try:
        vars(twin).update(copy.deepcopy(own, {id(strategy): twin, id(shared): shared}))
    except Exception:  # whatever an object that cannot be copied may raise
        return None
    if "strategy" in vars(strategy):
        twin.strategy = copy_of(strategy.strategy)
        return None if twin.strategy is None else twin
    return twin


@contextlib.contextmanager
def without_traces(logger: str) -> Iterator[None]:
    """Within a block, let a logger say nothing; after it the global generators of random numbers
    are as before."""
    states = getstate(), np.random.get_state()  # noqa: NPY002  # what strategies may use
    log = logging.getLogger(logger)
    log.addFilter(_nothing)
    try:
        yield
    finally:
        log.removeFilter(_nothing)
        setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _nothing(record: logging.LogRecord) -> bool:
    return False


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
