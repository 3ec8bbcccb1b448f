"""The client app's side of secure aggregation with a strategy: it masks what the app trained.

    options, key = SecureOptions(clip=0.1), "/etc/motley/client.key"
    masked = MaskedUpdates(options, key, "/etc/motley/register.json", "/srv/client")
    app = ClientApp(mods=[masked.mod])
    app.query("motley_secure")(masked.answer)

The app itself stays as it is: it answers ``train`` with its model and metrics. What leaves the node
is the masked difference to the model that was sent, and the metrics that the selector wants. A
request to train without secure aggregation is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, SecureAggregationError
from motley.core.files import private_files
from motley_flower.client_failures import text_stays
from motley_flower.messages import flower
from motley_flower.node_config import client_of_node
from motley_flower.node_registry import EXAMPLES
from motley_flower.secure_messages import (
    RECORD,
    missing_extra,
    refuse_single,
    secure_bytes,
    secure_record,
    secure_run,
)
from motley_flower.strategy.reply_signals import arrays_of

try:
    from motley_flower.secure.endpoint import AGREEMENTS, SecureEndpoint
    from motley_flower.secure.keyfiles import as_register, read_identity
    from motley_flower.secure.terms import SecureOptions
except ModuleNotFoundError as missing:
    raise missing_extra(missing) from None


class MaskedUpdates:
    """Takes part in secure aggregation for a node.

    Parameters
    ----------
    options: as the server's.
    identity: file of the client's private key; ``{client}`` in it stands for the client's number.
    register: all clients' public keys, or the file that holds them.
    folder: for what the client must not forget: which message it has answered, and what it agreed
    on; one subfolder for every run.
    key: of ``--node-config``, the client's whole number.
    cap: rounds that the client takes part in at most, in all runs with this register; None: all.
    agreements: on draws that it takes part in at most, likewise.
    """

    def __init__(
        self,
        options: SecureOptions,
        identity: str | os.PathLike[str],
        register: Mapping[int, bytes] | str | os.PathLike[str],
        folder: str | os.PathLike[str],
        key: str = "partition-id",
        cap: int | None = None,
        agreements: int = AGREEMENTS,
    ) -> None:
        self.options = options
        self.identity = str(identity)
        self.register = register
        self.key = key
        self.folder = Path(folder)
        self.cap = cap
        self.agreements = agreements

    def answer(self, message: Any, context: Any) -> Any:
        """Answer a step before or after training; the app's function for
        ``@app.query("motley_secure")``."""
        with text_stays(), private_files():
            answer = self._endpoint(message, context).answer(secure_bytes(message.content))
        return flower().Message(
            flower().RecordDict({RECORD: secure_record(answer)}), reply_to=message
        )

    def mod(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        """Let the app train and mask its update; a mod of Flower for the whole app, which leaves
        other messages alone. It raises the names of what is raised, as
        :func:`~motley_flower.client_failures.text_stays`: ``SecureAggregationError`` where the
        server asks for an update in the clear, or sends what it must not."""
        with text_stays():
            return self._answered(message, context, call_next)

    def _answered(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        """Return the reply to a message; raises SecureAggregationError, as :meth:`mod` says."""
        refuse_single(_asked(message))
        if message.metadata.message_type.partition(".")[0] != "train":
            return call_next(message, context)
        request = secure_bytes(message.content)
        if request is None:
            raise SecureAggregationError(
                "the server asks for an update in the clear; this client sends masked ones only"
            )
        wanted = str(message.content[RECORD].get("wanted", "")).split(",")
        sent = arrays_of(next(iter(message.content.array_records.values())))
        reply = call_next(message, context)
        with private_files():
            if reply.has_error():
                return reply
            return _masked(
                reply=reply,
                message=message,
                sent=sent,
                at=self._endpoint(message, context),
                request=request,
                wanted=wanted,
            )

    def _endpoint(self, message: Any, context: Any) -> SecureEndpoint:
        client = client_of_node(context.node_config, self.key)
        own = read_identity(self.identity.format(client=client))
        register = as_register(self.register)
        run = secure_run(message.content)
        return SecureEndpoint(
            folder=self.folder,
            run=run,
            client=client,
            identity=own,
            register=register,
            options=self.options,
            cap=self.cap,
            agreements=self.agreements,
        )


def _asked(message: Any) -> list[str]:
    """Return the signals that a server asks for, before a choice or with an update."""
    names: list[str] = []
    for record in message.content.config_records.values():
        for key in ("signals", "wanted"):
            value = record.get(key, [])
            names += value.split(",") if isinstance(value, str) else map(str, value)
    return names


def _masked(
    reply: Any,
    message: Any,
    sent: Mapping[str, Any],
    at: SecureEndpoint,
    request: object,
    wanted: list[str],
) -> Any:
    """Return the app's reply with a masked update in place of its model, and no metric that is not
    wanted."""
    trained = arrays_of(next(iter(reply.content.array_records.values())))
    metrics: Mapping[str, Any] = next(iter(reply.content.metric_records.values()), {})
    vector = difference(trained, sent)
    weight = int(metrics.get(EXAMPLES, 1))
    app = flower()
    content = {RECORD: secure_record(at.masked(request, vector, weight))}
    reported = {name: metrics[name] for name in wanted if name in metrics}
    return app.Message(
        app.RecordDict({**content, "metrics": app.MetricRecord(reported)}), reply_to=message
    )


def difference(trained: Mapping[str, Any], sent: Mapping[str, Any]) -> Any:
    """Return the change of all floating arrays as one vector, float64 ``[n]``, in the order of the
    model that was sent.

    Raises
    ------
    ConfigError: the arrays are not those of the model that was sent.
    """
    differing = [
        name for name in sent if name not in trained or trained[name].shape != sent[name].shape
    ]
    if differing or len(trained) != len(sent):
        raise ConfigError(
            "the app's reply has other arrays than the model sent: "
            f"{', '.join([*differing, *trained][:3])}"
        )
    parts = [
        trained[k].astype(np.float64) - sent[k].astype(np.float64)
        for k in sent
        if sent[k].dtype.kind == "f"
    ]
    return np.concatenate([part.ravel() for part in parts])
