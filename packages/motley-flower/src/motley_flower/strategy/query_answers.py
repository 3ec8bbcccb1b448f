"""Answer Motley's queries in a client app, by three functions.

    @app.query("motley_enrol")
    def enrol(message, context):
        return enrolled(message, context, num_examples=len(labels), labels=labels, classes=10)

    @app.query("motley_probe")
    def probe(message, context):
        numbers = {name: my_measurement(name, batches) for name, batches in wanted(message).items()}
        return measured(message, numbers)

The reply to training is Flower's own: an ArrayRecord, and a MetricRecord with ``num-examples`` and
the selector's signals under their names (``loss``, ``loss_rms``, ...; ``docs/signals.md``). This
module does not import torch: Flower starts a process for every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from motley.core.errors import ConfigError
from motley_flower.messages import flower
from motley_flower.node_config import client_of_node
from motley_flower.node_registry import EXAMPLES, RECORD


def enrolled(
    message: Any,
    context: Any,
    num_examples: int,
    labels: Iterable[int] | None = None,
    classes: int | None = None,
    estimates: Mapping[str, float] | None = None,
) -> Any:
    """Return the answer to ``query.motley_enrol``: the client's id and its number of samples.

    Parameters
    ----------
    message, context: of the handler.
    num_examples: training samples.
    labels, classes: the samples' labels, from 0, and the number of classes; counts per class are
    sent only where the selector wants them.
    estimates: seconds or megabits a second that the client knows of itself (``compute_estimate_s``,
    ``uplink_mbps``, ...).

    Raises
    ------
    ConfigError: the node's configuration lacks the key of the client's id or has no whole number
    there, or a label is of none of these classes.
    """
    query = message.content[RECORD]
    key = query["key"]
    metrics: dict[str, Any] = {
        key: client_of_node(context.node_config, key),
        EXAMPLES: int(num_examples),
        **(estimates or {}),
    }
    if (
        "label_histogram" in query["wanted"].split(",")
        and labels is not None
        and classes is not None
    ):
        metrics["label_histogram"] = counts_of(labels, classes)
    app = flower()
    return app.Message(app.RecordDict({"enrolment": app.MetricRecord(metrics)}), reply_to=message)


def counts_of(labels: Iterable[int], classes: int) -> list[int]:
    """Return how many of the labels are of each class.

    Raises
    ------
    ConfigError: a label that is of none of the classes.
    """
    counts = [0] * classes
    for label in labels:
        if not 0 <= int(label) < classes:
            raise ConfigError(f"got a label {label}; expected 0 to {classes - 1}", key="classes")
        counts[int(label)] += 1
    return counts


def wanted(message: Any) -> dict[str, int | None]:
    """Return the signals to measure on the model in ``query.motley_probe``, each with its number of
    batches (None: all data)."""
    query = message.content[RECORD]
    return {
        name: batches or None
        for name, batches in zip(query["signals"], query["batches"], strict=True)
    }


def measured(message: Any, signals: Mapping[str, Any]) -> Any:
    """Return the answer to ``query.motley_probe``; ``signals``: numbers, or lists of numbers, by
    name."""
    app = flower()
    numbers = {
        name: [float(number) for number in value] if hasattr(value, "__len__") else float(value)
        for name, value in signals.items()
    }
    return app.Message(app.RecordDict({"measured": app.MetricRecord(numbers)}), reply_to=message)
