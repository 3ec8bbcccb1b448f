"""Say which parts of a client's usable reply a strategy does not get: metrics and records that no
more than half of the clients send, and what its weight exceeds its bound by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from motley.core.untrusted import one_line
from motley_flower.node_registry import EXAMPLES, NodeRegistry
from motley_flower.strategy.replies import CheckedReply
from motley_flower.strategy.reply_forms import ReplyForm

MOST_NAMES = 5
"""Names of one reply that a line holds."""


def note_unused(kind: str, replies: Mapping[int, CheckedReply], registry: NodeRegistry) -> None:
    """Note by client, once as long as it is the same, what of its reply is left out or cut.

    Parameters
    ----------
    kind: of the replies, ``"reply"`` or ``"evaluation"``.
    replies: by client, after the checks and as the strategy gets them.
    """
    for client, reply in replies.items():
        if reply.result is None or client not in registry.node_of:
            continue
        node = registry.node_of[client]
        if names := _left_out(reply.message.content, reply.result.form):
            listed = ", ".join(one_line(name) for name in names[:MOST_NAMES])
            more = f" and {len(names) - MOST_NAMES} others" if len(names) > MOST_NAMES else ""
            sentence = (
                f"its {kind} holds {listed}{more}, which no more than half of the clients send, "
                "and the strategy does not get"
            )
            registry.places.note(node, "left out", sentence, client)
        # of a client that enrolled with a number, sample_counts notes what it is cut to
        noted = kind == "reply" and not math.isnan(registry.enrolled[client].num_examples)
        if reply.result.weight > reply.counts and not noted:
            sentence = (
                f"its {kind} says {reply.result.weight:g} for {EXAMPLES!r}; more than "
                f"{reply.counts:g}, by its enrolment and the other clients', do not count"
            )
            registry.places.note(node, "capped", sentence, client)


def _left_out(content: Any, form: ReplyForm) -> list[str]:
    """Return the names of metrics and further ArrayRecords of a reply's form that its records no
    longer hold."""
    kept = {name for record in content.metric_records.values() for name in record}
    kept |= set(content.array_records)
    return sorted({str(entry[1]) for entry in form.entries} - kept)
