"""Make the indexes at the top of long pages."""

from __future__ import annotations

import re

from cells import ROOT, table

from motley.experiments import registry

__all__ = ["component_index", "decision_index"]

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


def decision_index() -> str:
    """Link every decision below its section."""
    text = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    lines = []
    for level, words in re.findall(r"^(##|###) (.+)$", text, flags=re.MULTILINE):
        title, _, anchor = words.partition(" {#")
        link = f"[{title}](#{anchor.rstrip('}') or _slug(title)})"
        if level == "##":
            lines.append(f"- **{link}**:")
        else:
            lines[-1] += ("" if lines[-1].endswith("**:") else " ·") + f" {link}"
    return "\n".join(line.removesuffix(":") for line in lines)


def _slug(words: str) -> str:
    """Return the id that Markdown makes of a heading's words."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())
