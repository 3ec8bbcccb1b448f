"""Address the strategy's messages to the clients that the selector chose."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from motley.core.errors import ConfigError
from motley.core.records import Cohort
from motley_flower.messages import flower
from motley_flower.node_registry import RECORD


def address_messages(
    messages: Iterable[Any], clients: Mapping[int, int], cohort: Cohort
) -> list[Any]:
    """Return one message for each chosen node, in order of client id; none at all if the strategy
    wrote none.

    A chosen node that the strategy left out gets the message to the others. What the cohort
    prescribes for one client's local work (``local_steps``, ``upload_ratio``, ``lr_scale``) is
    added to the ConfigRecord of its message.

    Parameters
    ----------
    messages: the strategy's.
    clients: node -> client, the chosen, in order of client id.
    cohort: the selector's choice.

    Raises
    ------
    ConfigError: the strategy left chosen nodes out and its messages to the others differ.
    """
    written = {message.metadata.dst_node_id: message for message in messages}
    if not written:
        return []
    if (
        clients.keys() - written.keys()
        and len({id(message.content) for message in written.values()}) > 1
    ):
        raise ConfigError(
            "the strategy wrote to some of the chosen nodes only, to each something of its own; "
            "expected one message to each node of the grid it is given: let it ask all of them "
            "(fraction_train = 1.0)"
        )
    shared = next(iter(written.values()))
    addressed = []
    for node, client in clients.items():
        message = written.get(node, shared)
        work = _prescribed_work(cohort, client)
        if work or node not in written:
            content = _with_config(message.content, work) if work else message.content
            message = _copy(message, content, node)
        addressed.append(message)
    return addressed


def ask_for(signals: str, messages: Iterable[Any], nodes: Collection[int]) -> list[Any]:
    """Return the messages, those to ``nodes`` with the names of the signals that the reply should
    hold, separated by commas."""
    app = flower()
    asking = []
    for message in messages:
        if message.metadata.dst_node_id in nodes:
            # unique: a reply names its message by a hash, which no other client must be able to
            # compute
            wanted = app.ConfigRecord({"wanted": signals, "unique": secrets.token_bytes(16)})
            content = app.RecordDict({**dict(message.content.items()), RECORD: wanted})
            message = _copy(message, content, message.metadata.dst_node_id)
        asking.append(message)
    return asking


def _prescribed_work(cohort: Cohort, client: int) -> dict[str, float | int]:
    at = int(np.flatnonzero(cohort.ids == client)[0])
    columns = {name: getattr(cohort, name) for name in ("local_steps", "upload_ratio", "lr_scale")}
    return {name: column[at].item() for name, column in columns.items() if column is not None}


def _copy(message: Any, content: Any, node: int) -> Any:
    about = message.metadata
    return flower().Message(
        content, node, about.message_type, ttl=about.ttl, group_id=about.group_id
    )


def _with_config(content: Any, values: Mapping[str, float | int]) -> Any:
    app = flower()
    key = next(iter(content.config_records), "config")
    config = app.ConfigRecord({**content.config_records.get(key, {}), **values})
    return app.RecordDict({**dict(content.items()), key: config})
