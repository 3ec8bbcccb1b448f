"""Time in a run: when clients receive, compute and deliver, and when the server takes a step."""

from __future__ import annotations

from typing import Any

from motley.core.components import Catalogue, class_named

__all__ = ["SYNCHRONY"]

SYNCHRONY = Catalogue(
    "synchrony",
    {
        "asynchronous": "motley.timing.asynchronous:Asynchronous",
        "buffered": "motley.timing.buffered:Buffered",
        "deadline": "motley.timing.deadline:Deadline",
        "fedcompass": "motley.timing.fedcompass:FedCompass",
        "synchronous": "motley.timing.synchrony:Synchronous",
    },
    base="motley.timing.synchrony:Synchrony",
)


def __getattr__(name: str) -> Any:
    return class_named((SYNCHRONY,), name)
