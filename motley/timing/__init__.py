"""Time in a run: when clients receive, compute and deliver, and when the server takes a step."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["SYNCHRONY"]

SYNCHRONY = Catalogue(
    "synchrony",
    {
        "asynchronous": "motley.timing.asynchronous:Asynchronous",
        "buffered": "motley.timing.buffered:Buffered",
        "deadline": "motley.timing.deadline:Deadline",
        "synchronous": "motley.timing.synchrony:Synchronous",
    },
)
