"""The client app's side of secure aggregation with a strategy: one mod that masks what the app trained.

    options = SecureOptions(clip=0.1)
    app = ClientApp(mods=[secure_mod(options, "/etc/motley/key", "/etc/motley/register.json")])

The app itself stays as it is: it answers ``train`` with its model and metrics. What leaves the node is the masked difference to the
model that was sent, and the metrics that the selector wants. A request to train without secure aggregation is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from motley.adapters.flower.messages import flower
from motley.adapters.flower.node_registry import EXAMPLES
from motley.adapters.flower.secure_messages import RECORD, SECURE, missing_extra, secure_bytes, secure_record
from motley.adapters.flower.strategy.server_signals import arrays_of
from motley.core.errors import ConfigError, SecureAggregationError

try:
    from motley.secure.endpoint import SecureEndpoint
    from motley.secure.keyfiles import as_register, read_identity
    from motley.secure.terms import SecureOptions
except ModuleNotFoundError as missing:
    raise missing_extra(missing) from None

__all__ = ["secure_mod"]

_STATE = "motley_secure_state"
Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]


def secure_mod(
    options: SecureOptions, identity: str | os.PathLike[str], register: Mapping[int, bytes] | str | os.PathLike[str],
    key: str = "partition-id",
) -> Mod:  # fmt: skip
    """Return a mod of Flower that takes part in secure aggregation for its node.

    Parameters
    ----------
    options: as the server's. identity: file of the client's private key; ``{client}`` in it stands for the client's number.
    register: all clients' public keys, or the file that holds them. key: of ``--node-config``, the client's whole number.
    """

    def endpoint(context: Any) -> SecureEndpoint:
        client = context.node_config.get(key)
        if isinstance(client, bool) or not isinstance(client, int) or client < 0:
            raise ConfigError(f'got {key} = {client!r}; start the node with --node-config "{key}=<whole number>"')

        def load() -> bytes | None:
            return context.state[_STATE]["state"] if _STATE in context.state else None

        def save(state: bytes) -> None:
            context.state[_STATE] = flower().ConfigRecord({"state": state})

        own = read_identity(str(identity).format(client=client))
        return SecureEndpoint(client, own, as_register(register), options, load, save)

    def mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        kind = message.metadata.message_type
        if kind == SECURE:
            answer = endpoint(context).answer(secure_bytes(message.content))
            return flower().Message(flower().RecordDict({RECORD: secure_record(answer)}), reply_to=message)
        if kind.partition(".")[0] != "train":
            return call_next(message, context)
        asked = secure_bytes(message.content)
        if asked is None:
            raise SecureAggregationError("the server asks for an update in the clear; this client sends masked ones only")
        wanted = str(message.content[RECORD].get("wanted", "")).split(",")
        sent = arrays_of(next(iter(message.content.array_records.values())))
        reply = call_next(message, context)
        return reply if reply.has_error() else _masked(reply, message, sent, endpoint(context), asked, wanted)

    return mod


def _masked(reply: Any, message: Any, sent: Mapping[str, Any], at: SecureEndpoint, asked: object, wanted: list[str]) -> Any:
    """Return the app's reply with a masked update in place of its model, and no metric that is not wanted."""
    trained = arrays_of(next(iter(reply.content.array_records.values())))
    metrics: Mapping[str, Any] = next(iter(reply.content.metric_records.values()), {})
    vector = difference(trained, sent)
    weight = int(metrics.get(EXAMPLES, 1))
    app = flower()
    content = {RECORD: secure_record(at.masked(asked, vector, weight))}
    told = {name: metrics[name] for name in wanted if name in metrics}
    return app.Message(app.RecordDict({**content, "metrics": app.MetricRecord(told)}), reply_to=message)


def difference(trained: Mapping[str, Any], sent: Mapping[str, Any]) -> Any:
    """Return the change of all floating arrays as one vector, float64 ``[n]``, in the order of the model that was sent.

    Raises
    ------
    ConfigError: the arrays are not those of the model that was sent.
    """
    other = [name for name in sent if name not in trained or trained[name].shape != sent[name].shape]
    if other or len(trained) != len(sent):
        raise ConfigError(f"the app's reply has other arrays than the model sent: {', '.join([*other, *trained][:3])}")
    parts = [trained[k].astype(np.float64) - sent[k].astype(np.float64) for k in sent if sent[k].dtype.kind == "f"]
    return np.concatenate([part.ravel() for part in parts])
