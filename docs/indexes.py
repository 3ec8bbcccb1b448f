"""Make the index at the top of the page of components."""

from __future__ import annotations

from cells import table

from motley.experiments import registry

__all__ = ["component_index"]

KINDS = {
    "which clients take part": ("selector",),
    "what is learned": ("algorithm", "loss", "aggregator", "server", "optimizer", "lr_schedule"),
    "what is sent": ("compressor", "feedback", "allocator", "budget"),
    "data and model": ("task", "model", "partition"),
    "how data differ": ("label_noise", "feature_shift", "concept_shift", "drift"),
    "how clients differ": (
        "device",
        "network",
        "availability",
        "capacity",
        "failures",
        "dishonest",
    ),
    "when the server steps, and who computes": ("synchrony", "engine"),
}
"""What a reader asks -> the kinds of component that answer it."""


def component_index() -> str:
    """Link the kinds of component, grouped by question, each with how many there are."""
    rows = []
    for question, kinds in KINDS.items():
        counts = {kind: sum(row["built"] for row in registry.listing(kind)) for kind in kinds}
        rows.append(
            (
                question,
                ", ".join(f"[`{kind}`](#{kind}) ({count})" for kind, count in counts.items()),
            )
        )
    return table(("", "kinds of component, and how many there are"), rows)
