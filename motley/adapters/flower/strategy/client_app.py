"""The client app's side: what Motley asks, and the answers, in three functions.

    @app.query("motley_enrol")
    def enrol(message, context):
        return enrolled(message, context, num_examples=len(labels), labels=labels, classes=10)

    @app.query("motley_probe")
    def probe(message, context):
        return measured(message, {name: my_measurement(name, batches) for name, batches in wanted(message).items()})

The reply to training is Flower's own: an ArrayRecord, and a MetricRecord with ``num-examples`` and the selector's signals under
their names (``loss``, ``loss_rms``, ...; ``docs/signals.md``). Nothing here loads torch: every message is a new process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from motley.adapters.flower.messages import flower
from motley.adapters.flower.node_registry import EXAMPLES
from motley.core.errors import ConfigError

__all__ = ["enrolled", "measured", "wanted"]


def enrolled(
    message: Any, context: Any, num_examples: int, labels: Iterable[int] | None = None, classes: int | None = None,
    estimates: Mapping[str, float] | None = None,
) -> Any:  # fmt: skip
    """The answer to ``query.motley_enrol``: which client this is, and how many samples it has.

    Parameters
    ----------
    message, context: of the handler. num_examples: training samples. labels, classes: the samples' labels, from 0, and how many
    classes there are; counted and sent only where the selector wants them. estimates: seconds or megabits a second that
    the site knows of itself (``compute_estimate_s``, ``uplink_mbps``, ...).

    Raises
    ------
    ConfigError: the node has no such key, or labels are not of these classes.
    """
    asked = message.content["motley"]
    key = asked["key"]
    if key not in context.node_config:
        raise ConfigError(f'this node has no {key!r}; expected flower-supernode --node-config "{key}=<whole number>"')
    told: dict[str, Any] = {key: int(context.node_config[key]), EXAMPLES: int(num_examples), **(estimates or {})}
    if "label_histogram" in asked["wanted"].split(",") and labels is not None and classes is not None:
        counts = [0] * classes
        for label in labels:
            if not 0 <= int(label) < classes:
                raise ConfigError(f"got a label {label}; expected 0 to {classes - 1}", key="classes")
            counts[int(label)] += 1
        told["label_histogram"] = counts
    app = flower()
    return app.Message(app.RecordDict({"told": app.MetricRecord(told)}), reply_to=message)


def wanted(message: Any) -> dict[str, int | None]:
    """Signals to measure on the model that ``query.motley_probe`` carries, and on how many batches (None: all of the data)."""
    asked = message.content["motley"]
    return {name: batches or None for name, batches in zip(asked["signals"], asked["batches"], strict=True)}


def measured(message: Any, signals: Mapping[str, Any]) -> Any:
    """The answer to ``query.motley_probe``: numbers, or lists of them, by signal."""
    app = flower()
    numbers = {
        name: [float(one) for one in value] if hasattr(value, "__len__") else float(value) for name, value in signals.items()
    }
    return app.Message(app.RecordDict({"measured": app.MetricRecord(numbers)}), reply_to=message)
